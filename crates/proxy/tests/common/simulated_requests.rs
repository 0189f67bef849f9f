//! The requests of the simulated clients, and the values that they store. `simulated_judge` checks the replies.

use super::random::Random;
use super::simulated_client::Plan;
use proxy::CommandGroup;
use wire::Verb;

/// One request. The key's name contains its writer: only client 3 writes `c3k1`, and all clients write `all1`.
#[derive(Clone, Debug)]
pub(crate) enum Ask {
    /// `get`, `gets`, `gat` or `gats`.
    Get {
        verb: Verb,
        keys: Vec<String>,
    },
    /// `touch`.
    Touch {
        key: String,
    },
    /// A `set` that replaces the whole value; also of a list.
    Set {
        key: String,
        version: u64,
        is_noreply: bool,
    },
    Add {
        key: String,
        version: u64,
        form: Form,
    },
    Replace {
        key: String,
        version: u64,
        form: Form,
    },
    /// A `cas` with the last token, and the number of writes before the reply that had this token.
    Cas {
        key: String,
        version: u64,
        token: u64,
        since: usize,
        form: Form,
    },
    /// A `set` with a value that is larger than the proxy accepts.
    SetTooLarge {
        key: String,
        bytes: usize,
    },
    /// `append` or `prepend` to the client's list.
    Append {
        key: String,
        version: u64,
        is_front: bool,
        form: Form,
    },
    Delete {
        key: String,
    },
    /// Sets the counter to 0.
    CountFrom,
    Count,
    /// The same with `ma`.
    MetaCount,
    /// `decr` by 0: reads the counter on the primary.
    ReadCount,
    /// The same with `ma`.
    MetaReadCount,
    /// `ma` that creates a second counter if it is missing. Its initial value is the number of these requests, so the counter only
    /// grows.
    MetaCreate {
        initial: u64,
    },
    MetaGet {
        key: String,
        opaque: u64,
        is_quiet: bool,
        /// Whether it sets the expiry time, too.
        touches: bool,
        wants_token: bool,
    },
    MetaSet {
        key: String,
        version: u64,
        opaque: u64,
        is_quiet: bool,
        /// A value with a negative expiry time has expired at once.
        expiry_s: i64,
        wants_token: bool,
    },
    MetaDelete {
        key: String,
        opaque: u64,
        is_quiet: bool,
    },
    /// `me`.
    MetaDebug {
        key: String,
    },
    FlushAll,
    Noop,
    Version,
    Verbosity,
    Stats,
    Bogus,
    LongKey,
}

/// The syntax of a request that stores a value under a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// `add`, `replace`, `cas`, `append` or `prepend`.
    Text,
    /// `ms` with a mode or a cas token.
    Meta { opaque: u64 },
}

/// The token in the reply to `ms` if it is not the primary's. It matches no value.
pub(crate) const NO_TOKEN: u64 = u64::MAX;
const OWN_KEYS: usize = 3;
const SHARED_KEYS: usize = 3;
/// The number of the key whose values are large.
const LARGE: &str = "k9";
/// The expiry times of `ms`: none, soon, later than a failover pool allows, and already past. No scenario takes as long.
const EXPIRY_TIMES_S: &[i64] = &[0, 0, 50, 1000, -1];
/// The proxy splits longer requests.
pub(crate) const MANY_KEYS: usize = 128;

/// The value of a version. It contains its key, writer and version, from which its length and bytes follow.
pub(crate) fn value(key: &str, client: usize, version: u64) -> Vec<u8> {
    let mut bytes = format!("{key} {client} {version} ").into_bytes();
    if is_list(key) {
        return bytes;
    }
    let mut random = Random(version.wrapping_mul(31).wrapping_add(client as u64));
    let length = match random.one_in(12) {
        _ if key.ends_with(LARGE) => 50_000 + random.below(250_000),
        true => random.below(20_000),
        false => random.below(120),
    };
    let end = bytes.len() + length;
    let words = ["x", "\r\n", "END\r\n", "VALUE c0k0 0 1\r\n", "MN\r\n", "12345678901234567890"];
    while bytes.len() < end {
        let word = random.choose(&words).as_bytes();
        // A large value is long, not varied.
        let times = if length > 20_000 { 500 } else { 1 };
        (0..times).for_each(|_| bytes.extend_from_slice(word));
    }
    bytes
}

/// The keys that only this client writes. The last one contains a hash tag.
pub(crate) fn own_keys(client: usize) -> impl Iterator<Item = String> {
    (0..OWN_KEYS).map(move |number| own_key(client, number))
}

fn own_key(client: usize, number: usize) -> String {
    match number + 1 {
        OWN_KEYS => format!("c{client}k{{{number}}}"),
        _ => format!("c{client}k{number}"),
    }
}

/// The keys that all clients write.
pub(crate) fn shared_keys() -> impl Iterator<Item = String> {
    (0..SHARED_KEYS).map(|number| format!("all{number}"))
}

