//! What the clients of one thread share: clock, draws, counts, records, who is thinking until when, and who is free.
//! Every request ends here, once, answered or not.

use crate::arrivals::ArrivalClock;
use crate::config::Config;
use crate::encoder::Encoder;
use crate::lane::{Line, RETRY_FIRST};
use crate::plan::Plan;
use crate::schedule::Schedule;
use crate::seconds::Handover;
use crate::tally::{Ended, Operation, Tally};
use crate::versions::Versions;
use crate::window::{Judge, Pending};
use clock::{Clock, Nanos, duration_ns};
use net::Buffers;
use placement::Placement;
use records::{Outcome, PARENT, Row, RowSender, is_sampled};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::mpsc::Sender;
use std::time::Duration;
use wire::{Limits, Verb};

/// What all threads share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shared<'a> {
    pub(crate) config: &'a Config,
    pub(crate) clock: &'a Clock,
    pub(crate) plan: &'a Plan,
    pub(crate) versions: &'a Versions,
    pub(crate) encoder: &'a Encoder,
    pub(crate) placement: Option<&'a Placement>,
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
    /// Several servers, and which keys are whose.
    placement: Option<&'a Placement>,
    /// Keys of a request and their servers; kept for its memory.
    pub(crate) keys: Vec<(usize, u64)>,
    /// Clients that think, and when they are done, the earliest first.
    thinkers: BinaryHeap<Reverse<(Nanos, usize)>>,
    open: Option<OpenLoop>,
    seconds: Sender<Handover>,
    records: Option<RowSender>,
    /// Requests issued and requests ended: equal when the thread ends.
    pub(crate) issued: u64,
    ended: u64,
}

/// The open loop of one thread.
#[derive(Debug)]
struct OpenLoop {
    clock: ArrivalClock,
    /// Clients that may take an arrival, as often as they may take one, and since when; the one that has been free longest first.
    free: VecDeque<(usize, Nanos)>,
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
        let clock = ArrivalClock::new(config, thread, shared.plan.start);
        Worker {
            shared,
            thread,
            schedule: Schedule::new(config, thread),
            encoder: shared.encoder.clone(),
            judge: Judge { versions: shared.versions, keys: &shared.encoder.keys, sizes: &shared.encoder.sizes },
            limits: reply_limits(config),
            buffers: Buffers::default(),
            tally: Tally::new(),
            placement: shared.placement,
            keys: Vec::new(),
            thinkers: BinaryHeap::new(),
            open: clock.map(|clock| OpenLoop { clock, free: VecDeque::new() }),
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
            self.tally.requests_sent += 1;
        } else {
            self.tally.requests_sent += u64::from(pending.sent.is_set());
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
        // An open loop follows to its end what was intended in the window: the slowest must not be left out.
        let counted_at = if self.open.is_some() { pending.intended } else { completed };
        let plan = self.shared.plan;
        self.tally.completed += u64::from(outcome == Outcome::Answered && plan.in_window(completed));
        self.tally.record(&ended, plan.in_window(counted_at));
        if let Some(records) = &mut self.records
            && is_sampled(line.port, pending.sequence, records.sample())
        {
            let stamps = [pending.intended.0, pending.issued.0, sent.0, completed.0];
            records.push(&row(pending, line, self.thread, outcome), &stamps);
        }
    }

    /// Hands over the second that is past.
    pub(crate) fn roll(&mut self, now: Nanos) {
        let now_in = self.shared.plan.second(now);
        if let Some(past) = self.tally.roll(now_in) {
            // The collector outlives the threads.
            let _ = self.seconds.send(Handover { thread: self.thread, now_in, past });
        }
    }

    /// Which of a client's connections a key goes to.
    pub(crate) fn owner(&mut self, key: u64) -> usize {
        match self.placement {
            Some(placement) => placement.owner(self.encoder.key(key)),
            None => 0,
        }
    }

