//! `waystage top --once` of real programs, and of targets that are none: a frame shows what was measured, or why there is nothing.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod message_service;

use message_service::{Service, postgres};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// Requests per second of the load: few, because a busy machine must keep up.
const RATE: f64 = 200.0;

/// A program that ends with this.
struct Program {
    child: Child,
    /// Kept open, because the program prints on.
    _out: Box<dyn BufRead>,
    /// The addresses in its first lines, in order.
    addresses: Vec<String>,
}

impl Program {
    /// Starts it and waits until a line says `ready`.
    fn start(arguments: &[&str]) -> Program {
        let mut command = Command::new(env!("CARGO_BIN_EXE_waystage"));
        let mut child = command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Program::wait(child, Box::new(out), " ready on ")
    }

    /// Starts a load with metrics.
    fn load(arguments: &[&str]) -> Program {
        let mut command = Command::new(env!("CARGO_BIN_EXE_waystage"));
        command.arg("load").args(arguments).args(["--test-time", "600s", "--quiet", "--metrics", "127.0.0.1:0"]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stderr.take().unwrap());
        Program::wait(child, Box::new(out), "metrics at ")
    }

    fn wait(child: Child, mut out: Box<dyn BufRead>, last: &str) -> Program {
        let mut addresses = Vec::new();
        loop {
            let mut line = String::new();
            assert!(out.read_line(&mut line).unwrap() > 0, "ended before {last:?}");
            addresses
                .extend(line.split([' ', '/', '\n']).filter(|word| word.starts_with("127.0.0.1:")).map(String::from));
            if line.contains(last) {
                return Program { child, _out: out, addresses };
            }
        }
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A cache and a proxy in front of it. The proxy's addresses are those of its metrics and of its clients.
fn proxy() -> (Program, Program) {
    let cache = Program::start(&["cache", "--listen", "127.0.0.1:0"]);
    let proxy = Program::start(&[
        "proxy",
        "--server",
        &cache.addresses[0],
        "--listen",
        "127.0.0.1:0",
        "--metrics",
        "127.0.0.1:0",
        "--hot-keys-metrics",
        "--dispatch",
        "per-backend",
    ]);
    (cache, proxy)
}

fn top(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_waystage"));
    command.env_remove("COLUMNS").arg("top").args(arguments).output().unwrap()
}

/// The frame of targets, and whether the exit code is 0.
fn frame(arguments: &[&str]) -> (String, bool) {
    let output = top(&[&["--once"], arguments].concat());
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(error, "");
    (String::from_utf8(output.stdout).unwrap(), output.status.success())
}

/// The number after a name.
fn number(frame: &str, name: &str) -> f64 {
    let rest = frame.split_once(name).unwrap_or_else(|| panic!("no {name}:\n{frame}")).1.trim_start();
    let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == ' ')).unwrap_or(rest.len());
    rest[..end].split("  ").next().unwrap().replace(' ', "").parse().unwrap_or_else(|_| panic!("{name}:\n{frame}"))
}

/// The part of a frame that begins with this.
fn part<'f>(frame: &'f str, title: &str) -> &'f str {
    &frame[frame.find(title).unwrap_or_else(|| panic!("no {title}:\n{frame}"))..]
}

fn is_near(value: f64, expected: f64) -> bool {
    (value - expected).abs() < expected / 4.0
}

fn assert_near(value: f64, expected: f64, frame: &str) {
    assert!(is_near(value, expected), "{value} is not about {expected}:\n{frame}");
}

#[test]
fn the_rates_of_a_proxy_and_of_a_load_are_those_of_the_load() {
    let (cache, proxy) = proxy();
    let [metrics, clients] = [&proxy.addresses[0], &proxy.addresses[1]];
    let rate = RATE.to_string();
    let load = Program::load(&["--server", clients, "--rate", &rate, "--clients", "4", "--key-maximum", "20"]);
    let load_metrics = load.addresses.last().unwrap();
    // The load fills the cache first, as fast as it can. A busy machine may fall behind for a while.
    let rates = |shown: &str| [number(shown, "requests/s"), number(part(shown, "load generator"), "requests/s")];
    let mut shown = String::new();
    for _ in 0..10 {
        let (frame, is_whole) = frame(&[metrics, load_metrics, "--interval", "4s", "--timeout", "20s"]);
        assert!(is_whole, "{frame}");
        shown = frame;
        if rates(&shown).iter().all(|rate| is_near(*rate, RATE)) {
            break;
        }
    }
    let [of_proxy, of_load] = [shown.as_str(), part(&shown, "load generator")];
    assert_near(number(of_proxy, "requests/s"), RATE, &shown);
    assert_near(number(of_load, "requests/s"), RATE, &shown);
    assert_eq!(number(of_load, "offered/s"), RATE, "{shown}");
    assert_near(number(part(of_proxy, &cache.addresses[0]), "up "), RATE, &shown);
    for words in
        ["per-backend", "total time", "stage ", "response time", "service time", "slip", "hot key", "slots busy", "█"]
    {
        assert!(shown.contains(words), "no {words}:\n{shown}");
    }

    // The same proxy twice has the sum of the rates.
    let (sum, _) = frame(&[metrics, &format!("http://{metrics}/metrics?second"), "--sum", "--interval", "4s"]);
    assert!(sum.starts_with("proxy: sum of 2\n"), "{sum}");
    assert_near(number(&sum, "requests/s"), 2.0 * RATE, &sum);
}

