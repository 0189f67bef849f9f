//! One proxy replaces another while clients connect and send requests all the time. Both run in this process, but
//! share only the control socket.

use crate::common::until;
use crate::speak::{PATIENCE, ask, proxy, stop, unix_client};
use net::{Channel, Inherited};
use proxy::{Config, FromManager, Running};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use testkit::{Client, Server};

/// The addresses of the proxies, and their server.
pub(crate) struct Place {
    pub(crate) server: Server,
    folder: tempfile::TempDir,
}

impl Place {
    pub(crate) fn new() -> Place {
        Place { server: Server::start(), folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn control(&self) -> PathBuf {
        self.folder.path().join("control")
    }

    pub(crate) fn unix(&self) -> PathBuf {
        self.folder.path().join("clients")
    }

    /// Any free port, which only the first proxy binds, and a unix socket.
    pub(crate) fn start(&self, is_successor: bool, change: impl FnOnce(&mut Config)) -> Running {
        let listen = ["127.0.0.1:0".to_string(), format!("unix:{}", self.unix().display())];
        proxy(&listen, &[self.server.address().to_string()], |config| {
            config.transport.control = Some(self.control());
            config.transport.take_over = is_successor.then(|| self.control());
            config.transport.hand_over_wait = PATIENCE;
            change(config);
        })
    }
}

/// Connects, sends some requests and disconnects, repeatedly. No request may fail.
fn come_and_go<S: Read + Write>(connect: impl Fn() -> S, seed: usize, is_over: &AtomicBool, requests: &AtomicUsize) {
    let mut round = seed;
    while !is_over.load(Ordering::Relaxed) {
        let mut stream = connect();
        // From one request to some hundred.
        for _ in 0..1 + round * round % 157 {
            ask(&mut stream, "get k\r\nget none\r\n", "VALUE k 0 3\r\nabc\r\nEND\r\nEND\r\n");
            requests.fetch_add(2, Ordering::Relaxed);
        }
        round += 1;
    }
}

/// Ends the clients when it is dropped.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn tcp(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("one of the proxies always listens");
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn unix(path: &Path) -> UnixStream {
    unix_client(path)
}

#[test]
fn three_hand_overs_under_load_lose_nothing() {
    let place = Place::new();
    let mut current = place.start(false, |_| ());
    let address = current.address().unwrap();
    Client::connect(address).ask("set k 0 0 3\r\nabc\r\n", "STORED\r\n");
    let (is_over, requests) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mut served = Vec::new();
    std::thread::scope(|scope| {
        let (is_over, requests, path) = (&is_over, &requests, place.unix());
        let clients: Vec<_> = (0..4)
            .map(|seed| {
                let path = path.clone();
                scope.spawn(move || match seed {
                    0 => come_and_go(|| unix(&path), seed, is_over, requests),
                    _ => come_and_go(|| tcp(address), seed, is_over, requests),
                })
            })
            .collect();
        let wait_for_more = || {
            let before = requests.load(Ordering::Relaxed);
            while requests.load(Ordering::Relaxed) < before + 2000 && !clients.iter().any(|client| client.is_finished())
            {
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        // If something fails below, the clients end, and so does the test.
        let _ends = Ends(is_over);
        for _ in 0..3 {
            wait_for_more();
            let notice = current.handed_over().expect("the proxy has a control socket");
            let successor = place.start(true, |_| ());
            assert_eq!(successor.address(), Some(address), "the very socket");
            assert_eq!(successor.warnings, Vec::<String>::new());
            notice.recv_timeout(PATIENCE).expect("the old one knows");
            let mut old = std::mem::replace(&mut current, successor);
            old.wait_for_clients(|| false);
            let totals = old.stop().unwrap();
            assert_eq!(totals.lost, 0);
            served.push(totals.requests);
            assert!(place.unix().exists() && place.control().exists(), "the files are the successor's");
        }
        wait_for_more();
        is_over.store(true, Ordering::Relaxed);
        for client in clients {
            client.join().expect("no client saw a failure");
        }
    });
    let last = current.stop().unwrap();
    served.push(last.requests);
    assert!(served.iter().all(|&requests| requests > 1000), "each served some: {served:?}");
    // Every request of every client, and the one that set the value.
    assert_eq!(served.iter().sum::<u64>(), requests.load(Ordering::Relaxed) as u64 + 1);
    assert!(!place.unix().exists() && !place.control().exists(), "the last one takes the files away");
}

#[test]
fn a_client_that_stays_connected_is_served_until_the_hand_over_wait_ends() {
    let place = Place::new();
    let wait = Duration::from_millis(400);
    let mut old = place.start(false, |config| config.transport.hand_over_wait = wait);
    let mut client = Client::connect(old.address().unwrap());
    client.ask("get k\r\n", "END\r\n");
    let new = place.start(true, |_| ());
    // The old proxy accepts no more clients, but still serves those it has.
    client.ask("get k\r\n", "END\r\n");
    old.wait_for_clients(|| true);
    client.ask("get k\r\n", "END\r\n");
    old.wait_for_clients(|| false);
    stop(old);
    client.expect_closed();
    Client::connect(new.address().unwrap()).ask("get k\r\n", "END\r\n");
    stop(new);
}

#[test]
fn a_slow_reader_gets_all_its_replies_after_the_hand_over_wait() {
    const VALUE_BYTES: usize = 1_000_000;
    let place = Place::new();
    // More than the kernel and the proxy buffer for a client.
    let (replies, pause) = (50, Duration::from_millis(100));
    let short = Duration::from_millis(500);
    let mut old = place.start(false, |config| {
        config.transport.hand_over_wait = short;
        config.pools[0].timeouts = proxy::Timeouts::all(Duration::from_secs(1));
    });
    let mut client = Client::connect(old.address().unwrap());
    client.ask(format!("set k 0 0 {VALUE_BYTES}\r\n{}\r\n", "v".repeat(VALUE_BYTES)), "STORED\r\n");
    let mut sleeper = Client::connect(old.address().unwrap());
    sleeper.send("get k\r\n".repeat(replies));
    client.send("get k\r\n".repeat(replies));
    let new = place.start(true, |_| ());
    let ended = std::thread::spawn(move || {
        old.wait_for_clients(|| false);
        stop(old);
    });
    for _ in 0..replies {
        std::thread::sleep(pause);
        client.expect(format!("VALUE k 0 {VALUE_BYTES}\r\n{}\r\nEND\r\n", "v".repeat(VALUE_BYTES)));
    }
    client.expect_closed();
    // A client that never reads does not prevent the exit of the old proxy.
    ended.join().unwrap();
    stop(new);
}

#[test]
fn strangers_on_the_control_socket_delay_neither_a_hand_over_nor_a_reload_nor_the_end() {
    let place = Place::new();
    let mut current = place.start(false, |_| ());
    let strangers = |count: usize| -> Vec<_> {
        let connect = |number| {
            let channel = net::Channel::connect(&place.control()).unwrap();
            if number % 2 == 1 {
                channel.send("get k", &[]).unwrap();
            }
            channel
        };
        (0..count).map(connect).collect()
    };
    let clock = clock::Clock::monotonic();
    let before = clock.now();
    // More connections than the limit, all of them made before the successor connects.
    let first = strangers(40);
    let mut successor = place.start(true, |_| ());
    assert_eq!(successor.warnings, Vec::<String>::new());
    current.wait_for_clients(|| false);
    stop(current);
    let second = strangers(40);
    let config = successor.config().clone();
    current = successor.reload(config).unwrap();
    successor.wait_for_clients(|| false);
    stop(successor);
    let third = strangers(40);
    Client::connect(current.address().unwrap()).ask("get k\r\n", "END\r\n");
    stop(current);
    let waited = clock.now().after(before);
    assert!(waited < Duration::from_secs(20), "120 silent strangers cost {waited:?}");
    drop((first, second, third));
}

/// Without the second request, both the predecessor and the successor would accept clients.
#[test]
fn a_predecessor_that_is_reloaded_during_a_hand_over_is_requested_again() {
    let place = Place::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let accepted = |control: &net::ControlSocket| loop {
        match control.accept() {
            Ok(channel) => return channel,
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    };
    let lend = |channel: &net::Channel| {
        assert_eq!(channel.receive(PATIENCE).unwrap().0, "take-over 1");
        channel.send(&format!("{address}\n"), &[listener.as_fd()]).unwrap();
    };
    let control = net::ControlSocket::bind(&place.control(), false).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut control = control;
            // One reload before it has sent its sockets, one after that.
            drop(accepted(&control));
            lend(&accepted(&control));
            // The socket of the new configuration replaces it at the same path.
            control.keep_file();
            drop(control);
            std::thread::sleep(Duration::from_millis(100));
            let control = net::ControlSocket::bind(&place.control(), false).unwrap();
            let channel = accepted(&control);
            lend(&channel);
            assert_eq!(channel.receive(PATIENCE).unwrap().0, "serving");
            channel.send("stopped", &[]).unwrap();
        });
        let new = proxy(&[address.to_string()], &[place.server.address().to_string()], |config| {
            config.transport.take_over = Some(place.control());
        });
        assert_eq!(new.warnings, Vec::<String>::new());
        stop(new);
    });
}

#[test]
fn a_second_successor_waits_until_the_first_one_has_failed() {
    let place = Place::new();
    let old = place.start(false, |_| ());
    let first = net::Channel::connect(&place.control()).unwrap();
    first.send("take-over 1", &[]).unwrap();
    let (names, sockets) = first.receive(PATIENCE).unwrap();
    assert_eq!((names.lines().count(), sockets.len()), (2, 2));
    let second = net::Channel::connect(&place.control()).unwrap();
    second.send("take-over 1", &[]).unwrap();
    let early = second.receive(Duration::from_millis(200)).unwrap_err();
    assert_eq!(early.kind(), std::io::ErrorKind::WouldBlock, "both would serve");
    drop(first);
    assert_eq!(second.receive(PATIENCE).unwrap().0, names);
    drop(second);
    Client::connect(old.address().unwrap()).ask("get k\r\n", "END\r\n");
    stop(old);
}

#[test]
fn a_successor_that_fails_to_start_changes_nothing() {
    let place = Place::new();
    let mut old = place.start(false, |_| ());
    let address = old.address().unwrap();
    let mut config = Config::new("256.1.1.1:1", &[place.server.address().to_string()]);
    config.transport.take_over = Some(place.control());
    let failed = |config: Config| match proxy::start(config, clock::Clock::monotonic()) {
        Ok(_) => panic!("it starts"),
        Err(error) => error.to_string(),
    };
    assert!(failed(config.clone()).contains("is not an address"));
    // It has received the sockets, but cannot use an address.
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    config.listen = vec![other.local_addr().unwrap().to_string().into()];
    assert!(failed(config.clone()).starts_with("cannot listen on"));
    Client::connect(address).ask("get k\r\n", "END\r\n");
    // A successor that does start can still take over.
    let new = place.start(true, |_| ());
    old.wait_for_clients(|| false);
    stop(old);
    Client::connect(address).ask("get k\r\n", "END\r\n");
    stop(new);
    config.transport.take_over = Some(place.control());
    let line = failed(config);
    assert!(line.starts_with("cannot take over from") && line.contains("is its --control that path?"), "{line}");
}

#[test]
fn the_metrics_socket_is_handed_over() {
    let place = Place::new();
    let mut old = place.start(false, |config| config.metrics = Some("127.0.0.1:0".into()));
    let address = old.metrics_address.unwrap();
    let new = place.start(true, |config| config.metrics = Some(address.to_string()));
    assert_eq!(new.metrics_address, Some(address));
    old.wait_for_clients(|| false);
    stop(old);
    let new = crate::common::Proxy::of(new);
    assert!(new.metrics().contains("waystage_requests_total"));
}

#[test]
fn sockets_of_the_service_manager_are_listened_on() {
    let server = Server::start();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, other_address) = (listener.local_addr().unwrap(), other.local_addr().unwrap());
    let sockets = vec![inherited("cache", listener.into()), inherited("second", other.into())];
    let mut config = Config::new(&address.to_string(), &[server.address().to_string()]);
    config.loops = 1;
    // One socket is in the configuration and one is not.
    let with = |sockets| FromManager { sockets, ..FromManager::default() };
    let running = proxy::start_with(config.clone(), with(sockets), clock::Clock::monotonic()).unwrap();
    assert_eq!(running.listening.len(), 2);
    for address in [address, other_address] {
        Client::connect(address).ask("get k\r\n", "END\r\n");
    }
    stop(running);
    // A socket that does not listen is reported in one line.
    let stray = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let failed = proxy::start_with(config, with(vec![inherited("stray", stray.into())]), clock::Clock::monotonic());
    let line = failed.err().expect("the start is refused").to_string();
    assert_eq!(line, "cannot listen on an inherited socket: the socket named \"stray\" does not listen for streams");
}

