//! The private PostgreSQL: waystage stops it even after a kill, refuses links and other files, and writes through no link.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use messages::{Config, Embedded, EmbeddedError};
use rustix::fs::{FlockOperation, flock};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

fn start(folder: &Path) -> Option<Embedded> {
    match Embedded::start(folder) {
        Ok(server) => Some(server),
        Err(EmbeddedError::Missing(_)) => {
            testkit::skip_without("PostgreSQL", "postgresql");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// The number of the server's process, from the file that exists while it runs.
fn process(folder: &Path) -> Option<u32> {
    let text = std::fs::read_to_string(folder.join("data/postmaster.pid")).ok()?;
    text.lines().next()?.trim().parse().ok()
}

/// A server whose waystage was killed.
fn orphan(folder: &Path) -> Option<Child> {
    let server = start(folder)?;
    let mut command = server.command("postgres");
    drop(server);
    command.arg("-D").arg(folder.join("data")).args(["-c", "listen_addresses=", "-c"]);
    command.arg(format!("unix_socket_directories={}", folder.display())).stderr(Stdio::null());
    let child = command.spawn().unwrap();
    while std::os::unix::net::UnixStream::connect(folder.join(".s.PGSQL.5432")).is_err() {
        std::thread::sleep(Duration::from_millis(10));
    }
    Some(child)
}

#[test]
fn a_server_whose_waystage_was_killed_is_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut child) = orphan(folder.path()) else { return };
    let server = start(folder.path()).unwrap();
    child.wait().unwrap();
    assert_ne!(process(folder.path()), Some(child.id()), "the orphan still runs");
    drop(server);
    assert_eq!(process(folder.path()), None, "a server was left");
}

/// The line with which a start ends.
fn refusal(folder: &Path) -> String {
    let line = Embedded::start(folder).unwrap_err().to_string();
    assert!(!line.contains('\n'), "{line}");
    line
}

/// PostgreSQL does not always log an error of the level FATAL.
#[test]
fn the_reason_why_a_server_does_not_start_is_reported_whatever_its_level() {
    let folder = tempfile::tempdir().unwrap();
    let Some(server) = start(folder.path()) else { return };
    drop(server);
    std::fs::remove_file(folder.path().join("data/global/pg_control")).unwrap();
    let line = refusal(folder.path());
    assert!(line.contains("could not open file") && line.contains("pg_control"), "{line}");
    assert!(line.contains(&folder.path().join("postgres.log").display().to_string()), "{line}");
}

/// After a crash of the machine, the number in the files of the server can belong to another process of the same user, such as the system's
/// PostgreSQL. PostgreSQL refuses the data as long as that process exists.
#[test]
fn another_process_with_the_number_of_a_killed_server_is_named_and_not_stopped() {
    use std::os::unix::{fs::MetadataExt, process::CommandExt};
    let folder = tempfile::tempdir().unwrap();
    let Some(mut server) = start(folder.path()) else { return };
    server.kill();
    drop(server);
    let locks = ["data/postmaster.pid", ".s.PGSQL.5432.lock"].map(|name| folder.path().join(name));
    let owner = std::fs::metadata(&locks[0]).unwrap().uid();
    let mut other = std::process::Command::new("sleep").arg("600").uid(owner).spawn().unwrap();
    for lock in &locks {
        let text = std::fs::read_to_string(lock).unwrap();
        let (_, rest) = text.split_once('\n').unwrap();
        std::fs::write(lock, format!("{}\n{rest}", other.id())).unwrap();
    }
    for lock in &locks {
        let line = refusal(folder.path());
        assert!(other.try_wait().unwrap().is_none(), "the other process was stopped");
        assert!(line.contains(&lock.display().to_string()), "{line}");
        if cfg!(target_os = "linux") {
            assert!(line.contains(&format!("the process {} (sleep) does not use these data", other.id())), "{line}");
            let attempts = std::fs::read_to_string(folder.path().join("postgres.log")).unwrap();
            assert_eq!(attempts.matches("FATAL").count(), 1, "it tried again: {attempts}");
        }
        std::fs::remove_file(lock).unwrap();
    }
    drop(start(folder.path()).unwrap());
    assert!(other.try_wait().unwrap().is_none(), "the other process was stopped");
    assert_eq!(process(folder.path()), None);
    other.kill().unwrap();
    other.wait().unwrap();
}

/// A crash of the machine can leave it so. For a moment, the file of a server that starts is empty as well.
#[test]
fn an_empty_lock_file_is_named_soon() {
    let folder = tempfile::tempdir().unwrap();
    let Some(server) = start(folder.path()) else { return };
    drop(server);
    let lock = folder.path().join("data/postmaster.pid");
    std::fs::write(&lock, "").unwrap();
    let clock = clock::Clock::monotonic();
    let began = clock.now();
    let line = refusal(folder.path());
    assert!(line.contains("is empty") && line.contains(&lock.display().to_string()), "{line}");
    // It takes about 15 s; this machine may be busy.
    assert!(clock.now().after(began) < Duration::from_secs(100), "it took {:?}", clock.now().after(began));
    std::fs::remove_file(&lock).unwrap();
    drop(start(folder.path()).unwrap());
}

/// A directory with this name, which PostgreSQL's user can enter, also if the test runs as root.
fn named(folder: &tempfile::TempDir, name: impl AsRef<Path>) -> PathBuf {
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    folder.path().join(name)
}

#[test]
fn a_directory_with_quotes_blanks_or_backslashes_in_its_name_is_used() {
    let folder = tempfile::tempdir().unwrap();
    let place = named(&folder, r#"it's "a b" \ c"#);
    let Some(server) = start(&place) else { return };
    let config = Config { database: server.url(), listen: "127.0.0.1:0".into(), ..Config::default() };
    let service = messages::start(&config, clock::Clock::monotonic()).unwrap();
    assert!(service.is_database_reachable());
    service.stop().unwrap();
}

#[test]
fn a_directory_whose_name_no_connection_string_can_have_is_refused_at_once() {
    use std::os::unix::ffi::OsStrExt;
    for name in [b"a,b".as_slice(), b"\xff"] {
        let folder = tempfile::tempdir().unwrap();
        let place = named(&folder, std::ffi::OsStr::from_bytes(name));
        match Embedded::start(&place) {
            Err(EmbeddedError::Missing(_)) => return testkit::skip_without("PostgreSQL", "postgresql"),
            Err(error) => assert!(error.to_string().contains("comma"), "{error}"),
            Ok(_) => panic!("{} is not refused", place.display()),
        }
        assert_eq!(std::fs::read_dir(&place).unwrap().count(), 0, "something was written");
    }
}

#[test]
fn a_server_of_another_waystage_is_used_and_not_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let Some(first) = start(folder.path()) else { return };
    let running = process(folder.path());
    drop(start(folder.path()).unwrap());
    assert!(running.is_some());
    assert_eq!(process(folder.path()), running);
    drop(first);
    assert_eq!(process(folder.path()), None);
}

#[test]
fn a_link_or_a_directory_with_other_files_is_refused_and_stays_as_it_was() {
    use std::os::unix::fs::{MetadataExt, symlink};
    let folder = tempfile::tempdir().unwrap();
    let victim = folder.path().join("victim");
    std::fs::create_dir(&victim).unwrap();
    std::fs::write(victim.join("passwd"), "root").unwrap();
    let before = std::fs::metadata(&victim).unwrap();
    symlink(&victim, folder.path().join("postgres")).unwrap();
    for place in ["postgres", "victim"] {
        match Embedded::start(&folder.path().join(place)) {
            Err(EmbeddedError::Missing(_)) => return testkit::skip_without("PostgreSQL", "postgresql"),
            Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
            Ok(_) => panic!("{place} is not refused"),
        }
        let after = std::fs::metadata(&victim).unwrap();
        assert_eq!((after.uid(), after.mode()), (before.uid(), before.mode()));
    }
}

#[test]
fn a_service_takes_the_place_of_one_that_ends_while_it_starts() {
    let folder = tempfile::tempdir().unwrap();
    let Some(server) = start(folder.path()) else { return };
    drop(server);
    let other = std::fs::File::open(folder.path()).unwrap();
    flock(&other, FlockOperation::LockExclusive).unwrap();
    let ends = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(500));
        drop(other);
    });
    let server = start(folder.path()).unwrap();
    assert!(process(folder.path()).is_some());
    ends.join().unwrap();
    drop(server);
}

#[test]
fn the_log_is_not_written_through_a_link() {
    let folder = tempfile::tempdir().unwrap();
    let Some(server) = start(folder.path()) else { return };
    drop(server);
    let outside = tempfile::tempdir().unwrap();
    let secret = outside.path().join("secret");
    std::fs::write(&secret, "kept").unwrap();
    std::fs::remove_file(folder.path().join("postgres.log")).unwrap();
    std::os::unix::fs::symlink(&secret, folder.path().join("postgres.log")).unwrap();
    drop(start(folder.path()).unwrap());
    assert_eq!(std::fs::read_to_string(&secret).unwrap(), "kept");
}
