//! Requests that no client waits for: deletions that are owed, what another pool is to see too, and values that are copied
//! from one pool to another. They go through the same line as clients' requests, and end in `Core::complete`.

use crate::debts::{LINGER, Payment};
use crate::dispatch::onward::may_linger;
use crate::dispatch::{Dispatch, Time};
use crate::finished::Finished;
use crate::job::{Course, Errand, Job, Join, SessionRef, WantedKey};
use crate::jobs::JobId;
use crate::leg::Candidate;
use clock::Nanos;
use records::Outcome;
use std::time::Duration;
use wire::{
    Keys, Limits, Meta, MetaFlags, ParsedReply, ParsedRequest, Reply, Request, Verb, encode_base64, parse_reply,
    parse_request,
};

/// Deletions that one loop sends to one backend in one turn.
const PAYMENTS_PER_TURN: usize = 256;
/// How long after a look at what is owed the next is taken.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

impl Dispatch {
    /// Sends deletions that are owed and due to backends that can be asked.
    pub(crate) fn pay_debts(&mut self, finished: &mut Finished<'_>, time: Time<'_>) {
        if self.next_payment > time.turn {
            return;
        }
        let is_clear = self.fork.copies.debts.iter().all(|debts| debts.are_clear());
        self.next_payment = if is_clear { Nanos::UNSET } else { time.turn + LOOK_AGAIN };
        if is_clear {
            return;
        }
        for backend in 0..self.fork.copies.debts.len() {
            let debts = &self.fork.copies.debts[backend];
            if debts.are_clear() || !self.fork.copies.is_up(backend as u16) {
                continue;
            }
            for payment in debts.take(PAYMENTS_PER_TURN, time.turn) {
                let id = finished.jobs.begin();
                let job = finished.jobs.get(id);
                job.add_leg(backend as u16);
                encode_payment(&payment, &mut job.kept);
                job.is_quiet = true;
                job.errand = Some(Errand::Debt(payment));
                self.again(id, finished, time);
            }
        }
    }

    /// When deletions may be due; `UNSET` if none are owed.
    pub(crate) fn next_payment(&self) -> Nanos {
        let is_clear = self.fork.copies.debts.iter().all(|debts| debts.are_clear());
        if is_clear { Nanos::NEVER } else { self.next_payment }
    }

    /// Notes what became of an errand.
    pub(crate) fn settle(&mut self, job: &Job, now: Nanos) {
        let (Some(errand), Some(leg)) = (&job.errand, job.legs().first()) else { return };
        let (copies, backend) = (&self.fork.copies, usize::from(leg.backend));
        let is_answered = leg.outcome == Outcome::Answered;
        match errand {
            Errand::Debt(payment) => {
                let counters = &copies.counters.backends[backend];
                if is_answered { &counters.debts_paid } else { &counters.payments_failed }.add(1);
                copies.debts[backend].settle(payment, is_answered, now);
            }
            Errand::Fill => {
                // The only leg's reply is the job's own. What was stored meanwhile is newer, and NOT_STORED says so.
                let pool = copies.router.pool_of_backend(leg.backend);
                copies.counters.pools[pool].warm_up_fills.add(u64::from(job.reply == b"STORED\r\n"));
                if may_linger(leg) {
                    // It may come after a deletion that its client has asked for since.
                    copies.debts[backend].owe(&job.key_bytes, Some(LINGER), now);
                }
            }
            Errand::Shadow => {}
        }
    }

    /// Lets the pool that shadows a key's pool see a request too.
    pub(crate) fn shadow(&mut self, request: &Request<'_>, finished: &mut Finished<'_>, time: Time<'_>) {
        match request {
            // It has reached the pool that shadows already, if that may be flushed.
            Request::FlushAll { .. } => {}
            Request::Get { verb, exptime, keys } => self.shadow_get(*verb, *exptime, *keys, finished, time),
            _ => {
                let mut decoded = [0; wire::KEY_BYTES_MAXIMUM];
                let key = match request {
                    Request::Meta(meta) => meta.stored_key(&mut decoded),
                    _ => request.key().unwrap_or_default(),
                };
                let is_read = matches!(request.verb(), Verb::Mg | Verb::Me);
                if let Some(pool) = self.shadow_of(key, is_read) {
                    self.send_errand(Errand::Shadow, pool, finished, time, |out| request.without_noreply().encode(out));
                }
            }
        }
    }

    fn shadow_get(&mut self, verb: Verb, exptime: i64, keys: Keys<'_>, finished: &mut Finished<'_>, time: Time<'_>) {
        let is_read = matches!(verb, Verb::Get | Verb::Gets);
        for key in keys.iter() {
            if let Some(pool) = self.shadow_of(key, is_read) {
                self.send_errand(Errand::Shadow, pool, finished, time, |out| {
                    wire::encode_get(verb, exptime, std::iter::once(key), out);
                });
            }
        }
    }

    /// The pool that is to see a request for this key too, if any; counts it.
    fn shadow_of(&self, key: &[u8], is_read: bool) -> Option<usize> {
        let pool = self.fork.pool_of(key);
        let shadow = self.fork.copies.policies[pool].shadow?;
        let is_seen = shadow.takes(key) && (shadow.reads || !is_read);
        self.fork.copies.counters.pools[pool].shadowed.add(u64::from(is_seen));
        is_seen.then_some(shadow.pool)
    }

