//! How the keys of one pool are spread over its servers: a distribution with a hash function.
//! Knows servers by their place in the pool, and no pools.

use crate::config::{Distribution, Hash, PoolConfig};
use crate::route::hash::hash;
use crate::route::jump::bucket;
use crate::route::ketama::Ketama;
use crate::route::modulo::{expand, place};
use crate::route::rendezvous::Rendezvous;

/// From keys to places in a pool.
#[derive(Clone, Debug)]
pub(crate) struct Spread {
    hash: Hash,
    kind: Kind,
}

/// What each distribution looks up; lists hold each server as often as it weighs.
#[derive(Clone, Debug)]
enum Kind {
    /// There is nothing to choose, and nothing to hash.
    One,
    Ketama(Ketama),
    Jump(Box<[u16]>),
    Rendezvous(Rendezvous),
    Modulo(Box<[u16]>),
}

impl Spread {
    pub(crate) fn new(config: &PoolConfig) -> Spread {
        let names: Vec<_> = config.servers.iter().map(|server| server.hashed_name(config.distribution)).collect();
        let weights = || config.servers.iter().map(|server| server.weight);
        let weighted: Vec<(&str, u32)> = names.iter().copied().zip(weights()).collect();
        let kind = match config.distribution {
            _ if weighted.len() == 1 => Kind::One,
            Distribution::Ketama => Kind::Ketama(Ketama::new(&weighted)),
            Distribution::Jump => Kind::Jump(expand(weights())),
            Distribution::Rendezvous => Kind::Rendezvous(Rendezvous::new(&weighted)),
            Distribution::Modulo => Kind::Modulo(expand(weights())),
        };
        Spread { hash: config.hash(), kind }
    }

    /// The place of the server that has this key; of a key with a hash tag, only the tagged part is given.
    pub(crate) fn server(&self, key: &[u8]) -> u16 {
        let hash = || hash(self.hash, key);
        match &self.kind {
            Kind::One => 0,
            Kind::Ketama(ketama) => ketama.server(hash() as u32),
            Kind::Jump(list) => list[bucket(hash(), list.len())],
            Kind::Rendezvous(rendezvous) => rendezvous.server(hash()),
            Kind::Modulo(list) => list[place(hash(), list.len())],
        }
    }
}
