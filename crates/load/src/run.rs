//! A run from beginning to end: prefill, connections, threads, the edges of the measured window, the summary.
//! The conducting thread sleeps, except to collect seconds, to read the CPU time at the edges of the window and to poll
//! the stop flag.

use crate::LoadError;
use crate::config::Config;
use crate::drive::encoder::Encoder;
use crate::drive::event_loop::{EventLoop, ThreadResult};
use crate::drive::lane::Lane;
use crate::drive::plan::Plan;
use crate::drive::worker::{RunContext, Worker};
use crate::drive::{connect, prefill};
use crate::measure::seconds::{Handover, SecondsCollector};
use crate::measure::tally::Tally;
use crate::messages::{MessagesContext, RunQueues};
use crate::progress::{Progress, ProgressReporter};
use crate::report::summarise::{MeasuredRun, summarise};
use crate::report::summary::Summary;
use crate::workload::replay::Replay;
use crate::workload::trace::{TraceReader, TraceRows};
use crate::workload::versions::Versions;
use clock::{Clock, CpuTime, Nanos, process_cpu, unix_now};
use records::{Program, RowSender, Writer};
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

/// The longest sleep of the conductor.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// A stopped run ends this long after the stop flag was seen. All threads notice the new end before it passes, so they
/// agree on it.
const STOP_NOTICE: Duration = Duration::from_millis(10);
/// The run is given up after every connection has been lost for this long.
const GIVE_UP_AFTER: Duration = Duration::from_secs(10);
/// At the end of a run, servers count as gone if every connection has been lost for this long. After a shorter time the
/// clients may just be reconnecting.
const GONE_AFTER: Duration = Duration::from_secs(1);

/// The state of the conducting thread.
struct Conductor<'a> {
    plan: &'a Plan,
    clock: &'a Clock,
    stop: &'a AtomicBool,
    cpu_from: Option<CpuTime>,
    cpu_to: Option<CpuTime>,
    /// The time since which no client has been connected.
    dead_since: Option<Nanos>,
    gave_up: bool,
    /// Whether the stop flag ended the run.
    stopped: bool,
}

/// A run that is ready to start: the prefill is done and every client is connected.
#[derive(Debug)]
pub struct Prepared<'a> {
    config: &'a Config,
    clock: &'a Clock,
    versions: Versions,
    lanes: Vec<Vec<Lane>>,
    writer: Option<Writer>,
    reader: Option<TraceReader>,
    replays: Vec<Option<TraceRows>>,
    queues: Option<RunQueues>,
}

/// Loads the servers as configured. When `stop` is set, the run ends early and the summary contains what was measured
/// so far.
///
/// # Errors
/// The run cannot start, or its records cannot be written. Server failures during the run are counted in the summary.
pub fn run(
    config: &Config,
    clock: &Clock,
    stop: &AtomicBool,
    watch: &mut dyn FnMut(Progress<'_>),
) -> Result<Summary, LoadError> {
    prepare(config, clock, stop, watch)?.run_from(clock.now(), stop, watch)
}

/// Prefills, connects and opens the trace and the records, without sending a measured request.
///
/// # Errors
/// The run cannot start.
pub fn prepare<'a>(
    config: &'a Config,
    clock: &'a Clock,
    stop: &AtomicBool,
    watch: &mut dyn FnMut(Progress<'_>),
) -> Result<Prepared<'a>, LoadError> {
    config.check().map_err(LoadError::Config)?;
    let addresses = connect::resolve(config)?;
    let (reader, replays) = match &config.trace {
        Some(trace) => {
            let (reader, rows) = TraceReader::start(trace, config.threads)?;
            (Some(reader), rows.into_iter().map(Some).collect())
        }
        None => (None, (0..config.threads).map(|_| None).collect::<Vec<_>>()),
    };
    let queues = match MessagesContext::new(config, unix_now()) {
        Some(context) => {
            let mut report = |what, done, of| watch(Progress::Stage { what, done, of });
            let progress = &mut ProgressReporter::new(clock, &mut report);
            Some(RunQueues::create(context, &addresses, config.reply_timeout, stop, progress)?)
        }
        None => None,
    };
    if config.prefill && config.trace.is_none() && queues.is_none() {
        let mut report = |keys, of| watch(Progress::Prefill { keys, of });
        prefill::prefill(config, &addresses, clock, stop, &mut report)?;
    }
    let keys = if config.trace.is_some() || queues.is_some() { 0 } else { config.keys() };
    let versions = Versions::new(config.key_minimum, keys, config.prefill);
    let lanes = connect::lanes(config, &addresses)?;
    let writer = match &config.records {
        Some(directory) => {
            Some(Writer::create(directory, Program::Load, config.sample, clock).map_err(LoadError::Records)?)
        }
        None => None,
    };
    Ok(Prepared { config, clock, versions, lanes, writer, reader, replays, queues })
}

