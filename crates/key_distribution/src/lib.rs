//! Key distribution: which server owns a key, given the names and weights of the servers and a hash function. The proxy
//! and the load generator both use it, so that they agree. Knows no addresses, pools or replicas, and does no I/O.

mod ch3;
mod hash;
mod jump;
mod ketama;
mod md5_lanes;
mod modulo;
mod names;
mod rendezvous;

use crate::ketama::Ketama;
use crate::md5_lanes::{LANES, md5_words};
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
        match self.kind {
            Kind::One => 0,
            _ => self.owner_of_hash(hash::hash(self.hash, self.hashed_part(key))),
        }
    }

    /// Calls `found` with each key and the index of the server that owns it, in the order of the keys. If the hash is MD5, several keys
    /// are hashed at the same time, which costs much less than one after the other.
    pub fn owners<'k>(&self, mut keys: impl Iterator<Item = &'k [u8]>, mut found: impl FnMut(&'k [u8], usize)) {
        if self.hash != Hash::Md5 || matches!(self.kind, Kind::One) {
            return keys.for_each(|key| found(key, self.owner(key)));
        }
        let mut group = [&[][..]; LANES];
        loop {
            let count = group.iter_mut().zip(keys.by_ref()).map(|(place, key)| *place = key).count();
            let keys = &group[..count];
            let words = || md5_words(&group.map(|key| self.hashed_part(key)));
            match if count > 1 { words() } else { None } {
                Some(words) => {
                    keys.iter().zip(words).for_each(|(key, word)| found(key, self.owner_of_hash(word.into())))
                }
                None => keys.iter().for_each(|key| found(key, self.owner(key))),
            }
            if count < LANES {
                return;
            }
        }
    }

    fn owner_of_hash(&self, hash: u64) -> usize {
        usize::from(match &self.kind {
            Kind::One => 0,
            Kind::Ketama(ketama) => ketama.server(hash as u32),
            Kind::Jump(list) => list[jump::bucket(hash, list.len())],
            Kind::Rendezvous(rendezvous) => rendezvous.server(hash),
            Kind::Modulo(list) => list[modulo::place(hash, list.len())],
            Kind::Ch3(list) => list[ch3::bucket(hash, list.len())],
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

    #[test]
    fn keys_have_the_same_owners_together_as_alone() {
        let names: Vec<String> = (0..7).map(|index| format!("10.0.0.{index}")).collect();
        let servers: Vec<(&str, u32)> = names.iter().map(|name| (name.as_str(), 1)).collect();
        // The first lengths of keys that are hashed together, and longer ones.
        let keys: Vec<String> = (0..120).map(|length| format!("{}{{{length}}}x", "k".repeat(length % 61))).collect();
        for (hash, servers) in [(Hash::Md5, &servers[..]), (Hash::Crc32, &servers), (Hash::Md5, &servers[..1])] {
            for (count, tag) in (0..=keys.len()).flat_map(|count| [(count, None), (count, Some(*b"{}"))]) {
                let distribution = KeyDistribution::new(Distribution::Ketama, hash, servers).tagged(tag);
                let mut found = Vec::new();
                distribution.owners(keys[..count].iter().map(String::as_bytes), |key, owner| found.push((key, owner)));
                let alone = keys[..count].iter().map(|key| (key.as_bytes(), distribution.owner(key.as_bytes())));
                assert_eq!(found, alone.collect::<Vec<_>>(), "{hash:?} {tag:?} {count}");
            }
        }
    }
}
