//! The memory of a simulated server: its values, its replies, and a history for the judge.

use std::collections::HashMap;
use wire::{Meta, MetaCode, Reply, Request, Value, Verb};

/// One server's memory.
#[derive(Default)]
pub(crate) struct Store {
    items: HashMap<Vec<u8>, Item>,
    tokens: u64,
    /// Restarts.
    pub(crate) life: usize,
    /// The longest allowed time to live of a value, for a failover pool.
    expiry_max_s: Option<i64>,
    /// Whether it must not receive reads.
    is_never_read: bool,
    /// The first request that it should not have received.
    pub(crate) complaint: Option<String>,
    /// The requests and replies for each key, to explain a failure.
    log: HashMap<String, Vec<String>>,
}

struct Item {
    flags: u32,
    value: Vec<u8>,
    token: u64,
}

impl Store {
    /// A store with initial values.
    pub(crate) fn with_values(values: impl Iterator<Item = (String, Vec<u8>)>) -> Store {
        let mut store = Store::default();
        values.for_each(|(key, value)| store.put(key.as_bytes(), 0, value));
        store
    }

    /// A store of a failover pool, with a longest time to live.
    pub(crate) fn failover(expiry_max_s: i64) -> Store {
        Store { expiry_max_s: Some(expiry_max_s), ..Store::default() }
    }

    /// A store of a shadow pool that receives writes only.
    pub(crate) fn never_read() -> Store {
        Store { is_never_read: true, ..Store::default() }
    }

    /// The same, with cas tokens from this one on.
    pub(crate) fn with_tokens_from(self, tokens: u64) -> Store {
        Store { tokens, ..self }
    }

    /// Loses all values, as in a restart.
    pub(crate) fn forget(&mut self) {
        self.items.clear();
        self.life += 1;
    }

    /// Its requests for a key.
    pub(crate) fn log(&self, key: &str) -> &[String] {
        self.log.get(key).map_or(&[], Vec::as_slice)
    }

