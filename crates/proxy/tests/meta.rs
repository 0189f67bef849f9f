//! The meta protocol: memcached, the embedded cache and the proxy return the same replies, for any pipelining, any
//! split of the bytes, and failing servers.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod common;

use common::meta_table::{META_TABLE, STALE_TABLE, long_meta_table};
use common::{Proxy, disciplines, servers};
use proxy::Discipline;
use std::net::SocketAddr;
use testkit::{Client, Scripted, Server, memcached_is_here};

/// The table, with or without the steps on stale values.
fn whole_table(has_stale: bool) -> Vec<(Vec<u8>, Vec<u8>)> {
    let small = META_TABLE.iter().chain(if has_stale { STALE_TABLE } else { &[] });
    let small = small.map(|(send, expect)| (send.as_bytes().to_vec(), expect.as_bytes().to_vec()));
    small.chain(long_meta_table()).collect()
}

/// Runs every step after the reply to the one before, then all steps at once. Stale values are included only if reads run `in_order`.
fn run(address: SocketAddr, subject: &str, in_order: bool) {
    eprintln!("{subject}");
    let mut client = Client::connect(address);
    client.ask("flush_all\r\n", "OK\r\n");
    for (send, expect) in whole_table(true) {
        client.ask(send, expect);
    }
    let (mut all_sent, mut all_expected) = (b"flush_all\r\n".to_vec(), b"OK\r\n".to_vec());
    for (send, expect) in whole_table(in_order) {
        all_sent.extend(send);
        all_expected.extend(expect);
    }
    let mut client = Client::connect(address);
    client.send(all_sent);
    client.expect(all_expected);
    client.send("mg k q\r\nquit\r\nmn\r\n");
    client.expect_closed();
}

/// The servers that are installed.
fn starters() -> Vec<fn() -> Server> {
    if memcached_is_here() { vec![Server::embedded, Server::memcached] } else { vec![Server::embedded] }
}

#[test]
fn both_servers_answer_the_table() {
    for (index, start) in starters().into_iter().enumerate() {
        let server = start();
        run(server.address(), ["the embedded cache", "memcached"][index], true);
    }
}

#[test]
fn the_proxy_answers_the_table() {
    for start in starters() {
        for (backends, replicas, loops) in [(1, 1, 1), (3, 1, 2), (3, 3, 1), (3, 2, 2)] {
            // The smallest possible number of slots, and a larger one.
            let all = [loops, 2 * loops + 1].map(|slots| disciplines(slots, backends == replicas));
            for discipline in all.into_iter().flatten() {
                let servers = (0..backends).map(|_| start()).collect();
                let proxy = Proxy::before(servers, |config| {
                    (config.pools[0].replicas, config.loops, config.discipline) = (replicas, loops, discipline);
                });
                let subject = format!("{replicas} of {backends} in {loops} loops, {discipline:?}");
                run(proxy.address, &subject, discipline == Discipline::Pipelined);
            }
        }
    }
}

#[test]
fn every_split_of_the_bytes_gives_the_same_replies() {
    let split = &|discipline| {
        let proxy = Proxy::before(servers(3), |config| {
            (config.loops, config.pools[0].replicas, config.discipline) = (2, 2, discipline)
        });
        let mut client = proxy.client();
        client.ask("flush_all\r\n", "OK\r\n");
        client.trickle(META_TABLE.iter().map(|(send, _)| *send).collect::<String>());
        client.expect(META_TABLE.iter().map(|(_, expect)| *expect).collect::<String>());
    };
    // Most of the time is spent between two bytes.
    std::thread::scope(|scope| {
        disciplines(4, false).into_iter().for_each(|discipline| _ = scope.spawn(move || split(discipline)))
    });
}

#[test]
fn me_returns_the_primarys_data() {
    let proxy = Proxy::before(servers(3), |config| config.pools[0].replicas = 2);
    let mut client = proxy.client();
    client.ask("ms Zm9v 2 b\r\nhi\r\n", "HD\r\n");
    for command in ["me Zm9v b\r\n", "me foo\r\n", "me foo v\r\n"] {
        client.send(command);
        let line = client.line();
        assert!(line.starts_with("ME Zm9v exp=-1 la=") && line.contains(" fetch=no cls=1 size="), "{line}");
    }
}

/// The values of a key on these servers, read directly.
fn values_on(addresses: &[SocketAddr], key: &str) -> Vec<Option<String>> {
    let ask = |&address: &SocketAddr| {
        let mut direct = Client::connect(address);
        direct.send(format!("mg {key} v\r\n"));
        direct.line().starts_with("VA").then(|| direct.line())
    };
    addresses.iter().map(ask).collect()
}

