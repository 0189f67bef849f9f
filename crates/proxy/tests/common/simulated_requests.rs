//! What the clients of the simulation ask, and what they may be answered: each reply must be one to its request, and no value
//! may be another's, torn, or older than the client's own last acknowledged write of a key that only it writes.

use super::random::Random;
use std::collections::HashMap;
use wire::{Limits, MetaCode, ParsedReply, Reply, parse_reply};

/// One request. Its key's name says who writes it: `c3k1` only client 3, `all1` everybody.
#[derive(Clone, Debug)]
pub(crate) enum Ask {
    Get {
        keys: Vec<String>,
    },
    Set {
        key: String,
        version: u64,
        is_noreply: bool,
    },
    Delete {
        key: String,
    },
    /// Puts 0 where the counter is.
    CountFrom,
    Count,
    MetaGet {
        key: String,
        opaque: u64,
        is_quiet: bool,
    },
    MetaSet {
        key: String,
        version: u64,
        opaque: u64,
        is_quiet: bool,
    },
    MetaDelete {
        key: String,
        opaque: u64,
        is_quiet: bool,
    },
    Noop,
    Version,
    Bogus,
    LongKey,
}

/// What a client knows of one key.
#[derive(Debug, Default)]
struct Known {
    /// The last acknowledged version; none: it is not there.
    acknowledged: Option<u64>,
    /// What writes that have failed, or were not acknowledged, may have left: they may also arrive late.
    possible: Vec<Option<u64>>,
}

/// What a client knows.
pub(crate) struct Knowledge {
    client: usize,
    reads_copies: bool,
    version: u64,
    keys: HashMap<String, Known>,
    /// Increments asked for, the last number that was told, and whether nothing but increments can have changed it.
    counts: u64,
    told: u64,
    is_counter_sure: bool,
}

const OWN_KEYS: usize = 3;
const SHARED_KEYS: usize = 3;

/// A value says whose it is; how long it is, and what is in it, follows from that.
fn value(key: &str, client: usize, version: u64) -> Vec<u8> {
    let mut bytes = format!("{key} {client} {version} ").into_bytes();
    let mut random = Random(version.wrapping_mul(31).wrapping_add(client as u64));
    let length = if random.one_in(12) { random.below(20_000) } else { random.below(120) };
    let end = bytes.len() + length;
    while bytes.len() < end {
        bytes.extend_from_slice(
            random.choose(&["x", "\r\n", "END\r\n", "VALUE c0k0 0 1\r\n", "MN\r\n", "12345678901234567890"]).as_bytes(),
        );
    }
    bytes
}

impl Knowledge {
    pub(crate) fn new(client: usize, reads_copies: bool) -> Knowledge {
        Knowledge { client, reads_copies, version: 0, keys: HashMap::new(), counts: 0, told: 0, is_counter_sure: false }
    }

    /// Writes the next request, or two of them, behind `out`.
    pub(crate) fn next(&mut self, random: &mut Random, out: &mut Vec<u8>) -> Vec<Ask> {
        self.version += 1;
        let (version, opaque) = (self.version, self.version);
        let (key, noop) = (self.key(random), Ask::Noop);
        let is_quiet = random.one_in(3);
        let quiet = if is_quiet { " q" } else { "" };
        let mut asks = match random.below(20) {
            _ if version == 1 => vec![Ask::CountFrom],
            0..=4 => vec![Ask::Get { keys: vec![key] }],
            5..=6 => vec![Ask::Get { keys: (0..1 + random.below(8)).map(|_| self.key(random)).collect() }],
            7..=10 => vec![Ask::Set { key, version, is_noreply: random.one_in(6) }],
            11 => vec![Ask::Delete { key }],
            12 => vec![Ask::Count],
            13..=14 => vec![Ask::MetaGet { key, opaque, is_quiet }],
            15 => vec![Ask::MetaSet { key, version, opaque, is_quiet }],
            16 => vec![Ask::MetaDelete { key, opaque, is_quiet }],
            17 => vec![noop],
            18 => vec![Ask::Version],
            _ => vec![random.choose(&[0, 1])]
                .into_iter()
                .map(|is_long| if is_long == 1 { Ask::LongKey } else { Ask::Bogus })
                .collect(),
        };
        let text = match &asks[0] {
            Ask::Get { keys } => format!("get {}\r\n", keys.join(" ")),
            Ask::Set { key, is_noreply, .. } => {
                let bytes = value(key, self.client, version);
                let noreply = if *is_noreply { " noreply" } else { "" };
                out.extend_from_slice(format!("set {key} 0 0 {}{noreply}\r\n", bytes.len()).as_bytes());
                out.extend_from_slice(&bytes);
                "\r\n".into()
            }
            Ask::Delete { key } => format!("delete {key}\r\n"),
            Ask::CountFrom => format!("set c{}n 0 0 1\r\n0\r\n", self.client),
            Ask::Count => format!("incr c{}n 1\r\n", self.client),
            Ask::MetaGet { key, .. } => format!("mg {key} O{opaque} v k{quiet}\r\n"),
            Ask::MetaSet { key, .. } => {
                let bytes = value(key, self.client, version);
                out.extend_from_slice(format!("ms {key} {} O{opaque}{quiet}\r\n", bytes.len()).as_bytes());
                out.extend_from_slice(&bytes);
                "\r\n".into()
            }
            Ask::MetaDelete { key, .. } => format!("md {key} O{opaque}{quiet}\r\n"),
            Ask::Noop => "mn\r\n".into(),
            Ask::Version => "version\r\n".into(),
            Ask::Bogus => "bogus\r\n".into(),
            Ask::LongKey => format!("get {}\r\n", "k".repeat(251)),
        };
        out.extend_from_slice(text.as_bytes());
        if let Ask::Count = asks[0] {
            self.counts += 1;
        }
        if asks[0].is_quiet() {
            // Whether a quiet request was answered shows in what comes next.
            out.extend_from_slice(b"mn\r\n");
            asks.push(Ask::Noop);
        }
        asks
    }

