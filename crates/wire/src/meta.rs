//! A meta command with a key: a value that borrows from the received bytes, and its encoding for a backend.

use crate::base64::decode_base64;
use crate::limits::{KEY_BYTES_MAXIMUM, KeyBuffer};
use crate::meta_flags::MetaFlags;
use crate::number::push_number;
use crate::verb::Verb;
use memchr::memchr;

/// `mg`, `ms`, `md`, `ma` or `me`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta<'a> {
    /// The command: `mg`, `ms`, `md`, `ma` or `me`.
    pub verb: Verb,
    /// The key as written on the line, in base64 or not.
    pub key: &'a [u8],
    /// The flags of the line, `q` included.
    pub flags: MetaFlags<'a>,
    /// Letters of flags that the encoding omits; empty for a command as it was received.
    pub left_out: &'static [u8],
    /// The value of an `ms`, which may be empty.
    pub value: &'a [u8],
}

impl<'a> Meta<'a> {
    /// Whether the client does not want the ordinary reply. `me` has no `q`.
    pub fn is_quiet(&self) -> bool {
        self.verb != Verb::Me && self.flags.has(b'q') && !self.left_out.contains(&b'q')
    }

    /// Whether the key is in base64. For `me` only the first flag counts.
    pub fn is_base64(&self) -> bool {
        match self.verb {
            Verb::Me => self.flags.iter().next() == Some(b"b"),
            _ => self.flags.has(b'b'),
        }
    }

    /// The key under which servers store the value: decoded if it is in base64. (A key that cannot be decoded is not a request.)
    pub fn stored_key<'k>(&self, buffer: &'k mut KeyBuffer) -> &'k [u8]
    where
        'a: 'k,
    {
        if !self.is_base64() {
            return self.key;
        }
        decode_base64(self.key, buffer).unwrap_or(self.key)
    }

    /// Whether the key is in base64 and contains a line end.
    ///
    /// memcached forgets that a key was given in base64 when it appends to its value, or creates it for `mg` or `ma`, and then
    /// returns the key unencoded. The text after the line end would look like the next reply.
    pub fn key_holds_line_end(&self) -> bool {
        self.is_base64() && memchr(b'\n', self.stored_key(&mut [0; KEY_BYTES_MAXIMUM])).is_some()
    }

    /// Appends the encoded command.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.reserve(self.key.len() + self.value.len() + 64);
        out.extend_from_slice(self.verb.name().as_bytes());
        out.push(b' ');
        out.extend_from_slice(self.key);
        if self.verb == Verb::Ms {
            push_number(out, self.value.len());
        }
        for flag in self.flags.iter().filter(|flag| !self.left_out.contains(&flag[0])) {
            out.push(b' ');
            out.extend_from_slice(flag);
        }
        out.extend_from_slice(b"\r\n");
        if self.verb == Verb::Ms {
            out.extend_from_slice(self.value);
            out.extend_from_slice(b"\r\n");
        }
    }
}

/// Whether memcached omits this reply, which starts with its two letters, for a quiet command: a miss of `mg`, and the
/// success of the others. memcached sends every other reply, in particular errors.
pub fn is_hidden_when_quiet(verb: Verb, reply: &[u8]) -> bool {
    match verb {
        Verb::Mg => reply.starts_with(b"EN"),
        Verb::Ms | Verb::Md => reply.starts_with(b"HD"),
        Verb::Ma => reply.starts_with(b"HD") || reply.starts_with(b"VA"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta<'a>(verb: Verb, key: &'a [u8], flags: &'a [u8]) -> Meta<'a> {
        Meta { verb, key, flags: MetaFlags::new(flags), left_out: b"", value: b"" }
    }

    #[test]
    fn a_key_in_base64_is_stored_decoded() {
        for (verb, key, flags, expected) in [
            (Verb::Mg, &b"Zm9v"[..], &b"k b"[..], &b"foo"[..]),
            (Verb::Mg, b"Zm9v", b"k", b"Zm9v"),
            (Verb::Mg, b"Zm9", b"b", b"Zm9"),
            (Verb::Me, b"Zm9v", b"b v", b"foo"),
            (Verb::Me, b"Zm9v", b"v b", b"Zm9v"),
        ] {
            assert_eq!(meta(verb, key, flags).stored_key(&mut [0; 250]), expected);
        }
    }

    #[test]
    fn omitted_flags_are_not_encoded() {
        let mut bytes = Vec::new();
        let quiet = Meta { value: b"hi", ..meta(Verb::Ms, b"k", b"T0 q O1") };
        quiet.encode(&mut bytes);
        assert_eq!(bytes, b"ms k 2 T0 q O1\r\nhi\r\n");
        bytes.clear();
        let loud = Meta { left_out: b"q", ..quiet };
        loud.encode(&mut bytes);
        assert_eq!(bytes, b"ms k 2 T0 O1\r\nhi\r\n");
        assert!(quiet.is_quiet() && !loud.is_quiet() && !meta(Verb::Me, b"k", b"q").is_quiet());
    }

    #[test]
    fn a_decoded_key_may_contain_a_line_end() {
        for (key, flags, expected) in [(&b"YQpi"[..], &b"b"[..], true), (b"YQ1i", b"b", false), (b"YQpi", b"k", false)]
        {
            assert_eq!(meta(Verb::Mg, key, flags).key_holds_line_end(), expected);
        }
    }

    #[test]
    fn quiet_suppresses_only_the_expected_reply() {
        for (verb, hidden) in [
            (Verb::Mg, &["EN"][..]),
            (Verb::Ms, &["HD"]),
            (Verb::Md, &["HD"]),
            (Verb::Ma, &["HD", "VA"]),
            (Verb::Me, &[]),
        ] {
            for code in ["HD", "VA", "EN", "NF", "NS", "EX", "ME", "CLIENT_ERROR", "SERVER_ERROR", "ERROR"] {
                assert_eq!(is_hidden_when_quiet(verb, code.as_bytes()), hidden.contains(&code), "{verb:?} {code}");
            }
        }
    }
}
