//! Records and metrics of a proxy: complete, in order, adding up, and joined to the client by port and sequence.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod common;

use common::{Proxy, disciplines, servers};
use proxy::{Discipline, RecordsConfig, Stamps};
use records::{Outcome, PARENT, Reader, Row};
use std::collections::HashMap;
use std::path::Path;
use testkit::GatedServer;
use wire::Verb;

/// Runs a test in every discipline.
fn in_each(test: impl Fn(Discipline)) {
    disciplines(2, false).into_iter().for_each(test);
}

/// Runs `drive` against a proxy that records one request in `sample`, and reads the records.
fn recorded(
    discipline: Discipline,
    sample: u32,
    replicas: usize,
    stamps: Stamps,
    drive: impl FnOnce(&Proxy),
) -> Reader {
    let directory = tempfile::tempdir().unwrap();
    let proxy = Proxy::before(servers(3), |config| {
        (config.loops, config.discipline) = (2, discipline);
        config.pools[0].replicas = replicas;
        config.stamps = stamps;
        config.records = Some(RecordsConfig { directory: directory.path().into(), sample });
    });
    drive(&proxy);
    read(proxy, directory.path())
}

/// Stops the proxy and reads its records.
fn read(proxy: Proxy, directory: &Path) -> Reader {
    let totals = proxy.stop();
    let file = std::fs::read_dir(directory).unwrap().next().unwrap().unwrap().path();
    let reader = Reader::open(&file, false).unwrap();
    assert_eq!(reader.len() as u64, totals.records.unwrap().written);
    assert_eq!((reader.dropped, reader.lost), (0, 0));
    reader
}

#[test]
fn every_request_has_its_record_and_every_leg_of_a_fork_its_own() {
    in_each(complete_in);
}

fn complete_in(discipline: Discipline) {
    let mut port = 0;
    let reader = recorded(discipline, 1, 3, Stamps::All, |proxy| {
        let mut client = proxy.client();
        port = client.port();
        client.ask("set a 0 0 1\r\nx\r\n", "STORED\r\n");
        client.ask("get a\r\n", "VALUE a 0 1\r\nx\r\nEND\r\n");
        let keys: String = (0..50).map(|key| format!(" k{key}")).collect();
        client.ask(format!("get a{keys}\r\n"), "VALUE a 0 1\r\nx\r\nEND\r\n");
        client.send("version\r\nbogus\r\n");
        assert!(client.line().starts_with("VERSION "));
        client.expect("ERROR\r\n");
        client.ask("delete a noreply\r\nget a\r\n", "END\r\n");
    });
    let rows: Vec<(Row, Vec<u64>)> = reader.rows().collect();
    let parents: Vec<&Row> = rows.iter().map(|(row, _)| row).filter(|row| row.leg == PARENT).collect();
    let seen: Vec<(u32, u8, u8, u16, u16)> =
        parents.iter().map(|row| (row.sequence, row.operation, row.legs, row.keys, row.hits)).collect();
    let code = |verb: Verb| verb as u8;
    assert_eq!(
        seen,
        [
            (0, code(Verb::Set), 3, 1, 0),
            (1, code(Verb::Get), 1, 1, 1),
            (2, code(Verb::Get), 3, 51, 1),
            (3, code(Verb::Version), 0, 0, 0),
            (4, code(Verb::Invalid), 0, 0, 0),
            (5, code(Verb::Delete), 3, 1, 0),
            (6, code(Verb::Get), 1, 1, 0),
        ]
    );
    assert!(parents.iter().all(|row| row.port == port && row.connection == 0));
    assert_eq!(parents[4].outcome, Outcome::ClientError as u8);
    assert_eq!(parents[1].reply_bytes, "VALUE a 0 1\r\nx\r\nEND\r\n".len() as u32);
    assert_eq!(rows.len(), parents.len() + 9);
    for (row, stamps) in &rows {
        assert!(stamps.is_sorted() && stamps[0] > 0, "{row:?} {stamps:?}");
        if row.leg != PARENT {
            let (parent, whole) = rows.iter().find(|(other, _)| other.sequence == row.sequence).unwrap();
            assert!((4..7).all(|stage| stamps[stage] <= whole[stage]) && parent.legs == 3);
        }
    }
}

#[test]
fn meta_commands_are_recorded_also_when_they_are_quiet() {
    in_each(meta_in);
}

