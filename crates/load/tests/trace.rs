//! A trace through the reader: which thread gets which row and when, and what happens with malformed files.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use load::trace::{Next, Timing, TraceConfig, TraceCounts, TraceReader, TraceRow, TraceRows, scan};
use proptest::prelude::*;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;
use testkit::{SyntheticRow, SyntheticTrace};

/// Longer than any test waits for a row.
const WAIT: Duration = Duration::from_secs(60);

/// A row taken from a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Taken {
    at_ns: u64,
    line: String,
}

/// Takes all rows of one thread.
fn drain(mut rows: TraceRows) -> Vec<Taken> {
    let mut taken = Vec::new();
    loop {
        match rows.wait(WAIT) {
            Next::Row(row) => taken.push(Taken { at_ns: row.at_ns, line: line(&row) }),
            Next::Pending => panic!("the reader is stuck"),
            Next::End => return taken,
        }
        rows.advance();
    }
}

/// The row without its timestamp.
fn line(row: &TraceRow<'_>) -> String {
    let key = std::str::from_utf8(row.key).unwrap();
    format!("{key},{},{},{},{},{}", key.len(), row.value_bytes, row.client, row.operation, row.ttl_s)
}

fn without_timestamp(row: &SyntheticRow) -> String {
    row.line().split_once(',').unwrap().1.to_owned()
}

/// Replays a trace on this many threads.
fn replay(config: &TraceConfig, threads: usize) -> (Vec<Vec<Taken>>, TraceCounts, Option<String>) {
    let (reader, rows) = TraceReader::start(config, threads).unwrap();
    let taken = thread::scope(|scope| {
        let threads: Vec<_> = rows.into_iter().map(|rows| scope.spawn(|| drain(rows))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    (taken, reader.counts(), reader.error())
}

fn refusal(path: &Path) -> String {
    TraceReader::start(&TraceConfig::new(path), 2).map(drop).unwrap_err().to_string()
}

#[test]
fn every_row_comes_once_at_its_time_and_keys_keep_their_order() {
    let directory = tempfile::tempdir().unwrap();
    let (plain, compressed) = (directory.path().join("plain.csv"), directory.path().join("small.csv.zst"));
    let trace =
        SyntheticTrace { rows_per_second: vec![500, 0, 3, 20_000, 0, 0, 1], first_second: 1000, ..Default::default() };
    trace.write(&plain);
    fs::write(&compressed, compress_to_vec(trace.text().as_bytes(), CompressionLevel::Fastest)).unwrap();
    let rows = trace.rows();
    let begins_ns = |row: &SyntheticRow| (row.second - 1000) * 1_000_000_000;
    for (path, threads) in [(&plain, 1), (&plain, 3), (&compressed, 2)] {
        let (by_thread, counts, error) = replay(&TraceConfig::new(path), threads);
        assert_eq!(error, None);
        assert_eq!((counts.rows, counts.lines, counts.broken), (rows.len() as u64, rows.len() as u64, 0));
        assert_eq!(counts.operations.values().sum::<u64>(), counts.rows);
        let mut merged: Vec<Taken> = Vec::new();
        for (number, taken) in by_thread.into_iter().enumerate() {
            assert!(threads == 1 || taken.len() > rows.len() / threads / 2, "thread {number} has {} rows", taken.len());
            assert!(taken.is_sorted_by_key(|row| row.at_ns));
            merged.extend(taken);
        }
        // Rows of different threads are never due at the same time here, so their times give the order of the file.
        merged.sort_by_key(|row| row.at_ns);
        assert_eq!(merged.len(), rows.len());
        for (taken, row) in merged.iter().zip(&rows) {
            assert_eq!(taken.line, without_timestamp(row));
            assert!((begins_ns(row)..begins_ns(row) + 1_000_000_000).contains(&taken.at_ns));
        }
        let gaps: Vec<u64> = merged[503..20_503].windows(2).map(|pair| pair[1].at_ns - pair[0].at_ns).collect();
        assert!(gaps.iter().all(|gap| *gap == 50_000), "20000 rows in a second are 50 us apart");
    }
}

#[test]
fn all_rows_of_a_key_are_in_one_thread() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace.csv");
    let trace = SyntheticTrace { keys: 50, ..Default::default() };
    trace.write(&path);
    let (by_thread, _, _) = replay(&TraceConfig { timing: Timing::Max, ..TraceConfig::new(&path) }, 4);
    for row in trace.rows() {
        let expected: Vec<String> =
            trace.rows().iter().filter(|other| other.key == row.key).map(without_timestamp).collect();
        let found = by_thread.iter().map(|taken| {
            let of_key = taken.iter().filter(|other| other.line.starts_with(&format!("{},", row.key)));
            of_key.map(|taken| taken.line.clone()).collect::<Vec<_>>()
        });
        assert_eq!(found.filter(|lines| !lines.is_empty()).collect::<Vec<_>>(), [expected]);
    }
}

#[test]
fn malformed_lines_are_errors_unless_tolerated() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace.csv");
    let shown = path.display();
    fs::write(&path, "0,a,1,5,0,get,0\nx,a,1,5,0,get,0\n0,b,1,5,0,get,0\n0,b,1,2000000,0,set,9\n").unwrap();
    assert_eq!(
        refusal(&path),
        format!(
            "{shown}:2: the timestamp \"x\" is not a number of seconds; --trace-errors-max N skips up to N such lines"
        )
    );
    let (_, counts, error) = replay(&TraceConfig { errors_max: 2, ..TraceConfig::new(&path) }, 2);
    assert_eq!((counts.rows, counts.broken, error), (2, 2, None));
    assert_eq!(
        counts.first_broken,
        [
            format!("{shown}:2: the timestamp \"x\" is not a number of seconds"),
            format!("{shown}:4: a value of 2000000 bytes is above the server's limit of 1048576")
        ]
    );
    let one = TraceConfig { errors_max: 1, ..TraceConfig::new(&path) };
    assert_eq!(
        scan(&one).unwrap_err().to_string(),
        format!(
            "{shown}:4: a value of 2000000 bytes is above the server's limit of 1048576; more than 1 lines are malformed; raise --trace-errors-max to skip more"
        )
    );
}

#[test]
fn rows_before_a_malformed_line_are_replayed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace.csv");
    fs::write(&path, "0,a,1,5,0,get,0\n1,b,1,5,0,get,0\n2,c,1,5,0,get,0\n1,d,1,5,0,get,0\n").unwrap();
    let (by_thread, counts, error) = replay(&TraceConfig::new(&path), 1);
    assert_eq!((by_thread[0].len(), counts.rows), (2, 2));
    let error = error.unwrap();
    assert!(error.starts_with(&format!("{}:4: its timestamp is before", path.display())), "{error}");
}

