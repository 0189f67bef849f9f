//! The configuration of one listener: its address, and the commands that its clients may use.

use crate::config::ConfigError;
use crate::config::commands::{CommandGroup, Commands};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// One listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerConfig {
    /// The address, as `net::Address` reads it.
    pub address: String,
    /// The only groups of commands that its clients may use. All, if it is missing.
    pub allow: Option<Vec<CommandGroup>>,
    /// Groups of commands that its clients must not use.
    pub deny: Option<Vec<CommandGroup>>,
}

impl ListenerConfig {
    /// A listener whose clients may use every command.
    pub fn new(address: &str) -> ListenerConfig {
        ListenerConfig { address: address.into(), allow: None, deny: None }
    }

    /// The commands that its clients may use.
    pub fn commands(&self) -> Commands {
        let allowed = self.allow.as_deref().map_or(Commands::ALL, Commands::of);
        allowed.without(Commands::of(self.deny.as_deref().unwrap_or_default()))
    }

    /// Checks the groups. `key` is the key of the listener.
    pub(super) fn check_commands(&self, key: &str) -> Result<(), ConfigError> {
        for (name, groups) in [("allow", &self.allow), ("deny", &self.deny)] {
            if groups.as_ref().is_some_and(Vec::is_empty) {
                let problem = "the list is empty; give groups of commands, or leave it out";
                return Err(ConfigError::value(format!("{key}.{name}"), "[]", problem));
            }
        }
        if self.commands() == Commands::NONE {
            let problem = "clients could use no command at all; leave a group out of it";
            return Err(ConfigError::at(format!("{key}.deny"), problem));
        }
        Ok(())
    }
}

impl From<String> for ListenerConfig {
    fn from(address: String) -> ListenerConfig {
        ListenerConfig::new(&address)
    }
}

impl From<&str> for ListenerConfig {
    fn from(address: &str) -> ListenerConfig {
        ListenerConfig::new(address)
    }
}

/// A listener in a table of its own.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
struct ListenerTable {
    address: String,
    allow: Option<Vec<CommandGroup>>,
    deny: Option<Vec<CommandGroup>>,
}

impl<'de> Deserialize<'de> for ListenerConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ListenerConfig, D::Error> {
        deserializer.deserialize_any(ListenerVisitor)
    }
}

struct ListenerVisitor;

impl<'de> Visitor<'de> for ListenerVisitor {
    type Value = ListenerConfig;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("\"HOST:PORT\" or { address = \"HOST:PORT\", allow = [\"read\"] }")
    }

    fn visit_str<E: Error>(self, address: &str) -> Result<ListenerConfig, E> {
        Ok(address.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ListenerConfig, A::Error> {
        let ListenerTable { address, allow, deny } = ListenerTable::deserialize(MapAccessDeserializer::new(map))?;
        Ok(ListenerConfig { address, allow, deny })
    }
}

impl Serialize for ListenerConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.allow.is_none() && self.deny.is_none() {
            return serializer.serialize_str(&self.address);
        }
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("address", &self.address)?;
        if let Some(allow) = &self.allow {
            map.serialize_entry("allow", allow)?;
        }
        if let Some(deny) = &self.deny {
            map.serialize_entry("deny", deny)?;
        }
        map.end()
    }
}
