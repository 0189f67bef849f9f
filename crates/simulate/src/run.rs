//! Runs replications on all cores until there are enough, and adds them up in the order of their numbers.
//! The number of replications depends on their results only, never on the threads: the same seed gives the same result.

use crate::engine::observer::NoObserver;
use crate::error::{SimulateError, Stop};
use crate::length;
use crate::model::Model;
use crate::replication::recorder::{RecordFiles, Recorder, RecordsWritten};
use crate::replication::warm_up::find_warm_up;
use crate::replication::{Length, Outcome, random_of, replicate};
use crate::report::spread::Student;
use crate::report::totals::Totals;
use crate::report::{Conduct, Simulation, WarmUpUsed, report};
use crate::settings::{Settings, target};
use clock::{Clock, CpuTime, process_cpu};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// The interval at which the main thread checks the time limit.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The progress of a run.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Replications that are done.
    pub done: usize,
    /// Replications that are needed, as far as is known.
    pub wanted: usize,
    /// Largest half-width of a mean response time, as a share of the mean.
    pub relative_half_width: Option<f64>,
    /// Time since the start.
    pub elapsed: Duration,
}

type Message = (usize, Result<(Outcome, Option<RecordsWritten>), SimulateError>);

/// The state that the threads share.
struct Shared<'a> {
    model: &'a Model,
    settings: &'a Settings,
    length: Length,
    next: AtomicUsize,
    stop: AtomicBool,
}

/// The results of the replications so far.
struct Gathered {
    totals: Totals,
    student: Student,
    /// Outcomes that arrived before one with a lower number.
    early: BTreeMap<usize, Outcome>,
    records: Option<RecordsWritten>,
}

/// Simulates a model.
///
/// # Errors
/// If a setting is invalid, a replication cannot continue, records cannot be written, or the time limit is too short.
pub fn run(
    model: &Model,
    settings: &Settings,
    clock: &Clock,
    watch: &mut dyn FnMut(&Progress),
) -> Result<Simulation, SimulateError> {
    settings.check()?;
    let started = clock.now();
    let started_cpu = process_cpu();
    let elapsed = || clock.now().after(started);
    let mut gathered =
        Gathered { totals: Totals::new(model), student: Student::default(), early: BTreeMap::new(), records: None };
    let requests = length::requests(model, settings)?;
    let warm_up = warm_up(model, settings, requests, &elapsed)?;
    let mut wanted = settings.replications;
    let mut timed_out = false;
    let shared = Shared {
        model,
        settings,
        length: Length { warm_up: warm_up.requests, requests },
        next: AtomicUsize::new(0),
        stop: AtomicBool::new(false),
    };
    while gathered.totals.replications < wanted && !timed_out {
        timed_out = gather(&shared, wanted, &mut gathered, &elapsed, watch)?;
        wanted = more(model, settings, &gathered, wanted);
    }
    if gathered.totals.replications < 2 {
        let limit_s = settings.time_limit.as_secs_f64();
        return Err(SimulateError::TimeLimit { limit_s, done: gathered.totals.replications });
    }
    let conduct = Conduct {
        model,
        settings,
        requests,
        warm_up,
        shortfall: shortfall(model, &gathered.totals),
        timed_out,
        elapsed: elapsed(),
        cpu_s: cpu_s(process_cpu()) - cpu_s(started_cpu),
        records: gathered.records,
    };
    Ok(report(conduct, &gathered.totals, &gathered.student))
}

fn shortfall(model: &Model, totals: &Totals) -> Option<String> {
    let (warm_up_s, measured_s) = (totals.warm_up_s.mean()?, totals.measured_s.mean()?);
    length::shortfall(model, totals.replications, warm_up_s, measured_s)
}

fn cpu_s(time: CpuTime) -> f64 {
    time.user_s + time.system_s
}

/// The configured warm-up, or the one that a pilot replication finds. The time limit includes the pilot.
fn warm_up(
    model: &Model,
    settings: &Settings,
    measured: u64,
    elapsed: &dyn Fn() -> Duration,
) -> Result<WarmUpUsed, SimulateError> {
    if let Some(requests) = settings.warm_up {
        return Ok(WarmUpUsed { requests, method: "given", mser_requests: None, pilot_events: 0 });
    }
    let stop = AtomicBool::new(false);
    let known = length::least_warm_up(model, settings, measured);
    let found = std::thread::scope(|scope| {
        let pilot = scope.spawn(|| find_warm_up(model, settings.seed, measured, known, &stop));
        while !pilot.is_finished() {
            stop.fetch_or(elapsed() > settings.time_limit, Ordering::Relaxed);
            std::thread::park_timeout(Duration::from_millis(1));
        }
        pilot.join().unwrap_or(Err(Stop::Stuck))
    });
    match found {
        Ok(found) => Ok(WarmUpUsed {
            requests: found.requests,
            method: "mser-5",
            mser_requests: found.mser_requests,
            pilot_events: found.events,
        }),
        Err(Stop::Asked) => Err(SimulateError::TimeLimit { limit_s: settings.time_limit.as_secs_f64(), done: 0 }),
        Err(error) => Err(error.into()),
    }
}