#[test]
fn writes_reach_every_replica_unless_they_depend_on_the_value() {
    disciplines(3, true).into_iter().for_each(replicas_in);
}

fn replicas_in(discipline: Discipline) {
    let backends = servers(3);
    let addresses: Vec<_> = backends.iter().map(Server::address).collect();
    let proxy = Proxy::at(&addresses, |config| {
        (config.loops, config.pools[0].replicas, config.discipline) = (1, 3, discipline);
    });
    let mut client = proxy.client();
    let stored = |key: &str| values_on(&addresses, key).into_iter().flatten().collect::<Vec<_>>();
    client.ask("ms k 1 MS q\r\n1\r\nmn\r\n", "MN\r\n");
    assert_eq!(stored("k"), ["1\r\n"; 3]);
    client.ask("ms a2s= 1 b\r\n2\r\n", "HD\r\n");
    assert_eq!((stored("kk"), stored("a2s=")), (vec!["2\r\n".to_string(); 3], vec![]));
    for (change, reply, value) in [
        ("ma k q\r\nmn\r\n", "MN\r\n", "2\r\n"),
        ("ms k 1 MA\r\n3\r\n", "HD\r\n", "23\r\n"),
        ("ms k 1 MP\r\n1\r\n", "HD\r\n", "123\r\n"),
        ("ms k 1 MR\r\n7\r\n", "HD\r\n", "7\r\n"),
    ] {
        client.ask(change, reply);
        assert_eq!(stored("k"), [value], "{change}");
        client.ask("mg k v k\r\n", format!("VA {} kk\r\n{value}", value.len() - 2));
        client.ask(format!("ms k {} q\r\n{value}mn\r\n", value.len() - 2), "MN\r\n");
        assert_eq!(stored("k").len(), 3, "{change}");
    }
    // A CAS token belongs to the primary; the other replicas cannot compare it.
    client.send("mg k c\r\n");
    let token = client.line().trim().split_once(" c").unwrap().1.to_string();
    client.ask(format!("ms k 1 C{token} k\r\n8\r\n"), "HD kk\r\n");
    assert_eq!(stored("k"), ["8\r\n"]);
    client.ask("ms k 1 ME\r\n9\r\nms x 1 ME\r\n9\r\n", "NS\r\nHD\r\n");
    assert_eq!(stored("x"), ["9\r\n"]);
    client.ask("ms k 1\r\n8\r\nmd k C18446744073709551615 k\r\n", "HD\r\nEX kk\r\n");
    assert_eq!(stored("k"), ["8\r\n"; 3], "a refused command changes nothing");
    client.ask("ms k 1\r\n8\r\nmd k q\r\nmd k\r\nmn\r\n", "HD\r\nNF\r\nMN\r\n");
    assert_eq!(stored("k"), [""; 0]);
}

#[test]
fn a_delete_that_succeeds_on_any_replica_succeeds() {
    let backends = servers(3);
    let addresses: Vec<_> = backends.iter().map(Server::address).collect();
    let proxy = Proxy::at(&addresses, |config| config.pools[0].replicas = 3);
    let mut client = proxy.client();
    for address in addresses {
        client.ask("ms k 1\r\n8\r\n", "HD\r\n");
        Client::connect(address).ask("md k\r\n", "HD\r\n");
        client.ask("md k O1\r\nmd k O2\r\n", "HD O1\r\nNF O2\r\n");
    }
}

#[test]
fn keys_in_base64_live_where_their_text_does() {
    let backends = servers(3);
    let addresses: Vec<_> = backends.iter().map(Server::address).collect();
    let proxy = Proxy::at(&addresses, |config| config.pools[0].hash_tag = Some(*b"{}"));
    let mut client = proxy.client();
    for index in 0..40 {
        let key = format!("key-{index:02}{{tag{index}}}");
        let mut encoded = Vec::new();
        wire::encode_base64(key.as_bytes(), &mut encoded);
        let encoded = String::from_utf8(encoded).unwrap();
        client.ask(format!("set {key} 0 0 1\r\nx\r\n"), "STORED\r\n");
        client.ask(format!("mg {encoded} b v k\r\n"), format!("VA 1 k{key}\r\nx\r\n"));
        client.ask(format!("ms {encoded} 1 b\r\ny\r\nget {key}\r\n"), format!("HD\r\nVALUE {key} 0 1\r\ny\r\nEND\r\n"));
        assert_eq!(values_on(&addresses, &key).into_iter().flatten().count(), 1);
    }
}

