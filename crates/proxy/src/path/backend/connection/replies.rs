//! Step 7, second half. Matches what a backend has sent with the requests in flight, oldest first.

use super::{BackendConnection, State};
use crate::observe::counters::Loss;
use crate::observe::server_version::ServerVersion;
use crate::path::backend::in_flight::Pending;
use crate::path::backend::match_reply::{Expect, ReplyMatch, match_reply};
use crate::path::backend::requested::is_requested;
use crate::path::backend::server::Purpose;
use crate::path::jobs::AnsweredJobs;
use clock::Nanos;
use records::Outcome;
use std::borrow::Cow;
use wire::{ParsedReply, Reply, ReplyError, Verb, parse_reply, parse_value_head};

/// With fewer bytes of an incomplete reply, its length is not looked for.
const LARGE_BYTES: usize = 4096;

impl BackendConnection {
    /// Matches each reply in the inbox with the oldest request in flight. Fails if a reply does not fit its request, or if the server
    /// does not accept the login: the connection must be closed.
    pub(super) fn match_replies(&mut self, answered: &mut AnsweredJobs<'_>, now: Nanos) -> Result<(), Loss> {
        let Some(connection) = &mut self.connection else { return Ok(()) };
        let written = connection.outbox.written_total();
        // The inbox is moved out of the connection, so that replies can borrow its bytes while the connection changes.
        let mut inbox = std::mem::take(&mut connection.inbox);
        let (mut used, mut expected) = (0, 0);
        let outcome = loop {
            let unread = &inbox.filled()[used..];
            if self.to_skip > 0 {
                match self.skip(unread, answered, now) {
                    Ok(skipped) => used += skipped,
                    Err(loss) => break Err(loss),
                }
            }
            let unread = &inbox.filled()[used..];
            if unread.is_empty() {
                break Ok(());
            }
            // No request is in flight, or no byte of the oldest one was written: these bytes are not a reply.
            let Some(head) = self.in_flight.head().filter(|head| head.begin < written) else {
                break Err(Loss::OutOfStep);
            };
            let (reply, consumed) = match parse_reply(unread, &self.backend.limits.wire) {
                ParsedReply::Incomplete => {
                    expected = self.length_of_large(unread);
                    break Ok(());
                }
                ParsedReply::Broken(ReplyError::ValueTooLarge) => match self.begin_skipping(unread, answered) {
                    Ok(line_bytes) => {
                        used += line_bytes;
                        continue;
                    }
                    Err(loss) => break Err(loss),
                },
                ParsedReply::Broken(_) => break Err(Loss::OutOfStep),
                ParsedReply::Reply { reply, consumed } => (reply, consumed),
            };
            if !fits(head, &reply, answered) {
                break Err(Loss::OutOfStep);
            }
            match match_reply(head.expect, &reply) {
                ReplyMatch::More => {
                    let place = used..used + consumed;
                    used += consumed;
                    if place.start == 0
                        && let Some(value) = inbox.detach(consumed)
                    {
                        used = 0;
                        self.add_value(value.into(), answered);
                    } else {
                        self.add_value(Cow::from(&inbox.filled()[place]), answered);
                    }
                }
                ReplyMatch::Done { outcome, closes } => {
                    used += consumed;
                    self.is_discarding |= consumed > self.backend.limits.reply_bytes;
                    self.answer(&unread[..consumed], outcome, answered, now);
                    if closes {
                        break Err(Loss::OutOfStep);
                    }
                }
                ReplyMatch::OutOfStep => break Err(Loss::OutOfStep),
                ReplyMatch::Unauthenticated if self.backend.login.is_some() => break Err(Loss::LoginRefused),
                ReplyMatch::Unauthenticated => break Err(Loss::LoginRequired),
            }
        };
        inbox.consume(used);
        inbox.expect(expected);
        if let Some(connection) = &mut self.connection {
            connection.inbox = inbox;
        }
        outcome
    }

    /// Adds a value to the reply of the oldest request, unless that has become too large. A late value is dropped.
    fn add_value(&mut self, value: Cow<'_, [u8]>, answered: &mut AnsweredJobs<'_>) {
        self.counters().received_bytes.add(value.len() as u64);
        let Some(leg) = self.in_flight.head().and_then(|head| head.leg) else { return };
        if !self.is_discarding && answered.jobs.add_leg_value(leg, value) > self.backend.limits.reply_bytes {
            answered.jobs.discard_leg_reply(leg);
            self.is_discarding = true;
        }
    }

    /// The length of an incomplete value with its line, if that does not fit a usual buffer; otherwise 0.
    fn length_of_large(&self, unread: &[u8]) -> usize {
        if unread.len() < LARGE_BYTES {
            return 0;
        }
        parse_value_head(unread, &self.backend.limits.wire).map_or(0, |head| head.line_bytes + head.body_bytes)
    }

