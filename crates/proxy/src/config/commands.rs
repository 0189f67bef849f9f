//! The commands that the clients of a listener may use, in groups. A group has commands by what they do, so that a meta command is
//! in the same group as the text command that does the same.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A group of commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CommandGroup {
    /// Return values, and change nothing.
    Read = 1,
    /// Set the expiry time of a stored value.
    Touch = 2,
    /// Store and change values.
    Write = 4,
    /// Delete one key, or mark its value as stale.
    Delete = 8,
    /// Delete everything.
    Flush = 16,
    /// Return statistics.
    Stats = 32,
}

/// A set of groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commands(u8);

/// Names of commands, each with its group: an operator may expect that a command can be named.
const COMMANDS: [(&str, CommandGroup); 18] = [
    ("get", CommandGroup::Read),
    ("gets", CommandGroup::Read),
    ("mg", CommandGroup::Read),
    ("me", CommandGroup::Read),
    ("gat", CommandGroup::Touch),
    ("gats", CommandGroup::Touch),
    ("set", CommandGroup::Write),
    ("add", CommandGroup::Write),
    ("replace", CommandGroup::Write),
    ("append", CommandGroup::Write),
    ("prepend", CommandGroup::Write),
    ("cas", CommandGroup::Write),
    ("incr", CommandGroup::Write),
    ("decr", CommandGroup::Write),
    ("ms", CommandGroup::Write),
    ("ma", CommandGroup::Write),
    ("md", CommandGroup::Delete),
    ("flush_all", CommandGroup::Flush),
];

impl CommandGroup {
    /// All groups.
    pub const ALL: [CommandGroup; 6] = [
        CommandGroup::Read,
        CommandGroup::Touch,
        CommandGroup::Write,
        CommandGroup::Delete,
        CommandGroup::Flush,
        CommandGroup::Stats,
    ];
    /// The names of all groups.
    pub const NAMES: &'static [&'static str] = &["read", "touch", "write", "delete", "flush", "stats"];

    /// The name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            CommandGroup::Read => "read",
            CommandGroup::Touch => "touch",
            CommandGroup::Write => "write",
            CommandGroup::Delete => "delete",
            CommandGroup::Flush => "flush",
            CommandGroup::Stats => "stats",
        }
    }
}

impl Commands {
    /// Those that belong to no group, such as `version`, which every client may use.
    pub const NONE: Commands = Commands(0);
    /// All groups.
    pub const ALL: Commands = Commands(63);

    /// A set of these groups.
    pub fn of(groups: &[CommandGroup]) -> Commands {
        groups.iter().fold(Commands::NONE, |set, &group| set.with(group))
    }

    /// The same set and this group.
    #[must_use]
    pub const fn with(self, group: CommandGroup) -> Commands {
        Commands(self.0 | group as u8)
    }

    /// The same set without the groups of another.
    #[must_use]
    pub fn without(self, other: Commands) -> Commands {
        Commands(self.0 & !other.0)
    }

    /// Whether it has every group of another set.
    pub(crate) fn contain(self, other: Commands) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether a group is missing.
    pub(crate) fn are_limited(self) -> bool {
        self != Commands::ALL
    }

    /// The names of its groups.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        CommandGroup::ALL
            .into_iter()
            .filter(move |&group| self.contain(Commands::NONE.with(group)))
            .map(CommandGroup::name)
    }
}

impl Serialize for CommandGroup {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for CommandGroup {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<CommandGroup, D::Error> {
        let name = String::deserialize(deserializer)?;
        if let Some(group) = CommandGroup::ALL.into_iter().find(|group| group.name() == name) {
            return Ok(group);
        }
        match COMMANDS.iter().find(|(command, _)| *command == name) {
            Some((_, group)) => {
                let group = group.name();
                Err(D::Error::custom(format!("{name:?} belongs to the group {group:?}; give the group")))
            }
            None => Err(D::Error::unknown_variant(&name, CommandGroup::NAMES)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_contains_what_was_put_into_it() {
        let set = Commands::of(&[CommandGroup::Read, CommandGroup::Stats]);
        assert_eq!(set.names().collect::<Vec<_>>(), ["read", "stats"]);
        assert!(set.contain(Commands::NONE) && set.contain(set) && !set.contain(set.with(CommandGroup::Flush)));
        assert_eq!(Commands::of(&CommandGroup::ALL), Commands::ALL);
        let without = Commands::ALL.without(set);
        assert_eq!(without.names().collect::<Vec<_>>(), ["touch", "write", "delete", "flush"]);
        assert!(without.are_limited() && !Commands::ALL.are_limited());
        assert_eq!(CommandGroup::ALL.map(CommandGroup::name), *CommandGroup::NAMES);
    }
}
