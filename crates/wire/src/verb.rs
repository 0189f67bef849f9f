//! The command names, and their codes in records.

/// The command of a request. The discriminants are the `operation` codes of the record format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Verb {
    /// Not a command of the protocol.
    #[default]
    Other = 0,
    /// Retrieve values.
    Get = 1,
    /// Retrieve values with their cas tokens.
    Gets = 2,
    /// Retrieve values and set a new expiry time.
    Gat = 3,
    /// Retrieve values with their cas tokens and set a new expiry time.
    Gats = 4,
    /// Store.
    Set = 5,
    /// Store if absent.
    Add = 6,
    /// Store if present.
    Replace = 7,
    /// Append to a value.
    Append = 8,
    /// Prepend to a value.
    Prepend = 9,
    /// Store if unchanged since `gets`.
    Cas = 10,
    /// Delete.
    Delete = 11,
    /// Increment.
    Incr = 12,
    /// Decrement.
    Decr = 13,
    /// Set a new expiry time.
    Touch = 14,
    /// Delete everything.
    FlushAll = 15,
    /// Request the version.
    Version = 16,
    /// Set the log level.
    Verbosity = 17,
    /// Request statistics.
    Stats = 18,
    /// Close the connection.
    Quit = 19,
    /// A malformed line.
    Invalid = 20,
    /// Meta get: the value or metadata of an item.
    Mg = 21,
    /// Meta set: store, in one of several modes.
    Ms = 22,
    /// Meta delete: delete, or mark as stale.
    Md = 23,
    /// Meta arithmetic: increment or decrement.
    Ma = 24,
    /// Meta no-op: replied to after everything before it.
    Mn = 25,
    /// Meta debug: the metadata of an item as readable text.
    Me = 26,
}

impl Verb {
    /// Every command, in the order of the codes.
    pub const ALL: [Verb; 27] = [
        Verb::Other,
        Verb::Get,
        Verb::Gets,
        Verb::Gat,
        Verb::Gats,
        Verb::Set,
        Verb::Add,
        Verb::Replace,
        Verb::Append,
        Verb::Prepend,
        Verb::Cas,
        Verb::Delete,
        Verb::Incr,
        Verb::Decr,
        Verb::Touch,
        Verb::FlushAll,
        Verb::Version,
        Verb::Verbosity,
        Verb::Stats,
        Verb::Quit,
        Verb::Invalid,
        Verb::Mg,
        Verb::Ms,
        Verb::Md,
        Verb::Ma,
        Verb::Mn,
        Verb::Me,
    ];

    /// The name on the wire and in records.
    pub fn name(self) -> &'static str {
        match self {
            Verb::Other => "other",
            Verb::Get => "get",
            Verb::Gets => "gets",
            Verb::Gat => "gat",
            Verb::Gats => "gats",
            Verb::Set => "set",
            Verb::Add => "add",
            Verb::Replace => "replace",
            Verb::Append => "append",
            Verb::Prepend => "prepend",
            Verb::Cas => "cas",
            Verb::Delete => "delete",
            Verb::Incr => "incr",
            Verb::Decr => "decr",
            Verb::Touch => "touch",
            Verb::FlushAll => "flush_all",
            Verb::Version => "version",
            Verb::Verbosity => "verbosity",
            Verb::Stats => "stats",
            Verb::Quit => "quit",
            Verb::Invalid => "invalid",
            Verb::Mg => "mg",
            Verb::Ms => "ms",
            Verb::Md => "md",
            Verb::Ma => "ma",
            Verb::Mn => "mn",
            Verb::Me => "me",
        }
    }

    /// The command with this name. Names are case-sensitive.
    pub fn of(word: &[u8]) -> Option<Verb> {
        Some(match word {
            b"get" => Verb::Get,
            b"set" => Verb::Set,
            b"gets" => Verb::Gets,
            b"gat" => Verb::Gat,
            b"gats" => Verb::Gats,
            b"add" => Verb::Add,
            b"replace" => Verb::Replace,
            b"append" => Verb::Append,
            b"prepend" => Verb::Prepend,
            b"cas" => Verb::Cas,
            b"delete" => Verb::Delete,
            b"incr" => Verb::Incr,
            b"decr" => Verb::Decr,
            b"touch" => Verb::Touch,
            b"flush_all" => Verb::FlushAll,
            b"version" => Verb::Version,
            b"verbosity" => Verb::Verbosity,
            b"stats" => Verb::Stats,
            b"quit" => Verb::Quit,
            b"mg" => Verb::Mg,
            b"ms" => Verb::Ms,
            b"md" => Verb::Md,
            b"ma" => Verb::Ma,
            b"mn" => Verb::Mn,
            b"me" => Verb::Me,
            _ => return None,
        })
    }

    /// Whether it retrieves values: only these lines may be long.
    pub fn is_retrieval(self) -> bool {
        matches!(self, Verb::Get | Verb::Gets | Verb::Gat | Verb::Gats)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_positions_and_names_are_commands() {
        for (code, verb) in Verb::ALL.into_iter().enumerate() {
            assert_eq!(verb as usize, code);
            let expected = if matches!(verb, Verb::Other | Verb::Invalid) { None } else { Some(verb) };
            assert_eq!(Verb::of(verb.name().as_bytes()), expected);
            assert_eq!(Verb::of(verb.name().to_uppercase().as_bytes()), None);
        }
    }
}
