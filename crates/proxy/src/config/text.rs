//! Serialization of values that only the proxy has: lists of addresses, hash tags, timeouts and servers.

use crate::config::pool::{ServerConfig, Timeouts};
use configuration::text::{opt_time, time};
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Error, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

/// The key of an entry of a list. A single text is no list, so its key has no index.
pub(super) fn list_key(key: &str, list: &[String], index: usize) -> String {
    if list.len() == 1 { key.into() } else { format!("{key}.{index}") }
}

/// One value, or a list of them. A single value is written without a list.
pub(super) mod opt_list {
    use super::*;

    pub(crate) fn serialize<T: Serialize, S: Serializer>(
        list: &Option<Vec<T>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match list.as_deref() {
            Some([one]) => one.serialize(serializer),
            other => other.serialize(serializer),
        }
    }

    pub(crate) fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Vec<T>>, D::Error> {
        deserializer.deserialize_any(ListVisitor(PhantomData)).map(Some)
    }
}

struct ListVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ListVisitor<T> {
    type Value = Vec<T>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an address such as \"127.0.0.1:11211\", or a list of them")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Vec<T>, E> {
        Ok(vec![T::deserialize(text.into_deserializer())?])
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Vec<T>, A::Error> {
        Ok(vec![T::deserialize(MapAccessDeserializer::new(map))?])
    }

    fn visit_seq<A: SeqAccess<'de>>(self, sequence: A) -> Result<Vec<T>, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(sequence))
    }
}

/// Two characters.
pub(super) mod opt_tag {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(tag: &Option<[u8; 2]>, serializer: S) -> Result<S::Ok, S::Error> {
        tag.map(|tag| tag.map(char::from).iter().collect::<String>()).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<[u8; 2]>, D::Error> {
        let text = String::deserialize(deserializer)?;
        let tag = <[u8; 2]>::try_from(text.as_bytes()).ok().filter(|_| text.is_ascii());
        let refuse = || D::Error::custom(format!("{text:?} is not two ASCII characters such as \"{{}}\""));
        tag.map(Some).ok_or_else(refuse)
    }
}

/// Timeouts, each of which is optional.
pub(super) mod opt_times {
    use super::*;

    #[derive(Serialize, Deserialize)]
    #[serde(deny_unknown_fields, default, expecting = "a table")]
    struct Times {
        #[serde(with = "time")]
        connect: Duration,
        #[serde(with = "time")]
        read: Duration,
        #[serde(with = "time")]
        write: Duration,
        /// By default 10 s, or the longest of the others.
        #[serde(with = "opt_time")]
        reply: Option<Duration>,
    }

    impl Default for Times {
        fn default() -> Times {
            let Timeouts { connect, read, write, .. } = Timeouts::default();
            Times { connect, read, write, reply: None }
        }
    }

    pub(crate) fn serialize<S: Serializer>(times: &Option<Timeouts>, serializer: S) -> Result<S::Ok, S::Error> {
        let times =
            times.map(|Timeouts { connect, read, write, reply }| Times { connect, read, write, reply: Some(reply) });
        times.serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timeouts>, D::Error> {
        let Times { connect, read, write, reply } = Times::deserialize(deserializer)?;
        let reply = reply.unwrap_or(Timeouts::all(connect.max(read).max(write)).reply);
        Ok(Some(Timeouts { connect, read, write, reply }))
    }
}

/// A server in a table of its own.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
struct ServerTable {
    address: String,
    name: Option<String>,
    #[serde(default = "one")]
    weight: u32,
    #[serde(default)]
    drain: bool,
}

fn one() -> u32 {
    1
}

impl<'de> Deserialize<'de> for ServerConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ServerConfig, D::Error> {
        deserializer.deserialize_any(ServerVisitor)
    }
}

struct ServerVisitor;

impl<'de> Visitor<'de> for ServerVisitor {
    type Value = ServerConfig;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("\"HOST:PORT\" or { address = \"HOST:PORT\", weight = 2, name = \"cache-1\" }")
    }

    fn visit_str<E: Error>(self, address: &str) -> Result<ServerConfig, E> {
        Ok(ServerConfig::new(address))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ServerConfig, A::Error> {
        let ServerTable { address, name, weight, drain } = ServerTable::deserialize(MapAccessDeserializer::new(map))?;
        Ok(ServerConfig { address, name, weight, is_drained: drain })
    }
}

impl Serialize for ServerConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("address", &self.address)?;
        if let Some(name) = &self.name {
            map.serialize_entry("name", name)?;
        }
        map.serialize_entry("weight", &self.weight)?;
        if self.is_drained {
            map.serialize_entry("drain", &true)?;
        }
        map.end()
    }
}
