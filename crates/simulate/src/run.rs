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
use crate::watch::Watch;
use clock::{Clock, CpuTime, process_cpu};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// The interval at which the main thread checks the time limit.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// After this time, the replications' own speed replaces that of the pilot.
const MEASURED_FROM: Duration = Duration::from_secs(1);
/// A longer time is not an estimate that helps anyone.
const ALL_S_MAX: f64 = 1e9;
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
    /// Requests of each replication, including its warm-up; `None` while a pilot determines the warm-up.
    pub requests: Option<u64>,
    /// Share of the requests of all wanted replications that is simulated.
    pub share: f64,
    /// The estimated time left; `None` if nothing is known about the speed.
    pub left: Option<Duration>,
}

type Message = (usize, Result<(Outcome, Option<RecordsWritten>), SimulateError>);

/// The state that the threads share.
struct Shared<'a> {
    model: &'a Model,
    settings: &'a Settings,
    length: Length,
    next: AtomicUsize,
    watch: Watch,
    speed: Speed,
}

/// What is known about the speed before the first replication.
#[derive(Clone, Copy, Debug)]
struct Speed {
    /// Requests per second of the pilot, which has one thread.
    pilot_per_s: Option<f64>,
    /// Time since the start at which the replications began.
    began: Duration,
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
    let (warm_up, pilot_per_s) = warm_up(model, settings, requests, &elapsed, watch)?;
    let mut wanted = settings.replications;
    let mut timed_out = false;
    let shared = Shared {
        model,
        settings,
        length: Length { warm_up: warm_up.requests, requests },
        next: AtomicUsize::new(0),
        watch: Watch::default(),
        speed: Speed { pilot_per_s, began: elapsed() },
    };
    while gathered.totals.replications < wanted && !timed_out {
        timed_out = gather(&shared, wanted, &mut gathered, &elapsed, watch)?;
        wanted = more(model, settings, &gathered, wanted);
    }
    if gathered.totals.replications < 2 {
        let limit_s = settings.time_limit.as_secs_f64();
        let all_s = shared.all_s(wanted, elapsed());
        return Err(SimulateError::TimeLimit { limit_s, done: gathered.totals.replications, all_s });
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

/// The configured warm-up, or the one that a pilot replication finds, and the pilot's requests per second. The time limit
/// includes the pilot.
fn warm_up(
    model: &Model,
    settings: &Settings,
    measured: u64,
    elapsed: &dyn Fn() -> Duration,
    watch: &mut dyn FnMut(&Progress),
) -> Result<(WarmUpUsed, Option<f64>), SimulateError> {
    if let Some(requests) = settings.warm_up {
        return Ok((WarmUpUsed { requests, method: "given", mser_requests: None, pilot_events: 0 }, None));
    }
    let (state, began) = (Watch::default(), elapsed());
    let known = length::least_warm_up(model, settings, measured);
    let found = std::thread::scope(|scope| {
        let pilot = scope.spawn(|| find_warm_up(model, settings.seed, measured, known, &state));
        while !pilot.is_finished() {
            if elapsed() > settings.time_limit {
                state.stop();
            }
            watch(&Progress {
                done: 0,
                wanted: settings.replications,
                relative_half_width: None,
                elapsed: elapsed(),
                requests: None,
                share: 0.0,
                left: None,
            });
            std::thread::park_timeout(Duration::from_millis(1));
        }
        pilot.join().unwrap_or(Err(Stop::Stuck))
    });
    match found {
        Ok(found) => {
            let used = WarmUpUsed {
                requests: found.requests,
                method: "mser-5",
                mser_requests: found.mser_requests,
                pilot_events: found.events,
            };
            let took_s = (elapsed() - began).as_secs_f64();
            Ok((used, (took_s > 0.0).then(|| state.completed() as f64 / took_s)))
        }
        Err(Stop::Asked) => {
            Err(SimulateError::TimeLimit { limit_s: settings.time_limit.as_secs_f64(), done: 0, all_s: None })
        }
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
        shared.watch.stop();
        outcome
    });
    shared.watch.restart();
    shared.next.store(wanted, Ordering::Relaxed);
    outcome
}

/// One thread: takes the next number until there are enough replications.
fn work(shared: &Shared<'_>, wanted: usize, sender: &Sender<Message>) {
    loop {
        let number = shared.next.fetch_add(1, Ordering::Relaxed);
        if number >= wanted || shared.watch.is_stopped() {
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
    let (model, length, watch) = (shared.model, shared.length, &shared.watch);
    match &shared.settings.records {
        Some((directory, sample)) if number == 0 => {
            let files = RecordFiles::create(directory, *sample, model)?;
            let (outcome, recorder) = replicate(model, random, length, Recorder::new(files, model), watch)?;
            let written = recorder.close(outcome.measured_from_s, outcome.measured_s)?;
            Ok((outcome, Some(written)))
        }
        _ => Ok((replicate(model, random, length, NoObserver, watch)?.0, None)),
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
            shared.watch.stop();
        }
        watch(&shared.progress(gathered, wanted, elapsed()));
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

impl Shared<'_> {
    fn progress(&self, gathered: &Gathered, wanted: usize, elapsed: Duration) -> Progress {
        Progress {
            done: gathered.totals.replications + gathered.early.len(),
            wanted,
            relative_half_width: gathered.totals.relative_half_width(self.model, &gathered.student),
            elapsed,
            requests: Some(self.requests()),
            share: self.share(wanted),
            left: self.all_s(wanted, elapsed).map(|all_s| Duration::from_secs_f64(all_s * (1.0 - self.share(wanted)))),
        }
    }

    fn requests(&self) -> u64 {
        self.length.warm_up.saturating_add(self.length.requests)
    }

    fn share(&self, wanted: usize) -> f64 {
        (self.watch.completed() as f64 / (wanted as f64 * self.requests() as f64)).clamp(0.0, 1.0)
    }

    /// The estimated seconds of all replications, from their speed so far, and before that from the pilot's.
    fn all_s(&self, wanted: usize, elapsed: Duration) -> Option<f64> {
        let (share, took) = (self.share(wanted), elapsed.saturating_sub(self.speed.began));
        let seconds = if share > 0.0 && took >= MEASURED_FROM {
            took.as_secs_f64() / share
        } else {
            let threads = self.settings.threads.min(wanted).max(1);
            wanted as f64 * self.requests() as f64 / (self.speed.pilot_per_s? * threads as f64)
        };
        (seconds < ALL_S_MAX).then_some(seconds)
    }
}

impl Gathered {
    fn add_in_order(&mut self) {
        while let Some(outcome) = self.early.remove(&self.totals.replications) {
            self.totals.add(&outcome);
        }
    }
}
