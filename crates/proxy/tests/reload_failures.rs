//! A reload that fails leaves nothing behind: no thread, no descriptor, no file. A file of its own, because it counts the threads
//! and descriptors of the whole process.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod common;

use clock::Clock;
use common::{servers, until};
use net::IdentityFiles;
use proxy::{Config, RecordsConfig};
use std::net::TcpListener;
use std::path::Path;
use testkit::Client;

/// How often each configuration is loaded.
const ROUNDS: usize = 10;

fn entries(folder: impl AsRef<Path>) -> usize {
    std::fs::read_dir(folder).unwrap().count()
}

/// The threads and the descriptors of this process.
fn used() -> [usize; 2] {
    ["/proc/self/task", "/proc/self/fd"].map(entries)
}

#[test]
fn a_reload_that_fails_leaves_nothing() {
    let servers = servers(1);
    let folder = tempfile::tempdir().unwrap();
    let (records, control) = (folder.path().join("records"), folder.path().join("control"));
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken_address = taken.local_addr().unwrap().to_string();
    let unix = format!("unix:{}", folder.path().join("socket").display());
    std::fs::write(folder.path().join("file"), "").unwrap();
    std::fs::create_dir(&records).unwrap();
    let valid = || {
        let mut config = Config::new("127.0.0.1:0", &[servers[0].address().to_string()]);
        (config.loops, config.metrics) = (2, Some("127.0.0.1:0".into()));
        config.transport.control = Some(control.clone());
        config
    };
    let recorded = |directory: &Path| Some(RecordsConfig { directory: directory.into(), sample: 1 });
    let metrics_taken = |config: &mut Config| config.metrics = Some(taken_address.clone());
    type Change<'a> = &'a dyn Fn(&mut Config);
    let bad: [(&str, Change<'_>); 8] = [
        ("invalid", &|config| config.pools[0].replicas = 2),
        ("listen", &|config| config.listen.extend([unix.clone().into(), taken_address.clone().into()])),
        ("metrics", &|config| {
            metrics_taken(config);
            config.listen.push(unix.clone().into());
            config.records = recorded(&records);
            config.pools[0].servers.push(proxy::ServerConfig::new("localhost:1"));
        }),
        ("control", &|config| {
            config.transport.control = Some("/nowhere/control".into());
            config.records = recorded(&records);
        }),
        ("another control", &|config| {
            config.transport.control = Some(folder.path().join("second"));
            metrics_taken(config);
        }),
        ("records", &|config| {
            config.records = recorded(&folder.path().join("file"));
            config.listen.push(unix.clone().into());
        }),
        ("certificate", &|config| {
            let missing = folder.path().join("missing");
            config.transport.tls.identity = Some(IdentityFiles { certificate: missing.clone(), key: missing });
            config.listen.push("tls:127.0.0.1:0".into());
            config.records = recorded(&records);
        }),
        ("authority", &|config| {
            config.transport.tls.backend_authority = Some(folder.path().join("missing"));
            config.pools[0].servers.push(proxy::ServerConfig::new("tls:localhost:1"));
            config.records = recorded(&records);
        }),
    ];
    let mut running = proxy::start(valid(), Clock::monotonic()).unwrap();
    let mut client = Client::connect(running.address().unwrap());
    client.ask("set k 0 0 1\r\n1\r\n", "STORED\r\n");
    // Each event loop connects to the server when it has started.
    let mut before = used();
    while {
        std::thread::sleep(std::time::Duration::from_millis(500));
        used() != before
    } {
        before = used();
    }
    let files = entries(folder.path());
    for (what, change) in bad {
        for _ in 0..ROUNDS {
            let mut config = valid();
            change(&mut config);
            let line = running.reload(config).err().unwrap_or_else(|| panic!("{what} cannot work")).to_string();
            assert!(!line.contains('\n'), "{line}");
        }
        client.ask("get k\r\n", "VALUE k 0 1\r\n1\r\nEND\r\n");
        // A thread is listed for a moment after it has been joined.
        let mut now = used();
        for _ in 0..4000 {
            if now == before {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
            now = used();
        }
        assert_eq!(now, before, "threads and descriptors after {ROUNDS} reloads: {what}");
        assert_eq!((entries(folder.path()), entries(&records)), (files, 0), "files after: {what}");
    }
    // The same process can still be reloaded, and a replaced configuration leaves nothing either.
    for _ in 0..ROUNDS {
        let new = running.reload(valid()).unwrap();
        let mut old = std::mem::replace(&mut running, new);
        old.wait_for_clients(|| false);
        assert_eq!(old.stop().unwrap().lost, 0);
    }
    client.ask("get k\r\n", "VALUE k 0 1\r\n1\r\nEND\r\n");
    until("the replaced configurations have gone", || used() == before);
    assert_eq!(running.stop().unwrap().lost, 0);
}
