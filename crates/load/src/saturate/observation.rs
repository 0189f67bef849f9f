//! What the search needs to know of a run at one rate, and how runs at the same rate are combined.

use super::objective::Objective;

/// The requests of one second, or of the whole run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// Requests that were answered without an error.
    pub answered: u64,
    /// Requests that failed: errors, lost connections, and requests that were due and never sent.
    pub failed: u64,
    /// The sum of the response times of answered requests, in nanoseconds.
    pub sum_ns: f64,
    /// The sum of their squares.
    pub squares_ns: f64,
    /// For each objective, how many answered requests took longer than its bound.
    pub slow: Vec<u64>,
}

/// The observations of a run at one rate. Times are response times, from when a request was due, unless stated
/// otherwise.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observation {
    /// The length of the measured window in seconds.
    pub measured_s: f64,
    /// Requests that were due in the window.
    pub intended: u64,
    /// Requests that were answered in the window, whenever they were due.
    pub answered_in_window: u64,
    /// The whole seconds of the window, in order.
    pub seconds: Vec<Batch>,
    /// All requests that were due in the window.
    pub total: Batch,
    /// The sent requests of these, with their service times, to which the generator adds nothing.
    pub service: Batch,
    /// The sent requests of these, with the time from when each could have been sent on a free connection until it was.
    pub lateness: Batch,
    /// CPU time of the generator's threads, as a share of the time they had.
    pub cpu_share: f64,
    /// Why nothing can be concluded from the run, such as wrong values or a lost server.
    pub broken: Option<String>,
}

impl Batch {
    /// An empty batch for this many objectives.
    pub fn new(objectives: usize) -> Batch {
        Batch { slow: vec![0; objectives], ..Batch::default() }
    }

    /// Counts `count` requests of about the same response time, in nanoseconds.
    pub fn record(&mut self, objectives: &[Objective], time_ns: u64, requests: u64) {
        self.answered += requests;
        self.sum_ns += time_ns as f64 * requests as f64;
        self.squares_ns += (time_ns as f64).powi(2) * requests as f64;
        for (slow, objective) in self.slow.iter_mut().zip(objectives) {
            *slow += if time_ns > objective.time_ns { requests } else { 0 };
        }
    }

    /// Adds the requests of another batch.
    pub fn merge(&mut self, other: &Batch) {
        self.answered += other.answered;
        self.failed += other.failed;
        self.sum_ns += other.sum_ns;
        self.squares_ns += other.squares_ns;
        self.slow.resize(self.slow.len().max(other.slow.len()), 0);
        self.slow.iter_mut().zip(&other.slow).for_each(|(slow, other)| *slow += other);
    }

    /// All requests.
    pub fn requests(&self) -> u64 {
        self.answered + self.failed
    }
}

impl Observation {
    /// Adds another run at the same rate.
    pub(super) fn join(&mut self, other: Observation) {
        let together_s = self.measured_s + other.measured_s;
        if together_s > 0.0 {
            let cpu_s = self.cpu_share * self.measured_s + other.cpu_share * other.measured_s;
            self.cpu_share = cpu_s / together_s;
        }
        self.measured_s = together_s;
        self.intended += other.intended;
        self.answered_in_window += other.answered_in_window;
        self.seconds.extend(other.seconds);
        self.total.merge(&other.total);
        self.service.merge(&other.service);
        self.lateness.merge(&other.lateness);
        self.broken = self.broken.take().or(other.broken);
    }

    /// Requests answered per second of the window.
    pub(super) fn achieved_per_s(&self) -> f64 {
        if self.measured_s > 0.0 { self.answered_in_window as f64 / self.measured_s } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::saturate::Quantity;

    #[test]
    fn times_above_the_bound_are_slow() {
        let objectives = [10, 20].map(|time_ns| Objective { quantity: Quantity::Percentile(99.0), time_ns });
        let mut batch = Batch::new(2);
        batch.record(&objectives, 10, 3);
        batch.record(&objectives, 15, 2);
        batch.record(&objectives, 25, 1);
        let mut twice = batch.clone();
        twice.merge(&batch);
        assert_eq!((twice.answered, twice.sum_ns, twice.slow), (12, 170.0, vec![6, 2]));
    }
}
