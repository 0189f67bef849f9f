//! Key distribution: which server owns a key, given the names and weights of the servers and a hash function. The proxy
//! and the load generator both use it, so that they agree. Knows no addresses, pools or replicas, and does no I/O.

mod ch3;
mod hash;
mod jump;
mod ketama;
mod modulo;
mod names;
mod rendezvous;

use crate::ketama::Ketama;
use crate::rendezvous::Rendezvous;

/// The algorithm that distributes keys over servers: the configuration key `distribution`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Distribution {
    /// A hash ring, as in libmemcached and twemproxy.
    #[default]
    Ketama,
    /// Jump consistent hash.
    Jump,
    /// Rendezvous hashing: the highest random weight.
    Rendezvous,
    /// The hash modulo the number of servers.
    Modulo,
    /// The consistent hash of mcrouter.
    Ch3,
}

/// The hash function of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hash {
    /// The first word of the MD5 digest, as in libmemcached and twemproxy.
    Md5,
    /// The low half of FNV-1a, as in libmemcached and twemproxy.
    Fnv1a64,
    /// 15 bits of the CRC-32, as in libmemcached and twemproxy.
    Crc32,
    /// XXH3 with 64 bits.
    Xxh3,
    /// MurmurHash64A, as in mcrouter.
    Murmur64a,
}

/// Maps each key to one of the servers, identified by their index in the list.
#[derive(Clone, Debug)]
pub struct KeyDistribution {
    hash: Hash,
    tag: Option<[u8; 2]>,
    kind: Kind,
}

/// The lookup table of each algorithm; a list contains each server as often as its weight.
#[derive(Clone, Debug)]
enum Kind {
    /// One server, so that nothing is hashed.
    One,
    Ketama(Ketama),
    Jump(Box<[u16]>),
    Rendezvous(Rendezvous),
    Modulo(Box<[u16]>),
    Ch3(Box<[u16]>),
}

impl KeyDistribution {
    /// Distributes keys over servers, given as name and weight. The names determine which keys a server owns: see
    /// [`Distribution::name_of`] for servers that have only an address.
    ///
    /// # Panics
    /// If there is no server or more than 65536, a weight is 0, or the algorithm cannot use the hash
    /// ([`Distribution::can_use`]). Callers check their input.
    pub fn new(distribution: Distribution, hash: Hash, servers: &[(&str, u32)]) -> KeyDistribution {
        assert!((1..=1 << 16).contains(&servers.len()), "keys need a server, and a server a number of 16 bits");
        assert!(servers.iter().all(|&(_, weight)| weight > 0), "a server needs a weight");
        assert!(distribution.can_use(hash), "this distribution needs another hash");
        let expanded = || modulo::expand(servers.iter().map(|&(_, weight)| weight));
        let kind = match distribution {
            _ if servers.len() == 1 => Kind::One,
            Distribution::Ketama => Kind::Ketama(Ketama::new(servers)),
            Distribution::Jump => Kind::Jump(expanded()),
            Distribution::Rendezvous => Kind::Rendezvous(Rendezvous::new(servers)),
            Distribution::Modulo => Kind::Modulo(expanded()),
            Distribution::Ch3 => Kind::Ch3(expanded()),
        };
        KeyDistribution { hash, tag: None, kind }
    }

    /// Sets the hash tag: of a key with both characters, only the part between them is hashed.
    pub fn tagged(self, tag: Option<[u8; 2]>) -> KeyDistribution {
        KeyDistribution { tag, ..self }
    }

    /// The index of the server that owns this key.
    pub fn owner(&self, key: &[u8]) -> usize {
        let hash = || hash::hash(self.hash, self.hashed_part(key));
        usize::from(match &self.kind {
            Kind::One => 0,
            Kind::Ketama(ketama) => ketama.server(hash() as u32),
            Kind::Jump(list) => list[jump::bucket(hash(), list.len())],
            Kind::Rendezvous(rendezvous) => rendezvous.server(hash()),
            Kind::Modulo(list) => list[modulo::place(hash(), list.len())],
            Kind::Ch3(list) => list[ch3::bucket(hash(), list.len())],
        })
    }

    /// The hashed part of a key: the part between the two characters of the hash tag, if both occur with text between them.
    pub fn hashed_part<'k>(&self, key: &'k [u8]) -> &'k [u8] {
        let Some([open, close]) = self.tag else { return key };
        let Some(start) = key.iter().position(|&byte| byte == open).map(|at| at + 1) else { return key };
        match key[start..].iter().position(|&byte| byte == close) {
            Some(length) if length > 0 => &key[start..start + length],
            _ => key,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_tags_keep_keys_together() {
        let servers: Vec<String> = (0..7).map(|index| format!("10.0.0.{index}")).collect();
        let servers: Vec<(&str, u32)> = servers.iter().map(|name| (name.as_str(), 1)).collect();
        let key_distribution = KeyDistribution::new(Distribution::Ketama, Hash::Md5, &servers).tagged(Some(*b"{}"));
        assert_eq!(key_distribution.owner(b"{user}name"), key_distribution.owner(b"age{user}"));
        assert_eq!(key_distribution.hashed_part(b"{}x"), b"{}x");
        assert_eq!(key_distribution.hashed_part(b"a{b"), b"a{b");
        assert_eq!(key_distribution.hashed_part(b"a}{b}"), b"b");
    }
}