    /// One of the requests that a client may have in flight at the beginning: free for an arrival, or to be thought about.
    pub(crate) fn begin(&mut self, client: usize, ready: &mut VecDeque<Nanos>, now: Nanos) {
        match &mut self.open {
            Some(open) => open.free.push_back((client, now)),
            None => {
                let think_ns = self.schedule.first_think_ns();
                self.think(client, ready, now, think_ns);
            }
        }
    }

    /// What follows a request that has ended: its client thinks about the next, or is free for the next arrival.
    pub(crate) fn next(&mut self, client: usize, ready: &mut VecDeque<Nanos>, completed: Nanos, outcome: Outcome) {
        if let Some(open) = &mut self.open {
            return open.free.push_back((client, completed));
        }
        let mut think_ns = self.schedule.think_ns();
        if outcome == Outcome::BackendDown {
            // What is refused at once must not be asked for again at once.
            think_ns = think_ns.max(duration_ns(RETRY_FIRST));
        }
        self.think(client, ready, completed, think_ns);
    }

    fn think(&mut self, client: usize, ready: &mut VecDeque<Nanos>, from: Nanos, think_ns: u64) {
        match think_ns {
            0 => ready.push_back(from),
            think_ns => self.thinkers.push(Reverse((from + Duration::from_nanos(think_ns), client))),
        }
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

    /// An arrival that is due, and the client that takes it; none while no client that is free is connected.
    pub(crate) fn next_arrival(&mut self, now: Nanos, can_issue: impl Fn(usize) -> bool) -> Option<(Nanos, usize)> {
        let open = self.open.as_mut()?;
        let due = open.clock.next();
        if due > now || due >= self.shared.plan.measure_to() {
            return None;
        }
        let at = open.free.iter().position(|&(client, _)| can_issue(client))?;
        let (client, free_since) = open.free.remove(at)?;
        open.clock.advance();
        let plan = self.shared.plan;
        self.tally.arrive(plan.second(due), plan.in_window(due), now.since(due.max(free_since)));
        Some((due, client))
    }

    /// When something is due next. Arrivals that no client is free for are overdue, and wait for a reply.
    pub(crate) fn next_due(&self) -> Option<Nanos> {
        match &self.open {
            Some(open) => (!open.free.is_empty()).then(|| open.clock.next()),
            None => self.thinkers.peek().map(|Reverse((due, _))| *due),
        }
    }

    /// Whether nothing more is to be issued.
    pub(crate) fn is_over(&self, now: Nanos) -> bool {
        let plan = self.shared.plan;
        // Where a number of requests decides, there is nothing to catch up with when the last has been issued.
        let has_end = self.shared.config.requests.is_none();
        let is_behind = self.open.as_ref().is_some_and(|open| has_end && open.clock.next() < plan.measure_to());
        plan.is_over(now) && (!is_behind || now >= plan.issue_until())
    }

    /// Hands over the records that have gathered.
    pub(crate) fn flush_records(&mut self) {
        if let Some(records) = &mut self.records {
            records.flush();
        }
    }

    /// The counts, and how many requests were issued and never ended (a bug if any).
    pub(crate) fn close(mut self) -> (Tally, u64) {
        // What an open loop intended and never sent. A number of requests is issued to the last.
        if let (Some(open), false) = (&mut self.open, self.shared.config.requests.is_some()) {
            let plan = self.shared.plan;
            while open.clock.next() < plan.measure_to() {
                self.tally.miss(plan.second(open.clock.next()), plan.in_window(open.clock.next()));
                open.clock.advance();
            }
        }
        (self.tally, self.issued - self.ended)
    }
}

/// Replies may be as large as our values, and as memcached's usual ones.
pub(crate) fn reply_limits(config: &Config) -> Limits {
    let usual = Limits::default();
    Limits { value_bytes: usual.value_bytes.max(config.value_sizes().largest()), ..usual }
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
        legs: pending.parts,
        ..Row::default()
    }
}
