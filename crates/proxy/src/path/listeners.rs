//! Before step 1. What the listener decides on which a client has connected: the pool of its keys, and the commands that it may use.
//! Also which listener a client has after a reload.

use crate::config::{Commands, Config};
use std::num::NonZeroU8;
use std::sync::Arc;

/// The listener on which a client has connected. Each session has one, so it is small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listener {
    /// The index of its pool, plus one, if it belongs to a pool.
    pool: Option<NonZeroU8>,
    /// Its number among the listeners of the configuration, from 1.
    number: Option<NonZeroU8>,
    /// The commands that its clients may use.
    pub(crate) commands: Commands,
}

/// The listener of a client that moves to another configuration.
#[derive(Clone, Debug)]
pub(crate) struct FormerListener {
    /// As it was configured. A socket of a service manager has no address in the configuration.
    address: Option<Arc<str>>,
    is_of_pool: bool,
    commands: Commands,
}

/// The listeners of one configuration.
#[derive(Clone, Debug)]
pub(crate) struct Listeners(Arc<[Configured]>);

#[derive(Debug)]
struct Configured {
    address: Arc<str>,
    pool: Option<NonZeroU8>,
    commands: Commands,
}

impl Listener {
    /// A socket of a service manager that the configuration does not name.
    const UNNAMED: Listener = Listener { pool: None, number: None, commands: Commands::ALL };

    /// The index of the pool of all keys of its clients, whatever the routes say.
    pub(crate) fn pool(self) -> Option<u8> {
        self.pool.map(|pool| pool.get() - 1)
    }
}

impl Listeners {
    /// The listeners of this configuration.
    pub(crate) fn new(config: &Config) -> Listeners {
        let configured = config.listeners().map(|(listener, pool)| Configured {
            address: listener.address.as_str().into(),
            pool: pool.and_then(number_of),
            commands: listener.commands(),
        });
        Listeners(configured.collect())
    }

    /// The listener with this index. Sockets of a service manager follow those of the configuration.
    pub(crate) fn at(&self, index: usize) -> Listener {
        let found = self.0.get(index);
        found.map_or(Listener::UNNAMED, |&Configured { pool, commands, .. }| Listener {
            pool,
            number: number_of(index),
            commands,
        })
    }

    /// What the next configuration must know of a client's listener.
    pub(crate) fn leave(&self, listener: Listener) -> FormerListener {
        let configured = listener.number.map(|number| &self.0[usize::from(number.get()) - 1]);
        FormerListener {
            address: configured.map(|configured| configured.address.clone()),
            is_of_pool: listener.pool.is_some(),
            commands: listener.commands,
        }
    }

    /// The listener of a client that moves from another configuration. None if the client used a pool, and no pool of this
    /// configuration listens at its address. Other clients follow the routes. If no listener has their address any more, they may use
    /// the same commands as before.
    pub(crate) fn adopt(&self, former: &FormerListener) -> Option<Listener> {
        let place = |is_of_pool: bool| {
            let is_it = |other: &Configured| former.address.as_ref() == Some(&other.address);
            self.0.iter().position(|other| other.pool.is_some() == is_of_pool && is_it(other))
        };
        if former.is_of_pool {
            return place(true).map(|index| self.at(index));
        }
        let found = place(false).or_else(|| place(true)).map(|index| self.at(index));
        let unknown = Listener { commands: former.commands, ..Listener::UNNAMED };
        Some(Listener { pool: None, ..found.unwrap_or(unknown) })
    }
}

/// A number from 1 for an index. A valid configuration has fewer pools and listeners than a byte can number.
fn number_of(index: usize) -> Option<NonZeroU8> {
    u8::try_from(index + 1).ok().and_then(NonZeroU8::new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{CommandGroup, ListenerConfig, PoolConfig};

    fn listeners(own: &[&str], pools: &[&[&str]]) -> Listeners {
        let texts = |list: &[&str]| list.iter().copied().map(listener).collect();
        let pool = |(index, list): (usize, &&[&str])| PoolConfig {
            listen: texts(list),
            ..PoolConfig::new(&format!("pool-{index}"), &["a:1".into()])
        };
        let pools = pools.iter().enumerate().map(pool).collect();
        Listeners::new(&Config { listen: texts(own), pools, ..Config::new("", &[]) })
    }

    /// A listener that allows reads only if its address ends in an exclamation mark, which is not part of it.
    fn listener(text: &str) -> ListenerConfig {
        match text.strip_suffix('!') {
            Some(address) => ListenerConfig { allow: Some(vec![CommandGroup::Read]), ..address.into() },
            None => text.into(),
        }
    }

    #[test]
    fn the_listeners_of_pools_follow_those_of_the_proxy() {
        let listeners = listeners(&["own:1!"], &[&[], &["a:1", "b:1!"], &["c:1"]]);
        let of = |index| (listeners.at(index).pool(), listeners.at(index).commands.are_limited());
        // Sockets of a service manager follow, and belong to the proxy.
        let expected =
            [(None, true), (Some(1), false), (Some(1), true), (Some(2), false), (None, false), (None, false)];
        assert_eq!([0, 1, 2, 3, 4, 99].map(of), expected);
    }

    #[test]
    fn a_client_that_moves_keeps_the_pool_of_its_address() {
        let before = listeners(&[], &[&["a:1", "b:1"], &["c:1"]]);
        let after = listeners(&["own:1", "a:1"], &[&["c:1"], &["b:1"]]);
        let moved = |index| after.adopt(&before.leave(before.at(index))).map(|found| found.pool());
        assert_eq!([moved(0), moved(1), moved(2)], [None, Some(Some(1)), Some(Some(0))]);
    }

    #[test]
    fn a_client_that_moves_may_use_the_commands_of_its_address_or_the_same_as_before() {
        let before = listeners(&["a:1", "b:1!", "c:1!", "d:1"], &[&["p:1"]]);
        let after = listeners(&["b:1", "a:1!"], &[&["d:1!", "p:1!"]]);
        let moved = |index| {
            let found = after.adopt(&before.leave(before.at(index))).unwrap();
            (found.pool(), found.commands.are_limited())
        };
        // The address of the third is gone. That of the fourth belongs to a pool now, and the client follows the routes.
        assert_eq!([0, 1, 2, 3].map(moved), [(None, true), (None, false), (None, true), (None, true)]);
        assert_eq!(moved(4), (Some(0), true));
        assert_eq!(moved(9), (None, false), "it came from a service manager");
        // What is gone stays unknown, and what is known by a pool's address is known later.
        let later = listeners(&["c:1", "d:1"], &[]);
        let again = |index| later.adopt(&after.leave(after.adopt(&before.leave(before.at(index))).unwrap())).unwrap();
        assert!(again(2).commands.are_limited() && !again(3).commands.are_limited());
    }

    #[test]
    fn it_is_small() {
        assert_eq!(size_of::<Listener>(), 3);
    }
}
