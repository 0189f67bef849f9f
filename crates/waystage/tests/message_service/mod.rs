//! A service and a PostgreSQL as processes, which can be killed, and a client that survives it.

#![allow(dead_code, unreachable_pub, reason = "no test needs all of it")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use messages::{Embedded, EmbeddedError};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use testkit::{Http, HttpReply};

/// A private PostgreSQL, or none if it is not installed. If `WAYSTAGE_REQUIRE_PEERS` is set, it must be installed.
pub fn postgres(directory: &Path) -> Option<Embedded> {
    match Embedded::start_with(directory, &["shared_buffers=16MB"]) {
        Ok(postgres) => Some(postgres),
        Err(EmbeddedError::Missing(_)) => {
            testkit::skip_without("PostgreSQL", "postgresql");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// The service as a process.
pub struct Service {
    child: Child,
    pub address: SocketAddr,
}

impl Service {
    /// Starts it with these further arguments, and waits until it is ready.
    pub fn start(database: &str, listen: &str, arguments: &[&str]) -> Service {
        let mut command = Command::new(env!("CARGO_BIN_EXE_waystage"));
        command.args(["messages", "--database", database, "--listen", listen]).args(arguments);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.split(' ').nth(4).unwrap_or_else(|| panic!("not ready: {line:?}")).parse().unwrap();
        Service { child, address }
    }

    /// Kills it at once.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // A test that failed leaves it running otherwise.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The outcome of an attempt.
pub enum Heard {
    Reply(HttpReply),
    /// No service accepted the connection.
    NotAsked,
    /// The request was sent, and no reply arrived.
    Doubt,
}

/// A client that connects again when the service has been killed.
pub struct Patient {
    pub address: SocketAddr,
    pub http: Option<Http>,
}

impl Patient {
    /// One attempt.
    pub fn ask(&mut self, path: &str, headers: &[&str], body: &str) -> Heard {
        if self.http.is_none() {
            self.http = Http::connect(self.address).ok();
        }
        let Some(http) = &mut self.http else {
            std::thread::sleep(Duration::from_millis(5));
            return Heard::NotAsked;
        };
        match http.request("POST", path, headers, body.as_bytes()) {
            Ok(reply) if reply.status == 503 && reply.text().contains("problem:in-doubt") => Heard::Doubt,
            Ok(reply) => Heard::Reply(reply),
            Err(_) => {
                self.http = None;
                Heard::Doubt
            }
        }
    }
}

/// Ids in one column.
pub fn ids(database: &str, statement: &str) -> BTreeSet<i64> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(database, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        let rows = client.simple_query(statement).await.unwrap();
        let id = |row: &tokio_postgres::SimpleQueryMessage| match row {
            tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(|text| text.parse().unwrap()),
            _ => None,
        };
        rows.iter().filter_map(id).collect()
    })
}
