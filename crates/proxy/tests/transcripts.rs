//! Requests and their exact replies: one table, for every discipline and number of loops, backends and replicas.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod common;

use common::{Proxy, disciplines, servers};
use proxy::{Discipline, Stamps};

/// Requests with the exact bytes of their replies, in order on one connection.
fn table() -> Vec<(Vec<u8>, Vec<u8>)> {
    let text: &[(&str, &str)] = &[
        ("get nothing\r\n", "END\r\n"),
        ("set a 5 0 3\r\nabc\r\n", "STORED\r\n"),
        ("get a\r\n", "VALUE a 5 3\r\nabc\r\nEND\r\n"),
        ("get a\n", "VALUE a 5 3\r\nabc\r\nEND\r\n"),
        ("set empty 0 0 0\r\n\r\n", "STORED\r\n"),
        ("set b 4294967295 0 7\r\nEND\r\nxy\r\n", "STORED\r\n"),
        (
            "get b a empty zz a\r\n",
            concat!(
                "VALUE b 4294967295 7\r\nEND\r\nxy\r\nVALUE a 5 3\r\nabc\r\n",
                "VALUE empty 0 0\r\n\r\nVALUE a 5 3\r\nabc\r\nEND\r\n"
            ),
        ),
        ("get  a   b \r\n", "VALUE a 5 3\r\nabc\r\nVALUE b 4294967295 7\r\nEND\r\nxy\r\nEND\r\n"),
        ("add a 0 0 1\r\nx\r\n", "NOT_STORED\r\n"),
        ("add new 0 0 1\r\nx\r\n", "STORED\r\n"),
        ("replace zz 0 0 1\r\nx\r\n", "NOT_STORED\r\n"),
        ("append a 0 0 2\r\nde\r\n", "STORED\r\n"),
        ("prepend a 0 0 1\r\n_\r\n", "STORED\r\n"),
        ("get a\r\n", "VALUE a 5 6\r\n_abcde\r\nEND\r\n"),
        ("cas zz 0 0 1 1\r\nx\r\n", "NOT_FOUND\r\n"),
        ("cas a 0 0 1 18446744073709551615\r\nx\r\n", "EXISTS\r\n"),
        ("set n 0 0 2\r\n10\r\n", "STORED\r\n"),
        ("incr n 5\r\n", "15\r\n"),
        ("decr n 100\r\n", "0\r\n"),
        ("incr zz 1\r\n", "NOT_FOUND\r\n"),
        ("incr a 1\r\n", "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"),
        (
            "incr n 18446744073709551615\r\nget n\r\n",
            "18446744073709551615\r\nVALUE n 0 20\r\n18446744073709551615\r\nEND\r\n",
        ),
        ("touch n 100\r\n", "TOUCHED\r\n"),
        ("touch zz 100\r\n", "NOT_FOUND\r\n"),
        ("gat 100 n zz\r\n", "VALUE n 0 20\r\n18446744073709551615\r\nEND\r\n"),
        ("delete n\r\n", "DELETED\r\n"),
        ("delete n\r\n", "NOT_FOUND\r\n"),
        ("delete n 0\r\n", "NOT_FOUND\r\n"),
        ("set gone 0 -1 1\r\nx\r\nget gone\r\n", "STORED\r\nEND\r\n"),
        // No reply is sent. The next request is answered.
        ("set q 0 0 1 noreply\r\nq\r\nget q\r\n", "VALUE q 0 1\r\nq\r\nEND\r\n"),
        ("incr zz 1 noreply\r\ndelete q noreply\r\ntouch zz 1 noreply\r\nget q\r\n", "END\r\n"),
        ("verbosity 1\r\nverbosity 1 noreply\r\nget q\r\n", "OK\r\nEND\r\n"),
        // Both protocols with one key, in base64 or not.
        (
            "ms m 1 q\r\n1\r\nget m\r\nmg bQ== v b\r\nma m v\r\nget m\r\nmd m q\r\nmg bQ== b q\r\nget m\r\nmn\r\n",
            "VALUE m 0 1\r\n1\r\nEND\r\nVA 1\r\n1\r\nVA 1\r\n2\r\nVALUE m 0 1\r\n2\r\nEND\r\nEND\r\nMN\r\n",
        ),
        // An unknown command gets an error, and the connection stays open.
        ("bogus\r\nget q\r\n", "ERROR\r\nEND\r\n"),
        ("GET a\r\n", "ERROR\r\n"),
        ("get\r\n", "ERROR\r\n"),
        ("watch\r\nslabs reassign 1 2\r\nshutdown\r\n", "ERROR\r\nERROR\r\nERROR\r\n"),
        ("set a 0 0 -1\r\nget q\r\n", "CLIENT_ERROR bad command line format\r\nEND\r\n"),
        // Exactly two bytes and their line end are dropped. The remaining empty line is not a command.
        ("set a 0 0 2\r\nxxxx\r\n", "CLIENT_ERROR bad data chunk\r\nERROR\r\n"),
        ("get q\r\n", "END\r\n"),
        ("stats reset\r\n", "RESET\r\n"),
        ("stats conns\r\nstats items  \r\nstats bogus\r\nstats noreply\r\n", "END\r\nEND\r\nERROR\r\nERROR\r\n"),
        ("flush_all\r\n", "OK\r\n"),
        ("flush_all noreply\r\nget a\r\n", "END\r\n"),
    ];
    let mut table: Vec<(Vec<u8>, Vec<u8>)> =
        text.iter().map(|(send, expect)| ((*send).into(), (*expect).into())).collect();
    let longest = "k".repeat(250);
    table.push((format!("set {longest} 0 0 1\r\nx\r\n").into(), "STORED\r\n".into()));
    table.push((format!("get {longest}\r\n").into(), format!("VALUE {longest} 0 1\r\nx\r\nEND\r\n").into()));
    table.push((format!("get {longest}k\r\n").into(), "CLIENT_ERROR bad command line format\r\n".into()));
    let swallowed = format!("set {longest}k 0 0 9\r\nget a a\r\n\r\nget zz\r\n");
    table.push((swallowed.into(), "CLIENT_ERROR bad command line format\r\nEND\r\n".into()));
    let large = vec![b'x'; 900_000];
    table.push(([b"set large 0 0 900000\r\n".as_slice(), &large, b"\r\n"].concat(), "STORED\r\n".into()));
    table.push(("get large\r\n".into(), [b"VALUE large 0 900000\r\n".as_slice(), &large, b"\r\nEND\r\n"].concat()));
    let too_large = vec![b'x'; 2_000_000];
    table.push((
        [b"set large 0 0 2000000\r\n".as_slice(), &too_large, b"\r\nget zz\r\n"].concat(),
        b"SERVER_ERROR object too large for cache\r\nEND\r\n".into(),
    ));
    table
}

