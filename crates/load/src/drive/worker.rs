//! Steps 2 and 9: the state that the clients of one thread share. It has the clock, the random numbers, the
//! counts, the records, and which clients think or are free. Every request ends here exactly once, answered or not.

use crate::config::Config;
use crate::drive::connection::{ConnectionId, RETRY_FIRST};
use crate::drive::encoder::Encoder;
use crate::drive::pace::{Closed, Open, Pace};
use crate::drive::pending::PendingRequest;
use crate::drive::plan::Plan;
use crate::drive::window::Verifier;
use crate::measure::request::EndedRequest;
use crate::measure::seconds::Handover;
use crate::measure::tally::Tally;
use crate::messages::{Conversation, MessageOperation, MessagesContext};
use crate::workload::arrivals::ArrivalClock;
use crate::workload::replay::{BufferedRow, Due, Replay};
use crate::workload::schedule::Schedule;
use crate::workload::versions::Versions;
use clock::{Clock, Nanos, duration_ns};
use key_distribution::KeyDistribution;
use net::Buffers;
use records::{Outcome, PARENT, Row, RowSender, is_sampled};
use std::collections::VecDeque;
use std::sync::mpsc::Sender;
use std::time::Duration;
use wire::Limits;

/// A poll without a wait takes less time than this.
const POLL_MAX_NS: u64 = 20_000;

/// The references that all threads share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunContext<'a> {
    pub(crate) config: &'a Config,
    pub(crate) clock: &'a Clock,
    pub(crate) plan: &'a Plan,
    pub(crate) versions: &'a Versions,
    pub(crate) encoder: &'a Encoder,
    pub(crate) key_distribution: Option<&'a KeyDistribution>,
    /// Present in a run with messages only.
    pub(crate) messages: Option<&'a MessagesContext>,
}

/// The tools and counts of one thread.
#[derive(Debug)]
pub(crate) struct Worker<'a> {
    pub(crate) context: RunContext<'a>,
    thread: usize,
    pub(crate) schedule: Schedule,
    pub(crate) encoder: Encoder,
    pub(crate) verifier: Verifier<'a>,
    pub(crate) limits: Limits,
    /// Present for message services only; the fields for memcached are then unused.
    pub(crate) conversation: Option<Conversation<'a>>,
    pub(crate) buffers: Buffers,
    pub(crate) tally: Tally,
    /// The key distribution, if there are several servers.
    key_distribution: Option<&'a KeyDistribution>,
    /// The keys of a request and their servers. The vector is reused.
    pub(crate) keys: Vec<(usize, u64)>,
    pace: Pace,
    seconds: Sender<Handover>,
    /// When the current second of the run ends. Unset until something is counted.
    second_ends: Nanos,
    records: Option<RowSender>,
    /// Requests issued and requests ended. They are equal when the thread ends.
    pub(crate) issued: u64,
    ended: u64,
}

