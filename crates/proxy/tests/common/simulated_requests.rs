//! The requests of the simulated clients, and the values that they store. `simulated_judge` checks the replies.

use super::random::Random;

/// One request. The key's name contains its writer: only client 3 writes `c3k1`, and all clients write `all1`.
#[derive(Clone, Debug)]
pub(crate) enum Ask {
    Get {
        keys: Vec<String>,
    },
    /// A `gat` of one key.
    GetAndTouch {
        key: String,
    },
    Set {
        key: String,
        version: u64,
        is_noreply: bool,
    },
    Add {
        key: String,
        version: u64,
    },
    Replace {
        key: String,
        version: u64,
    },
    Delete {
        key: String,
    },
    /// Sets the counter to 0.
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

const OWN_KEYS: usize = 3;
const SHARED_KEYS: usize = 3;

/// The value of a version. It contains its key, writer and version, from which its length and bytes follow.
pub(crate) fn value(key: &str, client: usize, version: u64) -> Vec<u8> {
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

/// The keys that only this client writes.
pub(crate) fn own_keys(client: usize) -> impl Iterator<Item = String> {
    (0..OWN_KEYS).map(move |number| format!("c{client}k{number}"))
}

/// The keys that all clients write.
pub(crate) fn shared_keys() -> impl Iterator<Item = String> {
    (0..SHARED_KEYS).map(|number| format!("all{number}"))
}

/// Any key that a client may read.
fn key(client: usize, random: &mut Random) -> String {
    match random.below(8) {
        0 => format!("all{}", random.below(SHARED_KEYS)),
        _ => format!("c{client}k{}", random.below(OWN_KEYS)),
    }
}

/// A client's request with this number, or two of them. The first request sets its counter.
pub(crate) fn next(client: usize, number: u64, random: &mut Random) -> Vec<Ask> {
    let (version, opaque) = (number, number);
    let key = key(client, random);
    let is_quiet = random.one_in(3);
    let ask = match random.below(23) {
        _ if number == 1 => Ask::CountFrom,
        0..=4 => Ask::Get { keys: vec![key] },
        5..=6 => Ask::Get { keys: (0..1 + random.below(8)).map(|_| self::key(client, random)).collect() },
        7..=10 => Ask::Set { key, version, is_noreply: random.one_in(6) },
        11 => Ask::Delete { key },
        12 => Ask::Count,
        13..=14 => Ask::MetaGet { key, opaque, is_quiet },
        15 => Ask::MetaSet { key, version, opaque, is_quiet },
        16 => Ask::MetaDelete { key, opaque, is_quiet },
        17 => Ask::Noop,
        18 => Ask::Version,
        19 => Ask::GetAndTouch { key },
        20 => Ask::Add { key, version },
        21 => Ask::Replace { key, version },
        _ => {
            if random.one_in(2) {
                Ask::Bogus
            } else {
                Ask::LongKey
            }
        }
    };
    // Whether a quiet request was answered is visible in the next reply.
    let noop = ask.is_quiet().then_some(Ask::Noop);
    [ask].into_iter().chain(noop).collect()
}

impl Ask {
    pub(crate) fn is_quiet(&self) -> bool {
        matches!(
            self,
            Ask::MetaGet { is_quiet: true, .. }
                | Ask::MetaSet { is_quiet: true, .. }
                | Ask::MetaDelete { is_quiet: true, .. }
        )
    }

    /// Encodes the request of `client`.
    pub(crate) fn encode(&self, client: usize, out: &mut Vec<u8>) {
        let quiet = if self.is_quiet() { " q" } else { "" };
        let mut store = |command: &str, key: &str, version: u64, end: &str| {
            let bytes = value(key, client, version);
            let zeros = if command == "ms" { "" } else { " 0 0" };
            out.extend_from_slice(format!("{command} {key}{zeros} {}{end}\r\n", bytes.len()).as_bytes());
            out.extend_from_slice(&bytes);
            "\r\n".to_string()
        };
        let text = match self {
            Ask::Get { keys } => format!("get {}\r\n", keys.join(" ")),
            Ask::GetAndTouch { key } => format!("gat 0 {key}\r\n"),
            Ask::Set { key, version, is_noreply } => {
                store("set", key, *version, if *is_noreply { " noreply" } else { "" })
            }
            Ask::Add { key, version } => store("add", key, *version, ""),
            Ask::Replace { key, version } => store("replace", key, *version, ""),
            Ask::Delete { key } => format!("delete {key}\r\n"),
            Ask::CountFrom => format!("set c{client}n 0 0 1\r\n0\r\n"),
            Ask::Count => format!("incr c{client}n 1\r\n"),
            Ask::MetaGet { key, opaque, .. } => format!("mg {key} O{opaque} v k{quiet}\r\n"),
            Ask::MetaSet { key, version, opaque, .. } => store("ms", key, *version, &format!(" O{opaque}{quiet}")),
            Ask::MetaDelete { key, opaque, .. } => format!("md {key} O{opaque}{quiet}\r\n"),
            Ask::Noop => "mn\r\n".into(),
            Ask::Version => "version\r\n".into(),
            Ask::Bogus => "bogus\r\n".into(),
            Ask::LongKey => format!("get {}\r\n", "k".repeat(251)),
        };
        out.extend_from_slice(text.as_bytes());
    }
}
