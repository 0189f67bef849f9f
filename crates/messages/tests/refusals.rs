//! A database that is read-only or full: the service reports it, and loses nothing.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::{Client, Database, serve};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

const REFUSED: &str = "\"type\":\"urn:waystage:problem:database-error\"";
/// Small enough to be stored in the row itself, so that compression does not matter.
const BODY_BYTES: usize = 1500;

#[test]
fn a_read_only_database_still_reads() {
    let Some(database) = Database::start() else { return };
    let running = serve(&database.config());
    let mut client = Client::connect(running.address(), "alice");
    assert_eq!(client.short("PUT", "/v1/queues/q").0, 201);
    client.send("/v1/queues/q/messages", "x");
    database.run("ALTER SYSTEM SET default_transaction_read_only = on");
    database.run("SELECT pg_reload_conf()");
    // The connections notice it one after the other.
    while client.short("PUT", "/v1/queues/q").0 != 503 || client.short("POST", "/v1/queues/q/messages").0 != 503 {
        std::thread::sleep(Duration::from_millis(10));
    }
    for (method, path) in [
        ("PUT", "/v1/queues/p"),
        ("DELETE", "/v1/queues/q"),
        ("POST", "/v1/queues/q/messages"),
        ("POST", "/v1/queues/q/messages:pop"),
        ("POST", "/v1/queues/q/messages:receive"),
    ] {
        let reply = client.ask(method, path, "");
        assert!(reply.status == 503 && reply.text().contains(REFUSED), "{method} {path}: {}", reply.text());
        assert_eq!(reply.header("retry-after"), Some("1"));
    }
    assert_eq!(client.short("GET", "/v1/queues/q/messages/head"), (200, "x".into()));
    assert_eq!(client.short("GET", "/v1/queues").0, 200);
    database.run("ALTER SYSTEM RESET default_transaction_read_only");
    database.run("SELECT pg_reload_conf()");
    let popped = loop {
        let reply = client.ask("POST", "/v1/queues/q/messages:pop", "");
        if reply.status != 503 {
            break reply;
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    assert!(popped.status == 200 && popped.text().starts_with('x'), "{}", popped.text());
    running.stop().unwrap();
}

/// A small file system in memory, which only root can create.
struct Small {
    directory: TempDir,
}

impl Small {
    fn mount() -> Option<Small> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: only root can make a file system that is full");
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let small = Small { directory };
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "none"]).arg(small.path()).status();
        assert!(mount.unwrap().success(), "mount");
        Some(small)
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        // If this fails, the directory remains, which does not fail the test.
        let _ = Command::new("umount").arg(self.path()).status();
    }
}

#[test]
fn a_full_database_refuses_sends_and_its_messages_can_be_popped() {
    let Some(small) = Small::mount() else { return };
    let Some(database) = Database::start() else { return };
    let running = serve(&database.config());
    let url = database.server.url();
    let data = PathBuf::from(url.split('\'').nth(1).unwrap());
    let owner = std::fs::metadata(data).unwrap();
    chown(small.path(), Some(owner.uid()), Some(owner.gid())).unwrap();
    std::fs::set_permissions(small.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    database.run(&format!("CREATE TABLESPACE small LOCATION '{}'", small.path().display()));
    database.run("ALTER TABLE message SET TABLESPACE small");
    let mut client = Client::connect(running.address(), "alice");
    assert_eq!(client.short("PUT", "/v1/queues/q").0, 201);
    let body = "x".repeat(BODY_BYTES);
    let mut stored = 0;
    let refused = loop {
        let reply = client.ask("POST", "/v1/queues/q/messages", &body);
        if reply.status != 201 {
            break reply;
        }
        stored += 1;
    };
    assert!(refused.status == 503 && refused.text().contains(REFUSED), "{}", refused.text());
    assert!(stored > 100, "{stored}");
    for _ in 0..stored {
        assert_eq!(client.ask("POST", "/v1/queues/q/messages:pop", "").body.len(), BODY_BYTES);
    }
    assert_eq!(client.short("POST", "/v1/queues/q/messages:pop").0, 204, "a refused message is not stored");
    running.stop().unwrap();
    drop(database);
}
