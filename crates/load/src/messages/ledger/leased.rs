//! The part of the ledger about messages that are received with leases.

use super::{Ledger, LedgerCounts, ReadRequest, add, locked};
use crate::messages::leases::{Delivered, Findings, MessageKey, QueueLeases, RequestTimes};
use crate::messages::stream::Receipt;
use clock::{Nanos, duration_ns};
use std::sync::atomic::Ordering;

/// A message that a client has received with a lease.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeasedMessage {
    queue: u32,
    key: MessageKey,
    /// The number of its delivery.
    number: usize,
}

/// The headers of a received message.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Received {
    pub(crate) id: Option<u64>,
    pub(crate) attempt: Option<u32>,
}

impl Ledger {
    /// Records a message that was received with a lease. Returns none if it had left its queue, or is not known.
    pub(crate) fn lease(
        &self,
        request: &ReadRequest,
        body: &[u8],
        received: Received,
        at: RequestTimes,
    ) -> Option<LeasedMessage> {
        add(&self.counts.leased);
        let label = self.read(request, body)?;
        if received.attempt.is_some_and(|attempt| attempt > 1) {
            add(&self.counts.redelivered);
        }
        if received.attempt > self.rules.attempts.or(Some(u32::MAX)) {
            add(&self.counts.misdelivered);
        }
        let receipt = self.with(label.sender, label.queue, |stream| stream.lease(label.number));
        let has_left = match receipt {
            None | Some(Receipt::Unknown) => {
                add(&self.counts.unknown);
                return None;
            }
            Some(Receipt::Again) => true,
            Some(Receipt::First { was_in_doubt }) => {
                if was_in_doubt {
                    add(&self.counts.sends_in_doubt_arrived);
                } else if received.attempt == Some(1) {
                    self.order(request.receiver, &label);
                }
                false
            }
        };
        let key = (label.sender, label.number);
        let message = Delivered { key, receiver: label.receiver, id: received.id, attempt: received.attempt };
        let number = self.with_leases(label.queue, |leases| {
            let (number, findings) = leases.receive(&self.rules, &message, at, has_left);
            self.count(&findings);
            number
        })?;
        number.map(|number| LeasedMessage { queue: label.queue, key, number })
    }

    /// Records that an acknowledgement succeeded.
    pub(crate) fn lease_acknowledged(&self, message: &LeasedMessage, at: RequestTimes) {
        let (sender, number) = message.key;
        self.with_leases(message.queue, |leases| {
            self.count(&leases.acknowledge(&self.rules, message.key, message.number, at.completed));
        });
        let receipt = self.with(sender, message.queue, |stream| stream.receive(number));
        if matches!(receipt, Some(Receipt::First { .. })) {
            add(&self.counts.received);
        }
    }

    /// Records that the service reported that a lease has ended.
    pub(crate) fn lease_lost(&self, message: &LeasedMessage, at: RequestTimes) {
        let was_valid =
            self.with_leases(message.queue, |leases| leases.lease_lost(message.key, message.number, at.completed));
        if was_valid == Some(true) {
            add(&self.counts.ended_early);
        }
    }

    pub(crate) fn lease_acknowledgement_in_doubt(&self, message: &LeasedMessage) {
        self.with_leases(message.queue, |leases| leases.acknowledgement_in_doubt(message.key, message.number));
    }

    pub(crate) fn lease_extended(&self, message: &LeasedMessage, at: RequestTimes) {
        self.with_leases(message.queue, |leases| {
            self.count(&leases.extend(&self.rules, message.key, message.number, at));
        });
    }

    pub(crate) fn lease_extension_in_doubt(&self, message: &LeasedMessage, at: Nanos) {
        self.with_leases(message.queue, |leases| {
            leases.extension_in_doubt(&self.rules, message.key, message.number, at);
        });
    }

    /// Records that a nack is about to be sent.
    pub(crate) fn nack_begins(&self, message: &LeasedMessage, issued: Nanos) {
        self.with_leases(message.queue, |leases| leases.nack_begins(message.key, message.number, issued));
    }

    pub(crate) fn lease_nacked(&self, message: &LeasedMessage, at: RequestTimes) {
        self.with_leases(message.queue, |leases| {
            self.count(&leases.nack(&self.rules, message.key, message.number, at));
        });
    }

    /// Records that a pop or receive is about to be sent.
    pub(crate) fn fetch_begins(&self, queue: u32, client: u32, issued: Nanos) {
        self.with_leases(queue, |leases| leases.fetch_begins(client, issued));
    }

    /// Records that a fetch returned nothing or, with an id, this message only.
    pub(crate) fn fetched(&self, queue: u32, receiver: u32, id: Option<u64>, issued: Nanos) {
        let returned = self.availability.returned();
        self.with_leases(queue, |leases| leases.missed(&self.rules, receiver, id, issued, returned));
    }

    /// Records that a fetch has ended, after everything else that is recorded of it.
    pub(crate) fn fetch_ends(&self, queue: u32, client: u32, issued: Nanos) {
        self.with_leases(queue, |leases| leases.fetch_ends(client, issued));
    }

    /// Records a receive that may have leased a message.
    pub(crate) fn record_receive_in_doubt(&self, queue: u32, receiver: u32, at: Nanos) {
        add(&self.counts.receives_in_doubt);
        self.with_leases(queue, |leases| leases.receive_in_doubt(receiver, at));
    }

    /// When all leased messages have returned at the latest.
    pub(crate) fn returned_by(&self) -> Nanos {
        let times = self.leases.iter().filter_map(|leases| locked(leases).returned_by(&self.rules));
        let outage = self.availability.returned();
        let outage = if outage == Nanos::NEVER || !outage.is_set() { outage } else { outage + self.rules.redelivery };
        times.max().map_or(Nanos::UNSET, |last| last.max(if outage == Nanos::NEVER { last } else { outage }))
    }

    pub(super) fn count(&self, findings: &Findings) {
        let counts = &self.counts;
        let is_too_long = findings.held > self.rules.redelivery;
        for (is_found, counter) in [
            (findings.while_leased, &counts.delivered_while_leased),
            (findings.doubled, &counts.doubled),
            (is_too_long, &counts.held_too_long),
        ] {
            if is_found {
                add(counter);
            }
        }
        counts.held_longest_ns.fetch_max(duration_ns(findings.held), Ordering::Relaxed);
    }

    pub(super) fn with_leases<T>(&self, queue: u32, act: impl FnOnce(&mut QueueLeases) -> T) -> Option<T> {
        self.leases.get(queue as usize).map(|leases| act(&mut locked(leases)))
    }
}

impl LedgerCounts {
    /// The longest time for which a message was provably held after the end of its lease, in milliseconds.
    pub(crate) fn held_longest_ms(&self) -> u64 {
        LedgerCounts::of(&self.held_longest_ns) / 1_000_000
    }
}