    /// Stores values that were found only in the pool that missing ones come from.
    pub(crate) fn fill(&mut self, id: JobId, limits: &Limits, finished: &mut Finished<'_>, time: Time<'_>) {
        for leg in 0..finished.jobs.get(id).legs().len() {
            let job = finished.jobs.get(id);
            let (is_copied, only_pool) = match job.course {
                Course::Read { pool } => (job.legs()[leg].candidate == Candidate::WarmUp, Some(pool.into())),
                Course::Parts => {
                    let is_of = |key: &WantedKey| {
                        let is_told_here = usize::from(key.leg) == leg && key.missed != Some(key.leg);
                        is_told_here && key.candidate == Candidate::WarmUp
                    };
                    (job.wanted.iter().any(is_of), None)
                }
                _ => (false, None),
            };
            if is_copied {
                let (reply, session) = (std::mem::take(&mut job.leg(leg as u8).reply), job.session);
                self.store_all(&reply, only_pool, session, limits, finished, time);
                finished.jobs.get(id).leg(leg as u8).reply = reply;
            }
        }
    }

    /// Stores the values of a reply in `only_pool`, or in the pools that their keys belong to. What answers an `mg` need not
    /// hold all that a value is stored with, and is only counted.
    fn store_all(
        &mut self,
        reply: &[u8],
        only_pool: Option<usize>,
        session: SessionRef,
        limits: &Limits,
        finished: &mut Finished<'_>,
        time: Time<'_>,
    ) {
        if let Some(pool) = only_pool {
            let is_found = reply.starts_with(b"VA ") || reply.starts_with(b"HD");
            self.fork.copies.counters.pools[pool].warm_up_hits.add(u64::from(is_found));
        }
        let mut at = 0;
        while let ParsedReply::Reply { reply: Reply::Value(value), consumed } = parse_reply(&reply[at..], limits) {
            at += consumed;
            let pool = only_pool.unwrap_or_else(|| self.fork.pool_of(value.key));
            let Some((_, seconds)) = self.fork.copies.policies[pool].warm_up else { continue };
            self.fork.copies.counters.pools[pool].warm_up_hits.add(1);
            let request = Request::Store {
                // Whatever was stored meanwhile is newer.
                verb: Verb::Add,
                key: value.key,
                flags: value.flags,
                exptime: i64::from(seconds).min(60 * 60 * 24 * 30),
                value: value.data,
                cas: 0,
                noreply: false,
            };
            self.send_fill(&request, session, pool, finished, time);
        }
    }

    /// Stores a value on a key's primary: a copied value must not set off deletions where it comes from. It takes the way of
    /// its client's writes, so that a deletion which the client asks for next comes after it.
    fn send_fill(
        &mut self,
        request: &Request<'_>,
        session: SessionRef,
        pool: usize,
        finished: &mut Finished<'_>,
        time: Time<'_>,
    ) {
        let key = request.key().unwrap_or_default();
        let choice = self.fork.copies.primary(pool, key);
        let id = finished.jobs.begin();
        let job = finished.jobs.get(id);
        (job.verb, job.is_quiet, job.errand, job.join) = (request.verb(), true, Some(Errand::Fill), Join::Forward);
        job.session = session;
        job.key_bytes.extend_from_slice(key);
        let leg = job.add_leg(choice.backend);
        job.leg(leg).is_fenced = choice.is_fenced;
        self.place(id, request, finished, time);
    }

    /// Sends a request that no client waits for to a pool, as if a client had sent it there.
    fn send_errand(
        &mut self,
        errand: Errand,
        pool: usize,
        finished: &mut Finished<'_>,
        time: Time<'_>,
        encode: impl FnOnce(&mut Vec<u8>),
    ) {
        let id = finished.jobs.begin();
        let job = finished.jobs.get(id);
        let mut bytes = job.take_scratch();
        encode(&mut bytes);
        if let ParsedRequest::Request { request, .. } = parse_request(&bytes, &self.own_limits) {
            (job.verb, job.is_quiet, job.errand) = (request.verb(), true, Some(errand));
            self.fork.only_pool = Some(pool);
            self.cut_and_place(id, &request, finished, time);
            self.fork.only_pool = None;
        }
        finished.jobs.get(id).return_scratch(bytes);
    }
}

/// The request that deletes what is owed.
fn encode_payment(payment: &Payment, out: &mut Vec<u8>) {
    match payment {
        Payment::Everything => Request::FlushAll { delay: None, noreply: false }.encode(out),
        // What may stand on a line does: in base64 a long key would be too long. What may not has come in base64, and fits.
        Payment::Key(key) if !key.iter().any(|byte| matches!(byte, b' ' | b'\n' | b'\r' | 0)) => {
            Request::Delete { key, noreply: false }.encode(out);
        }
        Payment::Key(key) => {
            let mut text = Vec::new();
            encode_base64(key, &mut text);
            let flags = MetaFlags::new(b"b");
            Request::Meta(Meta { verb: Verb::Md, key: &text, flags, left_out: b"", value: b"" }).encode(out);
        }
    }
}
