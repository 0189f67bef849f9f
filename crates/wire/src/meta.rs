//! A meta command with a key, as values that borrow from the received bytes, and as the bytes that say the same to a backend.

use crate::base64::decode_base64;
use crate::limits::KeyBuffer;
use crate::meta_flags::MetaFlags;
use crate::number::push_number;
use crate::verb::Verb;

/// `mg`, `ms`, `md`, `ma` or `me`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta<'a> {
    /// Which.
    pub verb: Verb,
    /// The key as it stands on the line, in base64 or not.
    pub key: &'a [u8],
    /// What is asked for, `q` included.
    pub flags: MetaFlags<'a>,
    /// Whether `q` is said, which means nothing to `me`. Without it, a `q` among the flags is left out when the command is encoded.
    pub is_quiet: bool,
    /// What `ms` brings: any bytes, or none.
    pub value: &'a [u8],
}

impl<'a> Meta<'a> {
    /// Whether the key is in base64. `me` looks at its first flag only.
    pub fn is_base64(&self) -> bool {
        match self.verb {
            Verb::Me => self.flags.iter().next() == Some(b"b"),
            _ => self.flags.has(b'b'),
        }
    }

    /// The key under which servers hold the value: decoded if it is in base64. (One that cannot be decoded is no request.)
    pub fn stored_key<'k>(&self, buffer: &'k mut KeyBuffer) -> &'k [u8]
    where
        'a: 'k,
    {
        if !self.is_base64() {
            return self.key;
        }
        decode_base64(self.key, buffer).unwrap_or(self.key)
    }

    /// Appends the command as it goes over the wire.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.reserve(self.key.len() + self.value.len() + 64);
        out.extend_from_slice(self.verb.name().as_bytes());
        out.push(b' ');
        out.extend_from_slice(self.key);
        if self.verb == Verb::Ms {
            push_number(out, self.value.len());
        }
        let keeps_all = self.is_quiet || self.verb == Verb::Me;
        for flag in self.flags.iter().filter(|flag| keeps_all || flag[0] != b'q') {
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

/// Whether a quiet command of this name is not told this reply, which begins with its two letters: a miss of `mg`, and the
/// success of the others. Every other reply is told, errors above all.
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
        Meta { verb, key, flags: MetaFlags::new(flags), is_quiet: false, value: b"" }
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
    fn a_loud_command_is_encoded_without_its_q() {
        let mut bytes = Vec::new();
        let loud = meta(Verb::Ms, b"k", b"T0 q O1");
        loud.encode(&mut bytes);
        assert_eq!(bytes, b"ms k 0 T0 O1\r\n\r\n");
        bytes.clear();
        Meta { is_quiet: true, value: b"hi", ..loud }.encode(&mut bytes);
        assert_eq!(bytes, b"ms k 2 T0 q O1\r\nhi\r\n");
    }

    #[test]
    fn quiet_hides_what_is_expected_and_nothing_else() {
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
