//! Limits of a message: the parsers refuse to wait for more, so that a client cannot make the proxy buffer without bound.

use memchr::memchr;

/// The longest key that a server accepts, in bytes.
pub const KEY_BYTES_MAXIMUM: usize = 250;

/// The largest value that memcached can be configured to store, in bytes.
pub const VALUE_BYTES_MAXIMUM: usize = 1 << 30;

/// A buffer for one decoded key.
pub type KeyBuffer = [u8; KEY_BYTES_MAXIMUM];

/// Limits of one message, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest key as written on the line; a base64 key counts with all its characters.
    pub key_bytes: usize,
    /// Longest line of `get` and `gets` and of every reply, including the line end.
    pub line_bytes: usize,
    /// Longest line of any other command, including the line end.
    pub command_bytes: usize,
    /// Largest value.
    pub value_bytes: usize,
}

impl Limits {
    /// Whether these bytes can be a key.
    ///
    /// memcached ends a line at the first NUL. It would see a shorter key, and would parse the bytes after the NUL as commands.
    pub(crate) fn allow_key(&self, key: &[u8]) -> bool {
        key.len() <= self.key_bytes && !has_nul(key)
    }
}

/// Whether one of these bytes is a NUL.
pub(crate) fn has_nul(bytes: &[u8]) -> bool {
    memchr(0, bytes).is_some()
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { key_bytes: KEY_BYTES_MAXIMUM, line_bytes: 64 << 10, command_bytes: 1024, value_bytes: 8 << 20 }
    }
}