#[test]
fn a_message_service_shows_its_operations_and_lanes() {
    let data = tempfile::tempdir().unwrap();
    let Some(postgres) = postgres(data.path()) else { return };
    let service = Service::start(&postgres.url(), "127.0.0.1:0", &["--lanes", "2"]);
    let address = &service.address.to_string();
    let _load =
        Program::load(&["--messages", &format!("http://{address}"), "--rate", "100", "--clients", "2", "--no-verify"]);
    let (shown, is_whole) = frame(&[address, "--interval", "4s", "--timeout", "20s"]);
    assert!(is_whole && shown.starts_with(&format!("message service {address}  0.1.0\n")), "{shown}");
    assert_near(number(&shown, "requests/s"), 100.0, &shown);
    for words in [
        "total time",
        "send ",
        "pop ",
        "stage ",
        "batch size",
        "long polls",
        "lane ",
        "keyed ",
        "background loop",
        "redelivery ",
    ] {
        assert!(shown.contains(words), "no {words}:\n{shown}");
    }
}

/// A server that accepts one connection after the other and treats each as `answer` does.
fn server(answer: impl Fn(std::net::TcpStream) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // The thread ends with the test's process.
    std::thread::spawn(move || listener.incoming().flatten().for_each(answer));
    address
}

fn reply(text: &'static [u8]) -> SocketAddr {
    server(move |mut stream| {
        let mut request = [0; 4096];
        let _ = stream.read(&mut request);
        let _ = stream.write_all(text);
    })
}

#[test]
fn targets_that_are_no_programs_of_ours_are_said_to_be_none() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let endless = server(|mut stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
        while stream.write_all(&[b'a'; 1 << 16]).is_ok() {}
    });
    let drip = server(|mut stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
        while stream.write_all(b"#").is_ok() {
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    for (address, expected) in [
        (closed, "refused"),
        (reply(b"HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n<!DOCTYPE html>"), "line 1 of the page is not a metric"),
        (reply(b"HTTP/1.1 200 OK\r\n\r\n# TYPE up gauge\nup 1\n"), "this is no page of a proxy"),
        (reply(b"HTTP/1.1 200 OK\r\n\r\n"), "the page has no metrics"),
        (reply(b"HTTP/1.1 200 OK\r\n\r\nup{a=\"\xff\"} 1\n"), "not UTF-8"),
        (reply(b"HTTP/1.1 404 Not Found\r\n\r\n"), "status 404"),
        (reply(b"HTTP/1.1 401 Unauthorized\r\n\r\n"), "--token-file"),
        (reply(b"ERROR\r\n"), "not HTTP"),
        (reply(b""), "the reply ended early"),
        (reply(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nup 1\n"), "the reply ended early"),
        (endless, "larger than 32 MiB"),
        (drip, "no complete reply within 1s"),
    ] {
        let limit = if address == drip { "1s" } else { "60s" };
        let (frame, is_whole) = frame(&[&address.to_string(), "--interval", "100ms", "--timeout", limit]);
        assert!(!is_whole && frame.contains(expected), "{expected}:\n{frame}");
    }
}

#[test]
fn a_frozen_proxy_is_silent_and_the_others_are_not() {
    let ((_cache, frozen), (_other, awake)) = (proxy(), proxy());
    frozen.signal("STOP");
    let (shown, is_whole) = frame(&[&frozen.addresses[0], &awake.addresses[0], "--timeout", "10s"]);
    assert!(!is_whole && shown.contains("no complete reply within 10s"), "{shown}");
    assert!(shown.contains(&format!("proxy {}", awake.addresses[0])) && shown.contains("requests/s"), "{shown}");
    frozen.signal("CONT");
    let (shown, is_whole) = frame(&[&frozen.addresses[0], "--timeout", "60s"]);
    assert!(is_whole, "{shown}");
}

#[test]
fn a_token_is_sent() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "secret-1\n").unwrap();
    let address = server(|mut stream| {
        let mut request = vec![0; 4096];
        let length = stream.read(&mut request).unwrap_or(0);
        let is_known = String::from_utf8_lossy(&request[..length]).contains("\r\nAuthorization: Bearer secret-1\r\n");
        let page = "HTTP/1.1 200 OK\r\n\r\nwaystage_messages_build_info{version=\"7\"} 1\n";
        let _ = stream.write_all(if is_known { page.as_bytes() } else { b"HTTP/1.1 403 Forbidden\r\n\r\n" });
    });
    let (shown, is_whole) =
        frame(&[&address.to_string(), "--token-file", file.to_str().unwrap(), "--interval", "100ms"]);
    assert!(is_whole && shown.contains("message service") && shown.contains(" 7\n"), "{shown}");
    let (shown, is_whole) = frame(&[&address.to_string(), "--interval", "100ms"]);
    assert!(!is_whole && shown.contains("--token-file"), "{shown}");
}

#[test]
fn mistakes_are_one_line() {
    for (arguments, code, expected) in [
        (&[][..], 2, "<URL>"),
        (&["https://a:1"], 2, "only http:// is supported"),
        (&["a"], 2, "it has no port"),
        (&["a:1", "--interval", "1ms"], 2, "at least 100ms"),
        (&["a:1", "--timeout", "soon"], 2, "--timeout"),
        (&["a:1", "--token-file", "/nowhere"], 1, "/nowhere"),
    ] {
        let output = top(arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(code), 0), "{error}");
        assert!(error.starts_with("waystage: ") && error.contains(expected) && error.lines().count() == 1, "{error}");
    }
}
