//! The parts that text and meta commands share: storing an offered value, overwriting a number, and the replies to both.

use crate::arithmetic::overwrite;
use crate::statistics::Counters;
use crate::store::{Refused, Store};
use records::Outcome;
use wire::{Reply, Verb};

const TOO_LARGE: Reply<'static> = Reply::ServerError(b"object too large for cache");
const OUT_OF_MEMORY: Reply<'static> = Reply::ServerError(b"out of memory storing object");
pub(crate) const NOT_A_NUMBER: Reply<'static> = Reply::ClientError(b"cannot increment or decrement non-numeric value");

/// The result of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) outcome: Outcome,
    /// The number of keys in the request.
    pub(crate) keys: u16,
    /// The number of values in the reply.
    pub(crate) hits: u16,
}

/// A value to store.
pub(crate) struct Offer<'a> {
    pub(crate) verb: Verb,
    pub(crate) key: &'a [u8],
    pub(crate) flags: u32,
    pub(crate) exptime: i64,
    pub(crate) value: &'a [u8],
    pub(crate) cas: u64,
}

/// The outcome of a reply, for records.
pub(crate) fn outcome(reply: &Reply<'_>) -> Outcome {
    match reply {
        Reply::Error | Reply::ClientError(_) => Outcome::ClientError,
        Reply::ServerError(_) => Outcome::ServerError,
        _ => Outcome::Answered,
    }
}

pub(crate) fn offer_value(offer: &Offer<'_>, store: &mut Store, counters: &mut Counters) -> Reply<'static> {
    let &Offer { verb, key, flags, exptime, value, cas } = offer;
    if let Err(refused) = store.fits(key, flags, value.len()) {
        if verb == Verb::Set {
            store.remove(key);
        }
        return refusal(refused);
    }
    let there = store.get(key).map(|item| (item.cas, item.flags, item.expires));
    match (verb, there) {
        (Verb::Add, Some(_)) | (Verb::Replace | Verb::Append | Verb::Prepend, None) => Reply::NotStored,
        (Verb::Append | Verb::Prepend, Some((_, flags, expires))) => {
            let joined = store.get(key).map(|item| match verb {
                Verb::Append => [&item.data, value].concat(),
                _ => [value, &item.data].concat(),
            });
            // A value that would become too large stays unchanged.
            let stored = joined.is_some_and(|joined| store.put(key, flags, expires, joined.into()).is_ok());
            if stored { Reply::Stored } else { Reply::NotStored }
        }
        (Verb::Cas, None) => {
            counters.cas_misses += 1;
            Reply::NotFound
        }
        (Verb::Cas, Some((current, ..))) if current != cas => {
            counters.cas_badval += 1;
            Reply::Exists
        }
        _ => {
            counters.cas_hits += u64::from(verb == Verb::Cas);
            let expires = store.expiry(exptime);
            store.put(key, flags, expires, value.into()).map_or_else(refusal, |()| Reply::Stored)
        }
    }
}

pub(crate) fn refusal(refused: Refused) -> Reply<'static> {
    match refused {
        Refused::TooLarge => TOO_LARGE,
        Refused::OutOfMemory => OUT_OF_MEMORY,
    }
}

/// Overwrites the value of a key with a number, and keeps its metadata.
pub(crate) fn renumber(key: &[u8], number: u64, store: &mut Store) -> Result<(), Refused> {
    let Some(item) = store.get(key) else { return Ok(()) };
    let (data, flags, expires, marks) = (overwrite(&item.data, number), item.flags, item.expires, item.marks);
    store.put(key, flags, expires, data)?;
    if let Some(item) = store.get(key) {
        item.marks = marks;
    }
    Ok(())
}