/// The key of a client's list: a value and what was appended to it.
pub(crate) fn list_key(client: usize) -> String {
    format!("c{client}l")
}

/// The key of a client's first counter, and of the one that `ma` creates.
pub(crate) fn counter_key(client: usize) -> String {
    format!("c{client}n")
}

pub(crate) fn created_key(client: usize) -> String {
    format!("c{client}m")
}

pub(crate) fn is_list(key: &str) -> bool {
    key.ends_with('l')
}

/// Any key that a client may read.
fn key(plan: &Plan, random: &mut Random) -> String {
    let client = plan.number;
    match random.below(8) {
        0 => format!("all{}", random.below(SHARED_KEYS)),
        1 if plan.has_large => format!("c{client}{LARGE}"),
        _ => own_key(client, random.below(OWN_KEYS)),
    }
}

/// The keys of a multi-get: a few, or so many that the proxy splits the request.
fn several(plan: &Plan, random: &mut Random) -> Vec<String> {
    let count = if random.one_in(30) { MANY_KEYS + random.below(3 * MANY_KEYS) } else { 1 + random.below(8) };
    let one = |random: &mut Random| match count {
        // Many large values would take longer than the test.
        MANY_KEYS.. => own_key(plan.number, random.below(OWN_KEYS)),
        _ => key(plan, random),
    };
    (0..count).map(|_| one(random)).collect()
}

/// A client's request with this number, or two of them. The first request sets its counter.
pub(crate) fn next(plan: &Plan, number: u64, random: &mut Random) -> Vec<Ask> {
    let (client, version, opaque) = (plan.number, number, number);
    let key = key(plan, random);
    let is_quiet = random.one_in(3);
    let form = if random.one_in(2) { Form::Meta { opaque } } else { Form::Text };
    let wants_token = random.one_in(3);
    let many = several(plan, random);
    let ask = match random.below(32) {
        _ if number == 1 => Ask::CountFrom,
        0..=5 => Ask::Get { verb: Verb::Get, keys: vec![key] },
        6..=7 => Ask::Get { verb: Verb::Get, keys: many },
        8 if is_quiet => Ask::Get { verb: Verb::Gets, keys: many },
        // memcached accepts long lines of `get` and `gets` only.
        8 => Ask::Get { verb: random.choose(&[Verb::Gat, Verb::Gats]), keys: many.into_iter().take(40).collect() },
        9 => Ask::Get { verb: random.choose(&[Verb::Gat, Verb::Gats]), keys: vec![key] },
        10..=14 => Ask::Set { key, version, is_noreply: random.one_in(6) },
        15 => Ask::Delete { key },
        16 if is_quiet => Ask::ReadCount,
        16 => Ask::Count,
        17 => match random.below(4) {
            0 => Ask::MetaReadCount,
            1 => Ask::MetaCreate { initial: 0 },
            _ => Ask::MetaCount,
        },
        18 => Ask::MetaGet { key, opaque, is_quiet, touches: false, wants_token },
        19 => Ask::MetaGet { key, opaque, is_quiet, touches: random.one_in(2), wants_token },
        20 => Ask::MetaSet { key, version, opaque, is_quiet, expiry_s: random.choose(EXPIRY_TIMES_S), wants_token },
        21 => Ask::MetaDelete { key, opaque, is_quiet },
        22 => Ask::Noop,
        23 if is_quiet => Ask::Verbosity,
        23 => Ask::Version,
        24 => Ask::Touch { key },
        25 => Ask::Add { key, version, form },
        26 => Ask::Replace { key, version, form },
        // Without a token, a `gets` or `mg` is sent instead.
        27 => Ask::Cas { key, version, token: 0, since: 0, form },
        28 => Ask::Set { key: list_key(client), version, is_noreply: false },
        29 => Ask::Append { key: list_key(client), version, is_front: random.one_in(2), form },
        30 => Ask::Get { verb: Verb::Get, keys: vec![list_key(client)] },
        _ => rare(plan, key, random),
    };
    // Whether a quiet request was answered is visible in the next reply.
    let noop = ask.is_quiet().then_some(Ask::Noop);
    [ask].into_iter().chain(noop).collect()
}

