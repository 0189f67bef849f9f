//! The requests that exporters and clients send to `stats`, and how they parse the replies.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod common;

use common::{Proxy, servers};
use std::collections::HashMap;
use testkit::Client;

/// The reply to a stats command. Every line has three words, as the parsers of many clients require, and the last is END.
fn stats(client: &mut Client, command: &str) -> HashMap<String, String> {
    client.send(format!("{command}\r\n"));
    let mut values = HashMap::new();
    loop {
        let line = client.line();
        if line == "END\r\n" {
            return values;
        }
        let words: Vec<&str> = line.strip_suffix("\r\n").unwrap().split(' ').collect();
        assert!(words.len() == 3 && words[0] == "STAT" && !words[2].is_empty(), "{command}: {line:?}");
        assert!(values.insert(words[1].into(), words[2].into()).is_none(), "{command}: {} twice", words[1]);
    }
}

/// The numbers that the Prometheus exporter for memcached parses. Without the first group it reports a server as down.
const EXPORTED: [&str; 33] = [
    "cmd_set",
    "cas_misses",
    "cas_hits",
    "cas_badval",
    "get_hits",
    "get_misses",
    "delete_hits",
    "delete_misses",
    "incr_hits",
    "incr_misses",
    "decr_hits",
    "decr_misses",
    "touch_hits",
    "touch_misses",
    "uptime",
    "time",
    "cmd_flush",
    "bytes",
    "limit_maxbytes",
    "curr_items",
    "total_items",
    "bytes_read",
    "bytes_written",
    "curr_connections",
    "total_connections",
    "rejected_connections",
    "listen_disabled_num",
    "evictions",
    "reclaimed",
    "accepting_conns",
    "cmd_get",
    "threads",
    "pid",
];

#[test]
fn the_exporter_finds_numbers() {
    let proxy = Proxy::before(servers(2), |config| config.loops = 2);
    let mut client = proxy.client();
    // In the exporter's order, on one connection.
    let general = stats(&mut client, "stats");
    let slabs = stats(&mut client, "stats slabs");
    assert!(stats(&mut client, "stats items").is_empty());
    let settings = stats(&mut client, "stats settings");
    for name in EXPORTED {
        let value = general.get(name).unwrap_or_else(|| panic!("{name} is missing"));
        assert!(value.parse::<f64>().is_ok_and(|number| number >= 0.0), "{name} {value}");
    }
    // Seconds and exactly six digits of microseconds, which the exporter reads as two numbers.
    for name in ["rusage_user", "rusage_system"] {
        let (seconds, micros) = general[name].split_once('.').unwrap();
        assert!(seconds.parse::<u64>().is_ok() && micros.len() == 6 && micros.parse::<u64>().is_ok(), "{name}");
    }
    // The exporter would parse a name with one colon as that of a slab, and its beginning as a number.
    assert!(general.keys().chain(slabs.keys()).all(|name| !name.contains(':')));
    assert!(general["version"].starts_with("1.6."));
    assert!(settings["maxconns"].parse::<u64>().is_ok_and(|number| number > 0));
    assert_eq!(settings["lru_crawler"], "no");
    for name in ["tcpport", "num_threads", "item_size_max", "maxbytes", "verbosity"] {
        assert!(settings[name].parse::<u64>().is_ok(), "{name}");
    }
}

