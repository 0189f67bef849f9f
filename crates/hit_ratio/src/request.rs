//! A request, as far as it changes what a cache stores.

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Reads. After a miss, the application stores the value.
    Get,
    /// Stores.
    Set,
    /// Stores if the key is absent.
    Add,
    /// Stores if the key is present. So does `cas`.
    Replace,
    /// Makes a stored value longer, at either end.
    Append,
    /// Removes.
    Delete,
    /// Changes a stored number. The size stays the same.
    Increment,
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The operation.
    pub operation: Operation,
    /// Bytes of the value that is written or was returned. 0 for a get whose value is unknown.
    pub value_bytes: u32,
    /// The time to live of a write in seconds, where 0 is unlimited. For a get, that of its value, where 0 is unknown.
    pub ttl_s: u32,
    /// The time in seconds since the first request.
    pub at_s: u32,
}

impl Operation {
    /// Whether the size of the request is that of a whole value.
    pub fn has_whole_value(self) -> bool {
        matches!(self, Operation::Get | Operation::Set | Operation::Add | Operation::Replace)
    }

    /// Whether the request brings a value and its time to live.
    pub fn writes(self) -> bool {
        matches!(self, Operation::Set | Operation::Add | Operation::Replace)
    }
}