fn rare(plan: &Plan, key: String, random: &mut Random) -> Ask {
    match (random.below(6), plan.refused_bytes) {
        (0, _) if plan.may_flush => Ask::FlushAll,
        (1, Some(bytes)) => Ask::SetTooLarge { key, bytes },
        (2, _) => Ask::Stats,
        (3, _) => Ask::MetaDebug { key },
        (4, _) => Ask::LongKey,
        _ => Ask::Bogus,
    }
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

    /// The group of commands that it needs besides those of reads and writes, which every listener of the simulation allows.
    pub(crate) fn group(&self) -> Option<CommandGroup> {
        Some(match self {
            Ask::Touch { .. } | Ask::Get { verb: Verb::Gat | Verb::Gats, .. } => CommandGroup::Touch,
            Ask::MetaGet { touches: true, .. } => CommandGroup::Touch,
            Ask::Delete { .. } | Ask::MetaDelete { .. } => CommandGroup::Delete,
            Ask::FlushAll => CommandGroup::Flush,
            Ask::Stats => CommandGroup::Stats,
            _ => return None,
        })
    }

    /// The opaque of a meta request, whose replies differ from those of its text form.
    pub(crate) fn meta_form(&self) -> Option<u64> {
        match self {
            Ask::Add { form: Form::Meta { opaque }, .. }
            | Ask::Replace { form: Form::Meta { opaque }, .. }
            | Ask::Cas { form: Form::Meta { opaque }, .. }
            | Ask::Append { form: Form::Meta { opaque }, .. } => Some(*opaque),
            _ => None,
        }
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
            Ask::Get { verb, keys } => {
                let expiry = if matches!(verb, Verb::Gat | Verb::Gats) { "0 " } else { "" };
                format!("{} {expiry}{}\r\n", verb.name(), keys.join(" "))
            }
            Ask::Touch { key } => format!("touch {key} 0\r\n"),
            Ask::Set { key, version, is_noreply } => {
                store("set", key, *version, if *is_noreply { " noreply" } else { "" })
            }
            Ask::Add { key, version, form: Form::Text } => store("add", key, *version, ""),
            Ask::Add { key, version, form: Form::Meta { opaque } } => {
                store("ms", key, *version, &format!(" ME O{opaque}"))
            }
            Ask::Replace { key, version, form: Form::Text } => store("replace", key, *version, ""),
            Ask::Replace { key, version, form: Form::Meta { opaque } } => {
                store("ms", key, *version, &format!(" MR O{opaque}"))
            }
            Ask::Cas { key, version, token, form: Form::Text, .. } => store("cas", key, *version, &format!(" {token}")),
            Ask::Cas { key, version, token, form: Form::Meta { opaque }, .. } => {
                store("ms", key, *version, &format!(" C{token} O{opaque}"))
            }
            Ask::SetTooLarge { key, bytes } => {
                out.extend_from_slice(format!("set {key} 0 0 {bytes}\r\n").as_bytes());
                out.resize(out.len() + bytes, b'x');
                "\r\n".into()
            }
            Ask::Append { key, version, is_front, form } => {
                let text = if *is_front { format!("{version}.") } else { format!(".{version}") };
                let (bytes, mode) = (text.len(), if *is_front { 'P' } else { 'A' });
                match form {
                    Form::Text if *is_front => format!("prepend {key} 0 0 {bytes}\r\n{text}\r\n"),
                    Form::Text => format!("append {key} 0 0 {bytes}\r\n{text}\r\n"),
                    Form::Meta { opaque } => format!("ms {key} {bytes} M{mode} O{opaque}\r\n{text}\r\n"),
                }
            }
            Ask::Delete { key } => format!("delete {key}\r\n"),
            Ask::CountFrom => format!("set {} 0 0 1\r\n0\r\n", counter_key(client)),
            Ask::Count => format!("incr {} 1\r\n", counter_key(client)),
            Ask::MetaCount => format!("ma {} v\r\n", counter_key(client)),
            Ask::ReadCount => format!("decr {} 0\r\n", counter_key(client)),
            Ask::MetaReadCount => format!("ma {} MD D0 v\r\n", counter_key(client)),
            Ask::MetaCreate { initial } => format!("ma {} MI D1 N0 J{initial} v\r\n", created_key(client)),
            Ask::MetaGet { key, opaque, touches, wants_token, .. } => {
                let (touch, token) = (if *touches { " T0" } else { "" }, if *wants_token { " c" } else { "" });
                format!("mg {key} O{opaque} v k{token}{touch}{quiet}\r\n")
            }
            Ask::MetaSet { key, version, opaque, expiry_s, wants_token, .. } => {
                let expiry = if *expiry_s == 0 { String::new() } else { format!(" T{expiry_s}") };
                let token = if *wants_token { " c" } else { "" };
                store("ms", key, *version, &format!(" O{opaque}{expiry}{token}{quiet}"))
            }
            Ask::MetaDelete { key, opaque, .. } => format!("md {key} O{opaque}{quiet}\r\n"),
            Ask::MetaDebug { key } => format!("me {key}\r\n"),
            Ask::FlushAll => "flush_all\r\n".into(),
            Ask::Noop => "mn\r\n".into(),
            Ask::Version => "version\r\n".into(),
            Ask::Verbosity => "verbosity 1\r\n".into(),
            Ask::Stats => "stats\r\n".into(),
            Ask::Bogus => "bogus\r\n".into(),
            Ask::LongKey => format!("get {}\r\n", "k".repeat(251)),
        };
        out.extend_from_slice(text.as_bytes());
    }
}
