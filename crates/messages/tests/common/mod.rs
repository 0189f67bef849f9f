//! A real PostgreSQL and a service in front of it, for one test.

#![allow(dead_code, unreachable_pub, reason = "no test needs all of it")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

pub mod batch;
pub mod leases;
pub mod relay;
pub mod standby;

use clock::Clock;
use messages::{Config, Embedded, EmbeddedError, RunningService};
use std::net::SocketAddr;
use std::time::Duration;
use tempfile::TempDir;
use testkit::{Http, HttpReply};
use tokio_postgres::error::SqlState;

/// A PostgreSQL server that stops with the test, and its directory.
pub struct Database {
    pub server: Embedded,
    folder: TempDir,
}

impl Database {
    /// Starts a server. None if PostgreSQL is not installed, unless `WAYSTAGE_REQUIRE_PEERS` is set.
    pub fn start() -> Option<Database> {
        Database::start_in(tempfile::tempdir().unwrap(), &[])
    }

    /// Starts a server with these settings on the data in this folder, which may be empty.
    pub fn start_in(folder: TempDir, settings: &[&str]) -> Option<Database> {
        let settings = [&["shared_buffers=16MB", "max_connections=60"], settings].concat();
        match Embedded::start_with(folder.path(), &settings) {
            Ok(server) => Some(Database { server, folder }),
            Err(EmbeddedError::Missing(_)) => {
                testkit::skip_without("PostgreSQL", "postgresql");
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// Where its data and its socket are.
    pub fn directory(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// Runs statements without the service. Statements that lock several tables can deadlock with the loops of a service
    /// that runs, and then start again.
    pub fn run(&self, statements: &str) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (client, connection) =
                tokio_postgres::connect(&self.server.url(), tokio_postgres::NoTls).await.unwrap();
            tokio::spawn(connection);
            while let Err(error) = client.batch_execute(statements).await {
                assert_eq!(error.code(), Some(&SqlState::T_R_DEADLOCK_DETECTED), "{error:?}");
            }
        });
    }

    /// The number that a statement returns, without the service.
    pub fn number(&self, statement: &str) -> i64 {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (client, connection) =
                tokio_postgres::connect(&self.server.url(), tokio_postgres::NoTls).await.unwrap();
            tokio::spawn(connection);
            client.query_one(statement, &[]).await.unwrap().get(0)
        })
    }

    /// Waits until this statement returns 0.
    pub fn becomes_zero(&self, statement: &str) {
        for _ in 0..3000 {
            if self.number(statement) == 0 {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("{statement} is still {}", self.number(statement));
    }

    /// The configuration of a service that uses this server.
    pub fn config(&self) -> Config {
        Config { database: self.server.url(), listen: "127.0.0.1:0".into(), ..Config::default() }
    }
}

/// A session of another program at the database, which can hold locks. It ends when it is dropped.
pub struct Session {
    runtime: tokio::runtime::Runtime,
    client: tokio_postgres::Client,
}

impl Session {
    /// Connects.
    pub fn connect(database: &Database) -> Session {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let connected = runtime.block_on(tokio_postgres::connect(&database.server.url(), tokio_postgres::NoTls));
        let (client, connection) = connected.unwrap();
        runtime.spawn(connection);
        Session { runtime, client }
    }

    /// Runs statements.
    pub fn run(&self, statements: &str) {
        self.runtime.block_on(self.client.batch_execute(statements)).unwrap();
    }

    /// The number that a statement returns.
    pub fn number(&self, statement: &str) -> i64 {
        self.runtime.block_on(self.client.query_one(statement, &[])).unwrap().get(0)
    }
}

/// Starts a service in this process.
pub fn serve(config: &Config) -> RunningService {
    messages::start(config, Clock::monotonic()).unwrap()
}

/// One connection to a service, as one sender.
pub struct Client {
    http: Http,
    sender: String,
}

impl Client {
    /// Connects. Its messages have this sender.
    pub fn connect(address: SocketAddr, sender: &str) -> Client {
        Client { http: Http::connect(address).unwrap(), sender: format!("waystage-sender: {sender}") }
    }

    /// Sends a request, which must get some reply.
    pub fn ask(&mut self, method: &str, path: &str, body: &str) -> HttpReply {
        self.http.request(method, path, &[&self.sender], body.as_bytes()).unwrap()
    }

    /// The same with an additional header.
    pub fn ask_with(&mut self, method: &str, path: &str, header: &str, body: &str) -> HttpReply {
        self.http.request(method, path, &[&self.sender, header], body.as_bytes()).unwrap()
    }

    /// Status and body of the reply to a request without a body.
    pub fn short(&mut self, method: &str, path: &str) -> (u16, String) {
        let reply = self.ask(method, path, "");
        (reply.status, reply.text())
    }

    /// Sends a message, and returns its id.
    pub fn send(&mut self, path: &str, body: &str) -> i64 {
        let reply = self.ask("POST", path, body);
        assert_eq!(reply.status, 201, "{}", reply.text());
        let text = reply.text();
        text.trim_start_matches("{\"id\":").trim_end_matches('}').parse().unwrap()
    }
}