/// Runs the table in every discipline, with the fewest possible slots and with more.
fn run(loops: usize, backends: usize, replicas: usize, stamps: Stamps) {
    for slots in [loops, 2 * loops + 1] {
        for discipline in disciplines(slots, backends == replicas) {
            run_in(discipline, loops, backends, replicas, stamps);
        }
    }
}

/// Runs the table line by line, then once more as a single burst.
fn run_in(discipline: Discipline, loops: usize, backends: usize, replicas: usize, stamps: Stamps) {
    let proxy = Proxy::before(servers(backends), |config| {
        (config.loops, config.pools[0].replicas, config.stamps) = (loops, replicas, stamps);
        config.discipline = discipline;
    });
    let mut client = proxy.client();
    for (send, expect) in table() {
        client.ask(send, expect);
    }
    // The same once more, everything sent at once: the order must be kept across local answers, errors and backends.
    let mut client = proxy.client();
    let (mut all_sent, mut all_expected) = (Vec::new(), Vec::new());
    for (send, expect) in table() {
        all_sent.extend(send);
        all_expected.extend(expect);
    }
    client.ask("flush_all\r\n", "OK\r\n");
    client.send(all_sent);
    client.expect(all_expected);
    client.send("quit\r\nget a\r\n");
    client.expect_closed();
}

#[test]
fn one_backend() {
    run(1, 1, 1, Stamps::All);
    run(2, 1, 1, Stamps::All);
}

#[test]
fn three_backends() {
    run(1, 3, 1, Stamps::All);
    run(2, 3, 1, Stamps::All);
}

