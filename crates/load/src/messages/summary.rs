//! What became of every message of a run: the part of the summary that is about messages, and what of it spoils the run.

use super::context::MessagesContext;
use super::ledger::{Ledger, LedgerCounts};
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// The fate of the messages of a run, over all of it: prefill, warm-up and what was read after it included.
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
}

impl MessagesSummary {
    /// The account of a run that is over. `drained` were read after it; if that was cut short, what is left is not lost.
    pub(crate) fn new(context: &MessagesContext, drained: u64, is_complete: bool) -> MessagesSummary {
        let Some(ledger) = &context.ledger else {
            let (queue_prefix, order_promised) = (context.prefix.clone(), context.is_order_promised());
            return MessagesSummary { queue_prefix, order_promised, ..MessagesSummary::default() };
        };
        let remainder = ledger.remainder();
        let unread = if is_complete { 0 } else { remainder.lost };
        MessagesSummary {
            queue_prefix: context.prefix.clone(),
            verified: true,
            drained,
            lost: remainder.lost - unread,
            order_promised: context.is_order_promised(),
            taken_in_doubt: remainder.taken_in_doubt,
            unread,
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
            ..MessagesSummary::default()
        }
    }

    /// Adds another generator's; the name of its queues is forgotten. What was promised to one was promised to all, or it is not promised.
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
        ] {
            *own += other;
        }
    }

    /// What spoils the run, one line each.
    pub(crate) fn reasons(&self) -> Vec<String> {
        let disorder = if self.order_promised { self.out_of_order } else { 0 };
        let found = [
            (self.lost, "were acknowledged and are not there"),
            (self.doubled, "were handed out more than once"),
            (disorder, "came after a younger one of the same sender in the same queue"),
            (self.torn, "are not as they were sent"),
            (
                self.unknown,
                "were not sent in this run; if the queues are shared, give this run a --queue-prefix of its own",
            ),
            (self.misdelivered, "are for another receiver, or of another queue or sender than was request for"),
            (self.refused_and_done, "were there although their send was refused"),
            (
                self.unread,
                "were not read after the run within its time, so nobody knows whether they are there; allow more --drain-time",
            ),
        ];
        let found = found.into_iter().filter(|(messages, _)| *messages > 0);
        found
            .map(|(messages, what)| format!("{messages} of {} messages {what}", self.acknowledged.max(self.received)))
            .collect()
    }

    /// What does not spoil the run, but may surprise.
    pub(crate) fn notes(&self) -> Vec<String> {
        let overtaken = (!self.order_promised && self.out_of_order > 0).then(|| {
            format!(
                "{} messages came after a younger one of the same sender in the same queue; over several services, or with --any-order, \
                 that is not promised",
                self.out_of_order
            )
        });
        let doubt = (self.sends_in_doubt + self.pops_in_doubt > 0).then(|| {
            format!(
                "in doubt, because a connection broke or the service did not know: {} sends, {} of which were done, and {} pops, which \
                 may have taken the {} messages that nobody got",
                self.sends_in_doubt, self.sends_in_doubt_arrived, self.pops_in_doubt, self.taken_in_doubt
            )
        });
        let unverified = (!self.verified).then(|| "messages were not verified (--no-verify)".to_owned());
        [overtaken, doubt, unverified].into_iter().flatten().collect()
    }

    /// For people.
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
            "in doubt: {} sends ({} arrived), {} pops (which may have taken {}); {} requests refused",
            self.sends_in_doubt, self.sends_in_doubt_arrived, self.pops_in_doubt, self.taken_in_doubt, self.refused
        );
        text
    }
}
