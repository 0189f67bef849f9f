//! How much a stranger may make us hold: what the parsers refuse to wait for.

use memchr::memchr;

/// Longest key that a server takes, in bytes.
pub const KEY_BYTES_MAXIMUM: usize = 250;

/// Room for one key that has been decoded.
pub type KeyBuffer = [u8; KEY_BYTES_MAXIMUM];

/// Limits of one message, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest key, as it stands on the line: one in base64 counts with all its letters.
    pub key_bytes: usize,
    /// Longest line, its end included, of `get` and `gets`, and of every reply.
    pub line_bytes: usize,
    /// Longest line, its end included, of any other command.
    pub command_bytes: usize,
    /// Largest value.
    pub value_bytes: usize,
}

impl Limits {
    /// Whether these bytes may be a key.
    ///
    /// memcached ends a line at the first NUL. A key that holds one would be another key there, and what follows it,
    /// a value even, would be read as commands.
    pub(crate) fn allow_key(&self, key: &[u8]) -> bool {
        key.len() <= self.key_bytes && memchr(0, key).is_none()
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { key_bytes: KEY_BYTES_MAXIMUM, line_bytes: 64 << 10, command_bytes: 1024, value_bytes: 8 << 20 }
    }
}