    /// Applies a request; `origin` is its time and connection.
    pub(crate) fn execute(&mut self, request: &Request<'_>, origin: &str, out: &mut Vec<u8>) {
        self.check_request(request);
        self.answer(request, out);
        let first = |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(24)]).into_owned();
        let (value, keys): (&[u8], Vec<&[u8]>) = match request {
            Request::Get { keys, .. } => (b"", keys.iter().collect()),
            Request::Store { value, key, .. } => (value, vec![key]),
            Request::Meta(meta) => (meta.value, vec![meta.key]),
            _ => (b"", request.key().into_iter().collect()),
        };
        let line = format!("{origin}: {:?} {:?} -> {:?}", request.verb(), first(value), first(out));
        for key in keys {
            self.log.entry(String::from_utf8_lossy(key).into_owned()).or_default().push(line.clone());
        }
    }

    fn answer(&mut self, request: &Request<'_>, out: &mut Vec<u8>) {
        let reply = match *request {
            Request::Version => Reply::Version(b"1.6.0"),
            Request::Get { verb, keys, .. } => {
                for key in keys {
                    let Some(item) = self.items.get(key) else { continue };
                    let cas = matches!(verb, Verb::Gets | Verb::Gats).then_some(item.token);
                    Reply::Value(Value { key, flags: item.flags, cas, data: &item.value }).encode(out);
                }
                Reply::End
            }
            Request::Store { verb, key, flags, value, cas, .. } => self.store(verb, key, flags, value, cas),
            Request::Delete { key, .. } if self.items.remove(key).is_some() => Reply::Deleted,
            Request::Touch { key, .. } if self.items.contains_key(key) => Reply::Touched,
            Request::Arithmetic { key, delta, .. } if self.items.contains_key(key) => {
                Reply::Number(self.add_to(key, if request.verb() == Verb::Decr { 0 } else { delta }))
            }
            Request::Delete { .. } | Request::Arithmetic { .. } | Request::Touch { .. } => Reply::NotFound,
            Request::FlushAll { .. } => {
                self.items.clear();
                Reply::Ok
            }
            Request::Meta(ref meta) => return self.execute_meta(meta, out),
            _ => Reply::Error,
        };
        reply.encode(out);
    }

    fn store(&mut self, verb: Verb, key: &[u8], flags: u32, value: &[u8], cas: u64) -> Reply<'static> {
        let joined = |item: &Item| match verb {
            Verb::Append => [&item.value, value].concat(),
            Verb::Prepend => [value, &item.value].concat(),
            _ => value.to_vec(),
        };
        let (stored, flags) = match (verb, self.items.get(key)) {
            (Verb::Cas, None) => return Reply::NotFound,
            (Verb::Cas, Some(item)) if item.token != cas => return Reply::Exists,
            (Verb::Add, Some(_)) | (Verb::Replace | Verb::Append | Verb::Prepend, None) => return Reply::NotStored,
            (Verb::Append | Verb::Prepend, Some(item)) => (joined(item), item.flags),
            _ => (value.to_vec(), flags),
        };
        self.put(key, flags, stored);
        Reply::Stored
    }

    /// `ms`, with the replies of the text command of its mode.
    fn store_meta(&mut self, meta: &Meta<'_>) -> Reply<'static> {
        let number = |flag| argument(meta, flag);
        let verb = match (meta.flags.argument(b'M'), number(b'C')) {
            (_, Some(_)) => Verb::Cas,
            (Some(b"E"), _) => Verb::Add,
            (Some(b"R"), _) => Verb::Replace,
            (Some(b"A"), _) => Verb::Append,
            (Some(b"P"), _) => Verb::Prepend,
            _ => Verb::Set,
        };
        let reply = self.store(verb, meta.key, 0, meta.value, number(b'C').unwrap_or(0) as u64);
        if number(b'T').is_some_and(|seconds| seconds < 0) {
            self.items.remove(meta.key);
        }
        reply
    }

    /// `ma`; none if the key is missing.
    fn count_meta(&mut self, meta: &Meta<'_>) -> Option<u64> {
        if self.items.contains_key(meta.key) {
            let delta = argument(meta, b'D').unwrap_or(1) as u64;
            return Some(self.add_to(meta.key, if meta.flags.argument(b'M') == Some(b"D") { 0 } else { delta }));
        }
        meta.flags.argument(b'N')?;
        let initial = argument(meta, b'J').unwrap_or(0) as u64;
        self.put(meta.key, 0, initial.to_string().into_bytes());
        Some(initial)
    }

    /// Adds to a number, which must be there.
    fn add_to(&mut self, key: &[u8], delta: u64) -> u64 {
        let text = String::from_utf8_lossy(&self.items[key].value).into_owned();
        let number = text.trim().parse::<u64>().unwrap_or(0).wrapping_add(delta);
        self.put(key, 0, number.to_string().into_bytes());
        number
    }

    fn execute_meta(&mut self, meta: &Meta<'_>, out: &mut Vec<u8>) {
        let stored = (meta.verb == Verb::Ms).then(|| self.store_meta(meta));
        let token = self.items.get(meta.key).map_or(0, |item| item.token);
        let mut returned = Vec::new();
        for flag in meta.flags.iter().filter(|flag| matches!(flag[0], b'O' | b'k' | b'c')) {
            returned.push(b' ');
            returned.extend_from_slice(flag);
            match flag {
                b"k" => returned.extend_from_slice(meta.key),
                b"c" => returned.extend_from_slice(token.to_string().as_bytes()),
                _ => {}
            }
        }
        let flags = returned.strip_prefix(b" ").unwrap_or(&returned);
        let code = |code| Reply::Meta { code, flags };
        let facts = [meta.key, b" exp=-1"].concat();
        let number;
        let reply = match meta.verb {
            Verb::Me if self.items.contains_key(meta.key) => Reply::Meta { code: MetaCode::Debug, flags: &facts },
            Verb::Me => code(MetaCode::Miss),
            Verb::Ma => match self.count_meta(meta) {
                Some(count) => {
                    number = count.to_string();
                    Reply::MetaValue { flags, data: number.as_bytes() }
                }
                None => code(MetaCode::NotFound),
            },
            Verb::Mg => match self.items.get(meta.key) {
                Some(item) => Reply::MetaValue { flags, data: &item.value },
                None => code(MetaCode::Miss),
            },
            Verb::Ms => code(match stored {
                Some(Reply::Stored) => MetaCode::Header,
                Some(Reply::Exists) => MetaCode::Exists,
                Some(Reply::NotFound) => MetaCode::NotFound,
                _ => MetaCode::NotStored,
            }),
            _ if self.items.remove(meta.key).is_some() => code(MetaCode::Header),
            _ => code(MetaCode::NotFound),
        };
        reply.encode(out);
    }

    fn put(&mut self, key: &[u8], flags: u32, value: Vec<u8>) {
        self.tokens += 1;
        self.items.insert(key.to_vec(), Item { flags, value, token: self.tokens });
    }

    /// Records a request that it should not have received.
    fn check_request(&mut self, request: &Request<'_>) {
        let is_read = matches!(request.verb(), Verb::Get | Verb::Gets | Verb::Mg);
        let expiry_s = match request {
            // These keep the expiry time of the item.
            Request::Store { verb: Verb::Append | Verb::Prepend, .. } => None,
            Request::Store { exptime, .. } | Request::Touch { exptime, .. } => Some(*exptime),
            Request::Meta(meta) if matches!(meta.flags.argument(b'M'), Some(b"A" | b"P")) => None,
            Request::Meta(meta) if meta.verb == Verb::Ms => Some(argument(meta, b'T').unwrap_or(0)),
            Request::Meta(meta) => argument(meta, b'N').or_else(|| argument(meta, b'T')),
            _ => None,
        };
        let lives_too_long = self.expiry_max_s.zip(expiry_s).is_some_and(|(max, expiry_s)| {
            // A negative expiry time means that the value has expired already.
            expiry_s == 0 || expiry_s > max
        });
        let is_quiet = matches!(request, Request::Meta(meta) if meta.is_quiet());
        let complaint = match () {
            () if is_quiet => "sent a quiet request",
            () if is_read && self.is_never_read => "sent a read",
            () if lives_too_long => "sent a value for another pool with too long an expiry time",
            () => return,
        };
        let key = String::from_utf8_lossy(request.key().unwrap_or_default());
        self.complaint.get_or_insert(format!("a backend was {complaint}: {:?} {key}", request.verb()));
    }
}

/// The number of a flag of a meta command.
fn argument(meta: &Meta<'_>, flag: u8) -> Option<i64> {
    let text = meta.flags.argument(flag).map(String::from_utf8_lossy)?;
    text.parse::<i64>().or_else(|_| text.parse::<u64>().map(|number| number as i64)).ok()
}
