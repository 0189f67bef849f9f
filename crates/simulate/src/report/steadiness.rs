//! Compares the two halves of every replication. In a steady state they differ by chance only.
//!
//! The relaxation time is known for open queues alone. This check covers every other model: two stations in a closed network
//! can exchange their queues for a long time.

use crate::report::spread::Spread;

/// A difference of the halves beyond this number of standard errors is no chance.
const ERRORS: f64 = 4.0;
/// A smaller difference, as a share of the mean, does not matter.
const LEAST_SHARE: f64 = 0.01;
/// Fewer replications say too little about chance.
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

    /// The change from the first half to the second as a share of the mean, if it is no chance.
    pub(crate) fn drift(&self) -> Option<f64> {
        let (mean, change) = (self.both.mean()?, self.difference.mean()?);
        let is_sure = self.difference.count() >= REPLICATIONS_LEAST
            && change.abs() > ERRORS * self.difference.standard_error()
            && change.abs() > LEAST_SHARE * mean.abs();
        is_sure.then(|| change / mean)
    }
}
