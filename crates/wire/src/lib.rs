//! The memcached text and meta protocols: parses bytes into values and encodes values as bytes.
//! Does no I/O, knows no time and keeps no state; the values borrow from the bytes.
//!
//! Both parsers take the bytes received so far and return one message, or report that it is incomplete. The result depends
//! on the bytes of the message alone, not on how many more bytes have arrived or in how many pieces they arrived.

mod limits;
mod verb;

mod auth;
mod base64;
mod binary;
mod keys;
mod meta;
mod meta_flags;
mod request;
mod request_error;

mod number;
mod words;

mod meta_options;
mod parse_keys;
mod parse_meta;
mod parse_request;
mod parse_storage;
mod server_command;

mod reply;

mod parse_reply;

pub use auth::{AUTHENTICATED, AUTHENTICATION_FAILED, AuthRequest, UNAUTHENTICATED, encode_auth, parse_auth};
pub use base64::{decode_base64, encode_base64};
pub use binary::{FirstBytes, first_bytes};
pub use keys::{KeyIter, Keys};
pub use limits::{KEY_BYTES_MAXIMUM, KeyBuffer, Limits, VALUE_BYTES_MAXIMUM};
pub use meta::{Meta, is_hidden_when_quiet};
pub use meta_flags::MetaFlags;
pub use meta_options::{Mode, Options};
pub use parse_keys::{KeyLine, KeyPart, parse_key_line, parse_keys};
pub use parse_reply::{ParsedReply, ReplyError, ValueHead, parse_reply, parse_value_head};
pub use parse_request::parse_request;
pub use reply::{MetaCode, Reply, Value};
pub use request::{ParsedRequest, Request, encode_get};
pub use request_error::{FlagError, RequestError};
pub use verb::Verb;
