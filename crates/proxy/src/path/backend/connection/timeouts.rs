//! What follows when a backend does not answer in time: single requests fail, or the connection is given up.

use super::{BackendConnection, PROBE, State, TimedOut};
use crate::observe::counters::Loss;
use crate::path::backend::in_flight::{Due, Late};
use crate::path::backend::match_reply::Expect;
use crate::path::backend::requested::Requested;
use crate::path::jobs::AnsweredJobs;
use crate::path::late::LateEntry;
use clock::Nanos;
use net::Poller;
use records::Outcome;

impl BackendConnection {
    /// Times out or reconnects, if that is due.
    pub(crate) fn tick(&mut self, poller: &Poller, answered: &mut AnsweredJobs<'_>, now: Nanos) -> TimedOut {
        let timed_out = match self.in_flight.due(&self.backend.limits, now) {
            Due::Nothing => TimedOut::Nothing,
            Due::Silence => self.time_out(answered, now),
            Due::Overdue => self.give_up(answered, now),
        };
        if self.in_flight.is_empty() && self.unused_at() <= now {
            self.close(Outcome::BackendLost, answered, now);
        }
        match self.state {
            State::Closed { retry_at } if retry_at <= now && !self.is_draining => {
                self.connection = None;
                self.open(poller, self.retry.is_fresh() || self.carried.is_some(), answered, now);
            }
            _ => {}
        }
        timed_out
    }

    /// Fails the requests that have timed out. Their replies may still come, and nothing else does: the connection stays open, unless
    /// this has happened too often in a row, or the server has not even read these requests.
    fn time_out(&mut self, answered: &mut AnsweredJobs<'_>, now: Nanos) -> TimedOut {
        let count = self.in_flight.count_timed_out(&self.backend.limits, now);
        let has_client = count.is_some_and(|count| self.in_flight.has_client_among(count));
        if let Some(count) = count.filter(|_| !has_client && self.state == State::Open)
            && self.in_flight.has_waiting_behind(count)
        {
            // A probe times out shortly before the request behind it. The request counts, and not the probe as well.
            for _ in 0..count {
                self.in_flight.time_out(now);
            }
            return TimedOut::Nothing;
        }
        self.silences += 1;
        let Some(count) = count.filter(|_| self.silences < self.backend.limits.failures && self.state == State::Open)
        else {
            return self.give_up(answered, now);
        };
        self.in_flight.note_silence(now);
        for _ in 0..count {
            let Some(pending) = self.in_flight.time_out(now) else { break };
            let Some(leg) = pending.leg.take() else { continue };
            let (job, entry) = (answered.jobs.get(leg.job), LateEntry::new());
            job.leg(leg.leg).late = Some(entry.request());
            let requested = Requested::of(job, leg.leg, pending.expect);
            pending.late = Some(Box::new(Late { entry, requested }));
            self.counters.backends[usize::from(self.backend.index)].note(Outcome::Timeout);
            answered.leg_failed(leg, &self.backend.name, Outcome::Timeout, now);
        }
        self.probe_the_order(now);
        if has_client { TimedOut::Late } else { TimedOut::Silence }
    }

    /// Whether a request of a client is in flight that has not timed out.
    pub(crate) fn has_waiting(&self) -> bool {
        self.in_flight.has_waiting_behind(0)
    }

    /// Sends a probe behind the late requests. If one of their replies never comes, the reply to the probe arrives in its place, and the
    /// connection is out of step. Without the probe, each later reply would be matched with the request before its own.
    fn probe_the_order(&mut self, now: Nanos) {
        if !self.in_flight.ends_with_probe() {
            self.push(None, Expect::Probe, now, |out| out.extend_from_slice(PROBE));
        }
    }

    /// Closes the connection because its server does not answer in time.
    fn give_up(&mut self, answered: &mut AnsweredJobs<'_>, now: Nanos) -> TimedOut {
        self.fail(Loss::Timeout, answered, now);
        TimedOut::GivenUp
    }

    /// Closes the connection if requests have timed out on it; otherwise probes it if it is idle. The backend has been given up.
    pub(crate) fn give_up_or_probe(&mut self, answered: &mut AnsweredJobs<'_>, now: Nanos) {
        if self.in_flight.has_late() {
            self.give_up(answered, now);
        } else {
            self.probe_again(now);
        }
    }

    /// Whether a reply was completed since the last call.
    pub(crate) fn take_replied(&mut self) -> bool {
        std::mem::take(&mut self.has_replied)
    }

    /// If the connection is idle, refuses requests until a new probe is answered: another connection to this backend has timed out,
    /// and the next request here might time out as well.
    pub(crate) fn probe_again(&mut self, now: Nanos) {
        if self.state == State::Open && self.in_flight.is_empty() {
            self.state = State::Opening { is_patient: false };
            self.push(None, Expect::Probe, now, |out| out.extend_from_slice(PROBE));
        }
    }

    /// After how many timeouts in a row, without a reply between, the backend is given up.
    pub(crate) fn failures(&self) -> u32 {
        self.backend.limits.failures
    }
}