#[test]
fn every_sub_command_is_answered_and_the_next_reply_is_in_order() {
    let proxy = Proxy::before(servers(1), |_| ());
    let mut client = proxy.client();
    let fixed: &[(&str, &str)] = &[
        ("stats reset", "RESET\r\n"),
        ("stats reset x", "RESET\r\n"),
        ("stats items", "END\r\n"),
        ("stats items ", "END\r\n"),
        ("stats  items", "END\r\n"),
        ("stats conns", "END\r\n"),
        ("stats extstore", "END\r\n"),
        ("stats cachedump 1 100", "END\r\n"),
        ("stats cachedump 1", "CLIENT_ERROR bad command line\r\n"),
        ("stats cachedump x 1", "CLIENT_ERROR bad command line format\r\n"),
        ("stats sizes", "STAT sizes_status disabled\r\nEND\r\n"),
        ("stats slabs", "STAT active_slabs 0\r\nSTAT total_malloced 0\r\nEND\r\n"),
        ("stats detail on", "OK\r\n"),
        ("stats detail off", "OK\r\n"),
        ("stats detail dump", "END\r\n"),
        ("stats detail", "CLIENT_ERROR usage: stats detail on|off|dump\r\n"),
        ("stats bogus", "ERROR\r\n"),
        ("stats noreply", "ERROR\r\n"),
        ("stats Items", "ERROR\r\n"),
        ("stats \u{e9}\u{0}", "ERROR\r\n"),
    ];
    for (command, reply) in fixed {
        client.ask(format!("{command}\r\nget k\r\n"), format!("{reply}END\r\n"));
    }
    let pipelined: String = fixed.iter().map(|(command, _)| format!("{command}\nmn\r\n")).collect();
    let replies: String = fixed.iter().map(|(_, reply)| format!("{reply}MN\r\n")).collect();
    client.ask(pipelined, replies);
    let plain = stats(&mut client, "stats");
    for form in ["stats ", "stats  \t".trim_end_matches('\t')] {
        let again = stats(&mut client, form);
        assert!(again.len() == plain.len() && plain.keys().all(|name| again.contains_key(name)), "{form:?}");
    }
    let settings = stats(&mut client, "stats settings");
    assert_eq!(stats(&mut client, "stats settings x"), settings);
    assert!(!stats(&mut client, "stats backends").is_empty());
    assert!(!stats(&mut client, "stats hotkeys").is_empty());
    client.ask("get k\r\n", "END\r\n");
}

#[test]
fn the_numbers_match_the_clients_requests() {
    let proxy = Proxy::before(servers(2), |config| config.loops = 2);
    let mut client = proxy.client();
    client.ask(
        concat!(
            "set a 0 0 1\r\n1\r\nget a b\r\ngat 9 a\r\ntouch b 1\r\nincr a 1\r\ndecr b 1\r\ncas a 0 0 1 999999\r\n2\r\n",
            "cas b 0 0 1 1\r\n2\r\ndelete a\r\nmg a\r\nflush_all\r\nstats reset\r\n"
        ),
        concat!(
            "STORED\r\nVALUE a 0 1\r\n1\r\nEND\r\nVALUE a 0 1\r\n1\r\nEND\r\nNOT_FOUND\r\n2\r\nNOT_FOUND\r\nEXISTS\r\n",
            "NOT_FOUND\r\nDELETED\r\nEN\r\nOK\r\nRESET\r\n"
        ),
    );
    let values = stats(&mut client, "stats");
    for (name, value) in [
        ("cmd_get", "4"),
        ("get_hits", "2"),
        ("get_misses", "2"),
        ("cmd_set", "3"),
        ("cmd_touch", "2"),
        ("touch_hits", "1"),
        ("touch_misses", "1"),
        ("incr_hits", "1"),
        ("decr_misses", "1"),
        ("cas_badval", "1"),
        ("cas_misses", "1"),
        ("cas_hits", "0"),
        ("delete_hits", "1"),
        ("cmd_flush", "1"),
        ("cmd_meta", "1"),
        ("curr_connections", "1"),
        ("threads", "2"),
        ("waystage_requests", "12"),
    ] {
        assert_eq!(values.get(name).map(String::as_str), Some(value), "{name}");
    }
}

/// Values that memcached also has are in memcached's format.
#[test]
fn memcached_answers_in_the_same_forms() {
    if !testkit::memcached_is_here() {
        return;
    }
    let proxy = Proxy::before(servers(1), |_| ());
    let server = testkit::Server::start();
    let (mut ours, mut theirs) = (proxy.client(), Client::connect(server.address()));
    for command in ["stats", "stats settings", "stats slabs"] {
        let (own, other) = (stats(&mut ours, command), stats(&mut theirs, command));
        for (name, value) in own.iter().filter(|(name, _)| !name.starts_with("waystage_")) {
            let their_value = other.get(name).unwrap_or_else(|| panic!("{command}: memcached has no {name}"));
            let is_number = |text: &str| text.parse::<f64>().is_ok();
            assert_eq!(is_number(value), is_number(their_value), "{command}: {name} {value} {their_value}");
        }
    }
}
