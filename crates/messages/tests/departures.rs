//! Clients that leave while their request is in progress: no message is handed out to them afterwards.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::leases::{counts, make};
use common::{Client, Database, serve};
use messages::{Config, DispatchConfig};
use rustix::net::sockopt::set_socket_linger;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

/// How a client leaves.
#[derive(Clone, Copy, Debug)]
enum Departure {
    /// It closes its side of the connection in order.
    Fin,
    /// It resets the connection.
    Reset,
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

fn request(path: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n")
}

/// The number of batches that have been sent to the database.
fn batches(client: &mut Client) -> u64 {
    let text = client.short("GET", "/metrics").1;
    let line = text.lines().find_map(|line| line.strip_prefix("waystage_messages_batches_total "));
    line.unwrap().parse().unwrap()
}

fn wait_for_polls(client: &mut Client, polls: usize) {
    for _ in 0..6000 {
        if client.short("GET", "/metrics").1.contains(&format!("waystage_messages_long_polls {polls}\n")) {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("there are not {polls} polls");
}

#[test]
fn a_poll_whose_client_has_left_takes_no_message() {
    let Some(database) = Database::start() else { return };
    for dispatch in [DispatchConfig::Fused { lanes: 2 }, DispatchConfig::Pool { connections: 4 }] {
        let running = serve(&Config { dispatch, ..database.config() });
        let address = running.address();
        let mut client = Client::connect(address, "alice");
        make(&mut client, "jobs", "");
        for verb in ["pop", "receive"] {
            // The bytes after the request stay in a buffer until the request has been answered.
            for more in ["", "\r\n", "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"] {
                for departure in [Departure::Fin, Departure::Reset] {
                    let mut stream = connect(address);
                    let poll = request(&format!("/v1/queues/jobs/messages:{verb}?wait=60s&for=bob")) + more;
                    let before = batches(&mut client);
                    stream.write_all(poll.as_bytes()).unwrap();
                    wait_for_polls(&mut client, 1);
                    // Its first statement may take a message until it has ended.
                    while batches(&mut client) == before {
                        std::thread::sleep(Duration::from_millis(10));
                    }
                    std::thread::sleep(Duration::from_millis(300));
                    if let Departure::Reset = departure {
                        set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
                    }
                    drop(stream);
                    client.send("/v1/queues/jobs/messages?to=bob", "for those who stay");
                    // The poll ends long before its time.
                    wait_for_polls(&mut client, 0);
                    let found = client.short("POST", "/v1/queues/jobs/messages:pop?for=bob");
                    assert_eq!(found.0, 200, "{dispatch:?} {verb} {more:?} {departure:?}");
                }
            }
        }
        client.short("DELETE", "/v1/queues/jobs");
        running.stop().unwrap();
    }
}

#[test]
fn what_a_half_closed_connection_takes_is_answered() {
    const MESSAGES: i64 = 40;
    let Some(database) = Database::start() else { return };
    let running = serve(&database.config());
    let address = running.address();
    let mut client = Client::connect(address, "alice");
    make(&mut client, "jobs", "");
    for _ in 0..MESSAGES {
        client.send("/v1/queues/jobs/messages", "work");
    }
    let mut answered = 0;
    for _ in 0..MESSAGES {
        let mut stream = connect(address);
        stream.write_all(request("/v1/queues/jobs/messages:pop").as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        match reply.get(9..12) {
            Some("200") => answered += 1,
            Some("499") => assert!(reply.contains("urn:waystage:problem:client-closed"), "{reply}"),
            _ => panic!("{reply:?}"),
        }
    }
    assert_eq!(counts(&mut client, "jobs"), (MESSAGES - answered, 0), "{answered} were answered");
    // Requests that take nothing are answered in any case.
    let mut stream = connect(address);
    stream
        .write_all(request("/v1/queues/jobs/messages").replace("host: ", "waystage-sender: a\r\nhost: ").as_bytes())
        .unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    assert!(reply.starts_with("HTTP/1.1 201"), "{reply}");
    running.stop().unwrap();
}