    fn key(&self, random: &mut Random) -> String {
        match random.below(8) {
            0 => format!("all{}", random.below(SHARED_KEYS)),
            _ => format!("c{}k{}", self.client, random.below(OWN_KEYS)),
        }
    }

    /// Reads the reply to a request; none when it is not complete. Says how long it is, and whether it is a failure.
    pub(crate) fn check(&mut self, ask: &Ask, bytes: &[u8]) -> Result<Option<(usize, bool)>, String> {
        if let Ask::Set { key, version, is_noreply: true } = ask {
            self.wrote(key, Some(*version), false);
            return Ok(Some((0, false)));
        }
        if let Ask::Get { keys } = ask {
            return self.check_values(keys, bytes);
        }
        let (reply, consumed) = match parse_reply(bytes, &Limits::default()) {
            ParsedReply::Incomplete => return Ok(None),
            ParsedReply::Broken(error) => return Err(format!("not a reply: {error}")),
            ParsedReply::Reply { reply, consumed } => (reply, consumed),
        };
        if ask.is_quiet() && matches!(reply, Reply::Meta { code: MetaCode::Noop, .. }) {
            self.heard_nothing(ask)?;
            return Ok(Some((0, false)));
        }
        if let Reply::ServerError(_) = reply {
            if matches!(ask, Ask::Noop | Ask::Version | Ask::Bogus | Ask::LongKey) {
                return Err("an error of a backend for what needs none".into());
            }
            self.failed(ask);
            return Ok(Some((consumed, true)));
        }
        self.check_line(ask, &reply)?;
        Ok(Some((consumed, false)))
    }

    /// A line that is no failure.
    fn check_line(&mut self, ask: &Ask, reply: &Reply<'_>) -> Result<(), String> {
        let is_right = match (ask, reply) {
            (Ask::Set { key, version, .. }, Reply::Stored) => self.wrote(key, Some(*version), true),
            (Ask::Delete { key }, Reply::Deleted) => self.wrote(key, None, true),
            (Ask::Delete { key }, Reply::NotFound) => self.may_be(key, None) && self.wrote(key, None, true),
            (Ask::CountFrom, Reply::Stored) => {
                self.is_counter_sure = true;
                true
            }
            (Ask::Count, Reply::Number(number)) => {
                let is_next = *number > self.told || !self.is_counter_sure;
                self.told = *number;
                is_next && *number <= self.counts
            }
            (Ask::Count, Reply::NotFound) => !self.is_counter_sure,
            (Ask::MetaGet { key, opaque, is_quiet }, Reply::Meta { code: MetaCode::Miss, flags }) => {
                !is_quiet && *flags == told(*opaque, Some(key)) && self.may_be(key, None)
            }
            (Ask::MetaGet { key, opaque, .. }, Reply::MetaValue { flags, data }) => {
                *flags == told(*opaque, Some(key)) && self.is_possible(key, data)?
            }
            (Ask::MetaSet { key, version, opaque, is_quiet: false }, Reply::Meta { code: MetaCode::Header, flags }) => {
                *flags == told(*opaque, None) && self.wrote(key, Some(*version), true)
            }
            (Ask::MetaDelete { key, opaque, is_quiet: false }, Reply::Meta { code: MetaCode::Header, flags }) => {
                *flags == told(*opaque, None) && self.wrote(key, None, true)
            }
            (Ask::MetaDelete { key, opaque, .. }, Reply::Meta { code: MetaCode::NotFound, flags }) => {
                *flags == told(*opaque, None) && self.may_be(key, None) && self.wrote(key, None, true)
            }
            (Ask::Noop, Reply::Meta { code: MetaCode::Noop, .. }) => true,
            (Ask::Version, Reply::Version(_)) | (Ask::Bogus, Reply::Error) => true,
            (Ask::LongKey, Reply::ClientError(_)) => true,
            _ => false,
        };
        is_right.then_some(()).ok_or_else(|| "no reply to this".into())
    }

