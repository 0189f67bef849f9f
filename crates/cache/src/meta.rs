//! Meta commands: what each does to the store, and its reply, as in memcached 1.6.18. Knows no time and no connection.
//! Flags are processed in the order of the line: `T30 t` returns the new time to live, `t T30` the old one.

use crate::arithmetic::{decreased, increased, number};
use crate::operations::{Answer, NOT_A_NUMBER, Offer, offer_value, outcome, refusal, renumber};
use crate::statistics::Counters;
use crate::store::{Item, Store};
use clock::Nanos;
use records::Outcome;
use wire::{KEY_BYTES_MAXIMUM, Meta, MetaCode, Mode, Options, Reply, Verb, encode_base64, is_hidden_when_quiet};

/// A command with its options and its decoded key.
struct Command<'a> {
    meta: &'a Meta<'a>,
    options: Options,
    key: &'a [u8],
}

/// The result of a command: a reply that is still to be written, or that has been written.
enum Done {
    /// A code, which is followed by the key and the opaque token if the flags request them.
    Code(MetaCode),
    /// An error.
    Failed(Reply<'static>),
    /// A reply that has been written, with this number of values.
    Written { hits: u16 },
}

/// Executes a meta command on the store.
pub(crate) fn execute_meta(meta: &Meta<'_>, store: &mut Store, counters: &mut Counters, out: &mut Vec<u8>) -> Answer {
    let begin = out.len();
    let mut buffer = [0; KEY_BYTES_MAXIMUM];
    let key = meta.stored_key(&mut buffer);
    let options = match Options::parse(meta) {
        // `me` only has flags for its key, and ignores others.
        Err(error) if meta.verb != Verb::Me => {
            out.extend_from_slice(error.line());
            return Answer { outcome: Outcome::ClientError, keys: 1, hits: 0 };
        }
        options => options.unwrap_or_default(),
    };
    let command = Command { meta, options, key };
    let done = match meta.verb {
        Verb::Mg => get(&command, store, counters, out),
        Verb::Ms => set(&command, store, counters, out),
        Verb::Md => delete(&command, store, counters),
        Verb::Ma => arithmetic(&command, store, counters, out),
        _ => debug(&command, store, out),
    };
    let answer = match done {
        Done::Written { hits } => Answer { outcome: Outcome::Answered, keys: 1, hits },
        Done::Code(code) => {
            out.extend_from_slice(code.name().as_bytes());
            if meta.verb != Verb::Me {
                command.push_names(out);
            }
            out.extend_from_slice(b"\r\n");
            Answer { outcome: Outcome::Answered, keys: 1, hits: 0 }
        }
        Done::Failed(reply) => {
            reply.encode(out);
            Answer { outcome: outcome(&reply), keys: 1, hits: 0 }
        }
    };
    if meta.is_quiet() && answer.outcome == Outcome::Answered && is_hidden_when_quiet(meta.verb, &out[begin..]) {
        out.truncate(begin);
    }
    answer
}

impl Command<'_> {
    /// Writes the key and the opaque token, if the flags request them.
    fn push_names(&self, out: &mut Vec<u8>) {
        for flag in self.meta.flags.iter() {
            self.push_name(flag, self.meta.is_base64(), out);
        }
    }

    /// Writes the key or the opaque token, if this flag requests it.
    fn push_name(&self, flag: &[u8], is_base64: bool, out: &mut Vec<u8>) {
        match flag[0] {
            b'O' => push(out, flag),
            b'k' => {
                push(out, b"k");
                push_key(out, self.key, is_base64);
                if is_base64 {
                    push(out, b"b");
                }
            }
            _ => {}
        }
    }

    fn asks_for(&self, letter: u8) -> bool {
        self.meta.flags.has(letter)
    }
}

