//! Compares the keys and opaques of a reply with those of its request. A reply to another request would give one client the values
//! of another, so the caller closes the connection if they differ.

use crate::path::backend::match_reply::Expect;
use crate::path::job::{Job, Join};
use wire::{KEY_BYTES_MAXIMUM, Keys, Meta, MetaCode, MetaFlags, Reply, Verb, decode_base64, encode_get};

const MG: Expect = Expect::Line(Verb::Mg);

/// Whether the keys and opaques of the next unit of a leg's reply are those that the leg has requested. Values must come in the order
/// of the keys, and missing keys are skipped.
pub(crate) fn is_requested(job: &mut Job, leg: u16, expect: Expect, reply: &Reply<'_>) -> bool {
    let mut compared = std::mem::take(&mut job.leg(leg).compared);
    let fits = match reply {
        Reply::Value(value) if job.join == Join::KeyOrder => is_wanted(job, leg, &mut compared, value.key),
        Reply::Value(value) => is_next_key(&job.kept, &mut compared, value.key),
        Reply::Meta { .. } | Reply::MetaValue { .. } => {
            is_requested_meta(&job.kept, job.returned_key.is_none(), expect, reply)
        }
        _ => true,
    };
    job.leg(leg).compared = compared;
    fits
}

/// What a request has requested, for its late reply: the job may have ended by then.
#[derive(Debug)]
pub(crate) struct Requested {
    /// The encoded read; empty for a write, whose late reply has nothing that could reach another client.
    read: Vec<u8>,
    is_key_sent: bool,
    compared: u32,
}

impl Requested {
    /// What a leg has requested, and how far its reply has been compared.
    pub(crate) fn of(job: &mut Job, leg: u16, expect: Expect) -> Requested {
        let (rare, compared) = (job.rare.get(), job.legs()[usize::from(leg)].compared);
        let (read, compared) = match expect {
            Expect::Values if job.join == Join::KeyOrder => {
                let rest = rare.wanted.get(compared as usize..).unwrap_or_default();
                let mut read = Vec::new();
                let keys = rest.iter().filter(|wanted| wanted.leg == leg).map(|wanted| rare.key_of(wanted));
                encode_get(Verb::Get, 0, keys, &mut read);
                (read, 0)
            }
            Expect::Values | MG => (job.kept.clone(), compared),
            _ => (Vec::new(), 0),
        };
        Requested { read, is_key_sent: job.returned_key.is_none(), compared }
    }

    /// The same as `is_requested`, for the late reply.
    pub(crate) fn fits(&mut self, expect: Expect, reply: &Reply<'_>) -> bool {
        match reply {
            Reply::Value(value) => is_next_key(&self.read, &mut self.compared, value.key),
            Reply::Meta { .. } | Reply::MetaValue { .. } => {
                is_requested_meta(&self.read, self.is_key_sent, expect, reply)
            }
            _ => true,
        }
    }
}

/// Whether a key is among the leg's keys from the number `compared` on, which then moves behind it.
fn is_wanted(job: &Job, leg: u16, compared: &mut u32, key: &[u8]) -> bool {
    let rare = job.rare.get();
    let rest = rare.wanted.get(*compared as usize..).unwrap_or_default();
    let found = rest.iter().position(|wanted| wanted.leg == leg && rare.key_of(wanted) == key);
    *compared += found.map_or(rest.len(), |at| at + 1) as u32;
    found.is_some()
}

/// Whether a key is among those of an encoded retrieval from the offset `compared` on, which then moves behind it.
fn is_next_key(request: &[u8], compared: &mut u32, key: &[u8]) -> bool {
    let line = request.strip_suffix(b"\r\n").unwrap_or(request);
    let mut at = match *compared {
        0 => keys_begin(line),
        compared => compared as usize,
    };
    while let Some(rest) = line.get(at..).filter(|rest| !rest.is_empty()) {
        // Mostly it is the first key, whose end need not be searched then. Encoded keys are separated by one space.
        let is_it = rest.strip_prefix(key).is_some_and(|behind| matches!(behind, [] | [b' ', ..]));
        let length = if is_it { key.len() } else { Keys::new(rest).first().map_or(rest.len(), <[u8]>::len) };
        at += length + 1;
        if is_it {
            *compared = at as u32;
            return true;
        }
    }
    *compared = at as u32;
    false
}

/// The offset of the first key: behind the command, and behind the expiry time of `gat` and `gats`.
fn keys_begin(line: &[u8]) -> usize {
    let words = if line.starts_with(b"gat") { 2 } else { 1 };
    line.split(|&byte| byte == b' ').take(words).map(|word| word.len() + 1).sum()
}

/// Whether the key, the opaque and the value in the reply to a meta command are those that an encoded request has requested. An
/// older server may leave out a key or an opaque, but a hit of `mg` always has them.
fn is_requested_meta(request: &[u8], is_key_sent: bool, expect: Expect, reply: &Reply<'_>) -> bool {
    let Some(requested) = command_of(request) else { return true };
    let (code, flags) = match *reply {
        Reply::Meta { code, flags } => (Some(code), flags),
        Reply::MetaValue { flags, .. } => (None, flags),
        _ => return true,
    };
    if code == Some(MetaCode::Debug) {
        // This reply has no `b` that tells the form of the key.
        let key = Keys::new(flags).first().unwrap_or_default();
        return is_same_key(key, false, &requested) || is_same_key(key, true, &requested);
    }
    let flags = MetaFlags::new(flags);
    let is_hit_of_read = expect == MG && code != Some(MetaCode::Miss);
    let key = flags.argument(b'k');
    let key_fits = match (key, requested.flags.has(b'k') && is_key_sent) {
        (Some(key), true) => is_same_key(key, flags.has(b'b'), &requested),
        (Some(_), false) => false,
        (None, is_due) => !(is_due && is_hit_of_read),
    };
    let opaque_fits = match (flags.argument(b'O'), requested.flags.argument(b'O')) {
        (None, due) => !(due.is_some() && is_hit_of_read),
        (returned, due) => returned == due,
    };
    key_fits && opaque_fits && (code.is_some() || expect != MG || requested.flags.has(b'v'))
}

