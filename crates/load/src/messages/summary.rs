//! The part of the summary about messages: what happened to every message of a run, and what makes the run invalid.

use super::context::MessagesContext;
use super::ledger::{Ledger, LedgerCounts};
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// The messages of a run, including those of the prefill, the warm-up and the drain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "docs/load-summary.md describes every key")]
pub struct MessagesSummary {
    pub queue_prefix: String,
    pub verified: bool,
    pub acknowledged: u64,
    pub received: u64,
    pub drained: u64,
    pub peeked: u64,
    pub lost: u64,
    pub doubled: u64,
    pub out_of_order: u64,
    pub order_promised: bool,
    pub torn: u64,
    pub unknown: u64,
    pub misdelivered: u64,
    pub refused: u64,
    pub refused_and_done: u64,
    pub sends_in_doubt: u64,
    pub sends_in_doubt_arrived: u64,
    pub pops_in_doubt: u64,
    pub taken_in_doubt: u64,
    pub unread: u64,
    #[serde(default)]
    pub leased: u64,
    #[serde(default)]
    pub redelivered: u64,
    #[serde(default)]
    pub dead_lettered: u64,
    #[serde(default)]
    pub delivered_while_leased: u64,
    #[serde(default)]
    pub ended_early: u64,
    #[serde(default)]
    pub held_too_long: u64,
    #[serde(default)]
    pub held_longest_ms: u64,
    #[serde(default)]
    pub receives_in_doubt: u64,
    #[serde(default)]
    pub acknowledged_in_doubt: u64,
}

impl MessagesSummary {
    /// The result of a finished run. `drained` messages were read after it. If the drain was cut short, the remaining
    /// messages do not count as lost.
    pub(crate) fn new(context: &MessagesContext, drained: u64, is_complete: bool) -> MessagesSummary {
        let Some(ledger) = &context.ledger else {
            let (queue_prefix, order_promised) = (context.prefix.clone(), context.is_order_promised());
            return MessagesSummary { queue_prefix, order_promised, ..MessagesSummary::default() };
        };
        let remainder = ledger.remainder(is_complete);
        let unread = if is_complete { 0 } else { remainder.lost };
        MessagesSummary {
            queue_prefix: context.prefix.clone(),
            verified: true,
            drained,
            lost: remainder.lost - unread,
            order_promised: context.is_order_promised(),
            taken_in_doubt: remainder.taken_in_doubt,
            unread,
            acknowledged_in_doubt: remainder.acknowledged_in_doubt,
            ..MessagesSummary::counted(ledger)
        }
    }

    fn counted(ledger: &Ledger) -> MessagesSummary {
        let counts = &ledger.counts;
        MessagesSummary {
            acknowledged: LedgerCounts::of(&counts.acknowledged),
            received: LedgerCounts::of(&counts.received),
            peeked: LedgerCounts::of(&counts.peeked),
            doubled: LedgerCounts::of(&counts.doubled),
            out_of_order: LedgerCounts::of(&counts.out_of_order),
            torn: LedgerCounts::of(&counts.torn),
            unknown: LedgerCounts::of(&counts.unknown),
            misdelivered: LedgerCounts::of(&counts.misdelivered),
            refused: LedgerCounts::of(&counts.refused),
            refused_and_done: LedgerCounts::of(&counts.refused_and_done),
            sends_in_doubt: LedgerCounts::of(&counts.sends_in_doubt),
            sends_in_doubt_arrived: LedgerCounts::of(&counts.sends_in_doubt_arrived),
            pops_in_doubt: LedgerCounts::of(&counts.pops_in_doubt),
            leased: LedgerCounts::of(&counts.leased),
            redelivered: LedgerCounts::of(&counts.redelivered),
            dead_lettered: LedgerCounts::of(&counts.dead_lettered),
            delivered_while_leased: LedgerCounts::of(&counts.delivered_while_leased),
            ended_early: LedgerCounts::of(&counts.ended_early),
            held_too_long: LedgerCounts::of(&counts.held_too_long),
            receives_in_doubt: LedgerCounts::of(&counts.receives_in_doubt),
            held_longest_ms: counts.held_longest_ms(),
            ..MessagesSummary::default()
        }
    }

