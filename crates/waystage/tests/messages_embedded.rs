//! `waystage messages --embedded`: its PostgreSQL accepts the connections of all lanes, also on data that exist already. A second service in
//! the same directory is refused if there is no room for its lanes. A PostgreSQL that ends is started again, and one that hangs does not keep
//! the service from stopping.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use clock::Clock;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;
use tempfile::TempDir;
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
    /// What it writes to standard error.
    log: PathBuf,
}

impl Service {
    fn start(folder: &Path, lanes: usize) -> Service {
        let log = folder.join(format!("{}.log", std::fs::read_dir(folder).unwrap().count()));
        let stderr = std::fs::File::create(&log).unwrap();
        let mut child = command(folder, lanes).stdout(Stdio::piped()).stderr(stderr).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.split(' ').nth(4).unwrap_or_else(|| panic!("not ready: {line:?}")).parse().unwrap();
        Service { child, address, log }
    }

    /// The lanes that have a connection, with `lists` and `keyed`.
    fn connected_lanes(&self) -> usize {
        let mut http = Http::connect(self.address).unwrap();
        let page = http.request("GET", "/metrics", &[], b"").unwrap().text();
        page.lines()
            .filter(|line| line.starts_with("waystage_messages_lane_connections{") && line.ends_with(" 1"))
            .count()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    fn logs(&self, text: &str) {
        eventually(text, || self.log().contains(text));
    }

    fn signal(&self, name: &str) {
        signal(self.child.id(), name);
    }

    /// The status and the body of a reply other than 503, which a service gives until it notices that PostgreSQL runs again.
    fn request(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let mut last = (0, String::new());
        eventually(path, || {
            let mut http = Http::connect(self.address).unwrap();
            let reply = http.request(method, path, &["waystage-sender: alice"], body.as_bytes()).unwrap();
            last = (reply.status, reply.text());
            last.0 != 503
        });
        last
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

fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..6000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("never: {what}");
}

fn signal(process: u32, name: &str) {
    // A process that has ended needs none.
    let _ = Command::new("kill").args([name, &process.to_string()]).stderr(Stdio::null()).status();
}

/// The number of PostgreSQL's process.
fn postgresql(folder: &Path) -> Option<u32> {
    let text = std::fs::read_to_string(folder.join(".waystage/postgres/data/postmaster.pid")).ok()?;
    text.lines().next()?.trim().parse().ok()
}

/// Waits for another PostgreSQL than this one.
fn another_postgresql(folder: &Path, old: u32) -> u32 {
    eventually("another PostgreSQL", || postgresql(folder).is_some_and(|process| process != old));
    postgresql(folder).unwrap()
}

/// Ends PostgreSQL as the kernel does that has no memory left. Returns the number of its process.
fn kill_postgresql(folder: &Path) -> u32 {
    let old = postgresql(folder).unwrap();
    signal(old, "-KILL");
    old
}

impl Drop for Service {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.signal("-TERM");
            let _ = self.child.wait();
        }
    }
}

/// A directory in which a private PostgreSQL has created its data. None if PostgreSQL is not installed.
fn folder_with_data() -> Option<TempDir> {
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

/// The exit code and the line of a service that does not start.
fn refusal(folder: &Path, lanes: usize) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = command(folder, lanes).output().unwrap();
    let line = String::from_utf8_lossy(&stderr).trim_end().to_string();
    assert!(!line.contains('\n'), "{line}");
    (status.code(), line)
}

