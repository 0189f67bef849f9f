//! The leases of one queue: which deliveries of a message can have happened, given when their requests were issued and
//! completed. The service did each of them at an unknown time in between, so something is a fault only if no order of
//! events explains it. Knows no bodies and no requests.

use clock::Nanos;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use super::body::ANYONE;

/// From this attempt on, a queue without a dead-letter queue delays its redelivery (docs/messages.md).
const BACKOFF_FROM: u32 = 20;

/// A message that has not returned after so many times the allowed time is lost.
const PATIENCE: u32 = 3;

/// The sender of a message, and its number among the messages of this sender in the queue.
pub(crate) type MessageKey = (u32, u32);

/// The service executed a request at some time between these two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestTimes {
    pub(crate) issued: Nanos,
    pub(crate) completed: Nanos,
}

/// What the leases of a run have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeaseRules {
    /// The visibility timeout of every receive and extension.
    pub(crate) lease: Duration,
    /// How long a message may stay invisible after its lease has ended, or after an outage.
    pub(crate) redelivery: Duration,
    /// The attempts after which a message moves to the dead-letter queue, if there is one.
    pub(crate) attempts: Option<u32>,
    /// No reply arrives later than this after its request.
    pub(crate) reply_timeout: Duration,
}

/// A message that was delivered with a lease.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delivered {
    pub(crate) key: MessageKey,
    /// Its receiver, or [`ANYONE`].
    pub(crate) receiver: u32,
    /// Its id, if the service stated one.
    pub(crate) id: Option<u64>,
    /// The number of the attempt, if the service stated one.
    pub(crate) attempt: Option<u32>,
}

/// The faults that a delivery reveals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Findings {
    /// It was delivered while another lease on it was valid.
    pub(crate) while_leased: bool,
    /// It was delivered again after it had been popped or acknowledged, or two leases on it were acknowledged.
    pub(crate) doubled: bool,
    /// How long it provably stayed invisible after the end of its lease.
    pub(crate) held: Duration,
}

/// The leases of one queue.
#[derive(Debug, Default)]
pub(crate) struct QueueLeases {
    messages: HashMap<MessageKey, Leased>,
    /// The messages that are to return, by the latest end of their lease.
    due: BTreeSet<(Nanos, MessageKey)>,
    /// The fetches in flight: when each was issued, and its client.
    in_flight: BTreeSet<(Nanos, u32)>,
    /// For each receiver, the end of its last receive in doubt.
    receives_in_doubt: HashMap<u32, Nanos>,
    /// Whether a pop was in doubt. It may have removed any message.
    is_pop_in_doubt: bool,
    /// Messages that have left the queue, in this order.
    finished: VecDeque<(Nanos, MessageKey)>,
}

#[derive(Debug)]
struct Leased {
    receiver: u32,
    id: Option<u64>,
    deliveries: Vec<Delivery>,
    finish: Option<Finish>,
    /// Its entry in `due`.
    due: Option<Nanos>,
    /// How long it is provably held, and how long if receives in doubt have leased it as long as possible.
    held: Duration,
    held_despite_doubt: Duration,
}

#[derive(Debug)]
struct Delivery {
    at: RequestTimes,
    attempt: Option<u32>,
    /// The lease was valid up to the first, and over by the second.
    earliest_end: Nanos,
    latest_end: Nanos,
    is_acknowledgement_in_doubt: bool,
    is_flagged: bool,
}

#[derive(Clone, Copy, Debug)]
enum Finish {
    Popped(RequestTimes),
    /// The number of the delivery whose lease was acknowledged.
    Acknowledged(usize),
}

impl Delivery {
    /// Whether the other delivery can have happened after the end of this lease.
    fn can_precede(&self, other: RequestTimes) -> bool {
        other.completed >= self.earliest_end
    }
}

