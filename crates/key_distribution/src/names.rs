//! The names of the distributions and hashes in files and arguments, and which of them can be combined.

use crate::{Distribution, Hash, ketama};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

/// The default port of memcached.
const OWN_PORT: &str = ":11211";

impl Distribution {
    /// The valid names.
    pub const NAMES: &'static [&'static str] = &["ketama", "jump", "rendezvous", "modulo", "ch3"];

    /// The name in files and arguments.
    pub fn name(self) -> &'static str {
        match self {
            Distribution::Ketama => "ketama",
            Distribution::Jump => "jump",
            Distribution::Rendezvous => "rendezvous",
            Distribution::Modulo => "modulo",
            Distribution::Ch3 => "ch3",
        }
    }

    /// The distribution with this name.
    pub fn named(name: &str) -> Option<Distribution> {
        use Distribution::{Ch3, Jump, Ketama, Modulo, Rendezvous};
        let all = [Ketama, Jump, Rendezvous, Modulo, Ch3];
        all.into_iter().find(|distribution| distribution.name() == name)
    }

    /// The default hash of this distribution.
    pub fn usual_hash(self) -> Hash {
        match self {
            Distribution::Ketama => Hash::Md5,
            Distribution::Jump | Distribution::Rendezvous | Distribution::Modulo => Hash::Xxh3,
            Distribution::Ch3 => Hash::Murmur64a,
        }
    }

    /// Whether it can use this hash. Jump and rendezvous need all 64 bits. Ch3 and its hash exist for mcrouter's caches, so they come
    /// together only.
    pub fn can_use(self, hash: Hash) -> bool {
        match self {
            Distribution::Ketama | Distribution::Modulo => hash != Hash::Murmur64a,
            Distribution::Jump | Distribution::Rendezvous | Distribution::Ch3 => hash == self.usual_hash(),
        }
    }

    /// The first of these servers, given by their weights, whose weight is so low that it would own no keys.
    pub fn server_without_keys(self, weights: &[u32]) -> Option<usize> {
        match self {
            Distribution::Ketama => ketama::digests(weights).position(|digests| digests == 0),
            Distribution::Jump | Distribution::Rendezvous | Distribution::Modulo | Distribution::Ch3 => {
                weights.iter().position(|&weight| weight == 0)
            }
        }
    }

    /// The name of a server that has only an address. Ketama omits memcached's default port, as libmemcached does.
    pub fn name_of(self, address: &str) -> &str {
        match self {
            Distribution::Ketama => address.strip_suffix(OWN_PORT).unwrap_or(address),
            Distribution::Jump | Distribution::Rendezvous | Distribution::Modulo | Distribution::Ch3 => address,
        }
    }
}

impl Hash {
    /// The valid names.
    pub const NAMES: &'static [&'static str] = &["md5", "fnv1a_64", "crc32", "xxh3_64", "murmur_64a"];

    /// The name in files and arguments.
    pub fn name(self) -> &'static str {
        match self {
            Hash::Md5 => "md5",
            Hash::Fnv1a64 => "fnv1a_64",
            Hash::Crc32 => "crc32",
            Hash::Xxh3 => "xxh3_64",
            Hash::Murmur64a => "murmur_64a",
        }
    }

    /// The hash with this name.
    pub fn named(name: &str) -> Option<Hash> {
        let all = [Hash::Md5, Hash::Fnv1a64, Hash::Crc32, Hash::Xxh3, Hash::Murmur64a];
        all.into_iter().find(|hash| hash.name() == name)
    }
}

impl Serialize for Distribution {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Distribution {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Distribution, D::Error> {
        let name = String::deserialize(deserializer)?;
        Distribution::named(&name).ok_or_else(|| Error::unknown_variant(&name, Distribution::NAMES))
    }
}

impl Serialize for Hash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Hash, D::Error> {
        let name = String::deserialize(deserializer)?;
        Hash::named(&name).ok_or_else(|| Error::unknown_variant(&name, Hash::NAMES))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_printed_and_parsed_alike() {
        for &name in Distribution::NAMES {
            assert_eq!(Distribution::named(name).unwrap().name(), name);
            let read: Distribution = serde_json::from_str(&format!("{name:?}")).unwrap();
            assert_eq!(serde_json::to_string(&read).unwrap(), format!("{name:?}"));
        }
        for &name in Hash::NAMES {
            assert_eq!(Hash::named(name).unwrap().name(), name);
            let read: Hash = serde_json::from_str(&format!("{name:?}")).unwrap();
            assert_eq!(serde_json::to_string(&read).unwrap(), format!("{name:?}"));
        }
        let refused = serde_json::from_str::<Hash>("\"md6\"").unwrap_err().to_string();
        assert!(refused.starts_with("unknown variant `md6`, expected one of `md5`, `fnv1a_64`"), "{refused}");
    }

    #[test]
    fn a_weight_too_small_for_any_key_is_rejected() {
        assert_eq!(Distribution::Ketama.server_without_keys(&[1, 200, 200]), Some(0));
        assert_eq!(Distribution::Rendezvous.server_without_keys(&[1, 200, 200]), None);
        assert_eq!(Distribution::Jump.server_without_keys(&[1, 0]), Some(1));
    }

    #[test]
    fn only_ketama_omits_memcacheds_default_port() {
        assert_eq!(Distribution::Ketama.name_of("a:11211"), "a");
        assert_eq!(Distribution::Ketama.name_of("a:11212"), "a:11212");
        assert_eq!(Distribution::Modulo.name_of("a:11211"), "a:11211");
    }
}