/// Runs replications up to number `wanted`; returns whether the time limit ended them early.
fn gather(
    shared: &Shared<'_>,
    wanted: usize,
    gathered: &mut Gathered,
    elapsed: &dyn Fn() -> Duration,
    watch: &mut dyn FnMut(&Progress),
) -> Result<bool, SimulateError> {
    let (sender, receiver) = channel();
    let threads = shared.settings.threads.min(wanted - gathered.totals.replications);
    let outcome = std::thread::scope(|scope| {
        for _ in 0..threads {
            let sender = sender.clone();
            scope.spawn(move || work(shared, wanted, &sender));
        }
        drop(sender);
        let outcome = receive(shared, wanted, gathered, &receiver, elapsed, watch);
        shared.stop.store(true, Ordering::Relaxed);
        outcome
    });
    shared.stop.store(false, Ordering::Relaxed);
    shared.next.store(wanted, Ordering::Relaxed);
    outcome
}

/// One thread: takes the next number until there are enough replications.
fn work(shared: &Shared<'_>, wanted: usize, sender: &Sender<Message>) {
    loop {
        let number = shared.next.fetch_add(1, Ordering::Relaxed);
        if number >= wanted || shared.stop.load(Ordering::Relaxed) {
            return;
        }
        if sender.send((number, one(shared, number))).is_err() {
            return;
        }
    }
}

fn one(shared: &Shared<'_>, number: usize) -> Result<(Outcome, Option<RecordsWritten>), SimulateError> {
    // Stream 0 belongs to the pilot.
    let random = random_of(shared.settings.seed, number + 1);
    let (model, length, stop) = (shared.model, shared.length, &shared.stop);
    match &shared.settings.records {
        Some((directory, sample)) if number == 0 => {
            let files = RecordFiles::create(directory, *sample, model)?;
            let (outcome, recorder) = replicate(model, random, length, Recorder::new(files, model), stop)?;
            let written = recorder.close(outcome.measured_from_s, outcome.measured_s)?;
            Ok((outcome, Some(written)))
        }
        _ => Ok((replicate(model, random, length, NoObserver, stop)?.0, None)),
    }
}

/// Receives outcomes in any order and adds them up in the order of their numbers.
fn receive(
    shared: &Shared<'_>,
    wanted: usize,
    gathered: &mut Gathered,
    receiver: &Receiver<Message>,
    elapsed: &dyn Fn() -> Duration,
    watch: &mut dyn FnMut(&Progress),
) -> Result<bool, SimulateError> {
    let mut timed_out = false;
    loop {
        match receiver.recv_timeout(LOOK_EVERY) {
            Ok((number, Ok((outcome, records)))) => {
                gathered.records = gathered.records.take().or(records);
                gathered.early.insert(number, outcome);
                gathered.add_in_order();
            }
            // The time limit has passed: unfinished replications are dropped.
            Ok((_, Err(SimulateError::Stop(Stop::Asked)))) => {}
            Ok((_, Err(error))) => return Err(error),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if elapsed() > shared.settings.time_limit {
            timed_out = true;
            shared.stop.store(true, Ordering::Relaxed);
        }
        watch(&Progress {
            done: gathered.totals.replications + gathered.early.len(),
            wanted,
            relative_half_width: gathered.totals.relative_half_width(shared.model, &gathered.student),
            elapsed: elapsed(),
        });
    }
    // Outcomes after a missing one, which will not arrive any more.
    for (_, outcome) in std::mem::take(&mut gathered.early) {
        gathered.totals.add(&outcome);
    }
    Ok(timed_out && gathered.totals.replications < wanted)
}

/// The number of replications needed after these: an estimate of the number that reaches the requested precision.
fn more(model: &Model, settings: &Settings, gathered: &Gathered, wanted: usize) -> usize {
    let Some(target) = settings.precision.map(target) else { return wanted };
    let Some(found) = gathered.totals.relative_half_width(model, &gathered.student) else {
        return (2 * wanted).min(settings.replications_max);
    };
    if found <= target {
        let measured_s = gathered.totals.measured_s.mean().unwrap_or(0.0);
        return length::replications_least(model, measured_s).min(settings.replications_max).max(wanted);
    }
    // The half-width shrinks with the square root of the number; a tenth more, because it is itself an estimate.
    let enough = (wanted as f64 * (found / target).powi(2) * 1.1).ceil();
    (enough.min(4.0 * wanted as f64) as usize).max(wanted + 1).min(settings.replications_max).max(wanted)
}

impl Gathered {
    fn add_in_order(&mut self) {
        while let Some(outcome) = self.early.remove(&self.totals.replications) {
            self.totals.add(&outcome);
        }
    }
}