/// When memcached appends to a value, it forgets that the key was given in base64 and returns the key decoded.
/// A key that contains a line end could then be read as replies to other requests.
#[test]
fn a_key_with_a_line_end_cannot_forge_replies() {
    for (start, discipline) in
        starters().into_iter().flat_map(|start| disciplines(2, true).into_iter().map(move |it| (start, it)))
    {
        let proxy = Proxy::before(vec![start()], |config| (config.loops, config.discipline) = (1, discipline));
        let (mut client, mut other) = (proxy.client(), proxy.client());
        let key = "eA0KVkEgNA0KZXZpbA0KSEQ=";
        client.ask(format!("ms {key} 1 b\r\n1\r\nms {key} 1 b k MA\r\n2\r\n"), format!("HD\r\nHD k{key} b\r\n"));
        other.ask("ms k 4\r\ngood\r\n", "HD\r\n");
        for _ in 0..20 {
            client.send(format!("mg {key} b s k v O1\r\nme {key} b\r\n"));
            other.ask("mg k v\r\n", "VA 4\r\ngood\r\n");
            client.expect(format!("VA 2 s2 k{key} b O1\r\n12\r\nCLIENT_ERROR bad command line format\r\n"));
        }
        client.ask(format!("md {key} b k\r\nma {key} b k N0\r\n"), format!("HD k{key} b\r\nHD k{key} b\r\n"));
        client.ask(format!("mg {key} b k\r\nmd {key} b\r\n"), format!("HD k{key} b\r\nHD\r\n"));
        client.ask(format!("mg {key} b k\r\nmg {key} b N30 O1 k\r\n"), {
            format!("EN k{key} b\r\nHD O1 k{key} b W\r\n")
        });
    }
}

#[test]
fn a_client_that_disconnects_within_a_value_stores_nothing() {
    let proxy = Proxy::before(servers(1), |config| config.loops = 1);
    let mut client = proxy.client();
    client.send("ms whole 2 q\r\nhi\r\nms half 10 q\r\nhi");
    client.half_close();
    client.expect_closed();
    proxy.client().ask("mg half\r\nmg whole v\r\n", "EN\r\nVA 2\r\nhi\r\n");
}

#[test]
fn every_unanswered_quiet_request_of_a_server_that_dies_gets_an_error() {
    // It replies to four requests, the last two of them quiet, and closes on the next one.
    let server = Scripted::start(|peer, number| {
        for reply in ["EN\r\n", "HD\r\n", "VA 2 O4\r\nhi\r\n", "EN O5\r\n"] {
            let line = peer.line();
            if number == 0 && line.is_some_and(|line| line.starts_with("mg") && !line.contains('q')) {
                peer.send(reply);
            }
        }
        peer.line();
    });
    let proxy = Proxy::at(&[server.address()], |config| {
        config.loops = 1;
    });
    let mut client = proxy.client();
    client.send("mg a q\r\nmg b q\r\nmg c v q O4\r\nmg d q O5\r\nmg e q\r\nms f 2 q\r\nhi\r\nma g q\r\nmg h\r\nmn\r\n");
    let lost = format!("SERVER_ERROR backend {} lost the connection\r\n", server.address());
    client.expect(format!("HD\r\nVA 2 O4\r\nhi\r\n{}MN\r\n", lost.repeat(4)));
}

#[test]
fn a_reply_that_answers_another_command_ends_the_connection() {
    for (command, reply) in [
        ("mg a\r\n", "STORED\r\n"),
        ("mg a\r\n", "NF\r\n"),
        ("mg a\r\n", "VA 3\r\nabcd\r\n"),
        ("ms a 1\r\nx\r\n", "EN\r\n"),
        ("md a\r\n", "VA 1\r\nx\r\n"),
        ("ma a\r\n", "MN\r\n"),
        ("me a\r\n", "HD\r\n"),
        ("get a\r\n", "HD\r\n"),
        ("set a 0 0 1\r\nx\r\n", "HD\r\n"),
    ] {
        let server = Scripted::start(move |peer, _| {
            while peer.line().is_some() {
                peer.send(reply);
            }
        });
        let proxy = Proxy::at(&[server.address()], |config| config.loops = 1);
        proxy.client().ask(command, format!("SERVER_ERROR backend {} lost the connection\r\n", server.address()));
    }
}

#[test]
fn an_error_in_a_flag_closes_no_connection() {
    let server = Server::start();
    let proxy = Proxy::at(&[server.address()], |config| config.loops = 1);
    let mut client = proxy.client();
    client.ask("mg k Tx\r\nms k 2 Fx q\r\nhi\r\n", {
        "CLIENT_ERROR bad token in command line format\r\nCLIENT_ERROR bad command line format\r\n"
    });
    client.send("stats backends\r\n");
    let mut lost = String::new();
    loop {
        let line = client.line();
        if line == "END\r\n" {
            break;
        }
        if line.contains(":lost ") {
            lost = line;
        }
    }
    assert!(lost.ends_with(":lost 0\r\n"), "{lost}");
}
