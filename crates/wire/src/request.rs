//! A request as a value that borrows from the received bytes, and its encoding for a backend.

use crate::keys::Keys;
use crate::meta::Meta;
use crate::number::push_number;
use crate::request_error::RequestError;
use crate::verb::Verb;
use std::borrow::Cow;

/// The result of parsing the bytes received so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParsedRequest<'a> {
    /// The message is not complete; parse again when more bytes have arrived.
    Incomplete,
    /// One complete request.
    Request {
        /// The request; it borrows from the bytes.
        request: Request<'a>,
        /// The length of the request in bytes.
        consumed: usize,
    },
    /// A malformed request. Reply with `error.line()`, drop `consumed` bytes now and the next `swallow` bytes as they arrive.
    Invalid {
        /// The reason, and the reply.
        error: RequestError,
        /// Bytes of the message that have been received.
        consumed: usize,
        /// Bytes of the message that follow, received or not.
        swallow: u64,
    },
    /// The stream can no longer be parsed: close the connection, without a reply if `error` is `None`.
    Close {
        /// The last reply before the connection is closed.
        error: Option<RequestError>,
    },
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// Retrieves values.
    Get {
        /// `Get`, `Gets`, `Gat` or `Gats`.
        verb: Verb,
        /// The new expiry time of `Gat` and `Gats`, 0 for the others.
        exptime: i64,
        /// The keys, at least one.
        keys: Keys<'a>,
    },
    /// Stores a value.
    Store {
        /// `Set`, `Add`, `Replace`, `Append`, `Prepend` or `Cas`.
        verb: Verb,
        /// The key to store under.
        key: &'a [u8],
        /// The client flags, returned with the value.
        flags: u32,
        /// Seconds from now, or a Unix time if over thirty days; negative: expires immediately; 0: never expires.
        exptime: i64,
        /// The value, which may be empty.
        value: &'a [u8],
        /// The token of `Cas`, 0 for the others.
        cas: u64,
        /// Whether the client sent `noreply`.
        noreply: bool,
    },
    /// Deletes a key.
    Delete {
        /// The key to delete.
        key: &'a [u8],
        /// Whether the client sent `noreply`.
        noreply: bool,
    },
    /// Increments or decrements a number.
    Arithmetic {
        /// `Incr` or `Decr`.
        verb: Verb,
        /// The key of the number.
        key: &'a [u8],
        /// The amount.
        delta: u64,
        /// Whether the client sent `noreply`.
        noreply: bool,
    },
    /// Sets a new expiry time.
    Touch {
        /// The key of the item.
        key: &'a [u8],
        /// The expiry time, as for `Store`.
        exptime: i64,
        /// Whether the client sent `noreply`.
        noreply: bool,
    },
    /// Deletes everything.
    FlushAll {
        /// The delay in seconds, at least 0; immediately if absent.
        delay: Option<i64>,
        /// Whether the client sent `noreply`.
        noreply: bool,
    },
    /// Requests the version.
    Version,
    /// Sets the log level, which is ignored.
    Verbosity {
        /// Whether the client sent `noreply`.
        noreply: bool,
    },
    /// Requests statistics.
    Stats {
        /// The rest of the line without the spaces around it: empty, or `settings`, `items` and so on.
        argument: &'a [u8],
    },
    /// Closes the connection.
    Quit,
    /// A meta command with a key.
    Meta(Meta<'a>),
    /// `mn`: requests a reply that marks the end of a pipeline.
    Noop,
}

impl<'a> Request<'a> {
    /// The name of the command.
    pub fn verb(&self) -> Verb {
        match self {
            Request::Get { verb, .. } | Request::Store { verb, .. } | Request::Arithmetic { verb, .. } => *verb,
            Request::Delete { .. } => Verb::Delete,
            Request::Touch { .. } => Verb::Touch,
            Request::FlushAll { .. } => Verb::FlushAll,
            Request::Version => Verb::Version,
            Request::Verbosity { .. } => Verb::Verbosity,
            Request::Stats { .. } => Verb::Stats,
            Request::Quit => Verb::Quit,
            Request::Meta(meta) => meta.verb,
            Request::Noop => Verb::Mn,
        }
    }

    /// Whether the client sent `noreply`. (`quit` has no reply either. A quiet meta command has some replies.)
    pub fn noreply(&self) -> bool {
        match self {
            Request::Store { noreply, .. }
            | Request::Delete { noreply, .. }
            | Request::Arithmetic { noreply, .. }
            | Request::Touch { noreply, .. }
            | Request::FlushAll { noreply, .. }
            | Request::Verbosity { noreply } => *noreply,
            Request::Get { .. } | Request::Version | Request::Stats { .. } | Request::Quit => false,
            Request::Meta(_) | Request::Noop => false,
        }
    }