    /// Discards the reply to the oldest request, because a value is larger than `reply-max`. The value itself is never buffered. Returns
    /// the length of its line. Fails if the request has not requested the value.
    fn begin_skipping(&mut self, unread: &[u8], answered: &mut AnsweredJobs<'_>) -> Result<usize, Loss> {
        let large = parse_value_head(unread, &self.backend.limits.wire).ok_or(Loss::OutOfStep)?;
        let head = self.in_flight.head().ok_or(Loss::OutOfStep)?;
        // A write never returns such a value.
        let is_read = matches!(
            (head.expect, &large.reply),
            (Expect::Values, Reply::Value(_)) | (Expect::Line(Verb::Mg), Reply::MetaValue { .. })
        );
        if !is_read || !fits(head, &large.reply, answered) {
            return Err(Loss::OutOfStep);
        }
        if let Some(leg) = head.leg {
            answered.jobs.discard_leg_reply(leg);
            answered.jobs.get(leg.job).leg(leg.leg).reply_bytes += large.body_bytes;
        }
        (self.is_discarding, self.to_skip) = (true, large.body_bytes);
        self.counters().received_bytes.add((large.line_bytes + large.body_bytes) as u64);
        Ok(large.line_bytes)
    }

    /// Skips bytes of a value that is too large; returns their number. A value ends the reply to `mg`. Fails if the value does not end
    /// at its announced length.
    fn skip(&mut self, unread: &[u8], answered: &mut AnsweredJobs<'_>, now: Nanos) -> Result<usize, Loss> {
        let skipped = unread.len().min(self.to_skip);
        // The last two bytes that are to be skipped are a line end; only some of them may have arrived.
        let line_end = &b"\r\n"[2 - self.to_skip.min(2)..];
        let before = self.to_skip - line_end.len();
        let arrived = &unread[before.min(skipped)..skipped];
        if !line_end.starts_with(arrived) {
            return Err(Loss::OutOfStep);
        }
        self.to_skip -= skipped;
        if self.to_skip == 0 && self.in_flight.head().is_some_and(|head| head.expect != Expect::Values) {
            self.answer(b"", Outcome::Answered, answered, now);
        }
        Ok(skipped)
    }

    /// Completes the reply of the oldest request with its last line.
    fn answer(&mut self, last_line: &[u8], outcome: Outcome, answered: &mut AnsweredJobs<'_>, now: Nanos) {
        let Some((head, is_unsent)) = self.in_flight.pop() else { return };
        (self.silences, self.has_replied) = (0, true);
        if self.purpose == Purpose::Bulk {
            // Large replies take their time one after the other, and nothing else waits for them.
            self.in_flight.begin_next(now);
        }
        if head.expect == Expect::Login {
            return;
        }
        if head.expect == Expect::Probe {
            self.state = State::Open;
            if let Some(version) = ServerVersion::of_reply(last_line) {
                self.counters().version.set(version.code());
            }
            // Later probes do not open the connection.
            let login_bytes = self.backend.login.as_ref().map_or(0, |login| login.request().len());
            return self.counters().connects.add(u64::from(head.begin == login_bytes as u64));
        }
        self.counters().replies.add(1);
        self.counters().received_bytes.add(last_line.len() as u64);
        self.has_answered = true;
        self.retry.succeeded();
        let Some(leg) = head.leg else {
            self.is_discarding = false;
            self.counters().late_replies.add(1);
            return head.late.into_iter().for_each(|late| late.entry.answered());
        };
        if is_unsent {
            answered.jobs.get(leg.job).leg_sent(leg.leg, now);
        }
        if std::mem::take(&mut self.is_discarding) {
            self.counters().note(Outcome::Overloaded);
            let line =
                format!("SERVER_ERROR backend {} sent a reply that is larger than reply-max\r\n", self.backend.name);
            answered.leg_answered(leg, line.as_bytes(), Outcome::Overloaded, now);
        } else {
            self.counters().note(outcome);
            answered.leg_answered(leg, last_line, outcome, now);
        }
    }
}

/// Whether the keys and opaques of a reply are those that its request has requested. If not, the values before it are not trusted
/// either.
fn fits(head: &mut Pending, reply: &Reply<'_>, answered: &mut AnsweredJobs<'_>) -> bool {
    let (Reply::Value(_) | Reply::Meta { .. } | Reply::MetaValue { .. }) = reply else { return true };
    if let Some(late) = &mut head.late {
        return late.requested.fits(head.expect, reply);
    }
    let Some(leg) = head.leg else { return true };
    let fits = is_requested(answered.jobs.get(leg.job), leg.leg, head.expect, reply);
    if !fits {
        answered.jobs.discard_leg_reply(leg);
    }
    fits
}
