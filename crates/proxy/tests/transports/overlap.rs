//! Take-overs, reloads and exits that overlap.

use crate::hand_over::Place;
use crate::speak::{PATIENCE, ask, expect, stop, unix_client};
use net::HostPort;
use proxy::{Config, Lookup, Running, ServerConfig};
use std::io::Write;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use testkit::{Client, Scripted};

/// A configuration like this one whose start runs `between` once, while it resolves the name of the backend.
fn with_step(config: &Config, backend: SocketAddr, between: impl FnOnce() + Send + 'static) -> Config {
    let mut config = config.clone();
    config.pools[0].servers[0].address = format!("cache.test:{}", backend.port());
    let between = Mutex::new(Some(between));
    config.transport.lookup = Lookup::new(move |_: &HostPort| {
        if let Some(between) = between.lock().unwrap().take() {
            between();
        }
        Ok(vec![backend])
    });
    config
}

#[test]
fn a_take_over_that_completes_during_a_reload_prevents_the_reload() {
    let place = Arc::new(Place::new());
    let mut old = place.start(false, |_| ());
    let (address, backend) = (old.address().unwrap(), place.server.address());
    let mut tcp = Client::connect(address);
    let mut unix = unix_client(&place.unix());
    tcp.ask("set k 0 0 1\r\n1\r\n", "STORED\r\n");
    unix.write_all(b"set half 0 0 2\r\n1").unwrap();
    let successor: Arc<Mutex<Option<Running>>> = Arc::default();
    let between = {
        let (place, successor) = (place.clone(), successor.clone());
        move || *successor.lock().unwrap() = Some(place.start(true, |_| ()))
    };
    let notice = old.handed_over().unwrap();
    // Another path, since both configurations would bind the same one until they serve: here they share a process.
    let other = place.control().with_extension("other");
    let mut config = with_step(old.config(), backend, between);
    config.transport.control = Some(other.clone());
    let outcome = old.reload(config);
    assert!(!other.exists());
    let line = outcome.err().expect("the new configuration must not be served").to_string();
    assert_eq!(line, "another process has taken over the listening sockets");
    notice.recv_timeout(PATIENCE).expect("the old proxy knows");
    let successor = successor.lock().unwrap().take().expect("the name was resolved");
    assert_eq!(successor.warnings, Vec::<String>::new());
    // The old proxy serves its clients as after any take-over.
    tcp.ask("get k\r\n", "VALUE k 0 1\r\n1\r\nEND\r\n");
    ask(&mut unix, "2\r\n", "STORED\r\n");
    let again = old.reload(old.config().clone()).err().expect("there is nothing left to reload").to_string();
    assert_eq!(again, line);
    // The socket files belong to the successor.
    let mut new = unix_client(&place.unix());
    ask(&mut new, "get half\r\n", "VALUE half 0 2\r\n12\r\nEND\r\n");
    drop((tcp, unix));
    old.wait_for_clients(|| false);
    stop(old);
    expect(&mut unix_client(&place.unix()), "");
    let last = place.start(true, |_| ());
    assert_eq!((last.address(), last.warnings.len()), (Some(address), 0), "the control socket is the successor's");
    drop(new);
    stop(successor);
    stop(last);
}

/// A backend that refuses every write and every deletion.
fn refusing() -> Scripted {
    Scripted::start(|peer, _| {
        while let Some(line) = peer.line() {
            match line.split(' ').next() {
                Some("set") => _ = peer.line().map(|_| peer.send("SERVER_ERROR no\r\n")),
                Some("get") => peer.send("END\r\n"),
                _ => peer.send("SERVER_ERROR no\r\n"),
            }
        }
    })
}

#[test]
fn pending_invalidations_do_not_delay_the_exit_after_a_take_over() {
    const VALUE_BYTES: usize = 300_000;
    let (place, refusing) = (Place::new(), refusing());
    let mut old = place.start(false, |config| {
        config.transport.hand_over_wait = Duration::from_millis(200);
        config.client_limits.unread_timeout = Duration::ZERO;
        config.pools[0].servers.push(ServerConfig::new(&refusing.address().to_string()));
        config.pools[0].replicas = 2;
    });
    let mut client = Client::connect(old.address().unwrap());
    // One replica has not stored the value, so an invalidation stays pending there.
    client.send(format!("set k 0 0 {VALUE_BYTES}\r\n{}\r\n", "v".repeat(VALUE_BYTES)));
    client.line();
    client.send("get k\r\n".repeat(400));
    let new = place.start(true, |_| ());
    let (sender, receiver) = std::sync::mpsc::sync_channel(1);
    let ended = std::thread::spawn(move || {
        old.wait_for_clients(|| receiver.try_recv().is_ok());
        stop(old);
    });
    let clock = clock::Clock::monotonic();
    let until = clock.now() + PATIENCE;
    while !ended.is_finished() && clock.now() < until {
        std::thread::sleep(Duration::from_millis(20));
    }
    // Lets the thread end, if it is still running.
    let is_hurried = sender.send(()).is_ok() && !ended.is_finished();
    ended.join().unwrap();
    assert!(!is_hurried, "a client that does not read has kept the old proxy for {PATIENCE:?}");
    stop(new);
}
