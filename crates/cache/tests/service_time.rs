//! Records of the configured service time, with a manual clock and with the real one.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use cache::{Config, RecordsConfig, ServiceTime};
use clock::{Clock, Nanos};
use records::{Outcome, PARENT, Reader, Row};
use std::path::Path;
use std::time::Duration;
use support::{Client, cache, finish};

const US: Duration = Duration::from_micros(1);

fn config(service_time: ServiceTime, workers: usize, directory: &Path) -> Config {
    let records = Some(RecordsConfig { directory: directory.to_owned(), sample: 1 });
    Config { service_time, workers, records, ..Config::default() }
}

/// Rows and stamps of the one file in a directory.
fn read(directory: &Path) -> Vec<(Row, [u64; 4])> {
    let path = directory.join(format!("cache-{}.way", std::process::id()));
    let reader = Reader::open(&path, false).unwrap();
    assert_eq!((reader.dropped, reader.lost), (0, 0));
    assert_eq!(reader.header.stamps, ["received", "started", "served", "replied"]);
    reader.rows().map(|(row, stamps)| (row, stamps.try_into().unwrap())).collect()
}

#[test]
fn timestamps_follow_the_virtual_workers() {
    let directory = tempfile::tempdir().unwrap();
    let (clock, hand) = Clock::manual(Nanos(1_000_000));
    let running = cache::start(&config(ServiceTime::Fixed(200 * US), 2, directory.path()), clock).unwrap();
    let mut client = Client::new(running.address());
    let mut watcher = Client::new(running.address());
    // Two workers, three requests; then, half a service time later, one more.
    client.send("set k 0 0 1\r\nx\r\nget k\r\nget a k b\r\n");
    while watcher.statistic("requests_in_service") < 3 {}
    hand.advance(100 * US);
    client.send("nonsense\r\nincr k 1\r\n");
    while watcher.statistic("requests_in_service") < 4 {}
    let nothing_yet = || {
        client.stream.set_read_timeout(Some(Duration::from_millis(30))).unwrap();
        assert!(client.stream.peek(&mut [0]).is_err());
        client.stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    };
    nothing_yet();
    hand.advance(99 * US);
    nothing_yet();
    hand.advance(US);
    client.expect("STORED\r\nVALUE k 0 1\r\nx\r\nEND\r\n", "two are served");
    // A reply is stamped after the kernel has accepted it, when it can already be read. One more reply shows that this has happened.
    watcher.statistic("pid");
    hand.advance(200 * US);
    client.expect(
        "VALUE k 0 1\r\nx\r\nEND\r\nERROR\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
        "the others are served",
    );
    watcher.statistic("pid");
    let port = client.stream.local_addr().unwrap().port();
    drop((client, watcher));
    finish(running);

    let rows: Vec<_> = read(directory.path()).into_iter().filter(|(row, _)| row.port == port).collect();
    // Operation, queue length, keys, hits, request bytes, reply bytes, outcome; stamps in microseconds.
    let expected = [
        ((5, 0, 1, 0, 16, 8, Outcome::Answered), [1000, 1000, 1200, 1200]),
        ((1, 1, 1, 1, 7, 21, Outcome::Answered), [1000, 1000, 1200, 1200]),
        ((1, 2, 3, 1, 11, 21, Outcome::Answered), [1000, 1200, 1400, 1400]),
        ((20, 3, 0, 0, 10, 7, Outcome::ClientError), [1100, 1100, 1100, 1400]),
        ((12, 3, 1, 0, 10, 62, Outcome::ClientError), [1100, 1200, 1400, 1400]),
    ];
    assert_eq!(rows.len(), expected.len());
    for (index, ((row, stamps), (fields, micros))) in rows.iter().zip(expected).enumerate() {
        let outcome = Outcome::ALL[usize::from(row.outcome)];
        let got = (row.operation, row.queue_length, row.keys, row.hits, row.request_bytes, row.reply_bytes, outcome);
        assert_eq!(got, fields, "request {index}");
        assert_eq!(stamps.map(|stamp| stamp / 1000), micros, "request {index}");
        assert_eq!((row.sequence as usize, row.leg, row.legs), (index, PARENT, 1));
    }
}

#[test]
fn with_the_real_clock_no_reply_is_sent_early_and_no_capacity_is_lost() {
    let directory = tempfile::tempdir().unwrap();
    let running = cache(&config(ServiceTime::Fixed(200 * US), 2, directory.path()));
    let mut client = Client::new(running.address());
    let requests = 2000;
    client.send("get k\r\n".repeat(requests));
    client.expect("END\r\n".repeat(requests), "all at once");
    drop(client);
    finish(running);
    let rows = read(directory.path());
    assert_eq!(rows.len(), requests);
    let first = rows[0].1[1];
    for (index, (row, [received, started, served, replied])) in rows.iter().enumerate() {
        assert!(received <= started && served <= replied);
        assert_eq!(served - started, 200_000);
        // Nearly everything had arrived before the first request was served, so the workers were never idle.
        assert!(started - first <= index as u64 / 2 * 200_000 + 20_000_000, "{index}: {row:?}");
    }
    // Two workers served 2000 requests in 1000 service times, whatever the timers did, apart from the start and delays in sending.
    let span = rows.iter().map(|(_, stamps)| stamps[2]).max().unwrap() - first;
    assert!((200_000_000..260_000_000).contains(&span), "{span}");
}

#[test]
fn without_a_service_time_service_takes_no_time() {
    let directory = tempfile::tempdir().unwrap();
    let running = cache(&config(ServiceTime::None, 1, directory.path()));
    let mut client = Client::new(running.address());
    for _ in 0..100 {
        assert_eq!(client.ask("get k\r\n", "\r\n"), "END\r\n");
    }
    drop(client);
    finish(running);
    let rows = read(directory.path());
    assert_eq!(rows.len(), 100);
    for (row, [received, started, served, replied]) in rows {
        assert!(received <= started && started == served && served <= replied);
        assert_eq!(row.queue_length, 0);
    }
}

#[test]
fn a_client_that_disconnects_before_the_reply_is_recorded_as_gone() {
    let directory = tempfile::tempdir().unwrap();
    let (clock, hand) = Clock::manual(Nanos(1_000_000));
    let running = cache::start(&config(ServiceTime::Fixed(200 * US), 1, directory.path()), clock).unwrap();
    let mut client = Client::new(running.address());
    client.send("set k 0 0 100000\r\n".to_owned() + &"x".repeat(100_000) + "\r\n" + &"get k\r\n".repeat(20));
    let mut watcher = Client::new(running.address());
    while watcher.statistic("cmd_get") == 0 {}
    drop(client);
    while watcher.statistic("curr_connections") > 1 {
        hand.advance(100 * US);
    }
    drop(watcher);
    finish(running);
    let rows = read(directory.path());
    let gone = rows.iter().filter(|(row, _)| row.outcome == Outcome::ClientGone as u8).count();
    assert!(gone > 0, "of {} requests", rows.len());
}
