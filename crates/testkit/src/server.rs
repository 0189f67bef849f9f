//! A server behind a proxy: a real memcached if one is installed, the embedded cache otherwise.

use clock::Clock;
use rustix::process::{Pid, Signal, kill_process};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The number of checks, with this pause between them, before a server counts as failed to start.
const TRIES: usize = 3000;
const PAUSE: Duration = Duration::from_millis(10);
const ON_PATH: &str = "memcached is on the PATH";

/// The program that serves.
enum Kind {
    Memcached(Child),
    Embedded(Option<cache::Running>),
}

/// One server, which stops at the end of the test.
pub struct Server {
    address: SocketAddr,
    kind: Kind,
}

/// Prints that a test is skipped because this program is not installed. Panics if `WAYSTAGE_REQUIRE_PEERS` is set, because a skipped test
/// counts as passed.
pub fn skip_without(program: &str, package: &str) {
    assert!(!peers_are_required(), "{program} is required here, and missing");
    eprintln!("SKIPPED: there is no {program} here; apt-get install {package}");
}

fn peers_are_required() -> bool {
    std::env::var_os("WAYSTAGE_REQUIRE_PEERS").is_some()
}

/// Whether memcached is on the PATH. If `WAYSTAGE_REQUIRE_PEERS` is set, it must be.
pub fn memcached_is_here() -> bool {
    let is_here = Command::new("memcached").arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    assert!(is_here || !peers_are_required(), "memcached is required here, and missing");
    is_here
}

impl Server {
    /// A memcached, or the embedded cache if there is none.
    pub fn start() -> Server {
        if memcached_is_here() { Server::memcached() } else { Server::embedded() }
    }

    /// A real memcached on a free port.
    pub fn memcached() -> Server {
        Server::memcached_with(&[])
    }

    /// A real memcached with more arguments. It chooses a free port itself and writes it into a file: a port that the test had
    /// found free could be taken by another process before memcached listens.
    pub fn memcached_with(arguments: &[&str]) -> Server {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("port");
        let mut child = command("-1").args(arguments).env("MEMCACHED_PORT_FILENAME", &path).spawn().expect(ON_PATH);
        for _ in 0..TRIES {
            // The file is renamed to this name when it is complete.
            if let Ok(text) = std::fs::read_to_string(&path) {
                let port =
                    text.trim().strip_prefix("TCP INET: ").expect("the port file names one port").parse().unwrap();
                let mut server = Server { address: ([127, 0, 0, 1], port).into(), kind: Kind::Memcached(child) };
                assert!(server.is_ready(), "memcached does not listen on {}", server.address);
                return server;
            }
            if let Some(status) = child.try_wait().unwrap() {
                panic!("memcached ended at once: {status}");
            }
            std::thread::sleep(PAUSE);
        }
        panic!("memcached did not say where it listens");
    }

    /// The embedded cache, in this process.
    pub fn embedded() -> Server {
        let config = cache::Config { listen: "127.0.0.1:0".into(), ..cache::Config::default() };
        let running = cache::start(&config, Clock::monotonic()).expect("the embedded cache starts");
        Server { address: running.address(), kind: Kind::Embedded(Some(running)) }
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Kills it immediately, as a crash would. Only a real server can be killed.
    pub fn kill(&mut self) {
        let child = self.child();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Restarts a killed server on its port, empty.
    pub fn restart(&mut self) {
        let port = self.address.port().to_string();
        *self.child() = command(&port).spawn().expect(ON_PATH);
        assert!(self.is_ready(), "memcached did not come back on {}", self.address);
    }

    /// Freezes it: the kernel accepts connections, and nothing replies.
    pub fn freeze(&mut self) {
        self.signal(Signal::STOP);
        // Each thread stops when it next runs, which takes a while on a busy machine.
        let tasks = format!("/proc/{}/task", self.child().id());
        let runs = |task: std::io::Result<std::fs::DirEntry>| {
            let status = std::fs::read_to_string(task.unwrap().path().join("stat")).unwrap_or_default();
            !status.contains(") T ")
        };
        while std::fs::read_dir(&tasks).unwrap().any(runs) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Resumes a frozen server.
    pub fn thaw(&mut self) {
        self.signal(Signal::CONT);
    }

    fn child(&mut self) -> &mut Child {
        match &mut self.kind {
            Kind::Memcached(child) => child,
            Kind::Embedded(_) => panic!("only a real server has a process of its own"),
        }
    }

    fn signal(&mut self, signal: Signal) {
        let pid = Pid::from_child(self.child());
        kill_process(pid, signal).unwrap();
    }

    fn is_ready(&mut self) -> bool {
        for _ in 0..TRIES {
            if TcpStream::connect(self.address).is_ok() {
                return true;
            }
            if self.child().try_wait().unwrap().is_some() {
                return false;
            }
            std::thread::sleep(PAUSE);
        }
        false
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        match &mut self.kind {
            Kind::Memcached(child) => {
                // The test may have killed it already.
                let _ = child.kill();
                let _ = child.wait();
            }
            Kind::Embedded(running) => {
                if let Some(running) = running.take() {
                    running.stop();
                    let _ = running.join();
                }
            }
        }
    }
}

/// A memcached on this port of the loopback interface.
fn command(port: &str) -> Command {
    let mut command = Command::new("memcached");
    // memcached refuses to run as root without this flag; for other users it has no effect.
    command.args(["-u", "root", "-U", "0", "-l", "127.0.0.1", "-t", "1", "-m", "64", "-p", port]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}