#[test]
fn files_that_are_not_traces_are_one_line() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace");
    let shown = path.display().to_string();
    assert!(refusal(&path).starts_with(&format!("{shown}: No such file")));
    assert_eq!(
        refusal(directory.path()),
        format!("{}: is a directory; give one file of the trace", directory.path().display())
    );
    for empty in ["", "timestamp,anonymized key,key size,value size,client id,operation,TTL\n"] {
        fs::write(&path, empty).unwrap();
        assert_eq!(refusal(&path), format!("{shown}: the file has no rows; is it a trace?"));
        assert!(scan(&TraceConfig::new(&path)).is_err());
    }
    let bytes = compress_to_vec(SyntheticTrace::default().text().as_bytes(), CompressionLevel::Fastest);
    fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    let line = refusal(&path);
    assert!(line.starts_with(&format!("{shown}: the zstd data ends in the middle; is the file truncated? after line")));
    fs::write(&path, b"\x1f\x8b\x08\x00\x00\x00").unwrap();
    assert_eq!(refusal(&path), format!("{shown}: compressed with gzip; only zstd and plain text are read"));
    fs::write(&path, vec![0u8; 100_000]).unwrap();
    assert!(refusal(&path).starts_with(&format!("{shown}:1: longer than 4096 bytes")));
}

#[test]
fn a_thread_that_stops_taking_rows_does_not_hold_up_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace.csv");
    SyntheticTrace { rows_per_second: vec![10; 1000], ..Default::default() }.write(&path);
    let (reader, mut rows) = TraceReader::start(&TraceConfig::new(&path), 2).unwrap();
    let gone = rows.remove(0);
    let scope = thread::spawn(move || drain(rows.remove(0)).len());
    drop(gone);
    assert!(scope.join().unwrap() > 1000);
    assert_eq!((reader.counts().rows, reader.error()), (10_000, None));
}

#[test]
fn the_reader_reads_ahead_only_so_far() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace.csv");
    SyntheticTrace { rows_per_second: vec![10; 1000], ..Default::default() }.write(&path);
    let (reader, mut rows) = TraceReader::start(&TraceConfig::new(&path), 1).unwrap();
    let mut taken = 0;
    while let Next::Row(_) = rows[0].wait(WAIT) {
        rows[0].advance();
        taken += 1;
        // The piece in replay, the piece in the queue, and the piece that was just counted and waits for room.
        let read = reader.counts().rows;
        assert!(read <= (taken - 1) / 10 * 10 + 30, "{read} rows are read when {taken} are replayed");
    }
    assert_eq!(taken, 10_000);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn only_malformed_lines_are_skipped(
        breaks in proptest::collection::btree_map(0usize..200, 0usize..5, 0..20),
        seed in any::<u64>(),
        threads in 1usize..4,
        rows_max in proptest::option::of(1u64..250),
    ) {
        let nonsense = ["", "nonsense", "0,k,1,0,0,get", "0,k k,3,0,0,get,0", ",,,,,,"];
        let rows = SyntheticTrace { seed, ..Default::default() }.rows();
        let mut text = String::new();
        let (mut lines, mut broken) = (0, Vec::new());
        for (number, row) in rows.iter().enumerate() {
            if let Some(kind) = breaks.get(&number) {
                text += &format!("{}\n", nonsense[*kind]);
                lines += 1;
                broken.push(lines);
            }
            text += &format!("{}\n", row.line());
            lines += 1;
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("trace.csv");
        fs::write(&path, text).unwrap();
        let config = TraceConfig { errors_max: 1000, rows_max, ..TraceConfig::new(&path) };
        let (by_thread, counts, error) = replay(&config, threads);
        let expected = rows.len().min(rows_max.unwrap_or(u64::MAX) as usize);
        prop_assert_eq!((counts.rows, error), (expected as u64, None));
        prop_assert_eq!(by_thread.iter().map(Vec::len).sum::<usize>(), expected);
        let mut merged = by_thread.concat();
        merged.sort_by_key(|row| row.at_ns);
        prop_assert!(merged.iter().zip(&rows).all(|(taken, row)| taken.line == without_timestamp(row)));
        if rows_max.is_none() {
            prop_assert_eq!(counts.broken, broken.len() as u64);
            for (text, line) in counts.first_broken.iter().zip(&broken) {
                prop_assert!(text.starts_with(&format!("{}:{line}: ", path.display())), "{} is not line {}", text, line);
            }
        }
    }
}