/// A socket that the service manager or a predecessor passes belongs to the pool that listens at its address.
#[test]
fn a_passed_socket_belongs_to_the_pool_with_its_address() {
    let (main, own) = (Server::start(), Server::start());
    let [passed, of_pool] = [0, 1].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    let (address, pool_address) = (passed.local_addr().unwrap(), of_pool.local_addr().unwrap());
    let place = Place::new();
    let mut config = Config::new("", &[main.address().to_string()]);
    config.listen = Vec::new();
    config.loops = 1;
    config.transport.control = Some(place.control());
    let pool = proxy::PoolConfig::new("own", &[own.address().to_string()]);
    config.pools.push(proxy::PoolConfig { listen: vec![pool_address.to_string().into()], ..pool });
    // In the order of the service manager, not in that of the configuration.
    let activated = vec![inherited("first", passed.into()), inherited("second", of_pool.into())];
    let running = proxy::start_with(
        config.clone(),
        proxy::FromManager { sockets: activated, watchdog: None },
        clock::Clock::monotonic(),
    )
    .unwrap();
    assert_eq!(running.listening.len(), 2);
    Client::connect(pool_address).ask("set k 0 0 3\r\nown\r\n", "STORED\r\n");
    Client::connect(address).ask("get k\r\n", "END\r\n");
    Client::connect(own.address()).ask("get k\r\n", "VALUE k 0 3\r\nown\r\nEND\r\n");
    // A successor that names the pool's address only takes this one over.
    config.transport.take_over = Some(place.control());
    let successor = proxy::start(config, clock::Clock::monotonic()).unwrap();
    assert_eq!(successor.listening.len(), 1);
    stop(running);
    Client::connect(pool_address).ask("get k\r\n", "VALUE k 0 3\r\nown\r\nEND\r\n");
    stop(successor);
}

