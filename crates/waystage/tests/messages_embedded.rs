//! `waystage messages --embedded`: its PostgreSQL accepts the connections of all lanes, also on data that exist already. A second service in
//! the same directory is refused if there is no room for its lanes. A server that was killed is started again, and one that does not stop is
//! killed.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;
use testkit::Http;

/// More than the 100 connections that PostgreSQL accepts by default.
const MANY: usize = 120;

fn command(folder: &Path, lanes: usize) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_waystage"));
    let lanes = lanes.to_string();
    command.current_dir(folder).args(["messages", "--embedded", "--listen", "127.0.0.1:0", "--lanes", &lanes]);
    command
}

/// A service that announces that it is ready. It is stopped when it is dropped.
struct Service {
    child: Child,
    address: SocketAddr,
}

impl Service {
    fn start(folder: &Path, lanes: usize) -> Service {
        let mut child = command(folder, lanes).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.split(' ').nth(4).unwrap_or_else(|| panic!("not ready: {line:?}")).parse().unwrap();
        Service { child, address }
    }

    /// The lanes that have a connection, with `lists` and `keyed`.
    fn connected_lanes(&self) -> usize {
        let mut http = Http::connect(self.address).unwrap();
        let page = http.request("GET", "/metrics", &[], b"").unwrap().text();
        page.lines()
            .filter(|line| line.starts_with("waystage_messages_lane_connections{") && line.ends_with(" 1"))
            .count()
    }

    fn is_ready(&self) -> bool {
        Http::connect(self.address).unwrap().request("GET", "/readyz", &[], b"").unwrap().status == 204
    }

    /// Waits until all lanes have a connection and the service is ready.
    fn becomes_ready(&self, lanes: usize) {
        for _ in 0..6000 {
            if self.connected_lanes() == lanes + 2 && self.is_ready() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let mut http = Http::connect(self.address).unwrap();
        let problem = http.request("GET", "/readyz", &[], b"").unwrap().text();
        panic!("{} of {} lanes: {problem}", self.connected_lanes(), lanes + 2);
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        let _ = self.child.wait();
    }
}

/// The exit code and the line of a service that does not start.
fn refusal(folder: &Path, lanes: usize) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = command(folder, lanes).output().unwrap();
    let line = String::from_utf8_lossy(&stderr).trim_end().to_string();
    assert!(!line.contains('\n'), "{line}");
    (status.code(), line)
}

/// Starts and stops the private PostgreSQL once. None if PostgreSQL is not installed.
fn installed() -> Option<tempfile::TempDir> {
    let folder = tempfile::tempdir().unwrap();
    // PostgreSQL's user must be able to enter it, also if the test runs as root.
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    match messages::Embedded::start(&folder.path().join(".waystage/postgres")) {
        Ok(server) => drop(server),
        Err(messages::EmbeddedError::Missing(_)) => {
            testkit::skip_without("PostgreSQL", "postgresql");
            return None;
        }
        Err(error) => panic!("{error}"),
    }
    Some(folder)
}

/// The process of the server, from the file that exists while it runs.
fn server(folder: &Path) -> Option<String> {
    let text = std::fs::read_to_string(folder.join(".waystage/postgres/data/postmaster.pid")).ok()?;
    text.lines().next().map(ToString::to_string)
}

fn signal(name: &str, process: &str) {
    assert!(Command::new("kill").args([name, process]).status().unwrap().success());
}

#[test]
fn a_private_postgresql_that_was_killed_is_started_again() {
    let Some(folder) = installed() else { return };
    let service = Service::start(folder.path(), 2);
    service.becomes_ready(2);
    let ask = |method: &str, path: &str, body: &str| {
        let mut http = Http::connect(service.address).unwrap();
        http.request(method, path, &["waystage-sender: alice"], body.as_bytes()).unwrap()
    };
    assert_eq!(ask("PUT", "/v1/queues/q", "").status, 201);
    assert_eq!(ask("POST", "/v1/queues/q/messages", "kept").status, 201);
    let killed = server(folder.path()).unwrap();
    signal("-KILL", &killed);
    for _ in 0..6000 {
        if server(folder.path()).is_some_and(|process| process != killed) {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    service.becomes_ready(2);
    let popped = ask("POST", "/v1/queues/q/messages:pop", "");
    assert_eq!((popped.status, popped.text().as_str()), (200, "kept"));
    drop(service);
    assert_eq!(server(folder.path()), None, "the server was left");
}

/// As on a disk that hangs. The server cannot stop, so it is killed; its data stay.
#[test]
fn a_private_postgresql_that_does_not_stop_does_not_keep_the_service_from_ending() {
    let Some(folder) = installed() else { return };
    let mut service = Service::start(folder.path(), 1);
    service.becomes_ready(1);
    signal("-STOP", &server(folder.path()).unwrap());
    signal("-TERM", &service.child.id().to_string());
    // It takes 35 s; this machine may be busy.
    for _ in 0..12_000 {
        if let Some(status) = service.child.try_wait().unwrap() {
            assert_eq!(status.code(), Some(0));
            Service::start(folder.path(), 1).becomes_ready(1);
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    signal("-CONT", &server(folder.path()).unwrap());
    panic!("the service has not ended");
}

#[test]
fn the_private_postgresql_accepts_the_connections_of_all_lanes() {
    let Some(folder) = installed() else { return };
    let few = Service::start(folder.path(), 2);
    few.becomes_ready(2);
    // It uses the PostgreSQL of the first one, which accepts PostgreSQL's default number.
    let (code, line) = refusal(folder.path(), MANY);
    assert_eq!(code, Some(1), "{line}");
    assert!(line.contains("max_connections=100, but this service needs 264; use fewer lanes"), "{line}");
    drop(few);
    let many = Service::start(folder.path(), MANY);
    many.becomes_ready(MANY);
    let second = Service::start(folder.path(), 2);
    second.becomes_ready(2);
    drop(second);
    drop(many);
    // What the data are configured for is not lowered.
    let path = folder.path().join(".waystage/postgres/data/postgresql.auto.conf");
    std::fs::write(&path, "max_connections = 300\n").unwrap();
    let few = Service::start(folder.path(), 2);
    let (code, line) = refusal(folder.path(), 150);
    assert!(code == Some(1) && line.contains("max_connections=300, but this service needs 324"), "{line}");
    few.becomes_ready(2);
}
