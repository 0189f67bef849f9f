//! Reloading the configuration of a serving proxy: no client loses a request or its connection.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod common;

use clock::Clock;
use common::{servers, until};
use proxy::{Config, Discipline, PoolConfig, RouteConfig, Running, ServerConfig, Timeouts, Writes, start};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use testkit::{Client, GatedServer, Server};

fn config(servers: &[Server], change: impl FnOnce(&mut Config)) -> Config {
    let names: Vec<String> = servers.iter().map(|server| server.address().to_string()).collect();
    let mut config = Config::new("127.0.0.1:0", &names[..1]);
    config.pools.push(PoolConfig::new("other", &names[1..]));
    config.loops = 1;
    change(&mut config);
    config
}

/// Reloads the configuration; returns the proxy with the old one.
fn replace(running: &mut Running, config: Config) -> Running {
    let new = running.reload(config).expect("a valid configuration");
    assert_eq!(new.warnings, Vec::<String>::new());
    std::mem::replace(running, new)
}

/// Stops the clients, also when the test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn clients_move_with_all_their_requests() {
    let servers = servers(2);
    let to_other = |config: &mut Config| {
        config.routes = vec![RouteConfig::new("k", "other")];
        config.loops = 2;
        config.discipline = Discipline::PerBackend { readers: 2, writers: 2, fault_write_poll: None };
    };
    let mut running = start(config(&servers, |_| ()), Clock::monotonic()).unwrap();
    let address = running.address().unwrap();
    let mut idle = Client::connect(address);
    idle.ask("set k 0 0 1\r\n1\r\nset page 0 0 1\r\np\r\n", "STORED\r\nSTORED\r\n");
    let (is_over, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mut requests = 0;
    std::thread::scope(|scope| {
        let clients: Vec<_> = (1..=4)
            .map(|depth| {
                let (is_over, asked) = (&is_over, &asked);
                scope.spawn(move || {
                    let mut client = Client::connect(address);
                    // From one request at a time to many, which are split anywhere when the clients move.
                    let count = depth * depth * depth;
                    while !is_over.load(Ordering::Relaxed) {
                        client.ask("get page\r\n".repeat(count), "VALUE page 0 1\r\np\r\nEND\r\n".repeat(count));
                        asked.fetch_add(count, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        let _ends = Ends(&is_over);
        let mut half = Client::connect(address);
        half.send("set half 0 0 10\r\n12345");
        for turn in 0..6 {
            let before = asked.load(Ordering::Relaxed);
            until("the clients go on", || {
                assert!(!clients.iter().any(|client| client.is_finished()), "a client has failed");
                asked.load(Ordering::Relaxed) > before + 1000
            });
            let change = if turn % 2 == 0 { to_other } else { |_: &mut Config| () };
            let mut old = replace(&mut running, config(&servers, change));
            assert_eq!(running.address(), Some(address));
            old.wait_for_clients(|| false);
            let totals = old.stop().unwrap();
            assert_eq!(totals.lost, 0);
            requests += totals.requests;
            // The keys of this prefix are now routed to another pool.
            let expected = if turn % 2 == 0 { "END\r\n" } else { "VALUE k 0 1\r\n1\r\nEND\r\n" };
            idle.ask("get k\r\n", expected);
        }
        half.send("67890\r\nget half\r\n");
        half.expect("STORED\r\nVALUE half 0 10\r\n1234567890\r\nEND\r\n");
        is_over.store(true, Ordering::Relaxed);
        clients.into_iter().for_each(|client| client.join().expect("no client saw a failure"));
    });
    let totals = running.stop().unwrap();
    requests += totals.requests;
    // The requests of the four clients, six gets and two sets of `idle`, and two requests of `half`.
    assert_eq!(requests, asked.load(Ordering::Relaxed) as u64 + 6 + 2 + 2);
    assert_eq!(totals.lost, 0);
}

/// A client of a pool's listener keeps the pool of this listener, wherever the new configuration lists it.
#[test]
fn clients_of_a_pools_listener_move_to_the_pool_that_listens_there() {
    let servers = servers(3);
    let listening = |config: &mut Config| {
        let third = servers[2].address().to_string();
        config.pools[1].servers.truncate(1);
        config.pools.push(PoolConfig::new("third", &[third]));
        config.pools[1].listen = vec!["127.0.0.2:0".into()];
        config.pools[2].listen = vec!["127.0.0.3:0".into()];
    };
    let mut running = start(config(&servers, listening), Clock::monotonic()).unwrap();
    let at = |running: &Running, index: usize| {
        Client::connect(running.listening[index].host_port().unwrap().number().unwrap())
    };
    let mut clients = [0, 1, 2].map(|index| at(&running, index));
    for (number, client) in clients.iter_mut().enumerate() {
        client.ask(format!("set k 0 0 1\r\n{number}\r\n"), "STORED\r\n");
    }
    let swapped = |config: &mut Config| {
        listening(config);
        config.pools.swap(1, 2);
    };
    let old = replace(&mut running, config(&servers, swapped));
    for (number, client) in clients.iter_mut().enumerate() {
        client.ask("get k\r\n", format!("VALUE k 0 1\r\n{number}\r\nEND\r\n"));
    }
    assert_eq!(old.stop().unwrap().lost, 0);
    // Without its listener, a client is closed: it would otherwise read the keys of another pool.
    let without = |config: &mut Config| {
        listening(config);
        config.pools[2].listen.clear();
    };
    let old = replace(&mut running, config(&servers, without));
    clients[2].expect_closed();
    for (number, client) in clients.iter_mut().enumerate().take(2) {
        client.ask("get k\r\n", format!("VALUE k 0 1\r\n{number}\r\nEND\r\n"));
    }
    assert_eq!((old.stop().unwrap().lost, running.stop().unwrap().lost), (0, 0));
}

/// Replies that wait for a slow client end with a whole reply, and not in the middle of a value.
#[test]
fn a_slow_client_of_a_listener_that_is_removed_gets_whole_replies() {
    let servers = servers(2);
    let listening = |config: &mut Config| config.pools[1].listen = vec!["127.0.0.2:0".into()];
    let mut running = start(config(&servers, listening), Clock::monotonic()).unwrap();
    let mut client = Client::connect(running.listening[1].host_port().unwrap().number().unwrap());
    let value = "v".repeat(1 << 19);
    client.ask(format!("set big 0 0 {}\r\n{value}\r\n", value.len()), "STORED\r\n");
    client.send("get big\r\n".repeat(40));
    std::thread::sleep(Duration::from_millis(300));
    let old = replace(&mut running, config(&servers, |_| ()));
    let reply = format!("VALUE big 0 {}\r\n{value}\r\nEND\r\n", value.len()).len();
    let received = client.drain(Duration::from_secs(1));
    assert!(
        received >= reply && received.is_multiple_of(reply),
        "{received} bytes are no number of replies of {reply}"
    );
    old.stop().unwrap();
    running.stop().unwrap();
}

#[test]
fn half_closed_clients_get_every_reply() {
    let servers = servers(2);
    let slow = |config: &mut Config| config.client_window = 1;
    let mut running = start(config(&servers, slow), Clock::monotonic()).unwrap();
    let address = running.address().unwrap();
    // The proxy may read the half-close together with the requests or later.
    let mut clients: Vec<Client> = (0..40).map(|_| Client::connect(address)).collect();
    for client in &mut clients {
        client.send("get none\r\n".repeat(300));
        client.half_close();
    }
    let mut old = replace(&mut running, config(&servers, slow));
    for client in &mut clients {
        client.expect("END\r\n".repeat(300));
        client.expect_closed();
    }
    old.wait_for_clients(|| false);
    let requests = old.stop().unwrap().requests + running.stop().unwrap().requests;
    assert_eq!(requests, 40 * 300);
}

/// Otherwise its next write would reach that replica on another connection, and might be applied first.
#[test]
fn a_client_stays_until_every_replica_has_answered_its_writes() {
    let backends = [GatedServer::start(), GatedServer::start()];
    let names = || backends.each_ref().map(|backend| backend.address().to_string());
    let copied = || {
        let mut config = Config::new("127.0.0.1:0", &names());
        let pool = &mut config.pools[0];
        (pool.replicas, pool.writes, pool.timeouts) = (2, Writes::First, Timeouts::all(Duration::from_secs(20)));
        config.loops = 1;
        config
    };
    let mut running = start(copied(), Clock::monotonic()).unwrap();
    let mut client = Client::connect(running.address().unwrap());
    client.send("set k 0 0 1\r\n1\r\n");
    backends[0].answer("set k 0 0 1", "STORED\r\n");
    client.expect("STORED\r\n");
    let mut old = replace(&mut running, copied());
    client.send("delete k\r\n");
    client.expect_silence();
    assert_eq!(backends.each_ref().map(GatedServer::received_so_far), [1, 1]);
    backends[1].answer("set k 0 0 1", "STORED\r\n");
    backends.iter().for_each(|backend| backend.answer("delete k", "DELETED\r\n"));
    client.expect("DELETED\r\n");
    old.wait_for_clients(|| false);
    assert_eq!((old.stop().unwrap().requests, running.stop().unwrap().requests), (1, 1));
}

/// The clients of all earlier configurations move to the newest one. The one between may have ended by then.
#[test]
fn a_client_that_is_slow_to_move_skips_a_configuration() {
    let backend = GatedServer::start();
    let patient = || {
        let mut config = Config::new("127.0.0.1:0", &[backend.address().to_string()]);
        config.pools[0].timeouts = Timeouts::all(Duration::from_secs(20));
        config.loops = 1;
        config
    };
    let mut running = start(patient(), Clock::monotonic()).unwrap();
    let mut client = Client::connect(running.address().unwrap());
    client.send("get k\r\n");
    backend.received(1);
    let mut first = replace(&mut running, patient());
    let mut second = replace(&mut running, patient());
    second.wait_for_clients(|| false);
    assert_eq!(second.stop().unwrap().requests, 0);
    backend.answer("get k", "END\r\n");
    client.expect("END\r\n");
    client.send("get j\r\n");
    backend.answer("get j", "END\r\n");
    client.expect("END\r\n");
    first.wait_for_clients(|| false);
    assert_eq!((first.stop().unwrap().requests, running.stop().unwrap().requests), (1, 1));
}

#[test]
fn an_invalid_configuration_changes_nothing() {
    let servers = servers(2);
    let mut running = start(config(&servers, |_| ()), Clock::monotonic()).unwrap();
    let mut client = Client::connect(running.address().unwrap());
    client.ask("set k 0 0 1\r\n1\r\n", "STORED\r\n");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let bad = [
        config(&servers, |config| config.pools[0].replicas = 2),
        config(&servers, |config| config.pools[0].servers.push(ServerConfig::new("no address"))),
        config(&servers, |config| config.listen.push(taken.local_addr().unwrap().to_string().into())),
        config(&servers, |config| config.metrics = Some(taken.local_addr().unwrap().to_string())),
    ];
    for config in bad {
        let error = running.reload(config).err().expect("it cannot work").to_string();
        assert!(!error.contains('\n'), "{error}");
        client.ask("get k\r\n", "VALUE k 0 1\r\n1\r\nEND\r\n");
        Client::connect(running.address().unwrap()).ask("get k\r\n", "VALUE k 0 1\r\n1\r\nEND\r\n");
    }
    assert_eq!(running.stop().unwrap().lost, 0);
}

#[test]
fn a_client_in_the_middle_of_a_refused_value_moves_after_it() {
    let servers = servers(2);
    let small = |config: &mut Config| config.value_bytes = 1000;
    let mut running = start(config(&servers, small), Clock::monotonic()).unwrap();
    let mut client = Client::connect(running.address().unwrap());
    client.ask("set k 0 0 3\r\nold\r\n", "STORED\r\n");
    client.send("set k 0 0 9000000\r\n");
    client.expect("SERVER_ERROR object too large for cache\r\n");
    client.send(vec![b'x'; 4_000_000]);
    let mut old = replace(&mut running, config(&servers, small));
    client.send(vec![b'x'; 5_000_000]);
    client.send("\r\nget k\r\n");
    // A client that waits for the end of the hand-over would wait for 30 s.
    assert_eq!(client.line_within(Duration::from_secs(20)).as_deref(), Some("END\r\n"));
    old.wait_for_clients(|| false);
    assert_eq!((old.stop().unwrap().lost, running.stop().unwrap().lost), (0, 0));
}

/// The rest of the value has arrived before the reload, but is not read yet, because the client has no room for another request.
#[test]
fn a_client_that_waits_for_the_reply_to_a_refused_value_moves_after_it() {
    let backend = GatedServer::start();
    let narrow = || {
        let mut config = Config::new("127.0.0.1:0", &[backend.address().to_string()]);
        config.pools[0].timeouts = Timeouts::all(Duration::from_secs(20));
        (config.loops, config.client_window, config.value_bytes) = (1, 1, 1000);
        config
    };
    let mut running = start(narrow(), Clock::monotonic()).unwrap();
    let mut client = Client::connect(running.address().unwrap());
    client.send("get a\r\nset k 0 0 60000\r\n");
    backend.received(1);
    client.send("x".repeat(60_000) + "\r\nget b\r\n");
    backend.answer("get a", "END\r\n");
    client.expect("END\r\n");
    // The old value is deleted before the client receives the error.
    backend.received(2);
    let mut old = replace(&mut running, narrow());
    backend.answer("delete k", "DELETED\r\n");
    client.expect("SERVER_ERROR object too large for cache\r\n");
    backend.answer("get b", "END\r\n");
    // A client that waits for the end of the hand-over would wait for 30 s.
    assert_eq!(client.line_within(Duration::from_secs(20)).as_deref(), Some("END\r\n"));
    old.wait_for_clients(|| false);
    // The last request was read together with the rest of the value.
    assert_eq!((old.stop().unwrap().requests, running.stop().unwrap().requests), (3, 0));
}

/// The client reads nothing until the old configuration has ended. Clients must move without reading: otherwise the old configuration
/// would close the connection at the end of the hand-over.
#[test]
fn a_reader_that_pauses_for_longer_than_the_hand_over_gets_every_reply() {
    let servers = servers(2);
    // Far longer than the move takes, because on a busy machine the proxy needs seconds to read all values.
    let patient = |config: &mut Config| {
        config.transport.hand_over_wait = Duration::from_secs(60);
        config.pools[0].timeouts = Timeouts::all(Duration::from_secs(60));
    };
    let mut running = start(config(&servers, patient), Clock::monotonic()).unwrap();
    let mut client = Client::connect(running.address().unwrap());
    let value = "x".repeat(100_000);
    client.ask(format!("set big 0 0 100000\r\n{value}\r\n"), "STORED\r\n");
    // One request for many values, whose replies do not fit in the buffers, and many requests for one.
    let many = format!("get{}\r\n", " big".repeat(200));
    client.send(many.clone() + &"get big\r\n".repeat(300) + &many);
    std::thread::sleep(Duration::from_millis(200));
    let mut old = replace(&mut running, config(&servers, patient));
    old.wait_for_clients(|| false);
    assert_eq!(old.stop().unwrap().lost, 0);
    let one = format!("VALUE big 0 100000\r\n{value}\r\n");
    client.expect(one.repeat(200) + "END\r\n");
    for _ in 0..300 {
        client.expect(format!("{one}END\r\n"));
    }
    client.expect(one.repeat(200) + "END\r\n");
    assert_eq!(running.stop().unwrap().lost, 0);
}

/// A client that moves is in the mailbox of a thread for a moment. If the proxy stops then, the requests that it has read are
/// still answered.
#[test]
fn clients_that_move_when_the_proxy_stops_get_every_reply() {
    const CLIENTS: usize = 200;
    const REQUESTS: usize = 100;
    let servers = servers(2);
    let narrow = || {
        config(&servers, |config| {
            config.client_window = 1;
            config.pools[0].timeouts = Timeouts::all(Duration::from_secs(60));
        })
    };
    for _ in 0..5 {
        let mut running = start(narrow(), Clock::monotonic()).unwrap();
        let address = running.address().unwrap();
        let mut clients: Vec<Client> = (0..CLIENTS).map(|_| Client::connect(address)).collect();
        // After the first reply, the proxy has read all requests of a client, because they came in one segment.
        clients.iter_mut().for_each(|client| client.send("get none\r\n".repeat(REQUESTS)));
        clients.iter_mut().for_each(|client| client.expect("END\r\n"));
        let old = replace(&mut running, narrow());
        let stopped = std::thread::spawn(move || (running.stop().unwrap(), old.stop().unwrap()));
        for client in &mut clients {
            client.expect("END\r\n".repeat(REQUESTS - 1));
            client.expect_closed();
        }
        let (new, old) = stopped.join().unwrap();
        assert_eq!((new.lost, old.lost, new.requests + old.requests), (0, 0, (CLIENTS * REQUESTS) as u64));
    }
}
