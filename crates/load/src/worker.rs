//! What the clients of one thread share: clock, draws, counts, records, and who is thinking until when.
//! Every request ends here, once, answered or not.

use crate::config::Config;
use crate::encoder::Encoder;
use crate::plan::Plan;
use crate::schedule::Schedule;
use crate::seconds::Handover;
use crate::tally::{Ended, Operation, Tally};
use crate::versions::Versions;
use crate::window::{Judge, Pending};
use clock::{Clock, Nanos};
use net::Buffers;
use records::{Outcome, PARENT, Row, RowSender, is_sampled};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::mpsc::Sender;
use wire::{Limits, Verb};

/// What all threads share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shared<'a> {
    pub(crate) config: &'a Config,
    pub(crate) clock: &'a Clock,
    pub(crate) plan: &'a Plan,
    pub(crate) versions: &'a Versions,
}

/// One thread's tools and books.
#[derive(Debug)]
pub(crate) struct Worker<'a> {
    pub(crate) shared: Shared<'a>,
    thread: usize,
    pub(crate) schedule: Schedule,
    pub(crate) encoder: Encoder,
    pub(crate) judge: Judge<'a>,
    pub(crate) limits: Limits,
    pub(crate) buffers: Buffers,
    pub(crate) tally: Tally,
    /// Clients that think, and when they are done, the earliest first.
    thinkers: BinaryHeap<Reverse<(Nanos, usize)>>,
    seconds: Sender<Handover>,
    records: Option<RowSender>,
    /// Requests issued and requests ended: equal when the thread ends.
    pub(crate) issued: u64,
    ended: u64,
}

/// Which connection a request was on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Line {
    /// Number of the client within its thread.
    pub(crate) client: usize,
    /// Number of the connection within the run.
    pub(crate) connection: u32,
    /// Our port.
    pub(crate) port: u16,
    /// Number of the server in the order of the flags.
    pub(crate) server: u16,
}

impl<'a> Worker<'a> {
    /// The tools of thread number `thread`.
    pub(crate) fn new(
        shared: Shared<'a>,
        thread: usize,
        seconds: Sender<Handover>,
        records: Option<RowSender>,
    ) -> Worker<'a> {
        let config = shared.config;
        Worker {
            shared,
            thread,
            schedule: Schedule::new(config, thread),
            encoder: Encoder::new(&config.key_prefix, config.data_size_bytes),
            judge: Judge {
                versions: shared.versions,
                key_prefix: config.key_prefix.as_bytes(),
                data_size_bytes: config.data_size_bytes,
            },
            limits: reply_limits(config),
            buffers: Buffers::default(),
            tally: Tally::new(),
            thinkers: BinaryHeap::new(),
            seconds,
            records,
            issued: 0,
            ended: 0,
        }
    }

    /// The time now.
    pub(crate) fn now(&self) -> Nanos {
        self.shared.clock.now()
    }

    /// Ends a request: counts it and records it.
    pub(crate) fn end(&mut self, pending: &Pending, line: Line, completed: Nanos, outcome: Outcome) {
        self.ended += 1;
        // A server may refuse a request before it has taken all of it.
        let sent = if pending.sent.is_set() { pending.sent } else { pending.issued };
        if matches!(outcome, Outcome::Answered | Outcome::ClientError | Outcome::ServerError) {
            self.tally.requests_answered += 1;
            self.tally.requests_sent += u64::from(!pending.sent.is_set());
        }
        let ended = Ended {
            operation: pending.operation,
            intended: pending.intended,
            sent,
            completed,
            keys: pending.keys,
            hits: pending.hits,
            request_bytes: pending.request_bytes,
            reply_bytes: pending.reply_bytes,
            failed: outcome != Outcome::Answered,
        };
        self.roll(completed);
        self.tally.record(&ended);
        if let Some(records) = &mut self.records
            && is_sampled(line.port, pending.sequence, records.sample())
        {
            let stamps = [pending.intended.0, pending.issued.0, sent.0, completed.0];
            records.push(&row(pending, line, self.thread, outcome), &stamps);
        }
    }

    /// Hands over the part of the run that is past.
    pub(crate) fn roll(&mut self, now: Nanos) {
        let now_in = self.shared.plan.second(now);
        if let Some(past) = self.tally.roll(now_in, self.shared.plan.in_window(now)) {
            // The collector outlives the threads.
            let _ = self.seconds.send(Handover { thread: self.thread, now_in, past });
        }
    }

    /// Lets a client think until `due`.
    pub(crate) fn think_until(&mut self, due: Nanos, client: usize) {
        self.thinkers.push(Reverse((due, client)));
    }

    /// A client that is done thinking, and since when.
    pub(crate) fn next_awake(&mut self, now: Nanos) -> Option<(Nanos, usize)> {
        let Reverse((due, client)) = *self.thinkers.peek()?;
        if due > now {
            return None;
        }
        self.thinkers.pop();
        Some((due, client))
    }

    /// When the next client is done thinking.
    pub(crate) fn next_due(&self) -> Option<Nanos> {
        self.thinkers.peek().map(|Reverse((due, _))| *due)
    }

    /// Hands over the records that have gathered.
    pub(crate) fn flush_records(&mut self) {
        if let Some(records) = &mut self.records {
            records.flush();
        }
    }

    /// The counts, and how many requests were issued and never ended (a bug if any).
    pub(crate) fn close(self) -> (Tally, u64) {
        (self.tally, self.issued - self.ended)
    }
}

/// Replies may be as large as our values, and as memcached's usual ones.
pub(crate) fn reply_limits(config: &Config) -> Limits {
    let usual = Limits::default();
    Limits { value_bytes: usual.value_bytes.max(config.data_size_bytes), ..usual }
}

/// The record of a request.
fn row(pending: &Pending, line: Line, thread: usize, outcome: Outcome) -> Row {
    let verb = match pending.operation {
        Operation::Get => Verb::Get,
        Operation::Set => Verb::Set,
    };
    Row {
        connection: line.connection,
        sequence: pending.sequence,
        request_bytes: u32::try_from(pending.request_bytes).unwrap_or(u32::MAX),
        reply_bytes: u32::try_from(pending.reply_bytes).unwrap_or(u32::MAX),
        port: line.port,
        backend: line.server,
        keys: u16::try_from(pending.keys).unwrap_or(u16::MAX),
        hits: u16::try_from(pending.hits).unwrap_or(u16::MAX),
        r#loop: thread as u8,
        operation: verb as u8,
        outcome: outcome as u8,
        leg: PARENT,
        legs: 1,
        ..Row::default()
    }
}
