//! How large each value is: known from its key and version, so that a value that comes back can be held against it.

/// The size of every value.
#[derive(Clone, Debug)]
pub(crate) struct ValueSizes {
    fixed_bytes: usize,
}

impl ValueSizes {
    /// All of one size.
    pub(crate) fn fixed(size_bytes: usize) -> ValueSizes {
        ValueSizes { fixed_bytes: size_bytes }
    }

    /// The size of the value of `key` at `version`.
    pub(crate) fn of(&self, _key: u64, _version: u64) -> usize {
        self.fixed_bytes
    }

    /// Whether a value of `key` may be these bytes, by their number alone.
    pub(crate) fn fits(&self, _key: u64, data: &[u8]) -> bool {
        data.len() == self.fixed_bytes
    }

    /// The largest that there can be.
    pub(crate) fn largest(&self) -> usize {
        self.fixed_bytes
    }
}
