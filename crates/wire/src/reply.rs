//! One unit of a reply: a value, or a line. The reply to a retrieval is its values and a last line. Every other reply is one
//! line, except that `stats` has several.

use crate::number::push_number;

/// A value in a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value<'a> {
    /// The key, as the server returns it.
    pub key: &'a [u8],
    /// The client flags that were stored with the value.
    pub flags: u32,
    /// The cas token, for `gets` and `gats`.
    pub cas: Option<u64>,
    /// The value, which may be empty.
    pub data: &'a [u8],
}

/// The two letters of a reply to a meta command, `VA` excepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaCode {
    /// `HD`: success, or a hit.
    Header,
    /// `EN`: a miss of `mg` or `me`.
    Miss,
    /// `NF`: the key does not exist.
    NotFound,
    /// `NS`: the condition of the mode was not met, so nothing was stored.
    NotStored,
    /// `EX`: the item has changed since the cas token was issued.
    Exists,
    /// `MN`: the reply to `mn`.
    Noop,
    /// `ME`: the key and the facts that `me` found.
    Debug,
}

/// One unit of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply<'a> {
    /// One value of a retrieval.
    Value(Value<'a>),
    /// The end of a retrieval or of statistics.
    End,
    /// The value was stored.
    Stored,
    /// The condition of `add`, `replace`, `append` or `prepend` was not met.
    NotStored,
    /// The item has changed since the `gets` that returned the token.
    Exists,
    /// The key does not exist.
    NotFound,
    /// The key was deleted.
    Deleted,
    /// The item has a new expiry time.
    Touched,
    /// The command succeeded.
    Ok,
    /// The counters were reset.
    Reset,
    /// The new value after `incr` or `decr`.
    Number(u64),
    /// The version of the server.
    Version(&'a [u8]),
    /// One statistic.
    Stat {
        /// Its name, which has no spaces.
        name: &'a [u8],
        /// Its value: the rest of the line.
        value: &'a [u8],
    },
    /// The reply to a meta command.
    Meta {
        /// The two letters.
        code: MetaCode,
        /// The rest of the line: returned flags, and for `me` the key and the facts.
        flags: &'a [u8],
    },
    /// `VA`: the reply to a meta command that requested the value.
    MetaValue {
        /// The returned flags.
        flags: &'a [u8],
        /// The value, which may be empty.
        data: &'a [u8],
    },
    /// The command is unknown.
    Error,
    /// An error of the client: the text after `CLIENT_ERROR `.
    ClientError(&'a [u8]),
    /// An error of the server: the text after `SERVER_ERROR `.
    ServerError(&'a [u8]),
}

impl MetaCode {
    /// Every code.
    pub const ALL: [MetaCode; 7] = [
        MetaCode::Header,
        MetaCode::Miss,
        MetaCode::NotFound,
        MetaCode::NotStored,
        MetaCode::Exists,
        MetaCode::Noop,
        MetaCode::Debug,
    ];

    /// The two letters.
    pub fn name(self) -> &'static str {
        match self {
            MetaCode::Header => "HD",
            MetaCode::Miss => "EN",
            MetaCode::NotFound => "NF",
            MetaCode::NotStored => "NS",
            MetaCode::Exists => "EX",
            MetaCode::Noop => "MN",
            MetaCode::Debug => "ME",
        }
    }
}

impl Reply<'_> {
    /// Whether the reply reports an error. A miss or an unmet condition is not an error.
    pub fn is_error(&self) -> bool {
        matches!(self, Reply::Error | Reply::ClientError(_) | Reply::ServerError(_))
    }

    /// Appends the encoded unit.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Reply::Value(value) => return value.encode(out),
            Reply::Meta { code, flags } => {
                out.extend_from_slice(code.name().as_bytes());
                push_flags(out, flags);
            }
            Reply::MetaValue { flags, data } => {
                out.reserve(flags.len() + data.len() + 32);
                out.extend_from_slice(b"VA");
                push_number(out, data.len());
                push_flags(out, flags);
                out.extend_from_slice(b"\r\n");
                out.extend_from_slice(data);
            }
            Reply::End => out.extend_from_slice(b"END"),
            Reply::Stored => out.extend_from_slice(b"STORED"),
            Reply::NotStored => out.extend_from_slice(b"NOT_STORED"),
            Reply::Exists => out.extend_from_slice(b"EXISTS"),
            Reply::NotFound => out.extend_from_slice(b"NOT_FOUND"),
            Reply::Deleted => out.extend_from_slice(b"DELETED"),
            Reply::Touched => out.extend_from_slice(b"TOUCHED"),
            Reply::Ok => out.extend_from_slice(b"OK"),
            Reply::Reset => out.extend_from_slice(b"RESET"),
            Reply::Number(number) => out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes()),
            Reply::Version(version) => push_text(out, b"VERSION ", version),
            Reply::Stat { name, value } => {
                push_text(out, b"STAT ", name);
                push_text(out, b" ", value);
            }
            Reply::Error => out.extend_from_slice(b"ERROR"),
            Reply::ClientError(text) => push_text(out, b"CLIENT_ERROR ", text),
            Reply::ServerError(text) => push_text(out, b"SERVER_ERROR ", text),
        }
        out.extend_from_slice(b"\r\n");
    }
}

impl Value<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        out.reserve(self.key.len() + self.data.len() + 64);
        push_text(out, b"VALUE ", self.key);
        push_number(out, self.flags);
        push_number(out, self.data.len());
        if let Some(cas) = self.cas {
            push_number(out, cas);
        }
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(self.data);
        out.extend_from_slice(b"\r\n");
    }
}

fn push_flags(out: &mut Vec<u8>, flags: &[u8]) {
    if !flags.is_empty() {
        push_text(out, b" ", flags);
    }
}

fn push_text(out: &mut Vec<u8>, word: &[u8], text: &[u8]) {
    out.extend_from_slice(word);
    out.extend_from_slice(text);
}