impl QueueLeases {
    /// Records a fetch that is about to be sent.
    pub(crate) fn fetch_begins(&mut self, client: u32, issued: Nanos) {
        self.in_flight.insert((issued, client));
    }

    /// Records that a fetch has ended, after what it delivered.
    pub(crate) fn fetch_ends(&mut self, client: u32, issued: Nanos) {
        self.in_flight.remove(&(issued, client));
    }

    /// Records a receive that may have leased a message, and will not be answered.
    pub(crate) fn receive_in_doubt(&mut self, receiver: u32, at: Nanos) {
        let last = self.receives_in_doubt.entry(receiver).or_insert(at);
        *last = at.max(*last);
    }

    /// Records a pop that may have removed a message.
    pub(crate) fn pop_in_doubt(&mut self) {
        self.is_pop_in_doubt = true;
    }

    /// Records a message delivered with a lease. Returns the number of this delivery; none if the message had left the
    /// queue.
    pub(crate) fn receive(
        &mut self,
        rules: &LeaseRules,
        message: &Delivered,
        at: RequestTimes,
        has_left: bool,
    ) -> (Option<usize>, Findings) {
        self.forget(rules, at.completed);
        let earliest_end = at.issued + rules.lease;
        if has_left || self.messages.get(&message.key).is_some_and(|leased| leased.finish.is_some()) {
            // The reply may be late: its lease may have ended before the message left the queue.
            let is_late = self.messages.get(&message.key).is_some_and(|leased| match leased.finish {
                Some(Finish::Popped(popped)) => popped.completed >= earliest_end,
                Some(Finish::Acknowledged(number)) => leased.deliveries[number].at.completed >= earliest_end,
                // Another thread is about to record the acknowledgement, and judges this delivery then.
                None => true,
            });
            let is_recorded = self.messages.get(&message.key).is_some_and(|leased| leased.finish.is_none());
            if !is_recorded {
                return (None, Findings { doubled: !is_late, ..Findings::default() });
            }
        }
        let held = self.judge(message.key, message.attempt);
        let leased = self.messages.entry(message.key).or_insert_with(|| Leased {
            receiver: message.receiver,
            id: message.id,
            deliveries: Vec::new(),
            finish: None,
            due: None,
            held: Duration::ZERO,
            held_despite_doubt: Duration::ZERO,
        });
        leased.deliveries.push(Delivery {
            at,
            attempt: message.attempt,
            earliest_end,
            latest_end: at.completed + rules.lease,
            is_acknowledgement_in_doubt: false,
            is_flagged: false,
        });
        let number = leased.deliveries.len() - 1;
        let while_leased = leased.flag_overlaps(number);
        self.expect(rules, message.key);
        (Some(number), Findings { while_leased, doubled: false, held })
    }

    /// Records that a message was popped, or found in the dead-letter queue.
    pub(crate) fn pop(&mut self, rules: &LeaseRules, key: MessageKey, at: RequestTimes) -> Findings {
        self.forget(rules, at.completed);
        let held = self.judge(key, None);
        let Some(leased) = self.messages.get_mut(&key) else { return Findings::default() };
        if leased.finish.is_some() {
            // The ledger has counted it as doubled.
            return Findings::default();
        }
        let while_leased = leased.deliveries.iter().any(|delivery| !delivery.can_precede(at));
        leased.finish = Some(Finish::Popped(at));
        self.finished.push_back((at.completed, key));
        self.expect(rules, key);
        Findings { while_leased, doubled: false, held }
    }

    /// Records that an acknowledgement succeeded. The service promises that nobody else has taken the message since.
    pub(crate) fn acknowledge(
        &mut self,
        rules: &LeaseRules,
        key: MessageKey,
        number: usize,
        completed: Nanos,
    ) -> Findings {
        let Some(leased) = self.messages.get_mut(&key) else {
            // It was popped, and so long ago that it is forgotten.
            return Findings { doubled: true, ..Findings::default() };
        };
        let mut doubled = leased.finish.is_some();
        let own = leased.deliveries[number].at;
        for (other, delivery) in leased.deliveries.iter().enumerate() {
            doubled |= other != number && !delivery.is_flagged && !delivery.can_precede(own);
        }
        if leased.finish.is_none() {
            leased.finish = Some(Finish::Acknowledged(number));
            self.finished.push_back((completed, key));
            self.expect(rules, key);
        }
        Findings { doubled, ..Findings::default() }
    }