    /// Values in the order of their keys, then END or an error.
    fn check_values(&mut self, keys: &[String], bytes: &[u8]) -> Result<Option<(usize, bool)>, String> {
        let (mut used, mut place) = (0, 0);
        loop {
            let (reply, consumed) = match parse_reply(&bytes[used..], &Limits::default()) {
                ParsedReply::Incomplete => return Ok(None),
                ParsedReply::Broken(error) => return Err(format!("not a reply: {error}")),
                ParsedReply::Reply { reply, consumed } => (reply, consumed),
            };
            used += consumed;
            match reply {
                Reply::Value(value) => {
                    let at = keys[place..].iter().position(|key| key.as_bytes() == value.key);
                    place += 1 + at.ok_or("a value that was not asked for, or out of order")?;
                    if !self.is_possible(&keys[place - 1], value.data)? {
                        return Err("a value that is too old, or too new".into());
                    }
                }
                Reply::End => {
                    // Of several parts, one that failed counts as missing.
                    let is_alone = keys.len() == 1 && place == 0;
                    let may_miss = !is_alone || self.may_be(&keys[0], None);
                    return may_miss.then_some(Some((used, false))).ok_or_else(|| "a value is gone".into());
                }
                Reply::ServerError(_) => return Ok(Some((used, true))),
                _ => return Err("no reply to this".into()),
            }
        }
    }

    /// Whether this is a whole value of this key that is not older than it may be.
    fn is_possible(&self, key: &str, data: &[u8]) -> Result<bool, String> {
        let text = String::from_utf8_lossy(data);
        let mut words = text.split(' ');
        let (name, writer, version) = (words.next(), words.next(), words.next());
        let numbers = (writer.and_then(|word| word.parse().ok()), version.and_then(|word| word.parse().ok()));
        let (Some(writer), Some(version)) = numbers else { return Err("a torn value".into()) };
        if name != Some(key) || data != value(key, writer, version) {
            return Err("another key's value, or a torn one".into());
        }
        if self.is_own(key) && writer != self.client {
            return Err("another client's value".into());
        }
        Ok(self.may_be(key, Some(version)))
    }

    fn is_own(&self, key: &str) -> bool {
        key.starts_with(&format!("c{}k", self.client))
    }

    fn may_be(&self, key: &str, version: Option<u64>) -> bool {
        if self.reads_copies || !self.is_own(key) {
            return version.is_none_or(|version| !self.is_own(key) || version <= self.version);
        }
        let Some(known) = self.keys.get(key) else { return version.is_none() };
        known.acknowledged == version || known.possible.contains(&version)
    }

    /// Notes a write; always true.
    fn wrote(&mut self, key: &str, version: Option<u64>, is_acknowledged: bool) -> bool {
        let known = self.keys.entry(key.into()).or_default();
        if is_acknowledged {
            known.acknowledged = version;
        } else {
            // A write that fails may also take away what was there.
            known.possible.extend([version, None]);
        }
        true
    }

    fn failed(&mut self, ask: &Ask) {
        match ask {
            Ask::Set { key, version, .. } | Ask::MetaSet { key, version, .. } => self.wrote(key, Some(*version), false),
            Ask::Delete { key } | Ask::MetaDelete { key, .. } => self.wrote(key, None, false),
            _ => true,
        };
    }

    /// A quiet request was not answered, which says that it went as usual.
    fn heard_nothing(&mut self, ask: &Ask) -> Result<(), String> {
        let is_right = match ask {
            Ask::MetaGet { key, .. } => self.may_be(key, None),
            Ask::MetaSet { key, version, .. } => self.wrote(key, Some(*version), true),
            Ask::MetaDelete { key, .. } => self.wrote(key, None, true),
            _ => false,
        };
        is_right.then_some(()).ok_or_else(|| "nothing was said, and something should have been".into())
    }
}

impl Ask {
    fn is_quiet(&self) -> bool {
        matches!(
            self,
            Ask::MetaGet { is_quiet: true, .. }
                | Ask::MetaSet { is_quiet: true, .. }
                | Ask::MetaDelete { is_quiet: true, .. }
        )
    }
}

/// What a backend tells back.
fn told(opaque: u64, key: Option<&String>) -> Vec<u8> {
    let mut text = format!("O{opaque}");
    if let Some(key) = key {
        text += &format!(" k{key}");
    }
    text.into_bytes()
}