impl Prepared<'_> {
    /// Runs from `start`, which may be in the future. The warm-up and the measured window count from there.
    ///
    /// # Errors
    /// `stop` is set before the start, or the records cannot be written.
    pub fn run_from(
        self,
        start: Nanos,
        stop: &AtomicBool,
        watch: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Summary, LoadError> {
        let Prepared { config, clock, versions, lanes, writer, reader, replays, queues } = self;
        wait_until(start, clock, stop)?;
        let started_unix_ns = unix_now().saturating_sub(clock.now().since(start));
        let plan = Plan::new(config, start);
        let (encoder, key_distribution) = (Encoder::new(config), config.key_distribution());
        let key_distribution = key_distribution.as_ref();
        let messages = queues.as_ref().map(|queues| &queues.context);
        let context = RunContext {
            config,
            clock,
            plan: &plan,
            versions: &versions,
            encoder: &encoder,
            key_distribution,
            messages,
        };
        let senders = (0..config.threads).map(|_| writer.as_ref().map(Writer::sender)).collect();
        let mut conductor = Conductor::new(&plan, clock, stop);
        let (finished, seconds) = conductor.conduct(context, lanes, senders, replays, watch)?;

        let mut tally = Tally::new();
        finished.iter().for_each(|thread| tally.merge(&thread.tally));
        let lost: u64 = finished.iter().map(|thread| thread.lost).sum();
        let own_queues: Vec<String> = finished.iter().flat_map(|thread| thread.own_queues.iter().cloned()).collect();
        if let Some(writer) = writer {
            writer.close(lost).map_err(LoadError::Records)?;
        }
        let parts = finished.into_iter().map(|thread| thread.tally.into_part());
        let (window, seconds) = seconds.close(parts, tally.intended_in.len() as u64);
        let mut measured = conductor.measured(started_unix_ns, tally.last_completed, versions.uncertain());
        if let Some(reader) = reader {
            match reader.error() {
                Some(line) if tally.requests_sent == 0 => return Err(LoadError::BrokenTrace(line)),
                broken => measured.broken = measured.broken.or(broken),
            }
            reader.counts().first_broken.iter().for_each(|line| watch(Progress::Note(line)));
        }
        if let Some(queues) = queues {
            let mut report = |what, done, of| watch(Progress::Stage { what, done, of });
            let (messages, deleted) = queues.finish(clock, &own_queues, &mut ProgressReporter::new(clock, &mut report));
            measured.messages = Some(messages);
            deleted.unwrap_or_else(|line| watch(Progress::Note(&line)));
        }
        Ok(summarise(config, &measured, &tally, &window, seconds))
    }
}

fn wait_until(start: Nanos, clock: &Clock, stop: &AtomicBool) -> Result<(), LoadError> {
    loop {
        let left = start.after(clock.now());
        if left.is_zero() {
            return Ok(());
        }
        if stop.load(Ordering::Relaxed) {
            return Err(LoadError::Stopped);
        }
        thread::sleep(left.min(POLL_INTERVAL));
    }
}

