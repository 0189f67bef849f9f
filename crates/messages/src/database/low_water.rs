//! Where pops begin to look. Below the low-water of a queue and a receiver there are only dead rows, which an old snapshot may keep in
//! the indexes for as long as it is held open. docs/messages.md has the argument; without a low-water, pops only take longer.

use crate::path::work::{Message, Scope};
use clock::Nanos;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// Pairs of a queue and a receiver that are known at once; with more, all are forgotten.
const KNOWN: usize = 10_000;
/// Messages that are taken out before a look where nothing is known, or what is known is old: others may have taken out many meanwhile.
const FEW: usize = 8;
const OLD: Duration = Duration::from_millis(200);
/// No look is ever worth while.
const NEVER: usize = usize::MAX;
/// Where to begin when nothing is known.
pub(crate) const UNKNOWN: Mark = Mark { queue_id: 0, era: 0, low: 0, made: Nanos::UNSET };

/// No message is below this and below the low-water of `low_queue_id` and `low_era`: what came back in that era, or in the one after it, may
/// be; of another time nothing is known. Steps 4 to 6 of "Dead rows" in docs/messages.md.
pub(crate) const KNOWN_FROM: &str = "CASE WHEN queue.id <> low_queue_id THEN 0 WHEN queue.era = low_era THEN queue.returned_from \
    WHEN queue.era = low_era + 1 THEN least(queue.returned_from, queue.returned_before) ELSE 0 END";

/// Where the messages of one queue for one receiver, or for anyone, begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) queue_id: i32,
    /// The queue's era when this was found. What came back to the queue since then is told by the queue's row.
    pub(crate) era: i32,
    /// Nothing is below, except what came back.
    pub(crate) low: i64,
    pub(crate) made: Nanos,
}

/// Where a statement begins to look, as it is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Begin {
    pub(crate) queue_id: i32,
    pub(crate) era: i32,
    /// For messages to the receiver.
    pub(crate) own: i64,
    /// For messages to anyone.
    pub(crate) shared: i64,
}

/// The marks of this service.
#[derive(Debug)]
pub(crate) struct LowWaters {
    /// Messages that are taken out before a look is worth while.
    worth: usize,
    state: Mutex<State>,
    pub(crate) worthwhile: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// By queue, then by receiver.
    known: HashMap<String, HashMap<String, Known>>,
    pairs: usize,
    /// Queues and receivers for which a look is worth while.
    worthwhile: Vec<(String, String)>,
}

#[derive(Debug)]
struct Known {
    mark: Mark,
    /// Messages taken out since the mark was made.
    taken: usize,
    /// Whether it is in the list of those for which a look is worth while.
    is_listed: bool,
}

impl Begin {
    /// Two marks of one era; of different ones, the younger.
    fn of(own: Mark, shared: Mark) -> Begin {
        let is_alike = own.queue_id == shared.queue_id && own.era == shared.era;
        let younger = if own.made > shared.made { own } else { shared };
        Begin {
            queue_id: younger.queue_id,
            era: younger.era,
            own: if is_alike || younger == own { own.low } else { 0 },
            shared: if is_alike || younger == shared { shared.low } else { 0 },
        }
    }
}

impl LowWaters {
    /// Nothing is known.
    pub(crate) fn new(worth: usize) -> Arc<LowWaters> {
        Arc::new(LowWaters { worth, state: Mutex::default(), worthwhile: Notify::new() })
    }

    /// Where to begin for this scope over a connection that was made at this time. A mark that is older than the connection is of no
    /// use: in between, the database may have been set back, and its ids with it.
    pub(crate) fn begin(&self, scope: &Scope, connected: Nanos) -> Begin {
        let mut state = self.lock();
        let Some(receivers) = state.known.get_mut(&scope.queue) else { return Begin::default() };
        let mut mark = |receiver: &str| {
            let Some(known) = receivers.get_mut(receiver) else { return UNKNOWN };
            if known.mark.made <= connected {
                known.mark = UNKNOWN;
            }
            known.mark
        };
        Begin::of(mark(&scope.receiver), mark(""))
    }

    /// Counts what was taken out.
    pub(crate) fn count(&self, messages: &[Message], now: Nanos) {
        if messages.is_empty() {
            return;
        }
        let mut state = self.lock();
        let before = state.worthwhile.len();
        for message in messages {
            state.count_one(&message.queue, &message.receiver, self.worth, now);
        }
        if state.worthwhile.len() > before {
            self.worthwhile.notify_one();
        }
    }

    /// Whether a look is worth while at all.
    pub(crate) fn is_worthwhile(&self) -> bool {
        !self.lock().worthwhile.is_empty()
    }

    /// Queues and receivers for which a look is worth while, with the marks they have.
    pub(crate) fn worthwhile(&self) -> Vec<(String, String, Mark)> {
        let state = self.lock();
        let mark = |queue: &String, receiver: &String| state.known.get(queue).and_then(|all| all.get(receiver));
        let pairs = state.worthwhile.iter().map(|(queue, receiver)| {
            (queue.clone(), receiver.clone(), mark(queue, receiver).map_or(UNKNOWN, |known| known.mark))
        });
        pairs.collect()
    }

