//! Values that are text in the file: durations, sizes, the two characters of a hash tag, and servers.

use crate::config::{ServerConfig, Timeouts};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::time::Duration;

/// A duration as text, `250ms`.
pub(super) mod time {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&quantity::duration_text(*time))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        deserializer.deserialize_str(TimeVisitor)
    }
}

/// A duration that may be left out.
pub(super) mod opt_time {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        time.map(quantity::duration_text).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        deserializer.deserialize_str(TimeVisitor).map(Some)
    }
}

/// One text, or a list of them.
pub(super) mod opt_list {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(list: &Option<Vec<String>>, serializer: S) -> Result<S::Ok, S::Error> {
        match list.as_deref() {
            Some([one]) => one.serialize(serializer),
            other => other.serialize(serializer),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<String>>, D::Error> {
        deserializer.deserialize_any(ListVisitor).map(Some)
    }
}

/// A size, as text `64m` or as a number of bytes.
pub(super) mod opt_size {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(size: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
        size.map(quantity::bytes_text).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
        deserializer.deserialize_any(SizeVisitor).map(Some)
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

/// Times of which each may be left out.
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
    }

    impl Default for Times {
        fn default() -> Times {
            let Timeouts { connect, read, write } = Timeouts::default();
            Times { connect, read, write }
        }
    }

    pub(crate) fn serialize<S: Serializer>(times: &Option<Timeouts>, serializer: S) -> Result<S::Ok, S::Error> {
        times.map(|Timeouts { connect, read, write }| Times { connect, read, write }).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timeouts>, D::Error> {
        let Times { connect, read, write } = Times::deserialize(deserializer)?;
        Ok(Some(Timeouts { connect, read, write }))
    }
}

struct TimeVisitor;

impl Visitor<'_> for TimeVisitor {
    type Value = Duration;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a duration such as \"200us\", \"1.5ms\" or \"3s\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Duration, E> {
        quantity::duration(text).map_err(E::custom)
    }
}

struct ListVisitor;

impl<'de> Visitor<'de> for ListVisitor {
    type Value = Vec<String>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an address such as \"127.0.0.1:11211\", or a list of them")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Vec<String>, E> {
        Ok(vec![text.into()])
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Vec<String>, A::Error> {
        let mut list = Vec::new();
        while let Some(text) = sequence.next_element()? {
            list.push(text);
        }
        Ok(list)
    }
}

struct SizeVisitor;

impl Visitor<'_> for SizeVisitor {
    type Value = u64;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a size in bytes such as 128, \"4k\" or \"64m\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<u64, E> {
        quantity::bytes(text).map(|bytes| bytes as u64).map_err(E::custom)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<u64, E> {
        self.visit_str(&number.to_string())
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
        let ServerTable { address, name, weight } = ServerTable::deserialize(MapAccessDeserializer::new(map))?;
        Ok(ServerConfig { address, name, weight })
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
        map.end()
    }
}