    /// Whether it is a meta command with `q`: it has no ordinary reply, only errors.
    pub fn is_quiet(&self) -> bool {
        matches!(self, Request::Meta(meta) if meta.is_quiet())
    }

    /// The key, or the first of several, as written on the line.
    pub fn key(&self) -> Option<&'a [u8]> {
        match self {
            Request::Get { keys, .. } => keys.first(),
            Request::Store { key, .. }
            | Request::Delete { key, .. }
            | Request::Arithmetic { key, .. }
            | Request::Touch { key, .. } => Some(key),
            Request::Meta(meta) => Some(meta.key),
            _ => None,
        }
    }

    /// The same request without `noreply` and `q`, so that the backend replies to each and replies match requests.
    pub fn without_noreply(&self) -> Cow<'_, Request<'a>> {
        // Most requests have neither, and a copy costs more than the search for it.
        if !self.noreply() && !self.is_quiet() {
            return Cow::Borrowed(self);
        }
        let mut loud = *self;
        match &mut loud {
            Request::Store { noreply, .. }
            | Request::Delete { noreply, .. }
            | Request::Arithmetic { noreply, .. }
            | Request::Touch { noreply, .. }
            | Request::FlushAll { noreply, .. }
            | Request::Verbosity { noreply } => *noreply = false,
            Request::Meta(meta) => meta.left_out = b"q",
            Request::Get { .. } | Request::Version | Request::Stats { .. } | Request::Quit | Request::Noop => (),
        }
        Cow::Owned(loud)
    }

    /// Appends the encoded request, with `noreply` or `q` if it has them.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let verb = self.verb();
        match *self {
            Request::Get { exptime, keys, .. } => return encode_get(verb, exptime, keys.iter(), out),
            Request::Store { key, flags, exptime, value, cas, noreply, .. } => {
                out.reserve(key.len() + value.len() + 64);
                push_command(out, verb, key);
                push_number(out, flags);
                push_number(out, exptime);
                push_number(out, value.len());
                if verb == Verb::Cas {
                    push_number(out, cas);
                }
                push_line_end(out, noreply);
                out.extend_from_slice(value);
                out.extend_from_slice(b"\r\n");
                return;
            }
            Request::Delete { key, .. } => push_command(out, verb, key),
            Request::Arithmetic { key, delta, .. } => {
                push_command(out, verb, key);
                push_number(out, delta);
            }
            Request::Touch { key, exptime, .. } => {
                push_command(out, verb, key);
                push_number(out, exptime);
            }
            Request::FlushAll { delay, .. } => {
                push_name(out, verb);
                if let Some(delay) = delay {
                    push_number(out, delay);
                }
            }
            Request::Verbosity { .. } => {
                push_name(out, verb);
                push_number(out, 0);
            }
            Request::Stats { argument } if !argument.is_empty() => push_command(out, verb, argument),
            Request::Version | Request::Stats { .. } | Request::Quit | Request::Noop => push_name(out, verb),
            Request::Meta(meta) => return meta.encode(out),
        }
        push_line_end(out, self.noreply());
    }
}

/// Appends a retrieval of `keys`, at least one. `exptime` is written for `Gat` and `Gats` only.
pub fn encode_get<'k>(verb: Verb, exptime: i64, keys: impl Iterator<Item = &'k [u8]>, out: &mut Vec<u8>) {
    debug_assert!(verb.is_retrieval(), "{verb:?} takes no list of keys");
    push_name(out, verb);
    if matches!(verb, Verb::Gat | Verb::Gats) {
        push_number(out, exptime);
    }
    for key in keys {
        out.push(b' ');
        out.extend_from_slice(key);
    }
    out.extend_from_slice(b"\r\n");
}

fn push_name(out: &mut Vec<u8>, verb: Verb) {
    out.extend_from_slice(verb.name().as_bytes());
}

fn push_command(out: &mut Vec<u8>, verb: Verb, argument: &[u8]) {
    push_name(out, verb);
    out.push(b' ');
    out.extend_from_slice(argument);
}

fn push_line_end(out: &mut Vec<u8>, noreply: bool) {
    out.extend_from_slice(if noreply { b" noreply\r\n" } else { b"\r\n" });
}