impl<'a> Worker<'a> {
    /// The state of thread number `thread`.
    pub(crate) fn new(
        context: RunContext<'a>,
        thread: usize,
        seconds: Sender<Handover>,
        records: Option<RowSender>,
        replay: Option<Replay>,
    ) -> Worker<'a> {
        let config = context.config;
        let clock = ArrivalClock::new(config, thread, context.plan.start);
        let pace = match (replay, clock) {
            (Some(replay), _) => Pace::Replay(replay),
            (None, Some(clock)) => Pace::Open(Open { clock, free: VecDeque::new() }),
            (None, None) => Pace::Closed(Closed::default()),
        };
        Worker {
            context,
            thread,
            schedule: Schedule::new(config, thread),
            encoder: context.encoder.clone(),
            verifier: Verifier {
                versions: context.versions,
                keys: &context.encoder.keys,
                sizes: &context.encoder.sizes,
                is_replay: config.trace.is_some(),
            },
            limits: reply_limits(config),
            conversation: context.messages.map(|messages| Conversation::new(messages, thread)),
            buffers: Buffers::default(),
            tally: Tally::new(),
            key_distribution: context.key_distribution,
            keys: Vec::new(),
            pace,
            seconds,
            second_ends: Nanos::UNSET,
            records,
            issued: 0,
            ended: 0,
        }
    }

    pub(crate) fn now(&self) -> Nanos {
        self.context.clock.now()
    }

    /// Step 9: counts a request that has ended, and records it if it is sampled.
    pub(crate) fn record_result(
        &mut self,
        pending: &PendingRequest,
        id: ConnectionId,
        completed: Nanos,
        outcome: Outcome,
    ) {
        self.ended += 1;
        // A server may refuse a request before it has received all of it.
        let sent = if pending.sent.is_set() { pending.sent } else { pending.issued };
        if matches!(outcome, Outcome::Answered | Outcome::ClientError | Outcome::ServerError) {
            self.tally.requests_answered += 1;
            self.tally.requests_sent += 1;
        } else {
            self.tally.requests_sent += u64::from(pending.sent.is_set());
        }
        let ended = EndedRequest {
            operation: pending.operation,
            intended: pending.intended,
            sent,
            completed,
            keys: pending.keys,
            hits: pending.hits,
            request_bytes: pending.request_bytes,
            reply_bytes: pending.reply_bytes,
            failed: outcome != Outcome::Answered,
            message: pending.message,
        };
        self.roll(completed);
        let plan = self.context.plan;
        // An open loop counts the requests that were intended in the window and waits for all their replies. Otherwise
        // the slowest requests would be missing. A closed loop counts a request when it ends. One that has no answer at
        // the end of the window and never gets one failed within the window.
        let counted_at = match (self.pace.is_open(), ended.failed) {
            (true, _) => pending.intended,
            (false, true) => completed.min(plan.last_instant()),
            (false, false) => completed,
        };
        let counts = |at| plan.counts(pending.is_charged, at);
        self.tally.completed += u64::from(outcome == Outcome::Answered && counts(completed));
        self.tally.record(&ended, counts(counted_at));
        if let Some(whole) = self.conversation.as_mut().and_then(|conversation| conversation.whole(id.client, &ended)) {
            let counted_at = if self.pace.is_open() { whole.intended } else { completed };
            self.tally.record_whole(&whole, counts(counted_at));
        }
        if let Some(records) = &mut self.records
            && is_sampled(id.port, pending.sequence, records.sample())
        {
            let stamps = [pending.intended.0, pending.issued.0, sent.0, completed.0];
            records.push(&row(pending, id, self.thread, outcome), &stamps);
        }
    }

    /// Adds the time from `from` to `to`, during which the loop polled without sleeping. A poll that took longer than
    /// usual was interrupted by the operating system, so the rest of its time was not ours.
    pub(crate) fn polled(&mut self, from: Nanos, to: Nanos) {
        if self.context.plan.in_window(to) {
            self.tally.polled_ns += to.since(from).min(POLL_MAX_NS);
        }
    }

    /// Sends the counts of the past second to the collector when a new second has begun.
    #[inline]
    pub(crate) fn roll(&mut self, now: Nanos) {
        if now >= self.second_ends {
            self.hand_over(now);
        }
    }

    fn hand_over(&mut self, now: Nanos) {
        let now_in = self.context.plan.second(now);
        self.second_ends = self.context.plan.start + Duration::from_secs(now_in + 1);
        if let Some(past) = self.tally.roll(now_in) {
            // The collector outlives the threads.
            let _ = self.seconds.send(Handover { thread: self.thread, now_in, past });
        }
    }

    /// The index of the client's connection whose server owns `key`.
    pub(crate) fn owner(&mut self, key: u64) -> usize {
        match self.key_distribution {
            Some(keys) => keys.owner(self.encoder.key(key)),
            None => 0,
        }
    }

    /// The same for the text of a key.
    pub(crate) fn owner_of(&self, key: &[u8]) -> usize {
        self.key_distribution.map_or(0, |keys| keys.owner(key))
    }

    /// Prepares one of the requests that a client may have in flight. In an open loop it waits for an arrival; in a
    /// closed loop the client thinks first.
    pub(crate) fn begin(&mut self, client: usize, ready: &mut VecDeque<Nanos>, now: Nanos) {
        match &mut self.pace {
            Pace::Open(open) => open.free.push_back((client, now)),
            Pace::Replay(_) => {}
            Pace::Closed(_) => {
                let think_ns = self.schedule.first_think_ns();
                self.think(client, ready, now, think_ns);
            }
        }
    }

    /// Continues after a request has ended: its client starts to think, or becomes free for the next arrival.
    pub(crate) fn after_reply(
        &mut self,
        client: usize,
        ready: &mut VecDeque<Nanos>,
        completed: Nanos,
        outcome: Outcome,
    ) {
        match &mut self.pace {
            Pace::Open(open) => return open.free.push_back((client, completed)),
            Pace::Replay(_) => return,
            Pace::Closed(_) => {}
        }
        let mut think_ns = self.schedule.think_ns();
        if outcome == Outcome::BackendDown {
            // A request that fails at once must not be repeated at once.
            think_ns = think_ns.max(duration_ns(RETRY_FIRST));
        }
        if let Some(conversation) = &mut self.conversation {
            think_ns = think_ns.max(duration_ns(conversation.take_back_off(client)));
        }
        self.think(client, ready, completed, think_ns);
    }

    fn think(&mut self, client: usize, ready: &mut VecDeque<Nanos>, from: Nanos, think_ns: u64) {
        match &mut self.pace {
            Pace::Closed(closed) if think_ns > 0 => {
                closed.think_until(from + Duration::from_nanos(think_ns), client);
            }
            _ => ready.push_back(from),
        }
    }

    /// Step 2: passes each request that is due to `issue`, with its client, its intended time and its row of a
    /// trace. Returns when the next request is due, if that is known.
    pub(crate) fn take_due(
        &mut self,
        now: Nanos,
        can_issue: impl Fn(usize) -> bool,
        mut issue: impl FnMut(usize, Nanos, Option<BufferedRow>),
    ) -> Option<Nanos> {
        let plan = self.context.plan;
        match &mut self.pace {
            Pace::Closed(closed) => {
                while let Some((due, client)) = closed.next_awake(now) {
                    issue(client, due, None);
                }
                closed.next_due()
            }
            Pace::Open(open) => {
                while let Some(arrival) = open.next_arrival(now, plan.measure_to(), &can_issue) {
                    let late_ns = now.since(arrival.due.max(arrival.free_since));
                    self.tally.count_arrival(plan.second(arrival.due), plan.in_window(arrival.due), late_ns);
                    issue(arrival.client, arrival.due, None);
                }
                open.next_due()
            }
            Pace::Replay(replay) => loop {
                match replay.next(now) {
                    Due::Row(client, due, row) => {
                        if replay.is_paced() {
                            self.tally.count_arrival(plan.second(due), plan.in_window(due), now.since(due));
                        }
                        issue(client, due, Some(row));
                    }
                    Due::At(due) => break Some(due),
                    Due::Full | Due::Over => break None,
                }
            },
        }
    }

    /// Notes that a client is connected again. It has not been free while it was disconnected.
    pub(crate) fn reconnected(&mut self, client: usize) {
        let now = self.now();
        if let Pace::Open(open) = &mut self.pace {
            open.reconnected(client, now);
        }
    }

    /// Notes that rows of a trace have left their client's buffer.
    pub(crate) fn rows_released(&mut self, rows: usize) {
        if let Pace::Replay(replay) = &mut self.pace {
            replay.rows_released(rows);
        }
    }

    /// Whether rows of a trace are sent as fast as possible. The intended time of a row is then the time of its issue.
    pub(crate) fn is_unpaced(&self) -> bool {
        matches!(&self.pace, Pace::Replay(replay) if !replay.is_paced())
    }

    /// Whether the thread issues no further requests.
    pub(crate) fn is_over(&self, now: Nanos) -> bool {
        let plan = self.context.plan;
        self.pace.is_over() || (plan.is_over(now) && (!self.pace.is_behind(plan) || now >= plan.issue_until()))
    }

    /// Hands over the records collected so far.
    pub(crate) fn flush_records(&mut self) {
        if let Some(records) = &mut self.records {
            records.flush();
        }
    }

    /// The counts, the number of requests that were issued and never ended (a bug if above 0), and the queues that
    /// clients created and did not delete.
    pub(crate) fn close(mut self) -> (Tally, u64, Vec<String>) {
        // Requests that an open loop intended and never sent.
        let plan = self.context.plan;
        while let Pace::Open(open) = &mut self.pace
            && plan.measure_to() != Nanos::NEVER
            && open.clock.next() < plan.measure_to()
        {
            self.tally.count_unsent(plan.second(open.clock.next()), plan.in_window(open.clock.next()));
            open.clock.advance();
        }
        let own_queues = self.conversation.as_ref().map(Conversation::own_queues).unwrap_or_default();
        (self.tally, self.issued - self.ended, own_queues)
    }
}

/// Replies may be as large as this run's largest value, and at least as large as memcached's default limit.
pub(crate) fn reply_limits(config: &Config) -> Limits {
    let usual = Limits::default();
    Limits { value_bytes: usual.value_bytes.max(config.value_sizes().largest()), ..usual }
}

/// The record of a request.
fn row(pending: &PendingRequest, id: ConnectionId, thread: usize, outcome: Outcome) -> Row {
    Row {
        connection: id.number,
        sequence: pending.sequence,
        request_bytes: u32::try_from(pending.request_bytes).unwrap_or(u32::MAX),
        reply_bytes: u32::try_from(pending.reply_bytes).unwrap_or(u32::MAX),
        port: id.port,
        backend: id.server,
        keys: u16::try_from(pending.keys).unwrap_or(u16::MAX),
        hits: u16::try_from(pending.hits).unwrap_or(u16::MAX),
        r#loop: thread as u8,
        operation: pending.message.map_or(pending.verb as u8, MessageOperation::record),
        outcome: outcome as u8,
        leg: PARENT,
        legs: pending.parts,
        ..Row::default()
    }
}