fn meta_in(discipline: Discipline) {
    let reader = recorded(discipline, 1, 2, Stamps::All, |proxy| {
        let mut client = proxy.client();
        client.ask("mg a v q\r\nms a 2 q\r\nhi\r\nmg a v q\r\nmg a\r\nmn\r\n", "VA 2\r\nhi\r\nHD\r\nMN\r\n");
        client.ask("ma n q\r\nmd a q\r\nmd a\r\nme a\r\nmg a Z q\r\n", {
            "NF\r\nNF\r\nEN\r\nCLIENT_ERROR invalid flag\r\n"
        });
    });
    let rows = reader.rows().map(|(row, _)| row).filter(|row| row.leg == PARENT);
    let seen: Vec<(u8, u8, u16, u16, u32, u8)> =
        rows.map(|row| (row.operation, row.legs, row.keys, row.hits, row.reply_bytes, row.outcome)).collect();
    let answered = Outcome::Answered as u8;
    assert_eq!(
        seen,
        [
            (Verb::Mg as u8, 1, 1, 0, 0, answered),
            (Verb::Ms as u8, 2, 1, 0, 0, answered),
            (Verb::Mg as u8, 1, 1, 1, 10, answered),
            (Verb::Mg as u8, 1, 1, 1, 4, answered),
            (Verb::Mn as u8, 0, 0, 0, 4, answered),
            (Verb::Ma as u8, 1, 1, 0, 4, answered),
            (Verb::Md as u8, 2, 1, 0, 0, answered),
            (Verb::Md as u8, 2, 1, 0, 4, answered),
            (Verb::Me as u8, 1, 1, 0, 4, answered),
            (Verb::Mg as u8, 1, 1, 0, 27, Outcome::ClientError as u8),
        ]
    );
    // The numbers are part of the record format.
    let numbers = [Verb::Mg, Verb::Ms, Verb::Md, Verb::Ma, Verb::Mn, Verb::Me].map(|verb| verb as u8);
    assert_eq!(numbers, [21, 22, 23, 24, 25, 26]);
}

#[test]
fn intervals_add_up_and_the_sample_follows_the_documented_rule() {
    in_each(sampled_in);
}

fn sampled_in(discipline: Discipline) {
    let requests = 20_000u32;
    let mut ports = Vec::new();
    let reader = recorded(discipline, 10, 2, Stamps::Sampled, |proxy| {
        for _ in 0..2 {
            let mut client = proxy.client();
            ports.push(client.port());
            for batch in 0..requests / 100 {
                let sent: String = (0..100).map(|index| format!("get key{}\r\n", batch * 7 + index)).collect();
                client.ask(sent, "END\r\n".repeat(100));
            }
        }
    });
    let mut kept: HashMap<u16, Vec<u32>> = HashMap::new();
    for (row, stamps) in reader.rows() {
        let intervals: u64 = stamps.windows(2).map(|pair| pair[1] - pair[0]).sum();
        assert_eq!(intervals, stamps[7] - stamps[0]);
        kept.entry(row.port).or_default().push(row.sequence);
    }
    for port in ports {
        let expected: Vec<u32> = (0..requests).filter(|&sequence| records::is_sampled(port, sequence, 10)).collect();
        assert_eq!(kept.get(&port), Some(&expected));
    }
}

/// Five reads are sent in one burst and answered one after the other.
#[test]
fn the_queue_length_counts_waiting_and_served_requests_and_the_queue_interval_is_the_wait() {
    for (discipline, slots) in disciplines(2, false).into_iter().zip([5, 2, 2]) {
        let (directory, server) = (tempfile::tempdir().unwrap(), GatedServer::start());
        let proxy = Proxy::at(&[server.address()], |config| {
            (config.loops, config.discipline) = (1, discipline);
            config.records = Some(RecordsConfig { directory: directory.path().into(), sample: 1 });
        });
        let mut client = proxy.client();
        client.send((0..5).map(|key| format!("get k{key}\r\n")).collect::<String>());
        for key in 0..5 {
            server.received(5.min(slots + key));
            server.answer(&format!("get k{key}"), "END\r\n");
        }
        client.expect("END\r\n".repeat(5));
        let rows: Vec<(Row, Vec<u64>)> = read(proxy, directory.path()).rows().collect();
        assert_eq!(rows.iter().map(|(row, _)| row.queue_length).collect::<Vec<_>>(), [0, 1, 2, 3, 4], "{discipline:?}");
        for (index, (_, stamps)) in rows.iter().enumerate() {
            let queue_ns = stamps[4] - stamps[3];
            if index < slots {
                assert_eq!(queue_ns, 0, "a slot was free");
            } else {
                // It left the queue when the one `slots` before it was answered, which took at least one wait for the server.
                assert!(stamps[4] >= rows[index - slots].1[6] && queue_ns > 20_000_000, "{stamps:?}");
            }
        }
    }
}

#[test]
fn metrics_count_every_request_in_every_stage() {
    let proxy = Proxy::before(servers(2), |config| config.metrics = Some("127.0.0.1:0".into()));
    let mut client = proxy.client();
    for _ in 0..50 {
        client.ask("get a\r\n", "END\r\n");
    }
    client.ask("ms a 1 q\r\nx\r\nmg a q\r\nmg b q\r\nmn\r\n", "HD\r\nMN\r\n");
    let text = proxy.metrics();
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    for line in [
        "waystage_requests_total{operation=\"get\",outcome=\"answered\"} 50",
        "waystage_requests_total{operation=\"mg\",outcome=\"answered\"} 2",
        "waystage_requests_total{operation=\"mn\",outcome=\"answered\"} 1",
        "waystage_keys_total 52",
        "waystage_hits_total{operation=\"mg\"} 1",
        "waystage_clients 1",
    ] {
        assert!(text.contains(line), "{line} is missing in\n{text}");
    }
    for stage in clock::INTERVALS.map(|interval| interval.name).into_iter().chain(["total"]) {
        // Kinds of operation: a meta get is a get.
        let line = format!("waystage_stage_seconds_count{{operation=\"get\",stage=\"{stage}\"}} 52");
        assert!(text.contains(&line), "{line} is missing in\n{text}");
    }
    assert!(proxy.get("/").starts_with("HTTP/1.1 404"));
}
