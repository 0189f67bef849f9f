//! Lookups over real sockets, with a server that answers as the test decides.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use dns::{DnsError, LOOKUP_TIMEOUT, Resolver};
use std::net::{TcpListener, UdpSocket};
use std::time::Duration;
use testkit::{DnsReply, DnsServer};

const NAME: &str = "_memcached._tcp.cache.test";

fn records(targets: &[(u16, &str)]) -> DnsReply {
    DnsReply::Records(targets.iter().map(|&(weight, target)| (0, weight, 11211, target.into())).collect(), 30)
}

fn reason(resolver: &Resolver) -> String {
    let line = resolver.srv(NAME).unwrap_err().to_string();
    assert!(!line.contains('\n'), "{line}");
    line
}

#[test]
fn records_are_returned_with_their_time_to_live() {
    let server = DnsServer::start(records(&[(1, "a.cache.test"), (3, "b.cache.test")]));
    let answer = Resolver::at(server.address()).srv(NAME).unwrap();
    let found: Vec<(u16, u16, &str)> =
        answer.records.iter().map(|record| (record.weight, record.port, record.target.as_str())).collect();
    assert_eq!(found, [(1, 11211, "a.cache.test"), (3, 11211, "b.cache.test")]);
    assert_eq!(answer.time_to_live, Duration::from_secs(30));
    assert_eq!((server.names(), server.over_tcp()), (vec![NAME.to_string()], 0));
}

#[test]
fn a_reply_that_is_too_long_for_a_datagram_comes_over_tcp() {
    let targets: Vec<String> = (0..1000).map(|number| format!("cache-{number}.cache.test")).collect();
    let all: Vec<(u16, &str)> = targets.iter().map(|target| (1, target.as_str())).collect();
    let server = DnsServer::start(records(&all));
    let answer = Resolver::at(server.address()).srv(NAME).unwrap();
    assert_eq!((answer.records.len(), server.over_tcp()), (1000, 1));
    assert_eq!(answer.records[999].target, "cache-999.cache.test");
}

#[test]
fn what_is_no_answer_is_one_line_with_the_server() {
    let server = DnsServer::start(DnsReply::NoName);
    let (address, resolver) = (server.address(), Resolver::at(server.address()));
    assert_eq!(resolver.srv(NAME), Err(DnsError::NoName(address)));
    server.set(records(&[]));
    assert_eq!(resolver.srv(NAME), Err(DnsError::NoRecords(address)));
    let asked = server.names().len();
    assert_eq!(asked, 2, "these answers are final");
    for (reply, expected) in [
        (DnsReply::Failure, "the server failed (SERVFAIL)"),
        (DnsReply::Bytes(b"\x81\x80garbage that is long enough".to_vec()), "sent bytes that are not a valid reply"),
        (DnsReply::Bytes(Vec::new()), "sent bytes that are not a valid reply"),
        (DnsReply::CutOff, "closed the connection before the end of its reply"),
        (DnsReply::Silence, "no reply in time"),
    ] {
        server.set(reply.clone());
        assert_eq!(reason(&resolver), format!("{address}: {expected}"), "{reply:?}");
    }
    // Each of these was asked for twice, because the next answer can be a better one.
    assert_eq!(server.names().len(), asked + 10);
    assert_eq!(resolver.srv(&"a".repeat(70)), Err(DnsError::Name));
}

#[test]
fn a_server_that_recovers_is_asked_again() {
    let server = DnsServer::start(DnsReply::Failure);
    let resolver = Resolver::at(server.address());
    assert!(resolver.srv(NAME).is_err());
    server.set(records(&[(1, "a.cache.test")]));
    assert_eq!(resolver.srv(NAME).unwrap().records.len(), 1);
}

#[test]
fn a_port_without_a_server_and_a_silent_one_end_in_time() {
    let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    assert_eq!(reason(&Resolver::at(free)), format!("{free}: no DNS server listens there"));
    // It answers over UDP that the reply is cut off, and accepts connections without a byte.
    let (udp, _tcp) = loop {
        // Another program may have this port for TCP.
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        if let Ok(tcp) = TcpListener::bind(udp.local_addr().unwrap()) {
            break (udp, tcp);
        }
    };
    let address = udp.local_addr().unwrap();
    let truncates = std::thread::spawn(move || {
        udp.set_read_timeout(Some(LOOKUP_TIMEOUT * 3)).unwrap();
        let mut buffer = [0; 512];
        for _ in 0..2 {
            let Ok((length, client)) = udp.recv_from(&mut buffer) else { return };
            buffer[2] |= 0x82;
            udp.send_to(&buffer[..length], client).unwrap();
        }
    });
    assert_eq!(reason(&Resolver::at(address)), format!("{address}: no reply in time"));
    truncates.join().unwrap();
}