#[test]
fn three_replicas() {
    run(1, 3, 3, Stamps::Off);
    run(2, 3, 3, Stamps::All);
}

#[test]
fn two_of_three_replicas() {
    run(2, 3, 2, Stamps::All);
}

#[test]
fn every_split_of_the_bytes_gives_the_same_replies() {
    let small = table().into_iter().filter(|(send, expect)| send.len() < 600 && expect.len() < 600);
    let (mut all_sent, mut all_expected) = (Vec::new(), Vec::new());
    for (send, expect) in small {
        all_sent.extend(send);
        all_expected.extend(expect);
    }
    let split = &|discipline| {
        let proxy = Proxy::before(servers(3), |config| {
            (config.loops, config.pools[0].replicas, config.discipline) = (2, 3, discipline);
        });
        let mut client = proxy.client();
        client.ask("flush_all\r\n", "OK\r\n");
        client.trickle(&all_sent);
        client.expect(&all_expected);
    };
    // Most of the time is spent between two bytes.
    std::thread::scope(|scope| {
        disciplines(4, true).into_iter().for_each(|discipline| _ = scope.spawn(move || split(discipline)))
    });
}

#[test]
fn a_counter_or_cas_token_leaves_no_different_value_on_another_replica() {
    let backends = servers(2);
    let addresses: Vec<_> = backends.iter().map(testkit::Server::address).collect();
    let proxy = Proxy::at(&addresses, |config| config.pools[0].replicas = 2);
    let mut client = proxy.client();
    client.ask("set n 0 0 1\r\n1\r\nset c 0 0 1\r\n1\r\n", "STORED\r\nSTORED\r\n");
    client.send("gets c\r\n");
    let head = client.line();
    client.expect("1\r\nEND\r\n");
    let token = head.trim().rsplit(' ').next().unwrap().to_string();
    client.ask(format!("cas c 0 0 1 {token}\r\n2\r\n"), "STORED\r\n");
    client.ask("incr n 1\r\n", "2\r\n");
    client.ask("get n c\r\n", "VALUE n 0 1\r\n2\r\nVALUE c 0 1\r\n2\r\nEND\r\n");
    for key in ["n", "c"] {
        let replicas = addresses.iter().map(|&address| {
            let mut direct = testkit::Client::connect(address);
            direct.send(format!("get {key}\r\n"));
            direct.line().starts_with("VALUE").then(|| direct.line())
        });
        assert_eq!(replicas.flatten().collect::<Vec<_>>(), ["2\r\n"], "one replica, with the new value");
    }
}

#[test]
fn writes_reach_exactly_the_configured_replicas() {
    for replicas in 1..=3 {
        let backends = servers(3);
        let addresses: Vec<_> = backends.iter().map(testkit::Server::address).collect();
        let proxy = Proxy::at(&addresses, |config| config.pools[0].replicas = replicas);
        proxy.client().ask("set k 0 0 1\r\nv\r\n", "STORED\r\n");
        let stores = |address: &std::net::SocketAddr| {
            let mut direct = testkit::Client::connect(*address);
            direct.send("get k\r\n");
            direct.line().starts_with("VALUE")
        };
        assert_eq!(addresses.iter().filter(|address| stores(address)).count(), replicas);
    }
}

#[test]
fn stats_and_version_are_what_clients_read() {
    let proxy = Proxy::before(servers(2), |_| ());
    let mut client = proxy.client();
    client.ask("set a 0 0 1\r\nx\r\nget a b\r\n", "STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n");
    client.send("version\r\n");
    assert!(client.line().starts_with("VERSION 1.6."));
    client.send("stats \r\n");
    let mut stats = std::collections::HashMap::new();
    loop {
        let line = client.line();
        if line == "END\r\n" {
            break;
        }
        let mut words = line.split_whitespace().skip(1).map(String::from);
        stats.insert(words.next().unwrap(), words.next().unwrap());
    }
    for (name, value) in [("cmd_set", "1"), ("cmd_get", "2"), ("get_hits", "1"), ("get_misses", "1")] {
        assert_eq!(stats.get(name).map(String::as_str), Some(value), "{name}");
    }
}