    /// Keeps what a look at all these has found; a queue that is not there any more has no mark.
    pub(crate) fn keep(&self, looked: &[(String, String, Mark)], marks: impl IntoIterator<Item = Option<Mark>>) {
        let mut state = self.lock();
        let State { known, worthwhile, .. } = &mut *state;
        for ((queue, receiver, _), mark) in looked.iter().zip(marks) {
            if let Some(known) = known.get_mut(queue).and_then(|receivers| receivers.get_mut(receiver)) {
                *known = Known { mark: mark.unwrap_or(UNKNOWN), taken: 0, is_listed: false };
            }
        }
        worthwhile.retain(|(queue, receiver)| {
            known.get(queue).and_then(|receivers| receivers.get(receiver)).is_some_and(|known| known.is_listed)
        });
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn count_one(&mut self, queue: &str, receiver: &str, worth: usize, now: Nanos) {
        if !self.known.get(queue).is_some_and(|receivers| receivers.contains_key(receiver)) {
            if self.pairs >= KNOWN {
                *self = State::default();
            }
            self.pairs += 1;
            let receivers = self.known.entry(queue.to_string()).or_default();
            receivers.insert(receiver.to_string(), Known { mark: UNKNOWN, taken: 0, is_listed: false });
        }
        let known = self.known.get_mut(queue).and_then(|receivers| receivers.get_mut(receiver));
        let Some(known) = known else { return };
        known.taken += 1;
        let is_old = now > known.mark.made + OLD;
        let enough = if is_old && worth != NEVER { worth.min(FEW) } else { worth };
        if known.taken >= enough && !known.is_listed {
            known.is_listed = true;
            self.worthwhile.push((queue.to_string(), receiver.to_string()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(receiver: &str) -> Message {
        Message {
            id: 1,
            queue: "q".into(),
            sender: "s".into(),
            receiver: receiver.into(),
            sent_unix_us: 0,
            body: Vec::new(),
            leased: None,
        }
    }

    fn scope(receiver: &str) -> Scope {
        Scope { queue: "q".into(), receiver: receiver.into(), sender: String::new() }
    }

    #[test]
    fn a_look_is_worth_while_when_enough_was_taken_out() {
        let all = LowWaters::new(10);
        let now = Nanos(5) + OLD;
        (1..FEW).for_each(|_| all.count(&[message("")], now));
        all.count(&[message("me")], now);
        assert_eq!(all.worthwhile(), []);
        all.count(&[message(""), message("")], now);
        assert_eq!(all.worthwhile(), [("q".to_string(), String::new(), UNKNOWN)]);
        let mark = Mark { queue_id: 1, era: 0, low: 9, made: Nanos(5) };
        all.keep(&all.worthwhile(), [Some(mark)]);
        (1..10).for_each(|_| all.count(&[message("")], now));
        assert_eq!(all.worthwhile(), []);
        all.count(&[message("")], now);
        assert_eq!(all.worthwhile(), [("q".to_string(), String::new(), mark)]);
        all.keep(&all.worthwhile(), [Some(mark)]);
        (1..FEW).for_each(|_| all.count(&[message("")], now));
        assert_eq!(all.worthwhile(), []);
        all.count(&[message("")], now + Duration::from_nanos(1));
        assert_eq!(all.worthwhile(), [("q".to_string(), String::new(), mark)]);
        let begin = Begin { queue_id: 1, era: 0, own: 0, shared: 9 };
        assert_eq!(all.begin(&scope("me"), Nanos(4)), begin);
        assert_eq!(all.begin(&scope(""), Nanos(4)), Begin { own: 9, ..begin });
        assert_eq!(all.begin(&scope(""), Nanos(5)), Begin::default(), "the connection is younger");
    }

    #[test]
    fn marks_of_different_eras_are_not_mixed() {
        let old = Mark { queue_id: 1, era: 3, low: 9, made: Nanos(5) };
        let young = Mark { queue_id: 1, era: 4, low: 7, made: Nanos(6) };
        assert_eq!(Begin::of(old, young), Begin { queue_id: 1, era: 4, own: 0, shared: 7 });
        assert_eq!(Begin::of(young, old), Begin { queue_id: 1, era: 4, own: 7, shared: 0 });
        assert_eq!(Begin::of(old, old), Begin { queue_id: 1, era: 3, own: 9, shared: 9 });
        assert_eq!(Begin::of(young, UNKNOWN), Begin { queue_id: 1, era: 4, own: 7, shared: 0 });
    }

    #[test]
    fn what_is_known_is_bounded() {
        let all = LowWaters::new(1);
        for number in 0..=KNOWN {
            all.count(&[message(&format!("r{number}"))], Nanos(1));
        }
        assert_eq!(all.worthwhile().len(), 1);
        assert_eq!(all.lock().pairs, 1);
    }
}
