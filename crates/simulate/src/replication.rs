//! One replication: a warm-up that is discarded, then as many requests as configured, and the measurements of those.

pub(crate) mod recorder;
pub(crate) mod warm_up;

use crate::engine::Engine;
use crate::engine::histogram::Histogram;
use crate::engine::observer::Observer;
use crate::engine::station::StationState;
use crate::engine::tally::Cell;
use crate::error::Stop;
use crate::model::Model;
use crate::watch::Watch;
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

/// The length of a replication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Length {
    pub(crate) warm_up: u64,
    pub(crate) requests: u64,
}

/// The measurements of one replication.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// In the order of [`Layout`]; NaN if there was nothing to measure.
    pub(crate) numbers: Vec<f64>,
    /// Response times, by class.
    pub(crate) responses: Vec<Histogram>,
    /// Share of the time with n present, by station.
    pub(crate) present: Vec<Vec<f64>>,
    /// By class: growth of the number present, per second.
    pub(crate) growth_per_s: Vec<f64>,
    /// By station: growth of the number of requests and legs, per second.
    pub(crate) station_growth_per_s: Vec<f64>,
    /// By class: arrivals per second.
    pub(crate) began_per_s: Vec<f64>,
    /// Mean response time by class, then number present by station: first and second half.
    pub(crate) halves: Vec<[f64; 2]>,
    pub(crate) measured_from_s: f64,
    pub(crate) measured_s: f64,
    pub(crate) events: u64,
}

/// The position of each measure among the numbers of a replication.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    classes: usize,
    stations: usize,
    forks: usize,
    pools: usize,
}

/// The measures of a class.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OfClass {
    Throughput,
    Response,
    Lost,
}

/// The measures of a class at a station.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OfStation {
    Throughput,
    Response,
    Waiting,
    QueueLength,
    Utilisation,
}

const OF_CLASS: usize = 3;
const OF_STATION: usize = 5;

