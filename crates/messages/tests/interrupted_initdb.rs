//! A service that is killed while its private PostgreSQL creates the data: the next one begins again.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use messages::{Embedded, EmbeddedError};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The directory of the process that is killed.
const DIRECTORY: &str = "WAYSTAGE_TEST_DIRECTORY";
/// How often a test tries to kill the process at the right moment.
const ATTEMPTS: usize = 20;

/// What initdb has written, and whether a data directory has it.
type Moment = (&'static str, fn(&Path) -> bool);

/// When the process is killed, in the order of initdb.
const MOMENTS: [Moment; 5] = [
    ("the directory", |data| data.is_dir()),
    ("the version", |data| data.join("PG_VERSION").exists()),
    ("the first database", |data| data.join("base/1/PG_VERSION").exists()),
    ("the second database", |data| databases(data) == 2),
    ("the database of the service", |data| databases(data) == 3),
];

fn databases(data: &Path) -> usize {
    fs::read_dir(data.join("base")).map_or(0, Iterator::count)
}

/// The data directory, and those that initdb has not finished.
fn data_directories(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("data")).collect()
}

#[test]
#[ignore = "the other tests run it as a process and kill it"]
fn process_that_starts_a_server() {
    let folder = std::env::var_os(DIRECTORY).unwrap();
    drop(Embedded::start(Path::new(&folder)).unwrap());
}

fn start_process(folder: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "process_that_starts_a_server"]).env(DIRECTORY, folder);
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// A directory whose service was killed at this moment.
fn interrupted(is_now: fn(&Path) -> bool, kill: fn(Pid)) -> tempfile::TempDir {
    for _ in 0..ATTEMPTS {
        let folder = tempfile::tempdir().unwrap();
        let mut child = start_process(folder.path());
        while child.try_wait().unwrap().is_none() {
            if data_directories(folder.path()).iter().any(|data| is_now(data)) {
                kill(Pid::from_child(&child));
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let status = child.wait().unwrap();
        if status.signal() == Some(Signal::KILL.as_raw()) {
            return folder;
        }
        // Otherwise it was too late.
    }
    panic!("the process never ran at this moment");
}

/// Starts a server on this directory, which must have the database of the service.
fn start(folder: &Path) {
    let server = Embedded::start(folder).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(&server.url(), tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        client.batch_execute("CREATE TABLE works ()").await.unwrap();
    });
}

fn is_installed() -> bool {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    // The programs are searched for first. If they are there, the directory is refused.
    let is_installed = !matches!(Embedded::start(folder.path()), Err(EmbeddedError::Missing(_)));
    if !is_installed {
        testkit::skip_without("PostgreSQL", "postgresql");
    }
    is_installed
}

#[test]
fn a_start_after_a_kill_during_initdb_begins_again() {
    if !is_installed() {
        return;
    }
    for (moment, is_now) in MOMENTS {
        let folder = interrupted(is_now, |process| kill_process_group(process, Signal::KILL).unwrap());
        eprintln!("killed after {moment}: {:?}", data_directories(folder.path()));
        start(folder.path());
        assert_eq!(data_directories(folder.path()), [folder.path().join("data")], "after {moment}");
    }
}

#[test]
fn a_start_while_the_initdb_of_a_killed_service_is_still_running_does_not_use_its_data() {
    if !is_installed() {
        return;
    }
    for (moment, is_now) in [MOMENTS[1], MOMENTS[3]] {
        let folder = interrupted(is_now, |process| kill_process(process, Signal::KILL).unwrap());
        eprintln!("killed after {moment}: {:?}", data_directories(folder.path()));
        start(folder.path());
        // The other initdb can have written until it ended.
        for attempt in 0.. {
            drop(Embedded::start(folder.path()).unwrap());
            if data_directories(folder.path()) == [folder.path().join("data")] {
                break;
            }
            assert!(attempt < ATTEMPTS, "{:?} are left", data_directories(folder.path()));
        }
    }
}

/// Only what initdb has left is removed.
#[test]
fn other_files_are_refused_and_kept() {
    for name in ["data.new", "data/file"] {
        let folder = tempfile::tempdir().unwrap();
        let other = folder.path().join(name);
        fs::create_dir_all(other.parent().unwrap()).unwrap();
        fs::write(&other, "kept").unwrap();
        match Embedded::start(folder.path()) {
            Err(EmbeddedError::Missing(_)) => return testkit::skip_without("PostgreSQL", "postgresql"),
            Err(error) => {
                let line = error.to_string();
                assert!(line.contains("no PostgreSQL data") && !line.contains('\n'), "{line}");
            }
            Ok(_) => panic!("{name} was used"),
        }
        assert_eq!(fs::read_to_string(&other).unwrap(), "kept");
    }
}
