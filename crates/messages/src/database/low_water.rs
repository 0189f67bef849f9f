//! Low-water marks: the ids at which pops start to scan. Below the mark of a queue and a receiver there are only dead rows, which a long
//! transaction elsewhere can keep in the indexes. docs/messages-design.md has the argument. Without a mark, pops only take longer.

use crate::database::liveness::ServerId;
use crate::observe::limits::{Limit, LimitCounts};
use crate::path::work::{Message, Scope};
use clock::Nanos;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// A missing or old mark is read again after this many messages were taken out, because other services may have taken out many more.
const REFRESH_AFTER_WHEN_OLD: usize = 8;
const OLD: Duration = Duration::from_millis(200);
/// Marks are never read.
const NEVER: usize = usize::MAX;
/// The mark that skips nothing.
pub(crate) const UNKNOWN: LowWaterMark = LowWaterMark {
    server: ServerId { timeline: 0, started_us: 0 },
    queue_id: 0,
    era: 0,
    low: 0,
    read_at: Nanos::UNSET,
};

/// The lowest id to scan from, besides the mark of `low_queue_id` and `low_era`: messages redelivered in that era or the next are not below
/// it. For other eras nothing is known. Steps 4 to 6 of "Dead rows" in docs/messages-design.md.
pub(crate) const SCAN_FROM: &str = "CASE WHEN queue.id <> low_queue_id THEN 0 WHEN queue.era = low_era THEN queue.min_redelivered_id \
    WHEN queue.era = low_era + 1 THEN least(queue.min_redelivered_id, queue.previous_min_redelivered_id) ELSE 0 END";

/// Where the messages of one queue to one receiver, or to anyone, start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LowWaterMark {
    /// The server that the mark was read from. After a failover, the new server may draw ids again that the old one has drawn.
    pub(crate) server: ServerId,
    pub(crate) queue_id: i32,
    /// The queue's era when the mark was read. The queue's row records what was redelivered since then.
    pub(crate) era: i32,
    /// No message has a smaller id, except redelivered ones.
    pub(crate) low: i64,
    pub(crate) read_at: Nanos,
}

/// Where a statement starts to scan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StartIds {
    pub(crate) queue_id: i32,
    pub(crate) era: i32,
    /// Among messages to the receiver.
    pub(crate) own: i64,
    /// Among messages to anyone.
    pub(crate) shared: i64,
}

/// The low-water marks of this service.
#[derive(Debug)]
pub(crate) struct LowWaterMarks {
    /// Messages that are taken out before a mark is read again.
    refresh_after: usize,
    /// Pairs of a queue and a receiver with a mark. Beyond this number, all marks are forgotten.
    pairs_max: usize,
    limits: Arc<LimitCounts>,
    state: Mutex<State>,
    pub(crate) stale: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// By queue, then by receiver.
    known: HashMap<String, HashMap<String, Entry>>,
    pairs: usize,
    /// Queues and receivers whose mark should be read again.
    stale: Vec<(String, String)>,
}

#[derive(Debug)]
struct Entry {
    mark: LowWaterMark,
    /// Messages taken out since the mark was read.
    taken: usize,
    /// Whether the pair is in `stale`.
    is_listed: bool,
}

impl StartIds {
    /// Combines two marks of one era; of different eras, the younger mark counts.
    fn of(own: LowWaterMark, shared: LowWaterMark) -> StartIds {
        let is_alike = own.queue_id == shared.queue_id && own.era == shared.era;
        let younger = if own.read_at > shared.read_at { own } else { shared };
        StartIds {
            queue_id: younger.queue_id,
            era: younger.era,
            own: if is_alike || younger == own { own.low } else { 0 },
            shared: if is_alike || younger == shared { shared.low } else { 0 },
        }
    }
}

impl LowWaterMarks {
    pub(crate) fn new(refresh_after: usize, pairs_max: usize, limits: Arc<LimitCounts>) -> Arc<LowWaterMarks> {
        Arc::new(LowWaterMarks { refresh_after, pairs_max, limits, state: Mutex::default(), stale: Notify::new() })
    }