fn get(command: &Command<'_>, store: &mut Store, counters: &mut Counters, out: &mut Vec<u8>) -> Done {
    let Command { meta, options, key } = command;
    counters.cmd_get += 1;
    let now = store.now();
    let [touched, vivified, recached] =
        [options.exptime, options.vivify, options.recache].map(|exptime| exptime.map(|exptime| store.expiry(exptime)));
    let mut is_won = false;
    if let Some(expires) = vivified.filter(|_| store.peek(key).is_none()) {
        if let Err(refused) = store.put(key, 0, Nanos::NEVER, Box::default()) {
            return Done::Failed(refusal(refused));
        }
        is_won = true;
        if let Some(item) = store.peek(key) {
            (item.expires, item.marks.is_key_base64) = (expires, meta.is_base64());
        }
    }
    let is_new = is_won;
    let found = if command.asks_for(b'u') { store.peek(key) } else { store.get(key) };
    let Some(item) = found else { return Done::Code(MetaCode::Miss) };
    counters.get_hits += 1;
    push_header(command, &item.data, out);
    for flag in meta.flags.iter() {
        match flag[0] {
            b'T' => item.expires = touched.unwrap_or(item.expires),
            b'R' => {
                let is_due = item.expires != Nanos::NEVER && recached.is_some_and(|at| item.expires < at);
                is_won |= is_due && !is_new && !item.marks.is_won;
            }
            b'k' | b'O' => command.push_name(flag, item.marks.is_key_base64, out),
            letter => push_field(letter, item, now, out),
        }
    }
    if item.marks.is_won {
        push(out, b"Z");
    }
    if item.marks.is_stale {
        push(out, b"X");
        is_won |= !item.marks.is_won;
    }
    if is_won {
        push(out, b"W");
        item.marks.is_won = true;
    }
    push_value(command, &item.data, out);
    if !command.asks_for(b'u') {
        item.note_use(now);
    }
    Done::Written { hits: 1 }
}

fn set(command: &Command<'_>, store: &mut Store, counters: &mut Counters, out: &mut Vec<u8>) -> Done {
    let Command { meta, options, key } = command;
    counters.cmd_set += 1;
    let current = store.peek(key).map(|item| item.cas);
    let differs = options.cas.is_some_and(|cas| current.is_some_and(|current| current != cas));
    let mut verb = match options.mode {
        Mode::Add => Verb::Add,
        Mode::Append => Verb::Append,
        Mode::Prepend => Verb::Prepend,
        Mode::Replace | Mode::Ordinary | Mode::Down if options.cas.is_some() => Verb::Cas,
        Mode::Replace => Verb::Replace,
        Mode::Ordinary | Mode::Down => Verb::Set,
    };
    // The value is older than the stored one, from a client that wants it stored as stale.
    let is_stale = verb == Verb::Cas && options.invalidates && options.cas < current && differs;
    if is_stale {
        verb = Verb::Set;
    }
    let offer = Offer {
        verb,
        key,
        flags: options.client_flags,
        exptime: options.exptime.unwrap_or(0),
        value: meta.value,
        cas: options.cas.unwrap_or(0),
    };
    let reply = match verb {
        Verb::Append | Verb::Prepend if differs => Reply::Exists,
        _ => offer_value(&offer, store, counters),
    };
    let code = match reply {
        Reply::Stored => MetaCode::Header,
        Reply::NotStored => MetaCode::NotStored,
        Reply::Exists => MetaCode::Exists,
        Reply::NotFound => MetaCode::NotFound,
        failed => {
            // In every mode, a value that could not be stored removes the old one.
            store.remove(key);
            return Done::Failed(failed);
        }
    };
    let mut cas = 0;
    if let Some(item) = store.peek(key).filter(|_| code == MetaCode::Header) {
        (item.marks.is_key_base64, item.marks.is_stale) = (meta.is_base64(), is_stale);
        cas = item.cas;
    }
    out.extend_from_slice(code.name().as_bytes());
    for flag in meta.flags.iter() {
        match flag[0] {
            b'c' => push_number(out, b'c', cas),
            _ => command.push_name(flag, meta.is_base64(), out),
        }
    }
    out.extend_from_slice(b"\r\n");
    Done::Written { hits: 0 }
}

fn delete(command: &Command<'_>, store: &mut Store, counters: &mut Counters) -> Done {
    let Command { options, key, .. } = command;
    let expires = options.exptime.map(|exptime| store.expiry(exptime));
    let Some(item) = store.peek(key) else {
        counters.delete_misses += 1;
        return Done::Code(MetaCode::NotFound);
    };
    if options.cas.is_some_and(|cas| cas != item.cas) {
        counters.delete_misses += 1;
        return Done::Code(MetaCode::Exists);
    }
    if options.invalidates {
        item.expires = expires.unwrap_or(item.expires);
        (item.marks.is_stale, item.marks.is_won) = (true, false);
        store.renew(key);
    } else {
        counters.delete_hits += 1;
        store.remove(key);
    }
    Done::Code(MetaCode::Header)
}

