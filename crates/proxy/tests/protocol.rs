//! What the proxy says about protocols and versions: clients of the binary protocol are refused, and `version` is that of the servers.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod common;

use common::{Proxy, servers, until};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use testkit::Client;

/// A request of the binary protocol: a header with this opcode and opaque, and a key.
fn binary_request(opcode: u8, opaque: [u8; 4]) -> Vec<u8> {
    [&[0x80, opcode, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1][..], &opaque[..], &[0; 8], b"k"].concat()
}

/// The response with which the proxy refuses it.
fn refusal(opcode: u8, opaque: [u8; 4]) -> Vec<u8> {
    let text = b"the binary protocol is not supported; configure the client for the text protocol";
    [&[0x81, opcode, 0, 0, 0, 0, 0, 0x83, 0, 0, 0, text.len() as u8][..], &opaque[..], &[0; 8], text].concat()
}

#[test]
fn a_client_of_the_binary_protocol_is_refused_in_it_and_counted() {
    let proxy = Proxy::before(servers(1), |config| (config.loops, config.metrics) = (1, Some("127.0.0.1:0".into())));
    // A get, a quiet set, the authentication, and `version`; at once, and in pieces.
    let opcodes = [0x00, 0x11, 0x20, 0x0b];
    for (index, opcode) in opcodes.into_iter().enumerate() {
        let opaque = [1, 2, 3, index as u8];
        let mut client = proxy.client();
        if index % 2 == 0 {
            client.send([binary_request(opcode, opaque), binary_request(0x07, opaque)].concat());
        } else {
            let request = binary_request(opcode, opaque);
            client.send(&request[..23]);
            client.expect_silence();
            client.trickle(&request[23..]);
        }
        client.expect(refusal(opcode, opaque));
        client.expect_closed();
    }
    assert!(proxy.metrics().contains("\nwaystage_clients_refused_binary_total 4\n"));
}

#[test]
fn only_the_first_byte_of_a_connection_chooses_the_protocol() {
    let proxy = Proxy::before(servers(1), |config| (config.loops, config.metrics) = (1, Some("127.0.0.1:0".into())));
    let mut client = proxy.client();
    client.ask("mn\r\n", "MN\r\n");
    let line = [&binary_request(0, [0; 4])[..], b"\r\n"].concat();
    client.ask(line, "ERROR\r\n");
    client.ask("get k\r\n", "END\r\n");
    assert!(proxy.metrics().contains("\nwaystage_clients_refused_binary_total 0\n"));
}

/// A server that replies to every line with its version.
fn server_of_version(version: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let lines = BufReader::new(stream.try_clone().unwrap()).lines();
                for _ in lines.map_while(Result::ok) {
                    let _ = stream.write_all(format!("VERSION {version}\r\n").as_bytes());
                }
            });
        }
    });
    address
}

fn version(client: &mut Client) -> String {
    client.send("version\r\n");
    client.line()
}

#[test]
fn the_version_is_the_lowest_of_the_servers() {
    for (versions, expected) in [
        (&["1.6.40", "1.6.9"][..], "1.6.9"),
        (&["1.4.5_4_gaa7839e", "1.6.9"][..], "1.4.5"),
        (&["2.0.1-waystage-0.1.0", "of my own"][..], "2.0.1"),
        (&["of my own"][..], "1.6.0"),
    ] {
        let addresses: Vec<SocketAddr> = versions.iter().map(|version| server_of_version(version)).collect();
        let proxy = Proxy::at(&addresses, |config| config.loops = 1);
        let mut client = proxy.client();
        let line = format!("VERSION {expected}\r\n");
        until(&line, || version(&mut client) == line);
        let stats = proxy.stats();
        assert!(stats.contains(&format!("STAT version {expected}\r\n")), "{stats}");
        assert!(stats.contains(concat!("STAT waystage_version ", env!("CARGO_PKG_VERSION"), "\r\n")), "{stats}");
    }
}

#[test]
fn the_version_is_a_guess_until_a_server_has_answered() {
    // Nothing listens on this port any more.
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let proxy = Proxy::at(&[nobody], |config| config.loops = 1);
    assert_eq!(version(&mut proxy.client()), "VERSION 1.6.0\r\n");
}