/// A predecessor whose sockets are not what it says they are.
#[test]
fn a_socket_that_listens_elsewhere_than_its_name_says_is_not_used() {
    let place = Place::new();
    let stranger = TcpListener::bind("127.0.0.1:0").unwrap();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let control = net::ControlSocket::bind(&place.control(), false).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut accepted = control.accept();
            while accepted.is_err() {
                std::thread::sleep(Duration::from_millis(1));
                accepted = control.accept();
            }
            let channel = accepted.unwrap();
            assert_eq!(channel.receive(PATIENCE).unwrap().0, "take-over 1");
            channel.send(&format!("{free}\n"), &[stranger.as_fd()]).unwrap();
            assert_eq!(channel.receive(PATIENCE).unwrap().0, "serving");
            channel.send("stopped", &[]).unwrap();
        });
        let mut config = Config::new(&free.to_string(), &[place.server.address().to_string()]);
        config.transport.take_over = Some(place.control());
        let running = proxy::start(config, clock::Clock::monotonic()).unwrap();
        Client::connect(free).ask("get k\r\n", "END\r\n");
        assert_eq!(running.address(), Some(free));
        stop(running);
    });
}

fn inherited(name: &str, socket: std::os::fd::OwnedFd) -> Inherited {
    Inherited { name: name.into(), owns_file: false, is_activated: false, socket }
}

#[test]
fn a_proxy_that_stops_during_a_hand_over_leaves_its_socket_files_to_the_successor() {
    let place = Place::new();
    let old = place.start(false, |_| ());
    let successor = Channel::connect(&place.control()).unwrap();
    successor.send("take-over 1", &[]).unwrap();
    let (_, sockets) = successor.receive(PATIENCE).unwrap();
    stop(old);
    // The client waits until the successor, which has the socket, accepts it.
    UnixStream::connect(place.unix()).expect("the file is still there");
    drop(sockets);
    // A program that another test starts has copies of all sockets until it is executed.
    until("no process has the socket any more", || UnixStream::connect(place.unix()).is_err());
}
