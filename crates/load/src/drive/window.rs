//! Step 7: the requests in flight on one connection, oldest first. Replies are matched with requests here, and every
//! returned value is verified. Knows no sockets and no clock.

use crate::drive::pending::PendingRequest;
use crate::measure::request::Operation;
use crate::measure::tally::VerificationCounts;
use crate::workload::keys::KeySpace;
use crate::workload::replay;
use crate::workload::sizes::ValueSizes;
use crate::workload::value::{Content, inspect};
use crate::workload::versions::{Freshness, KnownVersion, Versions};
use clock::Nanos;
use std::collections::VecDeque;
use wire::{MetaCode, MetaFlags, Reply, Value};
use xxhash_rust::xxh3::xxh3_64;

/// A key of a request in flight.
#[derive(Clone, Copy, Debug)]
struct Expected {
    key: u64,
    known: KnownVersion,
    /// Whether its value can be verified.
    is_checked: bool,
    returned: bool,
}

/// The requests in flight, and their keys in the same order.
#[derive(Debug, Default)]
pub(crate) struct Window {
    pending: VecDeque<PendingRequest>,
    expected: VecDeque<Expected>,
    /// How many of `pending`, counted from the oldest, have been written completely.
    sent: usize,
    /// Requests without a reply that have not ended yet.
    quiet: usize,
}

/// What values are verified against.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Verifier<'a> {
    pub(crate) versions: &'a Versions,
    pub(crate) keys: &'a KeySpace,
    pub(crate) sizes: &'a ValueSizes,
    /// Whether the values are those of a trace.
    pub(crate) is_replay: bool,
}

/// What a reply means for the oldest request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ReplyMatch {
    /// It is a value of the oldest request, which is not complete yet.
    More,
    /// The oldest request is answered.
    Answered(PendingRequest),
    /// The oldest request was answered by an error.
    Failed(PendingRequest),
    /// The reply matches no request: the connection is out of step.
    Unexpected,
}

impl Window {
    /// Adds a key to the request that is being issued.
    pub(crate) fn expect(&mut self, key: u64, known: KnownVersion) {
        self.expected.push_back(Expected { key, known, is_checked: true, returned: false });
    }

    /// Adds the key of a row of a trace, by its hash.
    pub(crate) fn expect_row(&mut self, name: u64, is_checked: bool) {
        self.expected.push_back(Expected { key: name, known: KnownVersion::NOTHING, is_checked, returned: false });
    }

