//! Random messages, and random bytes that resemble messages, for the property tests.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use wire::{Keys, Meta, MetaCode, MetaFlags, Reply, Request, Value, Verb, encode_get};

/// A request that owns its bytes.
#[derive(Clone, Debug)]
pub(crate) struct RandomRequest {
    verb: Verb,
    keys: Vec<Vec<u8>>,
    joined_keys: Vec<u8>,
    meta_flags: Vec<u8>,
    value: Vec<u8>,
    exptime: i64,
    flags: u32,
    number: u64,
    noreply: bool,
}

/// A reply that owns its bytes.
#[derive(Clone, Debug)]
pub(crate) struct RandomReply {
    kind: u8,
    key: Vec<u8>,
    data: Vec<u8>,
    text: Vec<u8>,
    flags: u32,
    number: u64,
    has_cas: bool,
}

/// Any bytes but the space and the line feed.
fn word() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![4 => b'a'..=b'z', 1 => any::<u8>()];
    let byte = byte.prop_map(|byte| if matches!(byte, b' ' | b'\n' | 0) { b'_' } else { byte });
    prop_oneof![9 => vec(byte.clone(), 1..20), 1 => vec(byte, 240..=250), 1 => Just(b"noreply".to_vec())]
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        select(vec![b"\r\n".to_vec(), b"END\r\n".to_vec(), b"VALUE k 0 1\r\n".to_vec(), b"\n".to_vec(), b"".to_vec()]),
        vec(any::<u8>(), 0..20),
    ];
    vec(piece, 0..4).prop_map(|pieces| pieces.concat())
}

/// Flags of a meta command, no letter twice; known and unknown ones, with and without arguments.
fn meta_flags() -> impl Strategy<Value = Vec<u8>> {
    let flags = vec((select(b"cfhklqstuvONRTCFISMDJPLZx9\xff".to_vec()), prop_oneof![Just(Vec::new()), word()]), 0..16);
    flags.prop_map(|mut flags| {
        let mut seen = [false; 256];
        flags.retain(|(letter, _)| !std::mem::replace(&mut seen[*letter as usize], true));
        let flags: Vec<Vec<u8>> =
            flags.into_iter().map(|(letter, argument)| [&[letter], &argument[..]].concat()).collect();
        flags.join(&b' ')
    })
}

pub(crate) fn request() -> impl Strategy<Value = RandomRequest> {
    let commands: Vec<Verb> =
        Verb::ALL.into_iter().filter(|verb| !matches!(verb, Verb::Other | Verb::Invalid)).collect();
    let numbers = (any::<i64>(), any::<u32>(), any::<u64>(), any::<bool>());
    let words = (vec(word(), 1..8), meta_flags());
    (select(commands), words, value(), numbers).prop_map(|(verb, (keys, meta_flags), value, numbers)| {
        let (exptime, flags, number, noreply) = numbers;
        let joined_keys = keys.join(&b' ');
        RandomRequest { verb, keys, joined_keys, meta_flags, value, exptime, flags, number, noreply }
    })
}

impl RandomRequest {
    pub(crate) fn request(&self) -> Request<'_> {
        let (verb, key, exptime, noreply) = (self.verb, &self.keys[0][..], self.exptime, self.noreply);
        match verb {
            Verb::Get | Verb::Gets => Request::Get { verb, exptime: 0, keys: Keys::new(&self.joined_keys) },
            Verb::Gat | Verb::Gats => Request::Get { verb, exptime, keys: Keys::new(&self.joined_keys) },
            Verb::Delete => Request::Delete { key, noreply },
            Verb::Incr | Verb::Decr => Request::Arithmetic { verb, key, delta: self.number, noreply },
            Verb::Touch => Request::Touch { key, exptime, noreply },
            Verb::FlushAll => {
                let delay = self.flags.is_multiple_of(2).then_some(exptime.max(0));
                Request::FlushAll { delay, noreply }
            }
            Verb::Version => Request::Version,
            Verb::Verbosity => Request::Verbosity { noreply },
            Verb::Stats => Request::Stats { argument: if noreply { b"" } else { key } },
            Verb::Quit => Request::Quit,
            Verb::Mn => Request::Noop,
            Verb::Mg | Verb::Ms | Verb::Md | Verb::Ma | Verb::Me => {
                let flags = MetaFlags::new(&self.meta_flags);
                let value = if verb == Verb::Ms { &self.value[..] } else { b"" };
                Request::Meta(Meta { verb, key, flags, left_out: b"", value })
            }
            _ => {
                let cas = if verb == Verb::Cas { self.number } else { 0 };
                Request::Store { verb, key, flags: self.flags, exptime, value: &self.value, cas, noreply }
            }
        }
    }

    /// The same retrieval, encoded by the other function.
    pub(crate) fn encode_keys(&self, out: &mut Vec<u8>) {
        encode_get(self.verb, self.exptime, self.keys.iter().map(Vec::as_slice), out);
    }
}

