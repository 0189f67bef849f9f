//! Mean and confidence interval over replications, which are independent. Near saturation they are skewed, because a few
//! long queues decide the mean: Student's interval is corrected for that (Willink 2005, Communications in Statistics 34).

use serde::Serialize;
use statrs::distribution::{ContinuousCDF, StudentsT};

/// A mean with its 95 % confidence interval; `None` with too few measurements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Estimate {
    /// Over the replications in which there was something to measure.
    pub mean: Option<f64>,
    /// The lower end of the interval.
    pub low: Option<f64>,
    /// The upper end of the interval. It is further from the mean than the lower end if long times are rare.
    pub high: Option<f64>,
    /// The larger distance of the two ends from the mean. An interval of this width on both sides is wider than necessary.
    pub half_width: Option<f64>,
}

/// A running mean and variance (Welford, 1962).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spread {
    count: u64,
    mean: f64,
    squares: f64,
    cubes: f64,
}

impl Spread {
    /// Adds a number; NaN is ignored.
    pub(crate) fn add(&mut self, value: f64) {
        if value.is_nan() {
            return;
        }
        let before = self.count as f64;
        self.count += 1;
        let count = self.count as f64;
        let distance = value - self.mean;
        let step = distance / count;
        self.mean += step;
        // Pebay (2008) has the third power, which needs the squares of before.
        self.cubes += distance * distance * step * before * (count - 2.0) / count - 3.0 * step * self.squares;
        self.squares += distance * (value - self.mean);
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn mean(&self) -> Option<f64> {
        (self.count > 0).then_some(self.mean)
    }

    pub(crate) fn estimate(&self, student: &Student) -> Estimate {
        let mean = self.mean();
        // No rate, time or length is negative.
        let ends =
            mean.zip(self.distances(student)).map(|(mean, (below, above))| ((mean - below).max(0.0), mean + above));
        let (low, high) = ends.unzip();
        Estimate { mean, low, high, half_width: self.half_width(student) }
    }

    pub(crate) fn half_width(&self, student: &Student) -> Option<f64> {
        self.distances(student).map(|(below, above)| below.max(above))
    }

    /// The distances from the mean to the lower and the upper end of its interval.
    pub(crate) fn distances(&self, student: &Student) -> Option<(f64, f64)> {
        let error = (self.count > 1).then(|| self.standard_error())?;
        let quantile = student.quantile(self.count - 1);
        let skew = self.skew() / (6.0 * (self.count as f64).sqrt());
        let corrected = |at: f64| {
            if skew.abs() < 1e-9 { at } else { ((1.0 + 6.0 * skew * (at - skew)).cbrt() - 1.0) / (2.0 * skew) }
        };
        Some((corrected(quantile) * error, -corrected(-quantile) * error))
    }

    /// The sample's skewness without bias for a normal population; 0 with fewer than three values.
    fn skew(&self) -> f64 {
        let count = self.count as f64;
        if self.count < 3 || self.squares <= 0.0 {
            return 0.0;
        }
        let plain = self.cubes / count / (self.squares / count).powf(1.5);
        plain * (count * (count - 1.0)).sqrt() / (count - 2.0)
    }

    /// Standard error of the mean.
    pub(crate) fn standard_error(&self) -> f64 {
        let degrees = self.count.saturating_sub(1) as f64;
        (self.squares / degrees / self.count as f64).sqrt()
    }
}

/// The quantiles of Student's t distribution for 95 % intervals, computed once for each number of degrees of freedom.
#[derive(Debug, Default)]
pub(crate) struct Student {
    known: std::cell::RefCell<std::collections::HashMap<u64, f64>>,
}

impl Student {
    fn quantile(&self, degrees: u64) -> f64 {
        *self.known.borrow_mut().entry(degrees).or_insert_with(|| {
            let student = StudentsT::new(0.0, 1.0, degrees as f64);
            student.map_or(f64::NAN, |student| student.inverse_cdf(0.975))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Published tables of Student's t distribution, to their printed digits.
    #[test]
    fn quantiles_are_those_of_the_tables() {
        let student = Student::default();
        let table = [
            (1, 12.706205),
            (2, 4.302653),
            (4, 2.776445),
            (19, 2.093024),
            (29, 2.045230),
            (199, 1.971957),
            (999, 1.962341),
        ];
        for (degrees, expected) in table {
            assert!((student.quantile(degrees) - expected).abs() < 1e-6, "{degrees}: {}", student.quantile(degrees));
        }
    }

    #[test]
    fn an_interval_matches_the_textbook() {
        let mut spread = Spread::default();
        [1.0, 2.0, f64::NAN, 3.0, 4.0].iter().for_each(|&value| spread.add(value));
        let estimate = spread.estimate(&Student::default());
        assert_eq!(estimate.mean, Some(2.5));
        // 3.182446 * sqrt(5/3) / 2
        assert!((estimate.half_width.unwrap() - 2.054260).abs() < 1e-5);
        assert_eq!(Spread::default().estimate(&Student::default()), Estimate::default());
    }

    /// The distances from the mean to both ends differ if one value is far from the others.
    #[test]
    fn a_skewed_mean_has_a_skewed_interval() {
        let mut spread = Spread::default();
        [1.0, 1.0, 1.0, 1.0, 11.0].iter().for_each(|&value| spread.add(value));
        let Estimate { mean, low, high, half_width } = spread.estimate(&Student::default());
        let (below, above) = (mean.unwrap() - low.unwrap(), high.unwrap() - mean.unwrap());
        assert!(above > 1.5 * below && below > 0.0, "{below} {above}");
        assert!((half_width.unwrap() - above).abs() < 1e-12);
        let mut few = Spread::default();
        [0.0, 3.0].iter().for_each(|&value| few.add(value));
        assert_eq!(few.estimate(&Student::default()).low, Some(0.0));
    }
}
