//! Servers of known capacity for the tests of the search. A queue is simulated request by request, so that its times
//! are correlated like those of a real server.

use super::objective::Objective;
use super::observation::{Batch, Observation};
use super::probe::{Probe, ProbeError};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::ops::Range;
use std::time::Duration;

/// One server with exponential service times behind one queue with Poisson arrivals: M/M/1.
#[derive(Debug)]
pub(super) struct Synthetic {
    pub(super) capacity_per_s: f64,
    pub(super) objectives: Vec<Objective>,
    /// In these runs, counted from 0, the server stalls for half of each second.
    pub(super) disturbed: Range<usize>,
    /// The highest rate of the generator. Above it, requests wait in the generator.
    pub(super) generator_per_s: f64,
    /// One request in this many is answered by an error.
    pub(super) one_fails_in: Option<u64>,
    pub(super) random: Xoshiro256PlusPlus,
    pub(super) runs: usize,
}

impl Synthetic {
    pub(super) fn new(capacity_per_s: f64, objectives: &[Objective], seed: u64) -> Synthetic {
        Synthetic {
            capacity_per_s,
            objectives: objectives.to_vec(),
            disturbed: 0..0,
            generator_per_s: f64::INFINITY,
            one_fails_in: None,
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            runs: 0,
        }
    }

    fn exponential_s(&mut self, per_s: f64) -> f64 {
        let uniform: f64 = self.random.random();
        -(1.0 - uniform).ln() / per_s
    }
}

impl Probe for Synthetic {
    fn run(&mut self, rate_per_s: f64, length: Duration) -> Result<Observation, ProbeError> {
        let is_disturbed = self.disturbed.contains(&self.runs);
        self.runs += 1;
        // The queue starts empty, so the first second is not measured.
        let warm_up_s = 1.0;
        let end_s = warm_up_s + length.as_secs_f64();
        let batches = || Batch::new(self.objectives.len());
        let mut seen = Observation { measured_s: length.as_secs_f64(), cpu_share: 0.2, ..Observation::default() };
        seen.seconds = vec![batches(); length.as_secs() as usize];
        (seen.total, seen.service, seen.lateness) = (batches(), batches(), batches());
        let (mut due_s, mut sent_s, mut free_s) = (0.0, 0.0f64, 0.0f64);
        loop {
            due_s += self.exponential_s(rate_per_s);
            if due_s >= end_s {
                break;
            }
            sent_s = due_s.max(sent_s + 1.0 / self.generator_per_s);
            let mut begin_s = sent_s.max(free_s);
            if is_disturbed && begin_s.fract() < 0.5 {
                begin_s = begin_s.floor() + 0.5;
            }
            free_s = begin_s + self.exponential_s(self.capacity_per_s);
            seen.answered_in_window += u64::from(free_s >= warm_up_s && free_s < end_s);
            let fails = self.one_fails_in.is_some_and(|one_in| self.random.random_range(0..one_in) == 0);
            let [response_ns, service_ns] = [due_s, sent_s].map(|from_s| ((free_s - from_s) * 1e9) as u64);
            let count = |batch: &mut Batch, time_ns| match fails {
                true => batch.failed += 1,
                false => batch.record(&self.objectives, time_ns, 1),
            };
            if free_s >= warm_up_s
                && let Some(second) = seen.seconds.get_mut((free_s - warm_up_s) as usize)
            {
                count(second, response_ns);
            }
            if due_s >= warm_up_s {
                seen.intended += 1;
                count(&mut seen.total, response_ns);
                count(&mut seen.service, service_ns);
                seen.lateness.record(&self.objectives, response_ns - service_ns, 1);
            }
        }
        Ok(seen)
    }
}