pub(crate) fn reply() -> impl Strategy<Value = RandomReply> {
    let numbers = (any::<u32>(), any::<u64>(), any::<bool>());
    (0u8..24, word(), value(), vec(word(), 0..5), numbers).prop_map(|(kind, key, data, words, numbers)| {
        let (flags, number, has_cas) = numbers;
        RandomReply { kind, key, data, text: words.join(&b' '), flags, number, has_cas }
    })
}

impl RandomReply {
    pub(crate) fn reply(&self) -> Reply<'_> {
        let text = &self.text[..];
        match self.kind {
            0 => Reply::End,
            1 => Reply::Stored,
            2 => Reply::NotStored,
            3 => Reply::Exists,
            4 => Reply::NotFound,
            5 => Reply::Deleted,
            6 => Reply::Touched,
            7 => Reply::Ok,
            8 => Reply::Reset,
            9 => Reply::Number(self.number),
            10 => Reply::Version(text),
            11 => Reply::Stat { name: &self.key, value: text },
            12 => Reply::Error,
            13 => Reply::ClientError(text),
            14 => Reply::ServerError(text),
            15..=17 => Reply::Meta { code: MetaCode::ALL[self.number as usize % MetaCode::ALL.len()], flags: text },
            18 | 19 => Reply::MetaValue { flags: text, data: &self.data },
            _ => Reply::Value(Value {
                key: &self.key,
                flags: self.flags,
                cas: self.has_cas.then_some(self.number),
                data: &self.data,
            }),
        }
    }
}

/// Bytes that start like a message and then differ.
pub(crate) fn nonsense() -> impl Strategy<Value = Vec<u8>> {
    let words = [
        "get",
        "gets",
        "gat",
        "gats",
        "set",
        "add",
        "append",
        "cas",
        "delete",
        "incr",
        "decr",
        "touch",
        "flush_all",
        "version",
        "verbosity",
        "stats",
        "quit",
        "mg",
        "ms",
        "md",
        "ma",
        "mn",
        "me",
        "b",
        "q",
        "v",
        "T30",
        "Oabc",
        "Zm9v",
        "VA",
        "HD",
        "noreply",
        "k",
        "kkkkkkkkkkkk",
        "0",
        "1",
        "2",
        "5",
        "-1",
        "30",
        "99999",
        "2147483645",
        "2147483646",
        "18446744073709551615",
        "HTTP/1.1",
        "VALUE",
        "END",
        "STORED",
        "STAT",
        "VERSION",
        "ERROR",
        "CLIENT_ERROR",
        "SERVER_ERROR",
        "hi",
        "\0",
        "\t",
    ];
    let piece = prop_oneof![
        6 => select(words.to_vec()).prop_map(|word| word.as_bytes().to_vec()),
        6 => Just(b" ".to_vec()),
        4 => Just(b"\r\n".to_vec()),
        1 => Just(b"\n".to_vec()),
        1 => Just(b"\r".to_vec()),
        1 => (1usize..120).prop_map(|length| vec![b' '; length]),
        1 => vec(any::<u8>(), 0..30),
    ];
    let line = vec(piece, 0..40).prop_map(|pieces| pieces.concat());
    let spaced = vec(select(words.to_vec()), 1..8).prop_map(|words| words.join(" ").into_bytes());
    let spaced = (spaced, value()).prop_map(|(line, value)| [&line, &b"\r\n"[..], &value, b"\r\n"].concat());
    vec(prop_oneof![line, spaced], 0..4).prop_map(|lines| lines.concat())
}