    /// Where a statement for this scope starts, over a connection to this server made at this time. A mark from before the connection is
    /// not used: meanwhile the database may have been restored to an earlier state, which draws the same ids again. Nor is a mark from
    /// another server, for example from the primary before a failover.
    pub(crate) fn start_ids(&self, scope: &Scope, connected: Nanos, server: ServerId) -> StartIds {
        let mut state = self.lock();
        let Some(receivers) = state.known.get_mut(&scope.queue) else { return StartIds::default() };
        let mut mark = |receiver: &str| {
            let Some(known) = receivers.get_mut(receiver) else { return UNKNOWN };
            if known.mark.read_at <= connected {
                known.mark = UNKNOWN;
            }
            if known.mark.server == server { known.mark } else { UNKNOWN }
        };
        StartIds::of(mark(&scope.receiver), mark(""))
    }

    /// Counts messages that were taken out.
    pub(crate) fn count(&self, messages: &[Message], now: Nanos) {
        if messages.is_empty() {
            return;
        }
        let mut state = self.lock();
        let before = state.stale.len();
        for message in messages {
            let is_known = state.knows(&message.queue, &message.receiver);
            if !is_known && state.pairs >= self.pairs_max {
                *state = State::default();
                self.limits.reach(Limit::LowWaterMarks);
            }
            state.count_one(&message.queue, &message.receiver, self.refresh_after, now);
        }
        if state.stale.len() > before {
            self.stale.notify_one();
        }
    }

    /// Whether any mark should be read again.
    pub(crate) fn has_stale(&self) -> bool {
        !self.lock().stale.is_empty()
    }

    /// Queues and receivers whose mark should be read again, with their current marks.
    pub(crate) fn stale(&self) -> Vec<(String, String, LowWaterMark)> {
        let state = self.lock();
        let mark = |queue: &String, receiver: &String| state.known.get(queue).and_then(|all| all.get(receiver));
        let pairs = state.stale.iter().map(|(queue, receiver)| {
            (queue.clone(), receiver.clone(), mark(queue, receiver).map_or(UNKNOWN, |known| known.mark))
        });
        pairs.collect()
    }