    /// Adds the result of another generator. The queue prefix is dropped. Order is promised only if it was promised to
    /// both.
    pub(crate) fn merge(&mut self, other: &MessagesSummary) {
        self.queue_prefix.clear();
        self.verified &= other.verified;
        self.order_promised &= other.order_promised;
        for (own, other) in [
            (&mut self.acknowledged, other.acknowledged),
            (&mut self.received, other.received),
            (&mut self.drained, other.drained),
            (&mut self.peeked, other.peeked),
            (&mut self.lost, other.lost),
            (&mut self.doubled, other.doubled),
            (&mut self.out_of_order, other.out_of_order),
            (&mut self.torn, other.torn),
            (&mut self.unknown, other.unknown),
            (&mut self.misdelivered, other.misdelivered),
            (&mut self.refused, other.refused),
            (&mut self.refused_and_done, other.refused_and_done),
            (&mut self.sends_in_doubt, other.sends_in_doubt),
            (&mut self.sends_in_doubt_arrived, other.sends_in_doubt_arrived),
            (&mut self.pops_in_doubt, other.pops_in_doubt),
            (&mut self.taken_in_doubt, other.taken_in_doubt),
            (&mut self.unread, other.unread),
            (&mut self.leased, other.leased),
            (&mut self.redelivered, other.redelivered),
            (&mut self.dead_lettered, other.dead_lettered),
            (&mut self.delivered_while_leased, other.delivered_while_leased),
            (&mut self.ended_early, other.ended_early),
            (&mut self.held_too_long, other.held_too_long),
            (&mut self.receives_in_doubt, other.receives_in_doubt),
            (&mut self.acknowledged_in_doubt, other.acknowledged_in_doubt),
        ] {
            *own += other;
        }
        self.held_longest_ms = self.held_longest_ms.max(other.held_longest_ms);
    }

    /// The reasons that make the run invalid, one line each.
    pub(crate) fn reasons(&self) -> Vec<String> {
        let disorder = if self.order_promised { self.out_of_order } else { 0 };
        let found = [
            (self.lost, "were acknowledged and lost"),
            (self.doubled, "were delivered more than once"),
            (disorder, "arrived after a later message of the same sender in the same queue"),
            (self.torn, "differ from what was sent"),
            (
                self.unknown,
                "were not sent in this run; if the queues are shared, give this run a --queue-prefix of its own",
            ),
            (self.misdelivered, "have another receiver, queue or sender than requested"),
            (self.delivered_while_leased, "were delivered under two valid leases"),
            (self.ended_early, "had a lease that ended early"),
            (
                self.held_too_long,
                "were held too long after their lease or an outage; --redelivery-time is the longest that is allowed",
            ),
            (self.refused_and_done, "were delivered although their send was refused"),
            (
                self.unread,
                "were not read in time after the run, so it is unknown whether they are lost; allow more --drain-time",
            ),
        ];
        let found = found.into_iter().filter(|(messages, _)| *messages > 0);
        found
            .map(|(messages, what)| format!("{messages} of {} messages {what}", self.acknowledged.max(self.received)))
            .collect()
    }

    /// Notes about what is unexpected and does not make the run invalid, one line each.
    pub(crate) fn notes(&self) -> Vec<String> {
        let overtaken = (!self.order_promised && self.out_of_order > 0).then(|| {
            format!(
                "{} messages arrived after a later message of the same sender in the same queue; with several services, \
                 with pop-from beside other pops or receives, or with --any-order, no order is promised",
                self.out_of_order
            )
        });
        let doubt = (self.sends_in_doubt + self.pops_in_doubt > 0).then(|| {
            format!(
                "in doubt, because a connection broke or the service reported it: {} sends, {} of which arrived, and {} pops, \
                 which may have removed {} messages that were not received",
                self.sends_in_doubt, self.sends_in_doubt_arrived, self.pops_in_doubt, self.taken_in_doubt
            )
        });
        let lease_doubt = (self.receives_in_doubt + self.acknowledged_in_doubt > 0).then(|| {
            format!(
                "in doubt: {} receives, and {} messages that were not received again after an acknowledgement in doubt",
                self.receives_in_doubt, self.acknowledged_in_doubt
            )
        });
        let unverified = (!self.verified).then(|| "messages were not verified (--no-verify)".to_owned());
        [overtaken, doubt, lease_doubt, unverified].into_iter().flatten().collect()
    }

    /// The result as text.
    pub(crate) fn render(&self) -> String {
        let mut text = String::new();
        if !self.verified {
            return text;
        }
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "messages: {} acknowledged, {} received ({} of them after the run), lost {}, doubled {}, out of order {}{}, torn {}, \
             unknown {}, misdelivered {}",
            self.acknowledged,
            self.received,
            self.drained,
            self.lost,
            self.doubled,
            self.out_of_order,
            if self.order_promised { "" } else { " (not promised)" },
            self.torn,
            self.unknown,
            self.misdelivered
        );
        let _ = writeln!(
            text,
            "in doubt: {} sends ({} arrived), {} pops (which may have removed {}); {} requests refused",
            self.sends_in_doubt, self.sends_in_doubt_arrived, self.pops_in_doubt, self.taken_in_doubt, self.refused
        );
        if self.leased > 0 {
            let _ = writeln!(
                text,
                "leases: {} deliveries ({} again), dead letters {}, delivered while leased {}, ended early {}, held too long {} \
                 (longest {} ms), in doubt: {} receives, {} acknowledged",
                self.leased,
                self.redelivered,
                self.dead_lettered,
                self.delivered_while_leased,
                self.ended_early,
                self.held_too_long,
                self.held_longest_ms,
                self.receives_in_doubt,
                self.acknowledged_in_doubt
            );
        }
        text
    }
}
