//! The thread that sends spans. Whatever the collector does, only this thread waits for it.

use crate::config::{Collector, Lookup, TracesConfig};
use crate::observe::ended_request::EndedRequest;
use crate::observe::traces::counters::TraceCounters;
use crate::observe::traces::post::post;
use crate::observe::traces::spans::{Anchor, Spans, TracedBackend, rejected_spans};
use clock::{Clock, Nanos, unix_now};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

/// How long requests are collected before they are sent.
const INTERVAL: Duration = Duration::from_millis(500);
/// The most requests in one message.
const BATCH_MAX: usize = 256;
/// The longest attempt.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The pause after the first failed attempt. It doubles up to the longest.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// The longest pause that a collector can ask for with Retry-After.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(300);
/// Spans that were not accepted for so long are given up.
const AGE_MAX: Duration = Duration::from_secs(60);
/// How long the last requests may take after the proxy has stopped.
const END_WAIT: Duration = Duration::from_secs(3);

/// The work of the thread.
#[derive(Debug)]
pub(crate) struct Exporter {
    collector: Collector,
    lookup: Lookup,
    spans: Spans,
    requests: Receiver<Box<EndedRequest>>,
    /// Disconnected when the proxy has stopped.
    stop: Receiver<()>,
    counters: Arc<TraceCounters>,
    clock: Clock,
    /// The pause after the next failure.
    pause: Duration,
    /// No attempt before this time.
    quiet_until: Nanos,
    /// When the thread must have ended; never while the proxy runs.
    ends_at: Nanos,
}

impl Exporter {
    /// An exporter of the requests in this queue.
    ///
    /// # Errors
    /// If the URL is invalid, which `Config::check` has excluded.
    pub(crate) fn new(
        config: &TracesConfig,
        lookup: Lookup,
        backends: Vec<TracedBackend>,
        (requests, stop): (Receiver<Box<EndedRequest>>, Receiver<()>),
        counters: Arc<TraceCounters>,
        clock: Clock,
    ) -> io::Result<Exporter> {
        let TracesConfig { url, sample, keys, service, .. } = config;
        Ok(Exporter {
            collector: url.parse().map_err(io::Error::other)?,
            lookup,
            spans: Spans::new(service, *sample, *keys, backends),
            requests,
            stop,
            counters,
            clock,
            pause: PAUSE,
            quiet_until: Nanos::UNSET,
            ends_at: Nanos::NEVER,
        })
    }

    /// Sends until the proxy has stopped, and then what is left.
    pub(crate) fn run(mut self) {
        loop {
            self.rest(INTERVAL.max(self.quiet_until.after(self.clock.now())));
            loop {
                let batch: Vec<EndedRequest> = self.requests.try_iter().take(BATCH_MAX).map(|one| *one).collect();
                if batch.is_empty() {
                    break;
                }
                let count = batch.len() as u64;
                let is_delivered = self.export(batch);
                if !self.counters.finish(count, is_delivered) {
                    return;
                }
                // While the collector wants no spans, requests wait in the queue.
                self.rest(self.quiet_until.after(self.clock.now()));
            }
            if self.is_ending() {
                return;
            }
        }
    }

    /// Sends requests, if necessary several times. Returns whether a collector has accepted them.
    fn export(&mut self, batch: Vec<EndedRequest>) -> bool {
        let anchor = Anchor { now: self.clock.now(), unix_ns: unix_now() };
        let body = self.spans.encode(&batch, anchor);
        drop(batch);
        loop {
            let now = self.clock.now();
            if now < self.quiet_until || now >= self.ends_at || self.counters.is_closed() {
                // The proxy has stopped, and does not wait for a collector that is away.
                return false;
            }
            let until = (now + TIMEOUT).min(self.ends_at);
            let problem = match post(&self.collector, &self.lookup, &body, until, &self.clock) {
                Ok(reply) if (200..300).contains(&reply.status) => {
                    self.pause = PAUSE;
                    self.counters.rejected_spans.fetch_add(rejected_spans(&reply.body), Ordering::Relaxed);
                    return true;
                }
                // Those that the specification of OTLP/HTTP calls retryable.
                Ok(reply) if matches!(reply.status, 429 | 502..=504) => {
                    self.be_quiet(reply.retry_after);
                    format!("it replied with status {}", reply.status)
                }
                Ok(reply) => {
                    self.counters.attempt_failed(format!("it refused the spans with status {}", reply.status));
                    return false;
                }
                Err(error) => {
                    self.be_quiet(None);
                    error.to_string()
                }
            };
            self.counters.attempt_failed(problem);
            if self.quiet_until > anchor.now + AGE_MAX {
                return false;
            }
            self.rest(self.quiet_until.after(self.clock.now()));
        }
    }

    /// Makes no attempt for a while.
    fn be_quiet(&mut self, retry_after: Option<Duration>) {
        let pause = retry_after.map_or(self.pause, |asked| asked.clamp(PAUSE, RETRY_AFTER_MAX));
        self.quiet_until = self.clock.now() + pause;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }

    /// Waits for this time, or until the proxy has stopped.
    fn rest(&mut self, time: Duration) {
        if !time.is_zero() && !self.is_ending() && self.stop.recv_timeout(time) != Err(RecvTimeoutError::Timeout) {
            self.ends_at = self.clock.now() + END_WAIT;
        }
    }

    fn is_ending(&self) -> bool {
        self.ends_at != Nanos::NEVER
    }
}
