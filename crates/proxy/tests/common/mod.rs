//! A proxy in front of servers, for the tests in this folder.

#[allow(dead_code, reason = "not every file of this folder speaks the meta protocol")]
pub(crate) mod meta_table;

use clock::Clock;
use proxy::{Config, Discipline, MultiGet, Running, Timeouts, start};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use testkit::{Client, Server};

/// The timeouts of backends in tests that are not about timeouts. No reply takes as long, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// A proxy that is stopped, and checked for lost jobs, at the end of the test.
pub(crate) struct Proxy {
    pub(crate) running: Option<Running>,
    pub(crate) address: SocketAddr,
    /// Kept so that they end after the proxy.
    #[allow(dead_code, reason = "they are kept, not used")]
    servers: Vec<Server>,
}

impl Proxy {
    /// A proxy in front of its own servers.
    #[allow(dead_code, reason = "not every file of this folder has servers of this kind")]
    pub(crate) fn before(servers: Vec<Server>, change: impl FnOnce(&mut Config)) -> Proxy {
        let addresses: Vec<SocketAddr> = servers.iter().map(Server::address).collect();
        let mut proxy = Proxy::at(&addresses, change);
        proxy.servers = servers;
        proxy
    }

    /// A proxy in front of the test's servers. Pools whose timeouts the test does not set have patient ones.
    pub(crate) fn at(addresses: &[SocketAddr], change: impl FnOnce(&mut Config)) -> Proxy {
        let names: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        let mut config = Config::new("127.0.0.1:0", &names);
        change(&mut config);
        for pool in config.pools.iter_mut().filter(|pool| pool.timeouts == Timeouts::default()) {
            pool.timeouts = Timeouts::all(PATIENCE);
        }
        Proxy::of(start(config, Clock::monotonic()).expect("the proxy starts"))
    }

    /// Wraps a proxy that the test has started.
    pub(crate) fn of(running: Running) -> Proxy {
        let address = running.address().unwrap_or_else(|| ([0, 0, 0, 0], 0).into());
        Proxy { address, running: Some(running), servers: Vec::new() }
    }

    /// A new connection.
    #[allow(dead_code, reason = "not every file of this folder has such clients")]
    pub(crate) fn client(&self) -> Client {
        Client::connect(self.address)
    }

    /// The proxy's metrics.
    #[allow(dead_code, reason = "not every file of this folder looks at metrics")]
    pub(crate) fn metrics(&self) -> String {
        self.get("/metrics")
    }

    /// The reply to `stats`.
    #[allow(dead_code, reason = "not every file of this folder looks at stats")]
    pub(crate) fn stats(&self) -> String {
        let mut client = self.client();
        client.send("stats\r\n");
        let mut text = String::new();
        while !text.ends_with("END\r\n") {
            text += &client.line();
        }
        text
    }

    /// The reply of its metrics server for this path.
    pub(crate) fn get(&self, path: &str) -> String {
        self.get_as(path, "*/*")
    }

    /// The same for a client with this Accept header.
    pub(crate) fn get_as(&self, path: &str, accept: &str) -> String {
        let address =
            self.running.as_ref().and_then(|running| running.metrics_address).expect("the proxy serves metrics");
        let mut stream = TcpStream::connect(address).expect("its metrics server listens");
        write!(stream, "GET {path} HTTP/1.0\r\nAccept: {accept}\r\n\r\n")
            .expect("the metrics server accepts a request");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("the metrics server replies");
        text
    }

    /// Stops the proxy.
    #[allow(dead_code, reason = "not every file of this folder ends its proxies itself")]
    pub(crate) fn stop(mut self) -> proxy::Totals {
        self.running.take().expect("the proxy runs").stop().expect("the proxy stops without an error")
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            let outcome = running.stop();
            if !std::thread::panicking() {
                assert_eq!(outcome.expect("the proxy stops without an error").lost, 0, "no job is lost");
            }
        }
    }
}

/// Every discipline with this number of slots of each kind. Those whose multi-gets need every value on every server only
/// `if_replicated`.
#[allow(dead_code, reason = "not every file of this folder has several disciplines")]
pub(crate) fn disciplines(slots: usize, if_replicated: bool) -> Vec<Discipline> {
    let shared = |multi_get| Discipline::Shared { workers: slots, multi_get, fault_write_hold: None };
    let mut all = vec![
        Discipline::Pipelined,
        Discipline::PerBackend { readers: slots, writers: slots, fault_write_poll: None },
        shared(MultiGet::ByKey),
    ];
    if if_replicated {
        all.extend([shared(MultiGet::Sharded), shared(MultiGet::Whole)]);
    }
    all
}

/// The number of connections that a discipline opens to one server.
#[allow(dead_code, reason = "not every file of this folder counts connections")]
pub(crate) fn connections(discipline: Discipline) -> usize {
    let of_slots = discipline.slots().map(|(_, slots)| slots).sum::<usize>().max(1);
    let of_background_jobs = usize::from(matches!(discipline, Discipline::Shared { .. }));
    of_slots + of_background_jobs
}

/// Starts servers: memcached, or the embedded cache if memcached is not installed.
#[allow(dead_code, reason = "not every file of this folder has servers of this kind")]
pub(crate) fn servers(count: usize) -> Vec<Server> {
    (0..count).map(|_| Server::start()).collect()
}

/// Waits until a condition is true.
#[allow(dead_code, reason = "not every file of this folder waits")]
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let clock = Clock::monotonic();
    let end = clock.now() + Duration::from_secs(60);
    while !is_so() {
        assert!(clock.now() < end, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Gives the servers of the first pool names, so that keys are distributed alike in every run: their ports differ.
#[allow(dead_code, reason = "not every file of this folder depends on the distribution of keys")]
pub(crate) fn name_servers(config: &mut Config) {
    for (index, server) in config.pools[0].servers.iter_mut().enumerate() {
        server.name = Some(format!("server{index}"));
    }
}