    /// Stores the marks that were read. A queue that no longer exists gets no mark.
    pub(crate) fn store(
        &self,
        read: &[(String, String, LowWaterMark)],
        marks: impl IntoIterator<Item = Option<LowWaterMark>>,
    ) {
        let mut state = self.lock();
        let State { known, stale, .. } = &mut *state;
        for ((queue, receiver, _), mark) in read.iter().zip(marks) {
            if let Some(known) = known.get_mut(queue).and_then(|receivers| receivers.get_mut(receiver)) {
                *known = Entry { mark: mark.unwrap_or(UNKNOWN), taken: 0, is_listed: false };
            }
        }
        stale.retain(|(queue, receiver)| {
            known.get(queue).and_then(|receivers| receivers.get(receiver)).is_some_and(|known| known.is_listed)
        });
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn knows(&self, queue: &str, receiver: &str) -> bool {
        self.known.get(queue).is_some_and(|receivers| receivers.contains_key(receiver))
    }

    fn count_one(&mut self, queue: &str, receiver: &str, refresh_after: usize, now: Nanos) {
        if !self.knows(queue, receiver) {
            self.pairs += 1;
            let receivers = self.known.entry(queue.to_string()).or_default();
            receivers.insert(receiver.to_string(), Entry { mark: UNKNOWN, taken: 0, is_listed: false });
        }
        let known = self.known.get_mut(queue).and_then(|receivers| receivers.get_mut(receiver));
        let Some(known) = known else { return };
        known.taken += 1;
        let is_old = now > known.mark.read_at + OLD;
        let enough =
            if is_old && refresh_after != NEVER { refresh_after.min(REFRESH_AFTER_WHEN_OLD) } else { refresh_after };
        if known.taken >= enough && !known.is_listed {
            known.is_listed = true;
            self.stale.push((queue.to_string(), receiver.to_string()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: ServerId = ServerId { timeline: 1, started_us: 7 };

    fn message(receiver: &str) -> Message {
        Message {
            id: 1,
            queue: "q".into(),
            sender: "s".into(),
            receiver: receiver.into(),
            sent_unix_us: 0,
            body: Vec::new(),
            dead_letter: None,
            lease: None,
        }
    }

    fn scope(receiver: &str) -> Scope {
        Scope { queue: "q".into(), receiver: receiver.into(), sender: String::new() }
    }

    #[test]
    fn the_mark_is_read_again_after_enough_messages_were_removed() {
        let all = LowWaterMarks::new(10, 100, Arc::default());
        let now = Nanos(5) + OLD;
        (1..REFRESH_AFTER_WHEN_OLD).for_each(|_| all.count(&[message("")], now));
        all.count(&[message("me")], now);
        assert_eq!(all.stale(), []);
        all.count(&[message(""), message("")], now);
        assert_eq!(all.stale(), [("q".to_string(), String::new(), UNKNOWN)]);
        let mark = LowWaterMark { server: SERVER, queue_id: 1, era: 0, low: 9, read_at: Nanos(5) };
        all.store(&all.stale(), [Some(mark)]);
        (1..10).for_each(|_| all.count(&[message("")], now));
        assert_eq!(all.stale(), []);
        all.count(&[message("")], now);
        assert_eq!(all.stale(), [("q".to_string(), String::new(), mark)]);
        all.store(&all.stale(), [Some(mark)]);
        (1..REFRESH_AFTER_WHEN_OLD).for_each(|_| all.count(&[message("")], now));
        assert_eq!(all.stale(), []);
        all.count(&[message("")], now + Duration::from_nanos(1));
        assert_eq!(all.stale(), [("q".to_string(), String::new(), mark)]);
        let start = StartIds { queue_id: 1, era: 0, own: 0, shared: 9 };
        assert_eq!(all.start_ids(&scope("me"), Nanos(4), SERVER), start);
        assert_eq!(all.start_ids(&scope(""), Nanos(4), SERVER), StartIds { own: 9, ..start });
        assert_eq!(all.start_ids(&scope(""), Nanos(5), SERVER), StartIds::default(), "the connection is younger");
    }

    #[test]
    fn marks_of_different_eras_are_not_mixed() {
        let old = LowWaterMark { server: SERVER, queue_id: 1, era: 3, low: 9, read_at: Nanos(5) };
        let young = LowWaterMark { server: SERVER, queue_id: 1, era: 4, low: 7, read_at: Nanos(6) };
        assert_eq!(StartIds::of(old, young), StartIds { queue_id: 1, era: 4, own: 0, shared: 7 });
        assert_eq!(StartIds::of(young, old), StartIds { queue_id: 1, era: 4, own: 7, shared: 0 });
        assert_eq!(StartIds::of(old, old), StartIds { queue_id: 1, era: 3, own: 9, shared: 9 });
        assert_eq!(StartIds::of(young, UNKNOWN), StartIds { queue_id: 1, era: 4, own: 7, shared: 0 });
    }

    #[test]
    fn beyond_the_limit_all_marks_are_forgotten_and_read_again() {
        let all = LowWaterMarks::new(1, 2, Arc::default());
        let stale = || all.stale().iter().map(|(_, receiver, _)| receiver.clone()).collect::<Vec<_>>();
        let forgotten = || all.limits.reached()[Limit::LowWaterMarks as usize];
        ["a", "b", "a"].iter().for_each(|receiver| all.count(&[message(receiver)], Nanos(3)));
        assert_eq!((stale(), forgotten()), (vec!["a".to_string(), "b".to_string()], 0));
        all.count(&[message("c")], Nanos(3));
        assert_eq!((stale(), forgotten()), (vec!["c".to_string()], 1));
        all.count(&[message("a")], Nanos(3));
        assert_eq!((stale(), forgotten()), (vec!["c".to_string(), "a".to_string()], 1));
    }

    #[test]
    fn a_mark_of_another_server_or_timeline_is_not_used() {
        let all = LowWaterMarks::new(1, 100, Arc::default());
        all.count(&[message("")], Nanos(3));
        let mark = LowWaterMark { server: SERVER, queue_id: 1, era: 0, low: 9, read_at: Nanos(5) };
        all.store(&all.stale(), [Some(mark)]);
        let start = |server| all.start_ids(&scope(""), Nanos(4), server);
        assert_eq!(start(ServerId { timeline: 2, ..SERVER }), StartIds::default());
        assert_eq!(start(ServerId { started_us: 8, ..SERVER }), StartIds::default());
        assert_eq!(start(SERVER).shared, 9, "the mark is kept for the other connection");
    }
}