#[test]
fn the_private_postgresql_accepts_the_connections_of_all_lanes() {
    let Some(folder) = folder_with_data() else { return };
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

#[test]
fn a_private_postgresql_that_ends_is_started_again_with_all_messages() {
    let Some(folder) = folder_with_data() else { return };
    let folder = folder.path();
    let (first, second) = (Service::start(folder, 2), Service::start(folder, 2));
    assert_eq!(first.request("PUT", "/v1/queues/q", "").0, 201);
    for body in ["one", "two"] {
        assert_eq!(first.request("POST", "/v1/queues/q/messages", body).0, 201);
        let old = kill_postgresql(folder);
        another_postgresql(folder, old);
        first.becomes_ready(2);
        second.becomes_ready(2);
        let pop = second.request("POST", "/v1/queues/q/messages:pop", "");
        assert_eq!((pop.0, pop.1.as_str()), (200, body), "{}", first.log());
    }
    assert!(first.log().contains("its PostgreSQL ended (signal: 9 (SIGKILL)"), "{}", first.log());
    first.logs("its PostgreSQL runs again");
}

#[test]
fn a_service_takes_over_the_postgresql_of_a_service_that_ended() {
    let Some(folder) = folder_with_data() else { return };
    let folder = folder.path();
    let (first, second) = (Service::start(folder, MANY), Service::start(folder, 2));
    let mut old = postgresql(folder).unwrap();
    assert_eq!(second.request("PUT", "/v1/queues/q", "").0, 201);
    assert_eq!(second.request("POST", "/v1/queues/q/messages", "one").0, 201);
    drop(first);
    old = another_postgresql(folder, old);
    second.becomes_ready(2);
    // There is room for as many connections as before, which other services may need.
    let third = Service::start(folder, MANY);
    third.becomes_ready(MANY);
    // A service that is killed leaves its PostgreSQL running.
    second.signal("-KILL");
    another_postgresql(folder, old);
    third.becomes_ready(MANY);
    assert_eq!(third.request("POST", "/v1/queues/q/messages:pop", ""), (200, "one".into()), "{}", third.log());
    assert!(third.log().contains("this service runs it from now on"), "{}", third.log());
}

/// All processes of a PostgreSQL, stopped as by a disk that hangs. They go on when it is dropped.
struct Frozen(Vec<u32>);

impl Frozen {
    fn freeze(server: u32) -> Frozen {
        let list = Command::new("ps").args(["--ppid", &server.to_string(), "-o", "pid="]).output().unwrap();
        let children = String::from_utf8_lossy(&list.stdout);
        let children = children.split_whitespace().map(|number| number.parse().unwrap());
        let processes: Vec<u32> = [server].into_iter().chain(children).collect();
        processes.iter().for_each(|process| signal(*process, "-STOP"));
        Frozen(processes)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.0.iter().for_each(|process| signal(*process, "-CONT"));
    }
}

#[test]
fn a_service_stops_although_its_postgresql_hangs() {
    let Some(folder) = folder_with_data() else { return };
    let folder = folder.path();
    for further_signals in [false, true] {
        let mut service = Service::start(folder, 2);
        service.becomes_ready(2);
        let server = postgresql(folder).unwrap();
        let frozen = Frozen::freeze(server);
        service.signal("-TERM");
        service.logs("waiting for its PostgreSQL");
        if further_signals {
            service.signal("-TERM");
            service.logs("another signal arrived: its PostgreSQL must stop immediately");
            service.signal("-INT");
        }
        let mut status = None;
        eventually("the service ends", || {
            status = service.child.try_wait().unwrap();
            status.is_some()
        });
        drop(frozen);
        let log = service.log();
        assert_eq!(status.unwrap().code(), Some(0), "{log}");
        assert_eq!(log.contains("did not stop within 10 s: it must stop immediately"), !further_signals, "{log}");
        assert!(log.contains(&format!("its PostgreSQL (process {server}) has not stopped and is left alone")), "{log}");
    }
    // The next service finds the data in order.
    let service = Service::start(folder, 2);
    service.becomes_ready(2);
}

#[test]
fn a_request_that_hangs_holds_up_a_stop_for_the_shutdown_timeout_once() {
    let Some(folder) = folder_with_data() else { return };
    let folder = folder.path();
    let service = Service::start(folder, 2);
    service.becomes_ready(2);
    assert_eq!(service.request("PUT", "/v1/queues/q", "").0, 201);
    let frozen = Frozen::freeze(postgresql(folder).unwrap());
    let mut stream = TcpStream::connect(service.address).unwrap();
    let head = "POST /v1/queues/q/messages HTTP/1.1\r\nhost: localhost\r\nwaystage-sender: alice\r\ncontent-length: 1\r\n\
                expect: 100-continue\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let mut received = [0; 12];
    stream.read_exact(&mut received).unwrap();
    assert_eq!(&received, b"HTTP/1.1 100", "the request is in progress");
    stream.write_all(b"x").unwrap();
    let clock = Clock::monotonic();
    let began = clock.now();
    service.signal("-TERM");
    // The end of the connection, in order or by a reset.
    let _ = stream.read_to_end(&mut Vec::new());
    let took = clock.now().after(began);
    drop(frozen);
    // The default of `shutdown-timeout` is 10 s.
    assert!((9..19).contains(&took.as_secs()), "{took:?}");
}
