//! Step 10. Every job of a client ends here exactly once, answered or failed: it is counted, its intervals go into the
//! histograms, and if it is sampled its record goes to the record writer.

use crate::observe::counters::LoopCounters;
use crate::observe::ended_request::{COPIED_LEGS_MAX, EndedLeg, EndedRequest};
use crate::observe::histograms::{HistogramRequest, StageHistograms};
use crate::observe::hot_keys::HotKeys;
use crate::observe::log::slow_log::SlowLog;
use crate::observe::traces::sampler::TraceSampler;
use crate::path::job::{Job, JobId, Leg};
use crate::path::jobs::Jobs;
use crate::path::leg_request::first_key;
use clock::{Nanos, Stage};
use records::{NO_BACKEND, Outcome, PARENT, Row, RowSender};
use std::net::IpAddr;
use std::sync::Arc;
use wire::{Request, Verb};

/// A record has at most this many legs: it numbers them in one byte, of which `PARENT` is a reserved value.
const RECORDED_LEGS_MAX: usize = PARENT as usize;

/// Counts, times and records the jobs of one loop.
#[derive(Debug)]
pub(crate) struct Journal {
    pub(crate) counters: Arc<LoopCounters>,
    histograms: StageHistograms,
    hot_keys: Option<HotKeys>,
    slow_log: Option<SlowLog>,
    traces: Option<TraceSampler>,
    rows: Option<RowSender>,
    loop_index: u8,
}

impl Journal {
    /// An empty journal.
    pub(crate) fn new(
        counters: Arc<LoopCounters>,
        hot_keys: Option<HotKeys>,
        slow_log: Option<SlowLog>,
        traces: Option<TraceSampler>,
        rows: Option<RowSender>,
        loop_index: u8,
    ) -> Journal {
        Journal { counters, histograms: StageHistograms::default(), hot_keys, slow_log, traces, rows, loop_index }
    }

    /// Counts the keys of a request for `stats hotkeys`, and keeps the first one for the slow log and for spans.
    pub(crate) fn note_keys(&mut self, request: &Request<'_>, job: &mut Job) {
        if let Some(hot_keys) = &mut self.hot_keys {
            hot_keys.note(request, job.keys);
        }
        let is_shown = || self.traces.as_ref().is_some_and(TraceSampler::shows_keys);
        if self.slow_log.is_some() || (job.is_traced && is_shown()) {
            let logged_key = &mut job.rare.change().logged_key;
            logged_key.clear();
            logged_key.extend_from_slice(first_key(request, &mut None).unwrap_or_default());
        }
    }

    /// Publishes the hot keys for other threads at the end of a turn. Returns whether it did.
    pub(crate) fn end_turn(&mut self, now: Nanos) -> bool {
        self.hot_keys.as_mut().is_some_and(|hot_keys| hot_keys.publish(now))
    }

    /// The keys that are hot in this loop, the hottest first.
    pub(crate) fn hottest(&self) -> impl Iterator<Item = &[u8]> {
        self.hot_keys.iter().flat_map(HotKeys::hottest)
    }

    /// One request in this many is recorded; zero without records.
    pub(crate) fn sample(&self) -> u32 {
        self.rows.as_ref().map_or(0, RowSender::sample)
    }

    /// Whether the next request is traced. Each is counted once.
    pub(crate) fn takes_trace(&mut self) -> bool {
        self.traces.as_mut().is_some_and(TraceSampler::takes)
    }

    /// Ends a job whose last byte the kernel accepted at `replied`.
    pub(crate) fn end(&mut self, jobs: &mut Jobs, id: JobId, replied: Nanos) {
        let job = jobs.get(id);
        job.stamp(Stage::Replied, replied);
        self.count(job);
        let (mut is_logged, is_traced) = (false, job.is_traced);
        if job.is_timed {
            job.clock.finish();
            if !job.is_part {
                self.histograms.record(job.verb, &job.clock);
            }
            // Also a part of a line: each has its own keys and backends.
            let slow = self.slow_log.as_mut();
            is_logged = slow.is_some_and(|slow| slow.wants(job.clock.total_ns(), replied));
        }
        if job.is_sampled {
            self.write(job);
        }
        if is_logged || is_traced {
            self.show(jobs, id, is_logged, is_traced);
        }
        jobs.end(id);
    }

