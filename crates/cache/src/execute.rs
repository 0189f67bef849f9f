//! Text commands: what each does to the store, and its reply. Knows no time and no connection.

use crate::arithmetic::{decreased, increased, number};
use crate::meta::execute_meta;
use crate::operations::{Answer, NOT_A_NUMBER, Offer, offer_value, outcome, refusal, renumber};
use crate::statistics::Counters;
use crate::store::Store;
use records::Outcome;
use wire::{KEY_BYTES_MAXIMUM, Keys, Reply, Request, Value, Verb, decode_base64};

/// The limit of a reply. A line that names one large value a thousand times must not take a thousand times its memory.
const REPLY_BYTES_MAXIMUM: usize = 64 * 1024 * 1024;

const REPLY_TOO_LARGE: Reply<'static> = Reply::ServerError(b"out of memory writing get response");
/// Executes a request on the store; a request that is not about the store does nothing.
pub(crate) fn execute(request: &Request<'_>, store: &mut Store, counters: &mut Counters, out: &mut Vec<u8>) -> Answer {
    let (reply, noreply) = match *request {
        Request::Get { verb, exptime, keys } => return get(verb, exptime, keys, store, counters, out),
        Request::Store { verb, key, flags, exptime, value, cas, noreply } => {
            let offer = Offer { verb, key, flags, exptime, value, cas };
            counters.cmd_set += 1;
            (offer_value(&offer, store, counters), noreply)
        }
        Request::Delete { key, noreply } => (delete(key, store, counters), noreply),
        Request::Arithmetic { verb, key, delta, noreply } => (arithmetic(verb, key, delta, store, counters), noreply),
        Request::Touch { key, exptime, noreply } => {
            let found = touch(key, exptime, store, counters);
            (if found { Reply::Touched } else { Reply::NotFound }, noreply)
        }
        Request::Meta(meta) => return execute_meta(&meta, store, counters, out),
        Request::FlushAll { delay, noreply } => {
            counters.cmd_flush += 1;
            store.flush(delay.unwrap_or(0));
            (Reply::Ok, noreply)
        }
        _ => return Answer::default(),
    };
    if !noreply {
        reply.encode(out);
    }
    let keys = u16::from(!matches!(request, Request::FlushAll { .. }));
    Answer { outcome: outcome(&reply), keys, hits: 0 }
}

/// Removes the key of a `set` or `ms` whose value was too large to read: a failed set must not leave the old value.
pub(crate) fn refused_store(line: &[u8], store: &mut Store) {
    let mut words = line.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty());
    match (words.next(), words.next()) {
        (Some(b"ms"), Some(key)) if words.skip(1).any(|flag| flag[0] == b'b') => {
            if let Some(key) = decode_base64(key, &mut [0; KEY_BYTES_MAXIMUM]) {
                store.remove(key);
            }
        }
        (Some(b"set" | b"ms"), Some(key)) => {
            store.remove(key);
        }
        _ => {}
    }
}

fn get(
    verb: Verb,
    exptime: i64,
    keys: Keys<'_>,
    store: &mut Store,
    counters: &mut Counters,
    out: &mut Vec<u8>,
) -> Answer {
    let begin = out.len();
    let touches = matches!(verb, Verb::Gat | Verb::Gats);
    let returns_cas = matches!(verb, Verb::Gets | Verb::Gats);
    let mut answer = Answer::default();
    for key in keys {
        answer.keys = answer.keys.saturating_add(1);
        counters.cmd_get += 1;
        if touches {
            touch(key, exptime, store, counters);
        }
        let now = store.now();
        let Some(item) = store.get(key) else { continue };
        item.note_use(now);
        counters.get_hits += 1;
        answer.hits = answer.hits.saturating_add(1);
        let cas = returns_cas.then_some(item.cas);
        Reply::Value(Value { key, flags: item.flags, cas, data: &item.data }).encode(out);
        if out.len() - begin > REPLY_BYTES_MAXIMUM {
            out.truncate(begin);
            REPLY_TOO_LARGE.encode(out);
            return Answer { outcome: Outcome::ServerError, hits: 0, ..answer };
        }
    }
    Reply::End.encode(out);
    answer
}

fn delete(key: &[u8], store: &mut Store, counters: &mut Counters) -> Reply<'static> {
    if store.remove(key) {
        counters.delete_hits += 1;
        Reply::Deleted
    } else {
        counters.delete_misses += 1;
        Reply::NotFound
    }
}

fn arithmetic(verb: Verb, key: &[u8], delta: u64, store: &mut Store, counters: &mut Counters) -> Reply<'static> {
    let (change, hits, misses): (fn(u64, u64) -> u64, _, _) = match verb {
        Verb::Incr => (increased, &mut counters.incr_hits, &mut counters.incr_misses),
        _ => (decreased, &mut counters.decr_hits, &mut counters.decr_misses),
    };
    let Some(item) = store.get(key) else {
        *misses += 1;
        return Reply::NotFound;
    };
    let Some(before) = number(&item.data) else { return NOT_A_NUMBER };
    *hits += 1;
    let after = change(before, delta);
    renumber(key, after, store).map_or_else(refusal, |()| Reply::Number(after))
}

fn touch(key: &[u8], exptime: i64, store: &mut Store, counters: &mut Counters) -> bool {
    counters.cmd_touch += 1;
    let expires = store.expiry(exptime);
    let Some(item) = store.get(key) else { return false };
    item.expires = expires;
    counters.touch_hits += 1;
    true
}
