//! Follows every message from its send to its pop, over all threads: what was acknowledged, what was received, how
//! often and in which order. Knows no connections.

mod leased;

pub(crate) use leased::{LeasedMessage, Received};

use super::availability::Availability;
use super::body::{self, ANYONE};
use super::leases::{LeaseRules, QueueLeases, RequestTimes};
use super::stream::{Receipt, Stream};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What all clients together know of the messages of a run.
#[derive(Debug)]
pub(crate) struct Ledger {
    run: u64,
    /// For each sender, its messages in each queue.
    senders: Vec<Mutex<HashMap<u32, Stream>>>,
    /// For each receiver, the last number received from each queue and sender.
    receivers: Vec<Mutex<HashMap<(u32, u32), u32>>>,
    /// For each queue and receiver, how many messages may have been removed by pops whose response was lost.
    pops_in_doubt: Mutex<BTreeMap<(u32, u32), u64>>,
    /// The same for the pops after the window, each of which requests many messages.
    drain_in_doubt: Mutex<BTreeMap<(u32, u32), u64>>,
    /// The leases in each queue; their mutex is taken after that of a sender.
    pub(super) leases: Vec<Mutex<QueueLeases>>,
    pub(super) rules: LeaseRules,
    /// Whether messages are received with leases, so that a popped message may have been delivered before.
    is_leasing: bool,
    pub(crate) availability: Availability,
    pub(crate) counts: LedgerCounts,
}

/// The counts of the run.
#[derive(Debug, Default)]
pub(crate) struct LedgerCounts {
    pub(crate) acknowledged: AtomicU64,
    pub(crate) received: AtomicU64,
    pub(crate) peeked: AtomicU64,
    pub(crate) doubled: AtomicU64,
    pub(crate) out_of_order: AtomicU64,
    pub(crate) torn: AtomicU64,
    pub(crate) unknown: AtomicU64,
    pub(crate) misdelivered: AtomicU64,
    pub(crate) refused_and_done: AtomicU64,
    pub(crate) sends_in_doubt: AtomicU64,
    pub(crate) sends_in_doubt_arrived: AtomicU64,
    pub(crate) pops_in_doubt: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) leased: AtomicU64,
    pub(crate) redelivered: AtomicU64,
    pub(crate) delivered_while_leased: AtomicU64,
    pub(crate) ended_early: AtomicU64,
    pub(crate) held_too_long: AtomicU64,
    pub(crate) held_longest_ns: AtomicU64,
    pub(crate) dead_lettered: AtomicU64,
    pub(crate) receives_in_doubt: AtomicU64,
}

/// What a receiver requested.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadRequest {
    /// The receiver; [`ANYONE`] for messages without a receiver only.
    pub(crate) receiver: u32,
    /// The queue; none is any queue.
    pub(crate) queue: Option<u32>,
    /// The sender; none is any sender.
    pub(crate) sender: Option<u32>,
}

/// The messages not received when no more arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Remainder {
    /// Acknowledged and not received, and no pop in doubt can have removed it.
    pub(crate) lost: u64,
    /// Acknowledged and not received; a pop in doubt may have removed it.
    pub(crate) taken_in_doubt: u64,
    /// Acknowledged and not received again after an acknowledgement in doubt, which may have removed it.
    pub(crate) acknowledged_in_doubt: u64,
    /// Possibly sent, and not received.
    pub(crate) sends_in_doubt: u64,
}

impl LedgerCounts {
    pub(crate) fn of(counter: &AtomicU64) -> u64 {
        counter.load(Ordering::Relaxed)
    }
}