    /// The last `count` keys added, which belong to the request that is being issued.
    pub(crate) fn last_keys(&self, count: usize) -> impl ExactSizeIterator<Item = u64> + '_ {
        self.expected.range(self.expected.len() - count..).map(|expected| expected.key)
    }

    /// Adds a request whose keys have been added.
    pub(crate) fn push(&mut self, pending: PendingRequest) {
        self.quiet += usize::from(pending.is_quiet);
        self.pending.push_back(pending);
    }

    /// Whether nothing is in flight.
    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// When the oldest request was issued.
    pub(crate) fn oldest_issued(&self) -> Option<Nanos> {
        self.pending.front().map(|pending| pending.issued)
    }

    /// Stamps the requests that have been written up to `written_total`.
    pub(crate) fn mark_sent(&mut self, written_total: u64, now: Nanos) {
        while let Some(pending) = self.pending.get_mut(self.sent).filter(|pending| pending.ends_at <= written_total) {
            pending.sent = now;
            self.sent += 1;
        }
    }

    /// Whether a request waits to be written.
    pub(crate) fn has_unsent(&self) -> bool {
        self.sent < self.pending.len()
    }

    /// Step 7: matches a reply of `reply_bytes` with the oldest request and verifies the value in it.
    pub(crate) fn match_reply(
        &mut self,
        reply: &Reply<'_>,
        reply_bytes: usize,
        verifier: &Verifier<'_>,
        verified: &mut VerificationCounts,
    ) -> ReplyMatch {
        self.forget_ended();
        let Some(oldest) = self.pending.front_mut() else {
            return ReplyMatch::Unexpected;
        };
        oldest.reply_bytes += reply_bytes as u64;
        let is_one = oldest.keys == 1;
        match (oldest.operation, reply) {
            (Operation::Get, Reply::Value(value)) => match self.take_value(value, verifier, verified) {
                Some(()) => ReplyMatch::More,
                None => ReplyMatch::Unexpected,
            },
            (Operation::Get, Reply::MetaValue { flags, data }) => match value_of(flags, data) {
                Some(value) if self.take_value(&value, verifier, verified).is_some() => {
                    if is_one {
                        self.answered(|_| ())
                    } else {
                        ReplyMatch::More
                    }
                }
                _ => ReplyMatch::Unexpected,
            },
            (Operation::Get, Reply::End) => self.answered(|_| ()),
            (Operation::Get, Reply::Meta { code: MetaCode::Miss, .. }) if is_one => self.answered(|_| ()),
            (Operation::Get, Reply::Meta { code: MetaCode::Noop, .. }) if !is_one => self.answered(|_| ()),
            (Operation::Set, reply) if oldest.is_row && ends_row(reply) => self.answered(|_| ()),
            (Operation::Set, Reply::Stored | Reply::Meta { code: MetaCode::Header, .. }) => {
                self.answered(|key| verifier.versions.acknowledge(key))
            }
            (_, reply) if reply.is_error() => {
                self.pop_oldest(|key| verifier.versions.fail(key)).map_or(ReplyMatch::Unexpected, ReplyMatch::Failed)
            }
            _ => ReplyMatch::Unexpected,
        }
    }

    fn answered(&mut self, record_key: impl FnOnce(u64)) -> ReplyMatch {
        self.pop_oldest(record_key).map_or(ReplyMatch::Unexpected, ReplyMatch::Answered)
    }

    /// Removes the oldest request, which has no keys, as answered.
    pub(crate) fn answer_oldest(&mut self) -> Option<PendingRequest> {
        self.pop_oldest(|_| ())
    }

    /// Returns the next request that has been written and gets no reply. It has ended, and the version of its key is
    /// now uncertain.
    pub(crate) fn next_without_reply(&mut self, versions: &Versions) -> Option<PendingRequest> {
        if self.quiet == 0 {
            return None;
        }
        let mut first_key = 0;
        for pending in self.pending.iter_mut().take(self.sent) {
            if pending.is_quiet && !pending.has_ended {
                versions.leave_unknown(self.expected[first_key].key);
                pending.has_ended = true;
                self.quiet -= 1;
                let ended = *pending;
                self.forget_ended();
                return Some(ended);
            }
            first_key += pending.keys as usize;
        }
        None
    }

    /// Removes requests that ended without a reply, up to the first that still waits for one.
    #[inline]
    fn forget_ended(&mut self) {
        if self.pending.front().is_some_and(|pending| pending.has_ended) {
            self.remove_ended();
        }
    }

    #[cold]
    fn remove_ended(&mut self) {
        while self.pending.front().is_some_and(|pending| pending.has_ended) {
            self.pop_oldest(|_| ());
        }
    }

    /// Removes the oldest request as failed. The version of its key is now uncertain.
    pub(crate) fn give_up(&mut self, versions: &Versions) -> Option<PendingRequest> {
        self.forget_ended();
        self.pop_oldest(|key| versions.fail(key))
    }

    /// Removes the oldest request and its keys, and passes the key of a set to `record_key`.
    fn pop_oldest(&mut self, record_key: impl FnOnce(u64)) -> Option<PendingRequest> {
        let pending = self.pending.pop_front()?;
        self.quiet -= usize::from(pending.is_quiet && !pending.has_ended);
        self.sent = self.sent.saturating_sub(1);
        if pending.operation == Operation::Set
            && !pending.is_row
            && let Some(expected) = self.expected.front()
        {
            record_key(expected.key);
        }
        if pending.keys == 1 {
            self.expected.pop_front();
        } else {
            self.expected.drain(..pending.keys as usize);
        }
        Some(pending)
    }

    /// Verifies a value of the oldest request. Returns none if the request did not name the key, or named it fewer
    /// times.
    fn take_value(
        &mut self,
        value: &Value<'_>,
        verifier: &Verifier<'_>,
        verified: &mut VerificationCounts,
    ) -> Option<()> {
        let oldest = self.pending.front_mut()?;
        let key = if verifier.is_replay { xxh3_64(value.key) } else { verifier.keys.number(value.key)? };
        let keys = oldest.keys as usize;
        let is_it = |at: &usize| !self.expected[*at].returned && self.expected[*at].key == key;
        // Values arrive in the order of the keys, unless a proxy merged the replies of several servers.
        let at = (oldest.cursor as usize..keys).chain(0..oldest.cursor as usize).find(is_it)?;
        oldest.cursor = at as u32 + 1;
        oldest.hits += 1;
        let expected = &mut self.expected[at];
        expected.returned = true;
        if verifier.is_replay && !(expected.is_checked && replay::is_verified(value.data)) {
            return Some(());
        }
        verified.checked += 1;
        let fits = if verifier.is_replay { replay::fits(value.data) } else { verifier.sizes.fits(key, value.data) };
        match inspect(value.data, key, value.data.len()) {
            _ if !fits => verified.torn += 1,
            Content::Wrong => verified.wrong += 1,
            Content::Torn => verified.torn += 1,
            Content::Whole(_) if value.flags != 0 => verified.torn += 1,
            Content::Whole(seen) => match verifier.versions.freshness(key, expected.known, seen) {
                Freshness::Fresh => {}
                Freshness::Stale => verified.stale += 1,
                Freshness::Unjudged => verified.unjudged += 1,
            },
        }
        Some(())
    }
}