    /// Whether slow requests are logged or requests are traced, with the addresses of their clients.
    pub(crate) fn shows_clients(&self) -> bool {
        self.slow_log.is_some() || self.traces.is_some()
    }

    /// Ends a job whose client has gone away.
    pub(crate) fn end_undelivered(&mut self, jobs: &mut Jobs, id: JobId, now: Nanos) {
        jobs.get(id).outcome = Outcome::ClientGone;
        self.end(jobs, id, now);
    }

    /// Logs or traces a request.
    #[cold]
    fn show(&self, jobs: &mut Jobs, id: JobId, is_logged: bool, is_traced: bool) {
        let session = jobs.get(id).session;
        let client = jobs.clients.address(session);
        let request = ended_request(jobs.get(id), client);
        if let Some(traces) = self.traces.as_ref().filter(|_| is_traced) {
            traces.add(request.clone());
        }
        if let Some(slow) = self.slow_log.as_ref().filter(|_| is_logged) {
            slow.log(request);
        }
    }

    fn count(&self, job: &Job) {
        let counters = &self.counters;
        // A line of many keys is one request, which ends with its last part.
        counters.requests[job.verb as usize][job.outcome as usize].add(u64::from(!job.is_part));
        counters.received_bytes.add(job.request_bytes.into());
        if matches!(job.verb, Verb::Get | Verb::Gets | Verb::Gat | Verb::Gats | Verb::Mg) {
            counters.keys_read.add(job.keys.into());
            counters.hits[job.verb as usize].add(job.hits.into());
            if job.outcome == Outcome::Answered {
                counters.misses[job.verb as usize].add(job.keys.saturating_sub(job.hits).into());
            }
            // If a single key was read from another backend after an error, no part has failed.
            let is_failed_key = job.is_in_line && job.outcome != Outcome::Answered;
            let is_part_failure = job.first_error.is_some() && (job.keys > 1 || is_failed_key);
            counters.parts_failed.add(u64::from(is_part_failure));
        } else if job.outcome == Outcome::Answered {
            self.count_found(job);
        }
    }

    /// Counts a hit or a miss of an operation that needs its key to be stored, from the reply.
    fn count_found(&self, job: &Job) {
        let counters = &self.counters;
        let needs_key = matches!(
            job.verb,
            Verb::Delete | Verb::Incr | Verb::Decr | Verb::Touch | Verb::Cas | Verb::Md | Verb::Ma | Verb::Me
        );
        match job.reply.as_slice() {
            _ if !needs_key => {}
            [b'N', b'F', ..] | [b'N', b'O', b'T', ..] | [b'E', b'N', ..] => {
                counters.misses[job.verb as usize].add(1);
            }
            [b'E', b'X', ..] => counters.cas_conflicts.add(1),
            _ => counters.hits[job.verb as usize].add(1),
        }
    }

    /// Writes one row for the request and, if it has several legs, one for each leg.
    fn write(&mut self, job: &Job) {
        let Some(rows) = &mut self.rows else { return };
        let parent = parent_row(job, self.loop_index);
        rows.push(&parent, &job.clock.stamps());
        if job.legs().len() > 1 {
            for (index, leg) in job.legs().iter().take(RECORDED_LEGS_MAX).enumerate() {
                let (row, stamps) = leg_row(job, &parent, leg, index as u8);
                rows.push(&row, &stamps);
            }
        }
    }

