//! The number of requests to discard at the start, because the network was empty when they arrived.
//!
//! MSER-5 (White, 1997, Simulation 69): of the response times in order of completion, in means of five, it discards as many
//! as minimise the standard error of the mean of the rest. We discard twice as many, for safety.

use crate::engine::jobs::Job;
use crate::engine::observer::Observer;
use crate::error::Stop;
use crate::model::Model;
use crate::replication::{Length, random_of, replicate};
use crate::watch::Watch;

/// Response times are merged until there are at most this many.
const BUCKETS_MAX: u64 = 1_000_000;
const BATCH: usize = 5;
/// Minimum requests, and minimum share of the measured ones, to discard.
const LEAST_REQUESTS: u64 = 1000;
const LEAST_SHARE: u64 = 10;
/// The number of times that the pilot is made four times as long, if it was too short to find the end of the warm-up.
const LONGER: u32 = 2;
/// The longest pilot if the relaxation time is known.
const PILOT_MAX: u64 = 200_000;

/// The warm-up that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// Requests to discard.
    pub(crate) requests: u64,
    /// The result of MSER-5; `None` if even the longest pilot was too short.
    pub(crate) mser_requests: Option<u64>,
    /// Events of the pilot.
    pub(crate) events: u64,
}

/// Collects the response times.
#[derive(Debug)]
struct Pilot {
    bucket: u64,
    in_bucket: u64,
    sum_s: f64,
    means_s: Vec<f64>,
}

impl Observer for Pilot {
    fn ended(&mut self, _number: u32, request: &Job, now_s: f64, is_lost: bool) {
        if is_lost {
            return;
        }
        self.sum_s += now_s - request.began_s;
        self.in_bucket += 1;
        if self.in_bucket == self.bucket {
            self.means_s.push(self.sum_s / self.bucket as f64);
            (self.sum_s, self.in_bucket) = (0.0, 0);
        }
    }
}

/// Runs a pilot replication of as many requests as will be measured. `known` requests are discarded at least; if there are
/// any, the relaxation time is known, and a long pilot is not needed.
///
/// # Errors
/// If it is stopped, or cannot continue.
pub(crate) fn find_warm_up(model: &Model, seed: u64, requests: u64, known: u64, watch: &Watch) -> Result<Found, Stop> {
    // Every customer has to return more than once before the start is forgotten.
    let least = LEAST_REQUESTS.max(requests / LEAST_SHARE).max(2 * model.population as u64).max(known);
    let requests = if known > 0 { requests.min(PILOT_MAX) } else { requests };
    let longest = if known > 0 { 0 } else { LONGER };
    let mut events = 0;
    for longer in 0..=longest {
        let length = requests.max(LEAST_REQUESTS).saturating_mul(4u64.pow(longer));
        let bucket = length.div_ceil(BUCKETS_MAX);
        let pilot = Pilot { bucket, in_bucket: 0, sum_s: 0.0, means_s: Vec::new() };
        let length = Length { warm_up: 0, requests: length };
        let (outcome, pilot) = replicate(model, random_of(seed, 0), length, pilot, watch)?;
        events += outcome.events;
        let batches: Vec<f64> =
            pilot.means_s.chunks_exact(BATCH).map(|batch| batch.iter().sum::<f64>() / BATCH as f64).collect();
        if let Some(cut) = mser(&batches) {
            let mser_requests = cut as u64 * BATCH as u64 * bucket;
            let requests = least.max(mser_requests.saturating_mul(2));
            return Ok(Found { requests, mser_requests: Some(mser_requests), events });
        }
    }
    let requests = if known > 0 { least } else { least.max(requests.saturating_mul(4u64.pow(LONGER))) };
    Ok(Found { requests, mser_requests: None, events })
}

/// The number to discard; `None` if it would be half of them or more, which is not conclusive.
fn mser(values: &[f64]) -> Option<usize> {
    let (mut count, mut mean, mut squares) = (0.0, 0.0, 0.0);
    let mut best = (f64::INFINITY, values.len());
    // From the end, so that each value is visited once. A short rest is skipped, because its values may agree by chance.
    for (index, value) in values.iter().enumerate().rev() {
        count += 1.0;
        let distance = value - mean;
        mean += distance / count;
        squares += distance * (value - mean);
        let error = squares / (count * count);
        if index <= values.len() / 2 && error <= best.0 {
            best = (error, index);
        }
    }
    (best.1 < values.len() / 2).then_some(best.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rising_beginning_is_cut_off() {
        let noise = |index: usize| ((index * 7919) % 101) as f64 / 100.0;
        let values: Vec<f64> = (0..2000).map(|index| noise(index) - 40.0 * (-(index as f64) / 50.0).exp()).collect();
        let cut = mser(&values).unwrap();
        assert!((100..400).contains(&cut), "{cut}");
        let flat: Vec<f64> = (0..2000).map(noise).collect();
        assert!(mser(&flat).unwrap() < 100);
    }

    #[test]
    fn a_series_that_only_rises_has_no_end_of_warm_up() {
        let values: Vec<f64> = (0..2000).map(f64::from).collect();
        assert_eq!(mser(&values), None);
        assert_eq!(mser(&[]), None);
    }

    #[test]
    fn times_that_are_all_the_same_need_no_cut() {
        assert_eq!(mser(&[2.0; 500]), Some(0));
    }
}