    /// Records that a lease was reported to have ended. Returns whether it was valid then.
    pub(crate) fn lease_lost(&mut self, key: MessageKey, number: usize, completed: Nanos) -> bool {
        let Some(delivery) = self.delivery(key, number) else { return false };
        delivery.is_acknowledgement_in_doubt = false;
        completed < delivery.earliest_end
    }

    /// Records that an acknowledgement may or may not have been applied.
    pub(crate) fn acknowledgement_in_doubt(&mut self, key: MessageKey, number: usize) {
        if let Some(delivery) = self.delivery(key, number) {
            delivery.is_acknowledgement_in_doubt = true;
        }
    }

    /// Records that a lease was extended.
    pub(crate) fn extend(&mut self, rules: &LeaseRules, key: MessageKey, number: usize, at: RequestTimes) -> Findings {
        let Some(delivery) = self.delivery(key, number) else { return Findings::default() };
        delivery.earliest_end = at.issued + rules.lease;
        delivery.latest_end = at.completed + rules.lease;
        self.changed(rules, key, number)
    }

    /// Records that a lease may have been extended, until this time at the latest.
    pub(crate) fn extension_in_doubt(&mut self, rules: &LeaseRules, key: MessageKey, number: usize, at: Nanos) {
        if let Some(delivery) = self.delivery(key, number) {
            delivery.latest_end = delivery.latest_end.max(at + rules.lease);
            self.expect(rules, key);
        }
    }

    /// Records that a nack is about to be sent: from now on the lease may be over.
    pub(crate) fn nack_begins(&mut self, key: MessageKey, number: usize, issued: Nanos) {
        if let Some(delivery) = self.delivery(key, number) {
            delivery.earliest_end = delivery.earliest_end.min(issued);
        }
    }

    /// Records that a lease was nacked.
    pub(crate) fn nack(&mut self, rules: &LeaseRules, key: MessageKey, number: usize, at: RequestTimes) -> Findings {
        let Some(delivery) = self.delivery(key, number) else { return Findings::default() };
        delivery.earliest_end = at.issued;
        delivery.latest_end = at.completed;
        self.changed(rules, key, number)
    }

    /// Records that a fetch returned nothing or, with an id, only this message. Whatever is older and was visible when
    /// it was issued is held. The database has answered without interruption since `returned`.
    pub(crate) fn missed(
        &mut self,
        rules: &LeaseRules,
        receiver: u32,
        id: Option<u64>,
        issued: Nanos,
        returned: Nanos,
    ) {
        // A fetch in flight may have taken any message since it was issued.
        let seen = self.in_flight.first().map_or(issued, |(oldest, _)| issued.min(*oldest));
        let receives_in_doubt = &self.receives_in_doubt;
        for (end, key) in self.due.range(..(seen, (0, 0))) {
            let Some(leased) = self.messages.get_mut(key) else { continue };
            let is_older = id.is_none_or(|id| leased.id.is_some_and(|own| own < id));
            if !is_older || (leased.receiver != ANYONE && leased.receiver != receiver) {
                continue;
            }
            let since = returned.max(*end);
            let doubts =
                receives_in_doubt.iter().filter(|(by, _)| leased.receiver == ANYONE || leased.receiver == **by);
            let doubt = doubts.map(|(_, at)| *at + rules.lease).max().unwrap_or(Nanos::UNSET);
            leased.held = leased.held.max(Duration::from_nanos(seen.since(since)));
            if !self.is_pop_in_doubt {
                let held = Duration::from_nanos(seen.since(since.max(doubt)));
                leased.held_despite_doubt = leased.held_despite_doubt.max(held);
            }
        }
    }

