//! Before step 1. What the listener decides on which a client has connected: the pool of its keys, and the commands that it may use.
//! Also which listener a client has after a reload.

use crate::config::{Commands, Config};
use net::{Address, Connection, HostPort, Listening};
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU8;

/// The listener on which a client has connected. Each session has one, so it is small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listener {
    /// The index of its pool, plus one, if it belongs to a pool.
    pool: Option<NonZeroU8>,
    /// The commands that its clients may use.
    pub(crate) commands: Commands,
}

/// The listeners of one configuration, by index, and the address at which the kernel listens for each.
#[derive(Debug)]
pub(crate) struct Listeners(Vec<(Address, Listener)>);

impl Listener {
    /// A socket of a service manager that the configuration does not name.
    const UNNAMED: Listener = Listener { pool: None, commands: Commands::ALL };

    /// The index of the pool of all keys of its clients, whatever the routes say.
    pub(crate) fn pool(self) -> Option<u8> {
        self.pool.map(|pool| pool.get() - 1)
    }
}

impl Listeners {
    /// The listeners of this configuration. Sockets of a service manager follow those that it names.
    pub(crate) fn new(config: &Config, sockets: &[Listening]) -> Listeners {
        Listeners::of(config, sockets.iter().map(|socket| socket.address().clone()))
    }

    fn of(config: &Config, addresses: impl Iterator<Item = Address>) -> Listeners {
        let configured = config
            .listeners()
            .map(|(listener, pool)| Listener { pool: pool.and_then(number_of), commands: listener.commands() });
        Listeners(addresses.zip(configured.chain(std::iter::repeat(Listener::UNNAMED))).collect())
    }

    /// The listener with this index.
    pub(crate) fn at(&self, index: usize) -> Listener {
        self.0[index].1
    }

    /// The listener of a client that moves from another configuration: the one that the client would reach if it connected again. None
    /// if there is none, or if the client used a pool and the listener has none. Other clients follow the routes.
    pub(crate) fn adopt(&self, connection: &Connection, former: Listener) -> Option<Listener> {
        self.adopt_from(&connection.local_end()?, former)
    }

    fn adopt_from(&self, address: &Address, former: Listener) -> Option<Listener> {
        let reached = self.0.iter().filter_map(|(own, listener)| Some((nearness(own, address)?, *listener)));
        let (_, found) = reached.max_by_key(|(nearness, _)| *nearness)?;
        match former.pool {
            Some(_) => found.pool.is_some().then_some(found),
            None => Some(Listener { pool: None, ..found }),
        }
    }
}

/// How directly a socket that listens at `own` accepts connections to `address`; none if it does not accept them. The kernel prefers an
/// IP address to one that stands for all.
fn nearness(own: &Address, address: &Address) -> Option<u8> {
    let number = |address: &Address| address.host_port().and_then(HostPort::number);
    match (number(own), number(address)) {
        (Some(own), Some(address)) => (own.port() == address.port()).then(|| nearness_of_ip(own, address))?,
        (None, None) => (own == address).then_some(2),
        _ => None,
    }
}

fn nearness_of_ip(own: SocketAddr, address: SocketAddr) -> Option<u8> {
    match (own.ip(), address.ip().to_canonical()) {
        (own, address) if own.to_canonical() == address => Some(2),
        (IpAddr::V4(own), IpAddr::V4(_)) => own.is_unspecified().then_some(1),
        // It is for IPv4 as well.
        (IpAddr::V6(own), _) => own.is_unspecified().then_some(0),
        _ => None,
    }
}

