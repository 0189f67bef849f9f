//! A proxy in front of servers, for the tests of this folder.

#[allow(dead_code, reason = "not every file of this folder speaks the meta protocol")]
pub(crate) mod meta_table;

use clock::Clock;
use proxy::{Config, Running, start};
use std::net::SocketAddr;
use testkit::{Client, Server};

/// A proxy that ends, and is checked for lost jobs, when the test does.
pub(crate) struct Proxy {
    pub(crate) running: Option<Running>,
    pub(crate) address: SocketAddr,
    /// Kept so that they end after the proxy.
    #[allow(dead_code, reason = "they are held, not used")]
    servers: Vec<Server>,
}

impl Proxy {
    /// Before servers of its own.
    #[allow(dead_code, reason = "not every file of this folder has servers of this kind")]
    pub(crate) fn before(servers: Vec<Server>, change: impl FnOnce(&mut Config)) -> Proxy {
        let addresses: Vec<SocketAddr> = servers.iter().map(Server::address).collect();
        let mut proxy = Proxy::at(&addresses, change);
        proxy.servers = servers;
        proxy
    }

    /// Before servers that the test keeps.
    pub(crate) fn at(addresses: &[SocketAddr], change: impl FnOnce(&mut Config)) -> Proxy {
        let names: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        let mut config = Config::new("127.0.0.1:0", &names);
        change(&mut config);
        let running = start(config, Clock::monotonic()).expect("the proxy starts");
        Proxy { address: running.address, running: Some(running), servers: Vec::new() }
    }

    /// A new connection.
    #[allow(dead_code, reason = "not every file of this folder has such clients")]
    pub(crate) fn client(&self) -> Client {
        Client::connect(self.address)
    }

    /// Ends the proxy.
    #[allow(dead_code, reason = "not every file of this folder ends its proxies itself")]
    pub(crate) fn stop(mut self) -> proxy::Totals {
        self.running.take().expect("it runs").stop().expect("it ends well")
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            let outcome = running.stop();
            if !std::thread::panicking() {
                assert_eq!(outcome.expect("it ends well").lost, 0, "no job is lost");
            }
        }
    }
}

/// So many servers: memcached, or the embedded cache where there is none.
#[allow(dead_code, reason = "not every file of this folder has servers of this kind")]
pub(crate) fn servers(count: usize) -> Vec<Server> {
    (0..count).map(|_| Server::start()).collect()
}