fn arithmetic(command: &Command<'_>, store: &mut Store, counters: &mut Counters, out: &mut Vec<u8>) -> Done {
    let Command { meta, options, key } = command;
    let now = store.now();
    let [touched, vivified] =
        [options.exptime, options.vivify].map(|exptime| exptime.map(|exptime| store.expiry(exptime)));
    let (change, hits, misses): (fn(u64, u64) -> u64, _, _) = match options.mode {
        Mode::Down => (decreased, &mut counters.decr_hits, &mut counters.decr_misses),
        _ => (increased, &mut counters.incr_hits, &mut counters.incr_misses),
    };
    let is_new = store.peek(key).is_none();
    let result = match store.get(key) {
        None if vivified.is_none() => {
            *misses += 1;
            return Done::Code(MetaCode::NotFound);
        }
        None => options.initial,
        // A token of 0 is not compared.
        Some(item) if options.cas.is_some_and(|cas| cas != 0 && cas != item.cas) => {
            return Done::Code(MetaCode::Exists);
        }
        Some(item) => match number(&item.data) {
            None => return Done::Failed(NOT_A_NUMBER),
            Some(before) => change(before, options.delta),
        },
    };
    *hits += 1;
    let text = result.to_string();
    let stored =
        if is_new { store.put(key, 0, Nanos::NEVER, text.as_bytes().into()) } else { renumber(key, result, store) };
    if let Err(refused) = stored {
        return Done::Failed(refusal(refused));
    }
    let Some(item) = store.peek(key) else { return Done::Code(MetaCode::NotStored) };
    item.marks.is_key_base64 = if is_new { meta.is_base64() } else { item.marks.is_key_base64 };
    push_header(command, text.as_bytes(), out);
    for flag in meta.flags.iter() {
        match flag[0] {
            b'T' => item.expires = touched.unwrap_or(item.expires),
            b'N' if is_new => item.expires = vivified.unwrap_or(item.expires),
            letter @ (b't' | b'c') => push_field(letter, item, now, out),
            _ => command.push_name(flag, meta.is_base64(), out),
        }
    }
    push_value(command, text.as_bytes(), out);
    Done::Written { hits: 0 }
}

/// Writes the metadata of an item as readable text.
fn debug(command: &Command<'_>, store: &mut Store, out: &mut Vec<u8>) -> Done {
    let now = store.now();
    let Some(item) = store.peek(command.key) else { return Done::Code(MetaCode::Miss) };
    out.extend_from_slice(b"ME ");
    push_key(out, command.key, item.marks.is_key_base64);
    let (used_s, fetched) =
        (now.since(item.marks.used) / 1_000_000_000, if item.marks.is_fetched { "yes" } else { "no" });
    let (left_s, cas, size_bytes) = (left_s(item, now), item.cas, item.charge_bytes());
    let facts = format!(" exp={left_s} la={used_s} cas={cas} fetch={fetched} cls=1 size={size_bytes}\r\n");
    out.extend_from_slice(facts.as_bytes());
    Done::Written { hits: 0 }
}

/// Writes the field of an item that one flag requests.
fn push_field(letter: u8, item: &Item, now: Nanos, out: &mut Vec<u8>) {
    match letter {
        b's' => push_number(out, letter, item.data.len() as u64),
        b't' => {
            push(out, b"t");
            out.extend_from_slice(left_s(item, now).to_string().as_bytes());
        }
        b'c' => push_number(out, letter, item.cas),
        b'f' => push_number(out, letter, item.flags.into()),
        b'l' => push_number(out, letter, now.since(item.marks.used) / 1_000_000_000),
        b'h' => push_number(out, letter, item.marks.is_fetched.into()),
        _ => {}
    }
}

/// The time to live in seconds, rounded up; -1 if the item never expires.
fn left_s(item: &Item, now: Nanos) -> i64 {
    match item.expires {
        Nanos::NEVER => -1,
        expires => expires.since(now).div_ceil(1_000_000_000).cast_signed(),
    }
}

/// Writes the start of a hit's reply: `VA` with the size if the value follows, `HD` otherwise.
fn push_header(command: &Command<'_>, value: &[u8], out: &mut Vec<u8>) {
    if command.asks_for(b'v') {
        out.extend_from_slice(format!("VA {}", value.len()).as_bytes());
    } else {
        out.extend_from_slice(b"HD");
    }
}

/// Writes the end of the line, and the value if it is requested.
fn push_value(command: &Command<'_>, value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"\r\n");
    if command.asks_for(b'v') {
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
    }
}

fn push(out: &mut Vec<u8>, word: &[u8]) {
    out.push(b' ');
    out.extend_from_slice(word);
}

fn push_number(out: &mut Vec<u8>, letter: u8, number: u64) {
    push(out, &[letter]);
    out.extend_from_slice(number.to_string().as_bytes());
}

fn push_key(out: &mut Vec<u8>, key: &[u8], is_base64: bool) {
    if is_base64 {
        encode_base64(key, out);
    } else {
        out.extend_from_slice(key);
    }
}
