//! Compares the two halves of every replication. In a steady state they differ by chance only.
//!
//! The relaxation time is known for open queues alone. This check covers every other model: in a closed network, the queue
//! can move between two stations over a long time.

use crate::report::spread::Spread;

/// A difference of more than this number of standard errors between the halves is not attributed to chance.
const ERRORS: f64 = 4.0;
/// A smaller difference, as a share of the mean, does not matter.
const LEAST_SHARE: f64 = 0.01;
/// With fewer replications, the standard error is too uncertain for this test.
const REPLICATIONS_LEAST: u64 = 10;

/// The halves of the replications, of one measure.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Halves {
    both: Spread,
    difference: Spread,
}

impl Halves {
    /// Adds a replication: the means of its first and its second half.
    pub(crate) fn add(&mut self, first: f64, second: f64) {
        self.both.add((first + second) / 2.0);
        self.difference.add(second - first);
    }

    /// The change from the first half to the second as a share of the mean, if it is not attributed to chance.
    pub(crate) fn drift(&self) -> Option<f64> {
        let (mean, change) = (self.both.mean()?, self.difference.mean()?);
        let is_sure = self.difference.count() >= REPLICATIONS_LEAST
            && change.abs() > ERRORS * self.difference.standard_error()
            && change.abs() > LEAST_SHARE * mean.abs();
        is_sure.then(|| change / mean)
    }
}