/// Whether a reply answers a row of a trace other than a get: it succeeded, or failed because of what the server
/// stores.
fn ends_row(reply: &Reply<'_>) -> bool {
    use MetaCode::{Exists, Header, NotFound, NotStored};
    match reply {
        Reply::Meta { code, .. } => matches!(code, Header | NotFound | NotStored | Exists),
        Reply::Stored | Reply::NotStored | Reply::Exists | Reply::NotFound | Reply::Deleted | Reply::Number(_) => true,
        _ => false,
    }
}

/// The value in a meta reply, if the reply names its key.
fn value_of<'a>(flags: &'a [u8], data: &'a [u8]) -> Option<Value<'a>> {
    let flags = MetaFlags::new(flags);
    let stored = std::str::from_utf8(flags.argument(b'f')?).ok()?.parse().ok()?;
    Some(Value { key: flags.argument(b'k')?, flags: stored, cas: None, data })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pending(operation: Operation, keys: u32, ends_at: u64) -> PendingRequest {
        PendingRequest { keys, ends_at, ..PendingRequest::new(operation, Nanos(1), Nanos(2)) }
    }

    #[test]
    fn requests_are_sent_when_their_last_byte_is() {
        let mut window = Window::default();
        [10, 20, 30].into_iter().for_each(|ends_at| window.push(pending(Operation::Get, 0, ends_at)));
        window.mark_sent(9, Nanos(5));
        assert_eq!(window.sent, 0);
        window.mark_sent(25, Nanos(6));
        assert!(window.has_unsent());
        window.mark_sent(30, Nanos(7));
        assert!(!window.has_unsent());
        let sent: Vec<u64> = window.pending.iter().map(|pending| pending.sent.0).collect();
        assert_eq!(sent, [6, 6, 7]);
    }

    #[test]
    fn replies_belong_to_the_oldest_and_record_its_version() {
        let versions = Versions::new(0, 2, true);
        let (keys, sizes) = (KeySpace::new("key-", None), ValueSizes::new(&crate::config::fixed_bytes(32)));
        let verifier = Verifier { versions: &versions, keys: &keys, sizes: &sizes, is_replay: false };
        let mut verified = VerificationCounts::default();
        let mut window = Window::default();
        for key in 0..2 {
            assert_eq!(versions.lock(key), Some(2));
            window.expect(key, KnownVersion::default());
            window.push(pending(Operation::Set, 1, 1));
        }
        window.expect(1, versions.known(1));
        window.push(pending(Operation::Get, 1, 1));
        assert!(matches!(window.match_reply(&Reply::End, 5, &verifier, &mut verified), ReplyMatch::Unexpected));
        assert!(matches!(window.match_reply(&Reply::Stored, 8, &verifier, &mut verified), ReplyMatch::Answered(_)));
        assert!(matches!(window.match_reply(&Reply::Error, 7, &verifier, &mut verified), ReplyMatch::Failed(_)));
        assert_eq!((versions.lock(0), versions.uncertain()), (Some(3), 1));
        let mut data = Vec::new();
        crate::workload::value::make(1, 1, 32, &mut data);
        let value = |key| Reply::Value(Value { key, flags: 0, cas: None, data: &data });
        assert!(matches!(window.match_reply(&value(b"key-0"), 9, &verifier, &mut verified), ReplyMatch::Unexpected));
        assert!(matches!(window.match_reply(&value(b"key-1"), 9, &verifier, &mut verified), ReplyMatch::More));
        assert!(matches!(window.match_reply(&value(b"key-1"), 9, &verifier, &mut verified), ReplyMatch::Unexpected));
        let ReplyMatch::Answered(get) = window.match_reply(&Reply::End, 5, &verifier, &mut verified) else {
            panic!("it ended")
        };
        assert_eq!((get.hits, get.reply_bytes, window.is_empty()), (1, 32, true));
        assert_eq!(verified, VerificationCounts { checked: 1, ..VerificationCounts::default() });
        assert!(matches!(window.match_reply(&Reply::End, 5, &verifier, &mut verified), ReplyMatch::Unexpected));
    }
}