    /// Sends the times of the requests since the last such request.
    pub(crate) fn send_histograms(&mut self, request: HistogramRequest) {
        self.histograms.exchange(request);
    }

    /// The times of the requests since the last time that they were sent, at the end of the loop.
    pub(crate) fn into_histograms(self) -> StageHistograms {
        self.histograms
    }

    /// Whether rows wait to be sent to the writer, or hot keys to be published.
    pub(crate) fn has_news(&self) -> bool {
        self.rows.as_ref().is_some_and(RowSender::has_rows) || self.hot_keys.as_ref().is_some_and(HotKeys::has_news)
    }

    /// Sends the buffered rows to the writer, and publishes how many were dropped.
    pub(crate) fn flush(&mut self) {
        if let Some(rows) = &mut self.rows {
            rows.flush();
            self.counters.records_dropped.set(rows.dropped());
        }
    }
}

fn ended_request(job: &Job, client: Option<IpAddr>) -> EndedRequest {
    let leg = |leg: &Leg| EndedLeg {
        backend: leg.backend,
        outcome: leg.outcome,
        hits: leg.hits,
        request_bytes: leg.request_bytes,
        reply_bytes: leg.reply_bytes as u32,
        is_hedge: leg.is_hedge,
        dispatched: leg.dispatched,
        sent: leg.sent,
        answered: leg.answered,
    };
    EndedRequest {
        verb: job.verb,
        outcome: job.outcome,
        key: job.rare.get().logged_key.clone(),
        keys: job.keys,
        is_part: job.is_in_line,
        hits: job.hits,
        request_bytes: job.request_bytes,
        reply_bytes: if job.is_quiet { 0 } else { job.reply_bytes },
        client,
        port: job.port,
        connection: job.session.connection,
        sequence: job.sequence,
        stamps: job.clock.stamps(),
        legs: job.legs().iter().take(COPIED_LEGS_MAX).map(leg).collect(),
        legs_total: job.legs().len(),
    }
}

fn parent_row(job: &Job, loop_index: u8) -> Row {
    let first = job.legs().first();
    Row {
        connection: job.session.connection,
        sequence: job.sequence,
        request_bytes: job.request_bytes,
        reply_bytes: if job.is_quiet { 0 } else { job.reply_bytes },
        backend_sequence: first.map_or(0, |leg| leg.backend_sequence),
        queue_length: first.map_or(0, |leg| leg.queue_length),
        port: job.port,
        backend_port: first.map_or(0, |leg| leg.backend_port),
        backend: first.map_or(NO_BACKEND, |leg| leg.backend),
        keys: job.keys,
        hits: job.hits,
        r#loop: loop_index,
        operation: job.verb as u8,
        outcome: job.outcome as u8,
        leg: PARENT,
        legs: job.legs().len().min(RECORDED_LEGS_MAX) as u8,
        reserved: 0,
    }
}

/// The row of a leg, with the leg's own `dispatched`, `sent` and `answered`. A stage that it did not reach has the stamp of the
/// stage before, as in every record.
fn leg_row(job: &Job, parent: &Row, leg: &Leg, index: u8) -> (Row, [u64; clock::STAGES]) {
    let mut stamps = job.clock.stamps();
    let dispatched = leg.dispatched.0.max(stamps[Stage::Enqueued as usize]);
    stamps[Stage::Dispatched as usize] = dispatched;
    let sent = leg.sent.0.max(dispatched);
    stamps[Stage::Sent as usize] = sent;
    stamps[Stage::Answered as usize] = leg.answered.0.max(sent);
    let row = Row {
        request_bytes: leg.request_bytes,
        reply_bytes: leg.reply_bytes as u32,
        backend_sequence: leg.backend_sequence,
        queue_length: leg.queue_length,
        backend_port: leg.backend_port,
        backend: leg.backend,
        hits: leg.hits,
        outcome: leg.outcome as u8,
        leg: index,
        ..*parent
    };
    (row, stamps)
}
