//! One unit of a reply: a value, or a line. A retrieval is answered by values and a last line, everything else by a line
//! (`stats` by several).

use crate::number::push_number;

/// A value as it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value<'a> {
    /// Whose.
    pub key: &'a [u8],
    /// What was stored with it.
    pub flags: u32,
    /// The cas token, for `gets` and `gats`.
    pub cas: Option<u64>,
    /// Any bytes, or none.
    pub data: &'a [u8],
}

/// What the reply to a meta command says in its two letters, `VA` excepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaCode {
    /// `HD`: done, or found.
    Header,
    /// `EN`: `mg` or `me` found nothing.
    Miss,
    /// `NF`: there is no such key.
    NotFound,
    /// `NS`: the condition of the mode was not met.
    NotStored,
    /// `EX`: changed since the cas token was given.
    Exists,
    /// `MN`: the answer to `mn`.
    Noop,
    /// `ME`: what `me` found; the key and the facts follow.
    Debug,
}

/// One unit of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply<'a> {
    /// One value of a retrieval.
    Value(Value<'a>),
    /// The end of a retrieval or of counters.
    End,
    /// Stored.
    Stored,
    /// The condition of `add`, `replace`, `append` or `prepend` was not met.
    NotStored,
    /// Changed since the `gets` whose token `cas` has.
    Exists,
    /// There is no such key.
    NotFound,
    /// Removed.
    Deleted,
    /// Given a new expiry time.
    Touched,
    /// Done.
    Ok,
    /// Counters were reset.
    Reset,
    /// What `incr` or `decr` came to.
    Number(u64),
    /// The version.
    Version(&'a [u8]),
    /// One counter.
    Stat {
        /// Its name, without spaces.
        name: &'a [u8],
        /// The rest of the line.
        value: &'a [u8],
    },
    /// The reply to a meta command.
    Meta {
        /// What it says.
        code: MetaCode,
        /// The rest of the line: flags that came back, for `me` the key and the facts.
        flags: &'a [u8],
    },
    /// `VA`: the reply to a meta command that asked for the value.
    MetaValue {
        /// Flags that came back.
        flags: &'a [u8],
        /// Any bytes, or none.
        data: &'a [u8],
    },
    /// Not understood.
    Error,
    /// The client did something wrong: the text behind `CLIENT_ERROR `.
    ClientError(&'a [u8]),
    /// The server cannot: the text behind `SERVER_ERROR `.
    ServerError(&'a [u8]),
}

impl MetaCode {
    /// All of them.
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
    /// Whether it says that the request failed; a miss or a condition that was not met is no failure.
    pub fn is_error(&self) -> bool {
        matches!(self, Reply::Error | Reply::ClientError(_) | Reply::ServerError(_))
    }

    /// Appends the unit as it goes over the wire.
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
