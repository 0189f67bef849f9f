//! Record files: rows survive writing and reading, the golden file is unchanged, and damaged files are refused in one line.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use clock::{Clock, Nanos};
use records::{Header, PARENT, Program, ReadError, Reader, Row, Writer, is_sampled};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A file of `rows` rows of the proxy.
fn written(directory: &Path, rows: u32) -> PathBuf {
    let (clock, _) = Clock::manual(Nanos(5));
    let writer = Writer::create(directory, Program::Proxy, 1, &clock).unwrap();
    let path = writer.path().to_owned();
    let mut sender = writer.sender();
    for sequence in 0..rows {
        sender.push(&Row { sequence, ..Row::default() }, &[1, 2, 3, 4, 5, 6, 7, 8]);
    }
    drop(sender);
    assert_eq!(writer.close(0).unwrap().written, u64::from(rows));
    path
}

#[test]
fn rows_come_back_in_order() {
    let directory = tempfile::tempdir().unwrap();
    let reader = Reader::open(&written(directory.path(), 1000), false).unwrap();
    assert_eq!((reader.len(), reader.dropped, reader.lost), (1000, 0, 0));
    for (index, (row, stamps)) in reader.rows().enumerate() {
        assert_eq!(row.sequence as usize, index);
        assert_eq!(stamps, [1, 2, 3, 4, 5, 6, 7, 8]);
    }
}

/// The golden file contains one plain get, one replicated set with its two legs, and one timeout.
/// The Python tests read the same file and expect the same values.
#[test]
fn the_golden_file_is_unchanged() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/proxy-v1.way");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("golden.way");
    let fresh = Header::new(Program::Proxy, 100, Nanos(1_000), 1_700_000_000_000_000_000);
    let header = Header { version: "0.1.0".into(), ..fresh };
    let writer = Writer::begin(path.clone(), &header).unwrap();
    let mut sender = writer.sender();
    let get = Row {
        connection: 1,
        sequence: 7,
        request_bytes: 9,
        reply_bytes: 150,
        backend_sequence: 3,
        queue_length: 2,
        port: 40_001,
        backend_port: 50_001,
        backend: 0,
        keys: 1,
        hits: 1,
        r#loop: 0,
        operation: 1,
        outcome: 0,
        leg: PARENT,
        legs: 1,
        reserved: 0,
    };
    sender.push(&get, &[1000, 1010, 1025, 1030, 1030, 1100, 1500, 1600]);
    let set = Row { sequence: 8, operation: 5, request_bytes: 170, reply_bytes: 8, hits: 0, legs: 2, ..get };
    sender.push(&set, &[2000, 2010, 2025, 2030, 2030, 2200, 2900, 3000]);
    sender.push(&Row { leg: 0, ..set }, &[2000, 2010, 2025, 2030, 2030, 2100, 2800, 3000]);
    sender.push(&Row { leg: 1, backend: 1, ..set }, &[2000, 2010, 2025, 2030, 2030, 2200, 2900, 3000]);
    let late = Row { connection: 2, port: 40_002, sequence: u32::MAX, outcome: 3, hits: 0, ..get };
    sender.push(&late, &[4000, 4010, 4025, 4030, 4030, 4100, 1_000_004_000, 1_000_004_100]);
    drop(sender);
    writer.close(0).unwrap();
    let fresh = fs::read(&path).unwrap();
    if std::env::var_os("WAYSTAGE_UPDATE_GOLDEN").is_some() {
        fs::create_dir_all(golden.parent().unwrap()).unwrap();
        fs::write(&golden, &fresh).unwrap();
    }
    assert_eq!(
        fresh,
        fs::read(&golden).unwrap(),
        "the format changed: raise its version, then WAYSTAGE_UPDATE_GOLDEN=1"
    );
}

#[test]
fn damaged_files_are_refused_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let path = written(directory.path(), 10);
    let whole = fs::read(&path).unwrap();
    let refused = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        let line = Reader::open(&path, false).unwrap_err().to_string();
        assert!(!line.contains('\n') && line.contains(path.to_str().unwrap()), "{line}");
        line
    };
    assert!(refused(&whole[..whole.len() - 40]).contains("truncated after 9 rows"));
    assert!(refused(b"hello").contains("not a record file"));
    assert!(refused(&whole[..30]).contains("incomplete"));
    let mut cut = whole.clone();
    cut.drain(whole.len() - 32 - 104..whole.len() - 32);
    assert!(refused(&cut).contains("the footer counts 10 rows but the file has 9"));
    let mut decreasing = whole.clone();
    let last_stamp = whole.len() - 32 - 8;
    decreasing[last_stamp] = 0;
    assert!(refused(&decreasing).contains("row 9: its stamps decrease"));
    let text = String::from_utf8_lossy(&whole[..60]).replace("records/1", "records/9");
    let newer = [text.as_bytes(), &whole[60..]].concat();
    assert!(refused(&newer).contains("this program reads"));
    assert!(matches!(Reader::open(Path::new("/nonexistent.way"), false), Err(ReadError::Open { .. })));
}

#[test]
fn a_truncated_file_is_read_in_part_on_request() {
    let directory = tempfile::tempdir().unwrap();
    let path = written(directory.path(), 10);
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() - 40]).unwrap();
    assert_eq!(Reader::open(&path, true).unwrap().len(), 9);
}

#[test]
#[should_panic(expected = "never decrease")]
fn the_writer_refuses_stamps_that_decrease() {
    let directory = tempfile::tempdir().unwrap();
    let writer = Writer::create(directory.path(), Program::Load, 1, &Clock::monotonic()).unwrap();
    writer.sender().push(&Row::default(), &[4, 3, 5, 6]);
}

#[test]
fn an_unwritable_directory_is_named() {
    let error = Writer::create(Path::new("/proc/nowhere"), Program::Load, 1, &Clock::monotonic()).unwrap_err();
    assert!(error.to_string().contains("/proc/nowhere"), "{error}");
    assert!(!is_sampled(1, 1, 0));
}

#[test]
fn a_file_is_not_readable_by_others_and_never_written_through_a_link() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("target");
    let records = folder.path().join("records");
    fs::create_dir(&records).unwrap();
    let expected = records.join(format!("proxy-{}.way", std::process::id()));
    for content in [None, Some("precious")] {
        if let Some(content) = content {
            fs::write(&target, content).unwrap();
        }
        std::os::unix::fs::symlink(&target, &expected).unwrap();
        let writer = Writer::create(&records, Program::Proxy, 1, &Clock::monotonic()).unwrap();
        let path = writer.path().to_path_buf();
        assert!(path != expected && path.starts_with(&records), "{}", path.display());
        assert_eq!(writer.close(0).unwrap().written, 0);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(fs::read_to_string(&target).ok().as_deref(), content);
        fs::remove_file(&expected).unwrap();
    }
    std::os::unix::fs::symlink(&target, &expected).unwrap();
    let header = Header::new(Program::Proxy, 1, Clock::monotonic().now(), 0);
    let line = Writer::begin(expected.clone(), &header).unwrap_err().to_string();
    assert_eq!(line, format!("{}: it is a link; give the file itself", expected.display()));
}