pub(super) fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panicked thread ends the run. Until then the counts are consistent between any two updates.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ledger {
    /// A ledger for this many clients, and for the prefill as one more sender.
    pub(crate) fn new(run: u64, clients: usize, queues: usize, rules: LeaseRules, is_leasing: bool) -> Ledger {
        Ledger {
            run,
            senders: (0..=clients).map(|_| Mutex::default()).collect(),
            receivers: (0..=clients).map(|_| Mutex::default()).collect(),
            pops_in_doubt: Mutex::default(),
            drain_in_doubt: Mutex::default(),
            leases: (0..queues).map(|_| Mutex::default()).collect(),
            rules,
            is_leasing,
            availability: Availability::default(),
            counts: LedgerCounts::default(),
        }
    }

    /// Starts a send, and returns the message's number.
    pub(crate) fn issue(&self, sender: u32, queue: u32, receiver: u32) -> u32 {
        self.with(sender, queue, |stream| stream.issue(receiver)).unwrap_or_default()
    }

    /// Records that a send was acknowledged.
    pub(crate) fn acknowledge(&self, sender: u32, queue: u32, number: u32) {
        add(&self.counts.acknowledged);
        self.with(sender, queue, |stream| stream.acknowledge(number));
    }

    /// Records that a send was refused or never sent. The service has not stored the message.
    pub(crate) fn refuse(&self, sender: u32, queue: u32, number: u32) {
        if self.with(sender, queue, |stream| stream.refuse(number)) == Some(false) {
            add(&self.counts.refused_and_done);
        }
    }

    /// Records that the outcome of a send is unknown.
    pub(crate) fn record_send_in_doubt(&self, sender: u32, queue: u32, number: u32) {
        add(&self.counts.sends_in_doubt);
        if self.with(sender, queue, |stream| stream.mark_in_doubt(number)) == Some(true) {
            add(&self.counts.sends_in_doubt_arrived);
        }
    }

    /// Records that a pop may have removed a message.
    pub(crate) fn record_pop_in_doubt(&self, queue: u32, receiver: u32) {
        self.record_in_doubt(&self.pops_in_doubt, queue, receiver, 1);
    }

    /// Records that a pop after the window may have removed up to this many messages.
    pub(crate) fn record_drain_in_doubt(&self, queue: u32, receiver: u32, messages: u64) {
        self.record_in_doubt(&self.drain_in_doubt, queue, receiver, messages);
    }

    fn record_in_doubt(&self, pops: &Mutex<BTreeMap<(u32, u32), u64>>, queue: u32, receiver: u32, messages: u64) {
        add(&self.counts.pops_in_doubt);
        *locked(pops).entry((queue, receiver)).or_default() += messages;
        self.with_leases(queue, QueueLeases::pop_in_doubt);
    }

    /// Counts a refused request. The service has done nothing.
    pub(crate) fn note_refusal(&self) {
        add(&self.counts.refused);
    }

    /// Records a popped message.
    pub(crate) fn receive(&self, request: &ReadRequest, body: &[u8], at: RequestTimes) {
        let Some(label) = self.read(request, body) else { return add(&self.counts.received) };
        if self.take(&label, at) == Some(Receipt::First { was_in_doubt: false }) && !self.is_leasing {
            // A message in doubt may have been stored at any time after it was sent, so its order is not checked.
            self.order(request.receiver, &label);
        }
    }

    /// Records a message that was found in the dead-letter queue after this number of attempts.
    pub(crate) fn receive_dead(&self, request: &ReadRequest, body: &[u8], attempts: Option<u32>, at: RequestTimes) {
        let Some(label) = self.read(request, body) else { return add(&self.counts.received) };
        add(&self.counts.dead_lettered);
        if attempts.is_none() || attempts != self.rules.attempts {
            add(&self.counts.misdelivered);
        }
        self.take(&label, at);
    }

    /// Records that a message was removed.
    fn take(&self, label: &body::Label, at: RequestTimes) -> Option<Receipt> {
        add(&self.counts.received);
        let receipt = self.with(label.sender, label.queue, |stream| stream.receive(label.number));
        match receipt {
            None | Some(Receipt::Unknown) => add(&self.counts.unknown),
            Some(Receipt::Again) => add(&self.counts.doubled),
            Some(Receipt::First { was_in_doubt }) => {
                if was_in_doubt {
                    add(&self.counts.sends_in_doubt_arrived);
                }
                self.with_leases(label.queue, |leases| {
                    self.count(&leases.pop(&self.rules, (label.sender, label.number), at));
                });
            }
        }
        receipt
    }

    /// Records a message that was read and not removed.
    pub(crate) fn peek(&self, request: &ReadRequest, body: &[u8]) {
        add(&self.counts.peeked);
        let Some(label) = self.read(request, body) else { return };
        if self.with(label.sender, label.queue, |stream| label.number < stream.next()) != Some(true) {
            add(&self.counts.unknown);
        }
    }

    /// The receivers with messages left in a queue, as far as is known, without [`ANYONE`].
    pub(crate) fn receivers(&self, queue: u32) -> Vec<u32> {
        let mut receivers = Vec::new();
        for sender in &self.senders {
            if let Some(stream) = locked(sender).get(&queue) {
                receivers.extend(stream.left().map(|left| left.receiver).filter(|receiver| *receiver != ANYONE));
            }
        }
        receivers.sort_unstable();
        receivers.dedup();
        receivers
    }

    /// Messages that were acknowledged and not received.
    pub(crate) fn outstanding(&self) -> u64 {
        let of = |streams: &Mutex<HashMap<u32, Stream>>| {
            let streams = locked(streams);
            streams.values().map(|stream| stream.left().filter(|left| !left.is_in_doubt).count()).sum::<usize>()
        };
        self.senders.iter().map(of).sum::<usize>() as u64
    }

    /// Compares the messages that were not received with the pops that may have removed them. The pops of a drain that was
    /// cut short explain nothing: it had not come to most of the messages.
    pub(crate) fn remainder(&self, is_drained: bool) -> Remainder {
        let mut remainder = Remainder::default();
        let mut left: BTreeMap<u32, BTreeMap<u32, u64>> = BTreeMap::new();
        for (number, sender) in (0..).zip(&self.senders) {
            for (queue, stream) in locked(sender).iter() {
                for message in stream.left() {
                    let may_be_acknowledged =
                        || self.with_leases(*queue, |leases| leases.may_be_acknowledged((number, message.number)));
                    if message.is_in_doubt {
                        remainder.sends_in_doubt += 1;
                    } else if may_be_acknowledged() == Some(true) {
                        remainder.acknowledged_in_doubt += 1;
                    } else {
                        *left.entry(*queue).or_default().entry(message.receiver).or_default() += 1;
                    }
                }
            }
        }
        let mut pops = locked(&self.pops_in_doubt).clone();
        if is_drained {
            for (key, messages) in locked(&self.drain_in_doubt).iter() {
                *pops.entry(*key).or_default() += messages;
            }
        }
        for (queue, by_receiver) in left {
            // A message for one receiver can only have been removed by a pop of that receiver. Its remaining pops may
            // have removed messages for any receiver.
            let mut spare: u64 = 0;
            let mut lost = 0;
            for (&(_, receiver), &doubtful) in pops.range((queue, 0)..=(queue, ANYONE)) {
                let own = if receiver == ANYONE { 0 } else { by_receiver.get(&receiver).copied().unwrap_or(0) };
                spare += doubtful.saturating_sub(own);
            }
            for (receiver, messages) in by_receiver {
                let taken_at_most =
                    if receiver == ANYONE { spare } else { pops.get(&(queue, receiver)).copied().unwrap_or(0) };
                lost += messages.saturating_sub(taken_at_most);
                remainder.taken_in_doubt += messages.min(taken_at_most);
            }
            remainder.lost += lost;
        }
        remainder
    }

    /// The label of a body, if it is complete and of this run. Counts a message that does not match the request.
    pub(super) fn read(&self, request: &ReadRequest, body: &[u8]) -> Option<body::Label> {
        let Some(label) = body::read(body) else {
            add(&self.counts.torn);
            return None;
        };
        if label.run != self.run {
            add(&self.counts.unknown);
            return None;
        }
        let is_for_receiver = label.receiver == ANYONE || label.receiver == request.receiver;
        let matches_request = request.queue.is_none_or(|queue| queue == label.queue)
            && request.sender.is_none_or(|sender| sender == label.sender);
        if !is_for_receiver || !matches_request {
            add(&self.counts.misdelivered);
        }
        Some(label)
    }

    /// Compares a message with the last that this receiver got from this sender in this queue.
    pub(super) fn order(&self, receiver: u32, label: &body::Label) {
        let number = (receiver as usize).min(self.receivers.len() - 1);
        let mut last = locked(&self.receivers[number]);
        let last = last.entry((label.queue, label.sender)).or_insert(label.number);
        if label.number < *last {
            add(&self.counts.out_of_order);
        }
        *last = label.number.max(*last);
    }

    pub(super) fn with<T>(&self, sender: u32, queue: u32, act: impl FnOnce(&mut Stream) -> T) -> Option<T> {
        let streams = self.senders.get(sender as usize)?;
        Some(act(locked(streams).entry(queue).or_default()))
    }
}

#[cfg(test)]
mod tests;