impl Layout {
    pub(crate) fn new(model: &Model) -> Layout {
        Layout {
            classes: model.classes.len(),
            stations: model.stations.len(),
            forks: model.forks.len(),
            pools: model.pools.len(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.pool_busy(self.pools)
    }

    pub(crate) fn class(&self, class: usize, what: OfClass) -> usize {
        class * OF_CLASS + what as usize
    }

    pub(crate) fn station(&self, station: usize, class: usize, what: OfStation) -> usize {
        self.class(self.classes, OfClass::Throughput) + (station * self.classes + class) * OF_STATION + what as usize
    }

    pub(crate) fn fork(&self, fork: usize, class: usize) -> usize {
        self.station(self.stations, 0, OfStation::Throughput) + fork * self.classes + class
    }

    pub(crate) fn pool_waiting(&self, pool: usize, class: usize) -> usize {
        self.fork(self.forks, 0) + pool * self.classes + class
    }

    pub(crate) fn pool_busy(&self, pool: usize) -> usize {
        self.pool_waiting(self.pools, 0) + pool
    }
}

/// The random stream of a replication; streams are 2^128 draws apart.
pub(crate) fn random_of(seed: u64, replication: usize) -> Xoshiro256PlusPlus {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    (0..replication).for_each(|_| random.jump());
    random
}

/// Runs a replication to its end.
///
/// # Errors
/// If it is stopped, or cannot continue.
pub(crate) fn replicate<O: Observer>(
    model: &Model,
    random: Xoshiro256PlusPlus,
    length: Length,
    observer: O,
    watch: &Watch,
) -> Result<(Outcome, O), Stop> {
    let mut engine = Engine::new(model, random, observer);
    engine.run(length.warm_up, watch)?;
    engine.reset();
    let measured_from_s = engine.world.now_s;
    let present_before: Vec<f64> = engine.stations.iter().map(|station| f64::from(station.present)).collect();
    engine.run(length.requests / 2, watch)?;
    engine.advance_counts();
    let (half_s, half) = (engine.world.now_s - measured_from_s, sums(&engine));
    engine.run(length.requests, watch)?;
    engine.advance_counts();
    let measured_s = engine.world.now_s - measured_from_s;
    if !(measured_s > 0.0 && (1.0 / measured_s).is_finite()) {
        return Err(Stop::NoTime);
    }
    let outcome = Outcome {
        numbers: numbers(&engine, measured_s),
        halves: halves(&engine, &half, half_s, measured_s),
        present: engine.stations.iter().map(|station| shares(&station.tally.present_s, measured_s)).collect(),
        growth_per_s: engine
            .requests
            .iter()
            .map(|tally| (tally.began as f64 - tally.completed as f64 - tally.lost as f64) / measured_s)
            .collect(),
        station_growth_per_s: engine
            .stations
            .iter()
            .zip(present_before)
            .map(|(station, before)| (f64::from(station.present) - before) / measured_s)
            .collect(),
        began_per_s: engine.requests.iter().map(|tally| tally.began as f64 / measured_s).collect(),
        responses: engine.requests.into_iter().map(|tally| tally.responses).collect(),
        measured_from_s,
        measured_s,
        events: engine.events,
    };
    if outcome.numbers.iter().any(|number| number.is_infinite()) {
        return Err(Stop::TooLate);
    }
    Ok((outcome, engine.observer))
}

/// By class, the sum of the response times and their number; by station, the area under the number present and NaN.
fn sums<O: Observer>(engine: &Engine<'_, O>) -> Vec<(f64, f64)> {
    let classes = engine.requests.iter().map(|tally| (tally.response_s, tally.completed as f64));
    let area = |cells: &[Cell]| cells.iter().map(|cell| cell.present_s).sum::<f64>();
    classes.chain(engine.stations.iter().map(|station| (area(&station.tally.cells), f64::NAN))).collect()
}

/// The means of both halves of the sums, which areas divide by the time.
fn halves<O: Observer>(engine: &Engine<'_, O>, half: &[(f64, f64)], half_s: f64, measured_s: f64) -> Vec<[f64; 2]> {
    let mean = |sum: f64, count: f64, time_s: f64| sum / if count.is_nan() { time_s } else { count };
    let both = half.iter().zip(sums(engine));
    both.map(|(first, whole)| {
        let second = mean(whole.0 - first.0, whole.1 - first.1, measured_s - half_s);
        [mean(first.0, first.1, half_s), second]
    })
    .collect()
}

fn numbers<O: Observer>(engine: &Engine<'_, O>, measured_s: f64) -> Vec<f64> {
    let layout = Layout::new(engine.model);
    let mut numbers = vec![f64::NAN; layout.len()];
    for (class, tally) in engine.requests.iter().enumerate() {
        let plan = &engine.model.classes[class];
        let mut set = |what, number| numbers[layout.class(class, what)] = number;
        set(OfClass::Throughput, tally.completed as f64 / measured_s);
        set(OfClass::Lost, tally.lost as f64 / measured_s);
        if plan.begins && tally.completed > 0 {
            set(OfClass::Response, tally.response_s / tally.completed as f64);
        }
    }
    for (index, station) in engine.stations.iter().enumerate() {
        let busy_s = busy_times(station);
        for (class, cell) in station.tally.cells.iter().enumerate() {
            let mut set = |what, number| numbers[layout.station(index, class, what)] = number;
            set(OfStation::Throughput, cell.visits as f64 / measured_s);
            set(OfStation::QueueLength, cell.present_s / measured_s);
            let busy = station.busy_divisor().map_or(0.0, |divisor| busy_s[class] / measured_s / divisor);
            set(OfStation::Utilisation, busy);
            if cell.visits > 0 {
                set(OfStation::Response, cell.response_s / cell.visits as f64);
                set(OfStation::Waiting, cell.waited_s / cell.visits as f64);
            }
        }
    }
    for (index, fork) in engine.forks.iter().enumerate() {
        for (class, &(count, sum_s)) in fork.iter().enumerate() {
            numbers[layout.fork(index, class)] = sum_s / count as f64;
        }
    }
    for (index, pool) in engine.pools.iter().enumerate() {
        numbers[layout.pool_busy(index)] = pool.busy_s / measured_s;
        for (class, &(count, sum_s)) in pool.waits.iter().enumerate() {
            numbers[layout.pool_waiting(index, class)] = sum_s / count as f64;
        }
    }
    numbers
}

/// Busy seconds by class. With rates, the time with any request present is divided by the work of the classes.
fn busy_times(station: &StationState<'_>) -> Vec<f64> {
    let cells = &station.tally.cells;
    let work = cells.iter().zip(&station.plan.service_s).map(|(cell, service_s)| cell.visits as f64 * service_s);
    let all: f64 = work.clone().sum();
    if station.plan.rates.is_empty() || all <= 0.0 {
        return cells.iter().map(|cell| cell.serving_s).collect();
    }
    let busy_s: f64 = cells.iter().map(|cell| cell.serving_s).sum();
    work.map(|work| busy_s * work / all).collect()
}

/// Shares of the time, without trailing zeros.
fn shares(times_s: &[f64], measured_s: f64) -> Vec<f64> {
    let length = times_s.iter().rposition(|&time_s| time_s > 0.0).map_or(0, |last| last + 1);
    times_s[..length].iter().map(|time_s| time_s / measured_s).collect()
}
