//! How much a stranger may make us hold: what the parsers refuse to wait for.

/// Limits of one message, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest key.
    pub key_bytes: usize,
    /// Longest line, its end included, of `get`, `gets`, `gat` and `gats`, and of every reply.
    pub line_bytes: usize,
    /// Longest line, its end included, of any other command.
    pub command_bytes: usize,
    /// Largest value.
    pub value_bytes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { key_bytes: 250, line_bytes: 64 << 10, command_bytes: 1024, value_bytes: 8 << 20 }
    }
}
