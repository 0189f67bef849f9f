//! The private PostgreSQL: waystage stops it even after a kill, refuses links and other files, and writes through no link.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use messages::{Embedded, EmbeddedError};
use std::path::Path;
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
