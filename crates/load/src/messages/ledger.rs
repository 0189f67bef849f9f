//! Follows every message from its send to its pop, over all threads: what was acknowledged, what was received, how
//! often and in which order. Knows no connections and no time.

use super::body::{self, ANYONE};
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
    /// Possibly sent, and not received.
    pub(crate) sends_in_doubt: u64,
}

impl LedgerCounts {
    pub(crate) fn of(counter: &AtomicU64) -> u64 {
        counter.load(Ordering::Relaxed)
    }
}

fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panicked thread ends the run. Until then the counts are consistent between any two updates.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ledger {
    /// A ledger for this many clients, and for the prefill as one more sender.
    pub(crate) fn new(run: u64, clients: usize) -> Ledger {
        Ledger {
            run,
            senders: (0..=clients).map(|_| Mutex::default()).collect(),
            receivers: (0..=clients).map(|_| Mutex::default()).collect(),
            pops_in_doubt: Mutex::default(),
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

    /// Records that a pop may have removed up to this many messages.
    pub(crate) fn record_pop_in_doubt(&self, queue: u32, receiver: u32, messages: u64) {
        add(&self.counts.pops_in_doubt);
        *locked(&self.pops_in_doubt).entry((queue, receiver)).or_default() += messages;
    }

    /// Counts a refused request. The service has done nothing.
    pub(crate) fn note_refusal(&self) {
        add(&self.counts.refused);
    }

    /// Records a popped message.
    pub(crate) fn receive(&self, request: &ReadRequest, body: &[u8]) {
        add(&self.counts.received);
        let Some(label) = self.read(request, body) else { return };
        let receipt = self.with(label.sender, label.queue, |stream| stream.receive(label.number));
        match receipt {
            None | Some(Receipt::Unknown) => add(&self.counts.unknown),
            Some(Receipt::Again) => add(&self.counts.doubled),
            // The message may have been stored at any time after it was sent, so its order is not checked.
            Some(Receipt::First { was_in_doubt: true }) => add(&self.counts.sends_in_doubt_arrived),
            Some(Receipt::First { was_in_doubt: false }) => self.order(request.receiver, &label),
        }
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

    /// Compares the messages that were not received with the pops that may have removed them.
    pub(crate) fn remainder(&self) -> Remainder {
        let mut remainder = Remainder::default();
        let mut left: BTreeMap<u32, BTreeMap<u32, u64>> = BTreeMap::new();
        for sender in &self.senders {
            for (queue, stream) in locked(sender).iter() {
                for message in stream.left() {
                    if message.is_in_doubt {
                        remainder.sends_in_doubt += 1;
                    } else {
                        *left.entry(*queue).or_default().entry(message.receiver).or_default() += 1;
                    }
                }
            }
        }
        let pops = locked(&self.pops_in_doubt);
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
    fn read(&self, request: &ReadRequest, body: &[u8]) -> Option<body::Label> {
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
    fn order(&self, receiver: u32, label: &body::Label) {
        let number = (receiver as usize).min(self.receivers.len() - 1);
        let mut last = locked(&self.receivers[number]);
        let last = last.entry((label.queue, label.sender)).or_insert(label.number);
        if label.number < *last {
            add(&self.counts.out_of_order);
        }
        *last = label.number.max(*last);
    }

    fn with<T>(&self, sender: u32, queue: u32, act: impl FnOnce(&mut Stream) -> T) -> Option<T> {
        let streams = self.senders.get(sender as usize)?;
        Some(act(locked(streams).entry(queue).or_default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: u64 = 77;
    const ANY: ReadRequest = ReadRequest { receiver: 0, queue: None, sender: None };

    fn ledger() -> Ledger {
        Ledger::new(RUN, 4)
    }

    fn body(sender: u32, queue: u32, receiver: u32, number: u32) -> Vec<u8> {
        let mut out = Vec::new();
        body::make(&body::Label { run: RUN, sender, queue, receiver, number }, 64, &mut out);
        out
    }

    fn send(ledger: &Ledger, sender: u32, receiver: u32) -> Vec<u8> {
        let number = ledger.issue(sender, 0, receiver);
        ledger.acknowledge(sender, 0, number);
        body(sender, 0, receiver, number)
    }

    fn counted(ledger: &Ledger) -> [u64; 5] {
        let counts = &ledger.counts;
        [&counts.doubled, &counts.out_of_order, &counts.torn, &counts.unknown, &counts.misdelivered]
            .map(LedgerCounts::of)
    }

    #[test]
    fn a_healthy_run_leaves_no_queues() {
        let ledger = ledger();
        for _ in 0..200 {
            let body = send(&ledger, 1, ANYONE);
            ledger.receive(&ANY, &body);
        }
        assert_eq!((counted(&ledger), ledger.remainder()), ([0; 5], Remainder::default()));
        assert_eq!((ledger.outstanding(), LedgerCounts::of(&ledger.counts.received)), (0, 200));
    }

    #[test]
    fn every_fault_is_found() {
        let ledger = ledger();
        let bodies: Vec<_> = (0..4).map(|_| send(&ledger, 1, ANYONE)).collect();
        ledger.receive(&ANY, &bodies[1]);
        ledger.receive(&ANY, &bodies[1]);
        assert_eq!(counted(&ledger), [1, 0, 0, 0, 0]);
        ledger.receive(&ANY, &bodies[0]);
        assert_eq!(counted(&ledger), [1, 1, 0, 0, 0], "number 0 after number 1");
        let mut torn = bodies[2].clone();
        torn[40] ^= 1;
        ledger.receive(&ANY, &torn);
        assert_eq!(counted(&ledger), [1, 1, 1, 0, 0]);
        ledger.receive(&ANY, &body(1, 0, ANYONE, 99));
        ledger.receive(&ANY, &body(99, 0, ANYONE, 0));
        assert_eq!(counted(&ledger), [1, 1, 1, 2, 0]);
        let other = send(&ledger, 2, 3);
        ledger.receive(&ANY, &other);
        ledger.receive(&ReadRequest { queue: Some(5), ..ANY }, &bodies[3]);
        assert_eq!(counted(&ledger), [1, 1, 1, 2, 2]);
        assert_eq!(ledger.remainder(), Remainder { lost: 1, ..Remainder::default() });
    }

    #[test]
    fn order_is_checked_per_receiver() {
        let ledger = ledger();
        let bodies: Vec<_> = (0..3).map(|_| send(&ledger, 1, ANYONE)).collect();
        ledger.receive(&ReadRequest { receiver: 1, ..ANY }, &bodies[2]);
        ledger.receive(&ReadRequest { receiver: 2, ..ANY }, &bodies[0]);
        ledger.receive(&ReadRequest { receiver: 2, ..ANY }, &bodies[1]);
        assert_eq!(counted(&ledger), [0; 5]);
    }

    #[test]
    fn a_pop_in_doubt_explains_only_messages_that_it_can_have_removed() {
        let ledger = ledger();
        (0..2).for_each(|_| drop(send(&ledger, 1, 3)));
        send(&ledger, 1, ANYONE);
        let remainder = |ledger: &Ledger| (ledger.remainder().lost, ledger.remainder().taken_in_doubt);
        assert_eq!(remainder(&ledger), (3, 0));
        ledger.record_pop_in_doubt(1, 3, 1);
        assert_eq!(remainder(&ledger), (3, 0), "the pop in doubt was in another queue");
        ledger.record_pop_in_doubt(0, 2, 1);
        assert_eq!(remainder(&ledger), (2, 1), "receiver 2 may have popped a message for anyone");
        ledger.record_pop_in_doubt(0, 3, 1);
        assert_eq!(remainder(&ledger), (1, 2));
        ledger.record_pop_in_doubt(0, 3, 1);
        assert_eq!(remainder(&ledger), (0, 3));
    }

    #[test]
    fn messages_in_doubt_may_arrive_late_and_are_not_lost() {
        let ledger = ledger();
        let number = ledger.issue(1, 0, ANYONE);
        ledger.record_send_in_doubt(1, 0, number);
        let second = send(&ledger, 1, ANYONE);
        ledger.receive(&ANY, &second);
        assert_eq!(ledger.remainder(), Remainder { sends_in_doubt: 1, ..Remainder::default() });
        ledger.receive(&ANY, &body(1, 0, ANYONE, number));
        assert_eq!((counted(&ledger), ledger.remainder()), ([0; 5], Remainder::default()));
        assert_eq!(LedgerCounts::of(&ledger.counts.sends_in_doubt_arrived), 1);
    }
}