/// A number from 1 for an index. A valid configuration has fewer pools than a byte can number.
fn number_of(index: usize) -> Option<NonZeroU8> {
    u8::try_from(index + 1).ok().and_then(NonZeroU8::new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{CommandGroup, ListenerConfig, PoolConfig};

    /// Listeners at these addresses, which the kernel listens at.
    fn listeners(own: &[&str], pools: &[&[&str]], of_manager: &[&str]) -> Listeners {
        let texts = |list: &[&str]| list.iter().copied().map(listener).collect();
        let pool = |(index, list): (usize, &&[&str])| PoolConfig {
            listen: texts(list),
            ..PoolConfig::new(&format!("pool-{index}"), &["a:1".into()])
        };
        let pools = pools.iter().enumerate().map(pool).collect();
        let config = Config { listen: texts(own), pools, ..Config::new("", &[]) };
        let addresses = config.listeners().map(|(listener, _)| listener.address.clone());
        let addresses = addresses.chain(of_manager.iter().map(|text| text.to_string()));
        Listeners::of(&config, addresses.map(|text| text.parse().unwrap()))
    }

    /// A listener that allows reads only if its address ends in an exclamation mark, which is not part of it.
    fn listener(text: &str) -> ListenerConfig {
        match text.strip_suffix('!') {
            Some(address) => ListenerConfig { allow: Some(vec![CommandGroup::Read]), ..address.into() },
            None => text.into(),
        }
    }

    const OF_PROXY: Listener = Listener::UNNAMED;
    const OF_POOL: Listener = Listener { pool: NonZeroU8::new(9), ..Listener::UNNAMED };

    /// The pool of the listener of a client that has connected to this address, and whether its commands are limited.
    fn adopted(listeners: &Listeners, address: &str, former: Listener) -> Option<(Option<u8>, bool)> {
        let found = listeners.adopt_from(&address.parse().unwrap(), former)?;
        Some((found.pool(), found.commands.are_limited()))
    }

    #[test]
    fn the_listeners_of_pools_follow_those_of_the_proxy() {
        let listeners =
            listeners(&["1.1.1.1:1!"], &[&[], &["1.1.1.1:2", "1.1.1.1:3!"], &["1.1.1.1:4"]], &["1.1.1.1:5"]);
        let of = |index| (listeners.at(index).pool(), listeners.at(index).commands.are_limited());
        // Sockets of a service manager follow, and belong to the proxy.
        let expected = [(None, true), (Some(1), false), (Some(1), true), (Some(2), false), (None, false)];
        assert_eq!([0, 1, 2, 3, 4].map(of), expected);
    }

    #[test]
    fn a_client_that_moves_has_the_listener_that_it_would_reach() {
        let after = listeners(
            &["10.0.0.1:1!", "0.0.0.0:1", "[::]:2!", "tls:10.0.0.1:3!", "unix:/a!"],
            &[&["10.0.0.1:4!", "unix:/b"]],
            &["10.0.0.1:5"],
        );
        for (address, own, of_pool) in [
            ("10.0.0.1:1", Some((None, true)), None),
            ("10.0.0.2:1", Some((None, false)), None),
            ("[::ffff:10.0.0.1]:1", Some((None, true)), None),
            ("[::1]:1", None, None),
            ("10.0.0.1:2", Some((None, true)), None),
            ("[::1]:2", Some((None, true)), None),
            // A connection keeps its transport.
            ("10.0.0.1:3", Some((None, true)), None),
            ("10.0.0.2:3", None, None),
            ("unix:/a", Some((None, true)), None),
            ("unix:/c", None, None),
            // A client that follows the routes goes on to do so. One of a pool has the pool that listens there now.
            ("10.0.0.1:4", Some((None, true)), Some((Some(0), true))),
            ("unix:/b", Some((None, false)), Some((Some(0), false))),
            ("10.0.0.1:5", Some((None, false)), None),
            ("10.0.0.1:6", None, None),
        ] {
            assert_eq!(adopted(&after, address, OF_PROXY), own, "{address}");
            assert_eq!(adopted(&after, address, OF_POOL), of_pool, "{address}");
        }
    }

    #[test]
    fn it_is_small() {
        assert_eq!(size_of::<Listener>(), 2);
    }
}
