//! Meta commands: what they do to the store and what they answer, as memcached 1.6.18 does. Knows no time and no connection.
//! Flags are worked off in the order in which they stand: `T30 t` tells the new time that is left, `t T30` the old one.

use crate::arithmetic::{decreased, increased, number};
use crate::operations::{Answer, NOT_A_NUMBER, Offer, offer_value, outcome, refusal, renumber};
use crate::statistics::Counters;
use crate::store::{Item, Store};
use clock::Nanos;
use records::Outcome;
use wire::{KEY_BYTES_MAXIMUM, Meta, MetaCode, Mode, Options, Reply, Verb, encode_base64, is_hidden_when_quiet};

/// A command with what its flags mean and the key that they are about.
struct Command<'a> {
    meta: &'a Meta<'a>,
    options: Options,
    key: &'a [u8],
}

/// How a command ended: a reply that is still to be written, or that has been.
enum Done {
    /// These two letters, and the key and the opaque token if they are asked for.
    Code(MetaCode),
    /// An error.
    Failed(Reply<'static>),
    /// Written already; so many values were found.
    Written { hits: u16 },
}

/// Carries out a meta command on the store.
pub(crate) fn execute_meta(meta: &Meta<'_>, store: &mut Store, counters: &mut Counters, out: &mut Vec<u8>) -> Answer {
    let begin = out.len();
    let mut buffer = [0; KEY_BYTES_MAXIMUM];
    let key = meta.stored_key(&mut buffer);
    let options = match Options::parse(meta) {
        // `me` has flags for nothing but its key, and does not look at others.
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
                command.tell_names(out);
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
    /// The key and the opaque token, as far as they are asked for.
    fn tell_names(&self, out: &mut Vec<u8>) {
        for flag in self.meta.flags.iter() {
            self.tell_name(flag, self.meta.is_base64(), out);
        }
    }

    /// The key or the opaque token, if this flag asks for it.
    fn tell_name(&self, flag: &[u8], is_base64: bool, out: &mut Vec<u8>) {
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
                let is_late = item.expires != Nanos::NEVER && recached.is_some_and(|at| item.expires < at);
                is_won |= is_late && !is_new && !item.marks.is_won;
            }
            b'k' | b'O' => command.tell_name(flag, item.marks.is_key_base64, out),
            letter => tell(letter, item, now, out),
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
    let current = store.peek(key).map(|item| item.unique);
    let differs = options.cas.is_some_and(|cas| current.is_some_and(|current| current != cas));
    let mut verb = match options.mode {
        Mode::Add => Verb::Add,
        Mode::Append => Verb::Append,
        Mode::Prepend => Verb::Prepend,
        Mode::Replace | Mode::Ordinary | Mode::Down if options.cas.is_some() => Verb::Cas,
        Mode::Replace => Verb::Replace,
        Mode::Ordinary | Mode::Down => Verb::Set,
    };
    // An older value than the one that is there, from somebody who would rather have it stale than not at all.
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
        unique: options.cas.unwrap_or(0),
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
            // Whatever the mode: a value that could not be stored leaves none.
            store.remove(key);
            return Done::Failed(failed);
        }
    };
    let mut unique = 0;
    if let Some(item) = store.peek(key).filter(|_| code == MetaCode::Header) {
        (item.marks.is_key_base64, item.marks.is_stale) = (meta.is_base64(), is_stale);
        unique = item.unique;
    }
    out.extend_from_slice(code.name().as_bytes());
    for flag in meta.flags.iter() {
        match flag[0] {
            b'c' => push_number(out, b'c', unique),
            _ => command.tell_name(flag, meta.is_base64(), out),
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
    if options.cas.is_some_and(|cas| cas != item.unique) {
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
        // A token of 0 compares with nothing.
        Some(item) if options.cas.is_some_and(|cas| cas != 0 && cas != item.unique) => {
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
            letter @ (b't' | b'c') => tell(letter, item, now, out),
            _ => command.tell_name(flag, meta.is_base64(), out),
        }
    }
    push_value(command, text.as_bytes(), out);
    Done::Written { hits: 0 }
}

/// Everything that is known of an item but its value, for people to read.
fn debug(command: &Command<'_>, store: &mut Store, out: &mut Vec<u8>) -> Done {
    let now = store.now();
    let Some(item) = store.peek(command.key) else { return Done::Code(MetaCode::Miss) };
    out.extend_from_slice(b"ME ");
    push_key(out, command.key, item.marks.is_key_base64);
    let (used_s, fetched) =
        (now.since(item.marks.used) / 1_000_000_000, if item.marks.is_fetched { "yes" } else { "no" });
    let (left_s, unique, size_bytes) = (left_s(item, now), item.unique, item.charge_bytes());
    let facts = format!(" exp={left_s} la={used_s} cas={unique} fetch={fetched} cls=1 size={size_bytes}\r\n");
    out.extend_from_slice(facts.as_bytes());
    Done::Written { hits: 0 }
}

/// What one flag asks to be told about an item.
fn tell(letter: u8, item: &Item, now: Nanos, out: &mut Vec<u8>) {
    match letter {
        b's' => push_number(out, letter, item.data.len() as u64),
        b't' => {
            push(out, b"t");
            out.extend_from_slice(left_s(item, now).to_string().as_bytes());
        }
        b'c' => push_number(out, letter, item.unique),
        b'f' => push_number(out, letter, item.flags.into()),
        b'l' => push_number(out, letter, now.since(item.marks.used) / 1_000_000_000),
        b'h' => push_number(out, letter, item.marks.is_fetched.into()),
        _ => {}
    }
}

/// Seconds that an item has left, a part of one counting whole; -1 when it never ends.
fn left_s(item: &Item, now: Nanos) -> i64 {
    match item.expires {
        Nanos::NEVER => -1,
        expires => expires.since(now).div_ceil(1_000_000_000).cast_signed(),
    }
}

/// The beginning of the line that answers what was found: with its size if its value follows.
fn push_header(command: &Command<'_>, value: &[u8], out: &mut Vec<u8>) {
    if command.asks_for(b'v') {
        out.extend_from_slice(format!("VA {}", value.len()).as_bytes());
    } else {
        out.extend_from_slice(b"HD");
    }
}

/// The end of that line, and the value if it is asked for.
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