impl<'a> Conductor<'a> {
    fn new(plan: &'a Plan, clock: &'a Clock, stop: &'a AtomicBool) -> Conductor<'a> {
        Conductor { plan, clock, stop, cpu_from: None, cpu_to: None, dead_since: None, gave_up: false, stopped: false }
    }

    /// Starts the threads and waits until all have ended.
    fn conduct(
        &mut self,
        context: RunContext<'_>,
        lanes: Vec<Vec<Lane>>,
        records: Vec<Option<RowSender>>,
        replays: Vec<Option<TraceRows>>,
        watch: &mut dyn FnMut(Progress<'_>),
    ) -> Result<(Vec<ThreadResult>, SecondsCollector), LoadError> {
        let (sender, receiver) = mpsc::channel();
        thread::scope(|scope| {
            let mut threads: Vec<ScopedJoinHandle<'_, Result<ThreadResult, LoadError>>> = Vec::new();
            for (number, ((lanes, records), rows)) in lanes.into_iter().zip(records).zip(replays).enumerate() {
                let sender = sender.clone();
                let is_unpaced = !context.config.is_open();
                let clients = lanes.len() / context.config.lanes_per_client();
                let replay = rows.map(|rows| Replay::new(rows, context.plan.start, is_unpaced, clients));
                let body = move || EventLoop::new(Worker::new(context, number, sender, records, replay), lanes)?.run();
                let spawned = thread::Builder::new().name(format!("load-{number}")).spawn_scoped(scope, body);
                threads.push(spawned.map_err(|error| {
                    self.plan.stop_at(Nanos::UNSET);
                    LoadError::Thread(error)
                })?);
            }
            drop(sender);
            let seconds = self.wait(&receiver, SecondsCollector::new(threads.len()), watch);
            let finished: Result<Vec<ThreadResult>, LoadError> =
                threads.into_iter().map(|thread| thread.join().map_err(|_| LoadError::Panicked)?).collect();
            finished.map(|finished| (finished, seconds))
        })
    }

    /// Collects seconds and watches the edges of the window until every thread has ended.
    fn wait(
        &mut self,
        receiver: &Receiver<Handover>,
        mut seconds: SecondsCollector,
        watch: &mut dyn FnMut(Progress<'_>),
    ) -> SecondsCollector {
        loop {
            match receiver.recv_timeout(self.poll()) {
                Ok(handover) => {
                    watch(Progress::Part(&handover.past));
                    let over = seconds.take(handover);
                    over.iter().for_each(|second| watch(Progress::Second(second)));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return seconds,
            }
        }
    }

    /// Does what is due now and returns how long the conductor may sleep.
    fn poll(&mut self) -> Duration {
        let now = self.clock.now();
        if self.stop.load(Ordering::Relaxed) {
            self.stopped |= !self.plan.is_over(now);
            self.plan.stop_at(now + STOP_NOTICE);
        }
        self.watch_connections(now);
        let mut sleep = POLL_INTERVAL;
        for (edge, cpu) in [(self.plan.measure_from, &mut self.cpu_from), (self.plan.measure_to(), &mut self.cpu_to)] {
            if now >= edge {
                cpu.get_or_insert_with(process_cpu);
            } else {
                sleep = sleep.min(edge.after(now));
            }
        }
        sleep
    }

    /// Gives the run up if no connection comes back.
    fn watch_connections(&mut self, now: Nanos) {
        if now >= self.plan.measure_to() {
            // After the window, the threads do not reconnect.
            return;
        }
        if self.plan.connected() > 0 {
            self.dead_since = None;
        } else if now.since(*self.dead_since.get_or_insert(now)) >= clock::duration_ns(GIVE_UP_AFTER) {
            self.gave_up = true;
            self.plan.stop_at(now + STOP_NOTICE);
        }
    }

    /// The measured window. If a number of requests limits the run, the window ends with the last reply.
    fn measured(&mut self, started_unix_ns: u64, last_completed: Nanos, keys_uncertain: u64) -> MeasuredRun {
        let from = self.plan.measure_from;
        let to = match self.plan.measure_to() {
            Nanos::NEVER => Nanos(last_completed.0.saturating_add(1)),
            to => to,
        };
        let cpu_to = mem::take(&mut self.cpu_to).unwrap_or_else(process_cpu);
        MeasuredRun {
            started_unix_ns,
            start: self.plan.start,
            from,
            to: to.max(from),
            cpu_from: self.cpu_from.unwrap_or(cpu_to),
            cpu_to,
            keys_uncertain,
            stopped: self.stopped,
            broken: self.broken(to),
            messages: None,
        }
    }

    fn broken(&self, end: Nanos) -> Option<String> {
        if self.gave_up {
            return Some(format!("every connection was lost, and none could be restored within {GIVE_UP_AFTER:?}"));
        }
        let is_gone = self.dead_since.is_some_and(|since| since + GONE_AFTER <= end);
        is_gone.then(|| "every connection was lost, and none was restored before the end".to_owned())
    }
}
