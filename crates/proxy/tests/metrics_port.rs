//! Clients of the metrics port cannot stop the proxy: half-sent scrapes, unread replies, too many connections. A file of its
//! own, because it counts the threads and descriptors of the whole process.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod common;

use clock::Clock;
use common::{Proxy, until};
use proxy::Config;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::channel;
use std::time::Duration;
use testkit::Server;

/// How long a scrape, a reload or a stop may take, whatever the other clients do.
const AT_ONCE: Duration = Duration::from_secs(20);
/// The configured time limit.
const LIMIT: Duration = Duration::from_secs(5);
/// The configured number of connections.
const CONNECTIONS: usize = 16;

fn entries(folder: &str) -> usize {
    std::fs::read_dir(folder).unwrap().count()
}

fn threads() -> usize {
    entries("/proc/self/task")
}

fn descriptors() -> usize {
    entries("/proc/self/fd")
}

/// The result of the work, which must end in time.
fn at_once<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = channel();
    std::thread::spawn(move || sender.send(work()));
    receiver.recv_timeout(AT_ONCE).unwrap_or_else(|_| panic!("not in time: {what}"))
}

fn scrape(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(AT_ONCE)).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: proxy\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("a whole reply, then the end");
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.contains("\nwaystage_loops 1\n"), "{text}");
    text
}

fn config(server: &Server) -> Config {
    let mut config = Config::new("127.0.0.1:0", &[server.address().to_string()]);
    (config.loops, config.metrics) = (1, Some("127.0.0.1:0".into()));
    (config.operations.metrics_timeout, config.operations.metrics_connections) = (LIMIT, CONNECTIONS);
    config
}

fn closed(page: &str, reason: &str) -> u64 {
    let line = format!("waystage_metrics_connections_closed_total{{reason=\"{reason}\"}} ");
    page.lines().find_map(|other| other.strip_prefix(&line)).expect("the counter is shown").parse().unwrap()
}

#[test]
fn clients_of_the_metrics_port_cannot_stop_the_proxy() {
    let server = Server::embedded();
    let mut running = proxy::start(config(&server), Clock::monotonic()).unwrap();
    let address = running.metrics_address.unwrap();
    scrape(address);
    let (threads_before, descriptors_before) = (threads(), descriptors());

    // Scrapes that are never read.
    let mut unread = TcpStream::connect(address).unwrap();
    unread.write_all("GET /metrics HTTP/1.1\r\nHost: proxy\r\n\r\n".repeat(400).as_bytes()).unwrap();
    at_once("a scrape beside one that is not read", move || scrape(address));

    // Scrapes that are never sent completely. The last connections displace the first ones.
    let half: Vec<TcpStream> = (0..300)
        .map(|_| {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(b"GET /metrics HTTP/1.1\r\nHost:").unwrap();
            stream
        })
        .collect();
    let page = at_once("a scrape beside half-sent ones", move || scrape(address));
    assert!(closed(&page, "limit") >= 300 - CONNECTIONS as u64, "{page}");
    // The threads of this test are listed for a moment after they have ended.
    until("no connection has a thread", || threads() <= threads_before);
    let open = descriptors() - descriptors_before - half.len() - 1;
    assert!(open <= CONNECTIONS, "{open} connections are open");
    until("half-sent scrapes time out", || closed(&scrape(address), "timeout") >= CONNECTIONS as u64 - 2);

    // A request without an end.
    let mut endless = TcpStream::connect(address).unwrap();
    endless.set_write_timeout(Some(AT_ONCE)).unwrap();
    while endless.write_all(&[b'x'; 4096]).is_ok() {}
    assert_eq!(closed(&scrape(address), "size"), 1);

    // Neither a reload nor the end waits for them.
    let many = || -> Vec<TcpStream> {
        (0..CONNECTIONS / 2)
            .map(|number| {
                let mut stream = TcpStream::connect(address).unwrap();
                let end = if number % 2 == 0 { "\r\n" } else { "" };
                write!(stream, "GET /metrics HTTP/1.1\r\n{end}").unwrap();
                stream
            })
            .collect()
    };
    let hanging = many();
    let mut again = config(&server);
    again.metrics = Some(address.to_string());
    let new = at_once("a reload", move || {
        let new = running.reload(again).unwrap();
        running.wait_for_clients(|| false);
        running.stop().unwrap();
        new
    });
    drop(hanging);
    let hanging = many();
    scrape(address);
    at_once("the end", move || drop(Proxy::of(new)));
    drop((hanging, half, unread));
}
