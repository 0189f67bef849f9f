//! Requests with as many parts as a configuration allows: 250 backends, on some of which reads of certain keys are withheld.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod common;

use common::{Proxy, name_servers};
use proxy::{Failover, PartFailure, Writes};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

/// The most backends that a configuration may have.
const BACKENDS: usize = 250;
/// More keys than fit on the backends one by one, so that a multi-get of all of them has a part for each backend.
const KEYS: usize = 3000;

/// What a server does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// It has no values, and stores them.
    Empty,
    /// It has no values, and refuses values and deletions of keys that begin with `bad`.
    Refusing,
    /// It answers every read with an error.
    Failing,
    /// It has a value of every key.
    Full,
}

/// A server with one connection.
fn server(kind: Kind) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || listener.incoming().flatten().for_each(|stream| serve(stream, kind)));
    address
}

fn serve(stream: TcpStream, kind: Kind) {
    stream.set_nodelay(true).unwrap();
    let mut out = stream.try_clone().unwrap();
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    while let Some(line) = lines.next() {
        let is_bad = kind == Kind::Refusing && line.split(' ').nth(1).is_some_and(|key| key.starts_with("bad"));
        let reply = match line.split(' ').next() {
            Some("version") => "VERSION 1.6.0\r\n",
            Some("set") => {
                lines.next();
                if is_bad { "SERVER_ERROR out of memory storing object\r\n" } else { "STORED\r\n" }
            }
            Some("delete") => {
                if is_bad {
                    "SERVER_ERROR out of memory\r\n"
                } else {
                    "NOT_FOUND\r\n"
                }
            }
            _ if kind == Kind::Failing => "SERVER_ERROR out of memory\r\n",
            _ if kind == Kind::Full => &(line.split(' ').skip(1).map(value).collect::<String>() + "END\r\n"),
            _ => "END\r\n",
        };
        if out.write_all(reply.as_bytes()).is_err() {
            return;
        }
    }
}

fn value(key: &str) -> String {
    format!("VALUE {key} 0 1\r\nx\r\n")
}

#[test]
fn a_multi_get_of_more_than_256_parts_is_answered() {
    // Every second server refuses some keys, which then have a pending invalidation there: a multi-get has one part for the
    // withheld keys of that backend, and another one for its other keys.
    let servers: Vec<SocketAddr> =
        (0..BACKENDS).map(|index| server([Kind::Refusing, Kind::Empty][index % 2])).collect();
    for part_failure in [PartFailure::Miss, PartFailure::Partial] {
        let proxy = Proxy::at(&servers, |config| {
            (config.loops, config.part_failure) = (1, part_failure);
            (config.pools[0].replicas, config.pools[0].writes) = (2, Writes::First);
            name_servers(config);
        });
        let mut client = proxy.client();
        for key in 0..200 {
            client.ask(format!("set bad{key} 0 0 1\r\nx\r\n"), "STORED\r\n");
        }
        // Only a few bad keys: the other parts are those of all backends.
        for bad in [5, 6, 20, 200] {
            let bad: String = (0..bad).map(|key| format!(" bad{key}")).collect();
            let keys: String = (0..KEYS).map(|key| format!(" key{key}")).collect();
            client.send(format!("get{keys}{bad}\r\nmn\r\n"));
            let line = client.line();
            let expected = if part_failure == PartFailure::Miss { "END\r\n" } else { "SERVER_ERROR " };
            assert!(line.starts_with(expected), "{line}");
            client.expect("MN\r\n");
        }
    }
}

#[test]
fn a_multi_get_whose_parts_fail_over_to_more_than_256_others_is_answered() {
    // Of the four replicas of each key, only one answers reads: most parts are sent four times.
    let kinds = [Kind::Failing, Kind::Failing, Kind::Failing, Kind::Full];
    let servers: Vec<SocketAddr> = (0..248).map(|index| server(kinds[index % 4])).collect();
    let proxy = Proxy::at(&servers, |config| {
        config.loops = 1;
        (config.pools[0].replicas, config.pools[0].failover) = (4, Failover::OnError);
        name_servers(config);
    });
    let mut client = proxy.client();
    // The proxy requests more keys at once when it has seen how large values are.
    client.ask("get warm\r\n", value("warm") + "END\r\n");
    for _ in 0..3 {
        let keys: Vec<String> = (0..128).map(|key| format!("key{key}")).collect();
        let values: String = keys.iter().map(|key| value(key)).collect();
        client.ask(format!("get {}\r\n", keys.join(" ")), values + "END\r\n");
    }
}
