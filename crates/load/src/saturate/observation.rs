//! What a run at one rate has seen, as far as the search needs it, and how the same rate's runs are put together.

use super::objective::Objective;

/// Requests of one second, or of the whole run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// Requests that were answered other than by an error.
    pub answered: u64,
    /// Requests that were not: errors, lost connections, those that were due and never sent.
    pub failed: u64,
    /// The sum of the response times of the answered, in nanoseconds.
    pub sum_ns: f64,
    /// The sum of their squares.
    pub squares_ns: f64,
    /// For each objective, how many of the answered took longer than its bound.
    pub slow: Vec<u64>,
}

/// What a run at one rate has seen. Times are response times, from when a request was due, unless said otherwise.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observation {
    /// Length of the measured window in seconds.
    pub measured_s: f64,
    /// Requests that were due in the window.
    pub intended: u64,
    /// Requests that were answered in the window, whenever they were due.
    pub answered_in_window: u64,
    /// The whole seconds of the window, in order.
    pub seconds: Vec<Batch>,
    /// All requests that were due in the window, to their end.
    pub total: Batch,
    /// Those of them that were sent, with times counted from then: what the generator does not add to.
    pub service: Batch,
    /// Those of them that were sent, with the time from when they could have been, a connection being free, until they were.
    pub lateness: Batch,
    /// Processor time of the generator's threads, as a share of the time they had.
    pub cpu_share: f64,
    /// Why nothing can be concluded from the run: values that are not what was set, a server that went away.
    pub broken: Option<String>,
}

impl Batch {
    /// Without requests.
    pub fn new(objectives: usize) -> Batch {
        Batch { slow: vec![0; objectives], ..Batch::default() }
    }

    /// Counts so many requests of about the same response time, in nanoseconds.
    pub fn record(&mut self, objectives: &[Objective], time_ns: u64, requests: u64) {
        self.answered += requests;
        self.sum_ns += time_ns as f64 * requests as f64;
        self.squares_ns += (time_ns as f64).powi(2) * requests as f64;
        for (slow, objective) in self.slow.iter_mut().zip(objectives) {
            *slow += if time_ns > objective.time_ns { requests } else { 0 };
        }
    }

    /// Adds another one's requests.
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
    /// Puts a further run at the same rate beside this one.
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

    /// Requests that were answered in each second of the window.
    pub(super) fn achieved_per_s(&self) -> f64 {
        if self.measured_s > 0.0 { self.answered_in_window as f64 / self.measured_s } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::saturate::Quantity;

    #[test]
    fn what_takes_longer_than_the_bound_is_slow() {
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