    /// Whether an acknowledgement in doubt may have removed a message.
    pub(crate) fn may_be_acknowledged(&self, key: MessageKey) -> bool {
        self.messages.get(&key).is_some_and(|leased| {
            leased.deliveries.iter().any(|delivery| {
                let is_last = leased.deliveries.iter().all(|other| other.at.issued < delivery.at.completed);
                delivery.is_acknowledgement_in_doubt && is_last
            })
        })
    }

    /// After this time, a leased message that has not returned is lost. It is later than the message must return,
    /// because a message that returns too late is not lost.
    pub(crate) fn returned_by(&self, rules: &LeaseRules) -> Option<Nanos> {
        let patience = rules.redelivery * PATIENCE;
        let due = self.due.last().map(|(end, _)| *end + patience);
        let doubt = self.receives_in_doubt.values().max().map(|at| *at + rules.lease + patience);
        due.max(doubt)
    }

    fn delivery(&mut self, key: MessageKey, number: usize) -> Option<&mut Delivery> {
        self.messages.get_mut(&key)?.deliveries.get_mut(number)
    }

    fn changed(&mut self, rules: &LeaseRules, key: MessageKey, number: usize) -> Findings {
        let while_leased = self.messages.get_mut(&key).is_some_and(|leased| leased.flag_overlaps(number));
        self.expect(rules, key);
        Findings { while_leased, ..Findings::default() }
    }

    /// How long a message was held that is now delivered. If its attempts are consecutive, no receive in doubt has
    /// leased it in between.
    fn judge(&mut self, key: MessageKey, attempt: Option<u32>) -> Duration {
        let Some(leased) = self.messages.get_mut(&key) else { return Duration::ZERO };
        let last = leased.deliveries.iter().filter_map(|delivery| delivery.attempt).max();
        let is_next = last.zip(attempt).is_some_and(|(last, attempt)| attempt == last + 1);
        let held = if is_next { leased.held } else { leased.held_despite_doubt };
        (leased.held, leased.held_despite_doubt) = (Duration::ZERO, Duration::ZERO);
        held
    }

    /// Renews a message's entry in `due`.
    fn expect(&mut self, rules: &LeaseRules, key: MessageKey) {
        let Some(leased) = self.messages.get_mut(&key) else { return };
        if let Some(due) = leased.due.take() {
            self.due.remove(&(due, key));
        }
        let attempt = leased.deliveries.iter().filter_map(|delivery| delivery.attempt).max().unwrap_or(1);
        if leased.finish.is_none() && attempt < rules.attempts.unwrap_or(BACKOFF_FROM) {
            leased.due = leased.deliveries.iter().map(|delivery| delivery.latest_end).max();
            self.due.extend(leased.due.map(|due| (due, key)));
        }
    }

    /// Forgets messages that left the queue so long ago that no late reply can contain them.
    fn forget(&mut self, rules: &LeaseRules, now: Nanos) {
        while let Some(&(at, key)) = self.finished.front()
            && at + rules.reply_timeout * 2 < now
        {
            self.finished.pop_front();
            self.messages.remove(&key);
        }
    }
}

impl Leased {
    /// Whether a delivery and another one cannot both have had a valid lease, in neither order.
    fn flag_overlaps(&mut self, number: usize) -> bool {
        let own = &self.deliveries[number];
        let overlaps = self.deliveries.iter().enumerate().any(|(other, delivery)| {
            other != number && !delivery.is_flagged && !delivery.can_precede(own.at) && !own.can_precede(delivery.at)
        });
        let is_new = overlaps && !own.is_flagged;
        self.deliveries[number].is_flagged |= overlaps;
        is_new
    }
}

#[cfg(test)]
mod tests;