/// Whether a returned key is the one requested. A server returns it in the form in which the item was stored.
fn is_same_key(returned: &[u8], is_base64: bool, requested: &Meta<'_>) -> bool {
    let (mut decoded, mut stored) = ([0; KEY_BYTES_MAXIMUM], [0; KEY_BYTES_MAXIMUM]);
    let returned = if is_base64 { decode_base64(returned, &mut decoded).unwrap_or(returned) } else { returned };
    returned == requested.stored_key(&mut stored)
}

/// The meta command of an encoded request, without its value; none if it is no such command.
fn command_of(request: &[u8]) -> Option<Meta<'_>> {
    let line = request.split(|&byte| byte == b'\n').next()?.strip_suffix(b"\r")?;
    let mut words = line.splitn(3, |&byte| byte == b' ');
    let verb = match words.next()? {
        b"mg" => Verb::Mg,
        b"ms" => Verb::Ms,
        b"md" => Verb::Md,
        b"ma" => Verb::Ma,
        b"me" => Verb::Me,
        _ => return None,
    };
    let (key, flags) = (words.next()?, words.next().unwrap_or_default());
    Some(Meta { verb, key, flags: MetaFlags::new(flags), left_out: b"", value: b"" })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether values with these keys answer this request.
    fn answers(request: &str, keys: &[&str]) -> bool {
        let mut compared = 0;
        keys.iter().all(|key| is_next_key(request.as_bytes(), &mut compared, key.as_bytes()))
    }

    #[test]
    fn values_are_a_subsequence_of_the_requested_keys() {
        for (request, keys, expected) in [
            ("get a\r\n", &["a"][..], true),
            ("get a\r\n", &["b"], false),
            ("get a\r\n", &["a", "a"], false),
            ("get get\r\n", &["get"], true),
            ("get a\rb\r\n", &["a\rb"], true),
            ("get a b c\r\n", &["a", "c"], true),
            ("get a b c\r\n", &["c", "a"], false),
            ("get a b a\r\n", &["a", "a"], true),
            ("gats a b\r\n", &["a"], false),
            ("gats 30 a b\r\n", &["b"], true),
            ("gat 30 a b\r\n", &["30"], false),
            ("", &["a"], false),
        ] {
            assert_eq!(answers(request, keys), expected, "{request:?} {keys:?}");
        }
    }

    #[test]
    fn keys_and_opaques_of_meta_replies_are_the_requested_ones() {
        let header = |flags| Reply::Meta { code: MetaCode::Header, flags };
        let miss = |flags| Reply::Meta { code: MetaCode::Miss, flags };
        let value = |flags| Reply::MetaValue { flags, data: b"x" };
        let mg = Verb::Mg;
        for (request, verb, reply, expected) in [
            (&b"mg a v\r\n"[..], mg, value(b""), true),
            (b"mg a\r\n", mg, value(b""), false),
            (b"mg a k v\r\n", mg, value(b"ka"), true),
            (b"mg a k v\r\n", mg, value(b"kb"), false),
            (b"mg a k v\r\n", mg, value(b""), false),
            (b"mg a v\r\n", mg, value(b"ka"), false),
            (b"mg a k O7\r\n", mg, header(b"ka O7"), true),
            (b"mg a k O7\r\n", mg, header(b"ka O8"), false),
            (b"mg a O7\r\n", mg, header(b""), false),
            (b"mg a k O7\r\n", mg, miss(b""), true),
            (b"mg a k O7\r\n", mg, miss(b"O8"), false),
            (b"mg Zm9v b k\r\n", mg, header(b"kZm9v b"), true),
            (b"mg Zm9v b k\r\n", mg, header(b"kfoo"), true),
            (b"mg foo k\r\n", mg, header(b"kZm9v b"), true),
            (b"mg foo k\r\n", mg, header(b"kZm9w b"), false),
            (b"ms a 2 k O1\r\nhi\r\n", Verb::Ms, header(b"ka O1"), true),
            (b"ms a 2 k O1\r\nhi\r\n", Verb::Ms, header(b"kb O1"), false),
            (b"ms a 2 k O1\r\nhi\r\n", Verb::Md, header(b""), true),
            (b"ma a v O1\r\n", Verb::Ma, value(b"O2"), false),
            (b"me a\r\n", Verb::Me, Reply::Meta { code: MetaCode::Debug, flags: b"a exp=-1" }, true),
            (b"me a\r\n", Verb::Me, Reply::Meta { code: MetaCode::Debug, flags: b"b exp=-1" }, false),
            (b"me foo\r\n", Verb::Me, Reply::Meta { code: MetaCode::Debug, flags: b"Zm9v exp=-1" }, true),
        ] {
            let text = String::from_utf8_lossy(request);
            assert_eq!(is_requested_meta(request, true, Expect::Line(verb), &reply), expected, "{text} {reply:?}");
        }
        assert!(is_requested_meta(b"mg YQpi b k v\r\n", false, MG, &value(b"")));
    }
}
