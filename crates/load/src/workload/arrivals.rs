//! The schedule of an open loop: when each request is intended to be sent, regardless of the requests before it.
//! It follows from the seed alone, not from replies or from the time of the call. Knows no connections.

use crate::config::{Arrivals, Config};
use clock::{Nanos, duration_ns};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const NANOS_PER_SECOND: f64 = 1e9;

/// One thread's part of the schedule. The parts of all threads make up the whole schedule. Constant arrivals are
/// interleaved evenly; other parts are independent (the sum of Poisson processes is a Poisson process).
#[derive(Debug)]
pub(crate) struct ArrivalClock {
    start: Nanos,
    arrivals: Arrivals,
    random: Xoshiro256PlusPlus,
    /// Requests per second of this thread.
    part_per_s: f64,
    /// The offset of this thread's first request, as a share of its gap. The threads' offsets are spread evenly.
    phase: f64,
    /// Requests taken so far.
    taken: u64,
    /// The time from the start to the next request, without the off phases of bursts. It is the sum of the exact gaps,
    /// not of rounded times.
    running_ns: f64,
    next: Nanos,
}

impl ArrivalClock {
    /// The part of thread number `thread`, from `start` on; none in a closed loop.
    pub(crate) fn new(config: &Config, thread: usize, start: Nanos) -> Option<ArrivalClock> {
        let part_per_s = config.arrivals.per_s()? / config.threads as f64;
        let mut random = Xoshiro256PlusPlus::seed_from_u64(config.seed);
        // This part of the random sequence is far from the part for keys and operations, so the gaps do not depend on
        // those.
        random.long_jump();
        for _ in 0..thread {
            random.jump();
        }
        let mut clock = ArrivalClock {
            start,
            arrivals: config.arrivals.clone(),
            random,
            part_per_s,
            phase: thread as f64 / config.threads as f64,
            taken: 0,
            running_ns: 0.0,
            next: start,
        };
        clock.advance();
        Some(clock)
    }

    /// When the next request is intended.
    pub(crate) fn next(&self) -> Nanos {
        self.next
    }

    /// Advances to the request after it.
    pub(crate) fn advance(&mut self) {
        let from_start_ns = match &self.arrivals {
            // The time is computed from the number of requests, so that rounding errors do not add up.
            Arrivals::Closed | Arrivals::Constant { .. } => {
                (self.taken as f64 + self.phase) / self.part_per_s * NANOS_PER_SECOND
            }
            Arrivals::Poisson { .. } => {
                self.running_ns += self.exponential_ns(self.part_per_s);
                self.running_ns
            }
            Arrivals::Gaps { shape, .. } => {
                // Some formulas give gaps below 0; such a gap counts as 0.
                let gap = shape.draw(&mut self.random).max(0.0);
                self.running_ns += gap / shape.mean() / self.part_per_s * NANOS_PER_SECOND;
                self.running_ns
            }
            Arrivals::Bursty { on, off, .. } => {
                let (on_ns, off_ns) = (duration_ns(*on) as f64, duration_ns(*off) as f64);
                self.running_ns += self.exponential_ns(self.part_per_s * (on_ns + off_ns) / on_ns);
                // The on phases of all threads coincide.
                self.running_ns + (self.running_ns / on_ns).floor() * off_ns
            }
        };
        self.taken += 1;
        self.next = Nanos(self.start.0.saturating_add(from_start_ns as u64));
    }

    fn exponential_ns(&mut self, per_s: f64) -> f64 {
        let uniform: f64 = self.random.random();
        // 1 - u is never 0, so its logarithm is finite.
        -(1.0 - uniform).ln() / per_s * NANOS_PER_SECOND
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Times from the start in seconds.
    fn times_s(arrivals: &Arrivals, thread: usize, threads: usize, count: usize) -> Vec<f64> {
        let config = Config { arrivals: arrivals.clone(), threads, ..Config::default() };
        let start = Nanos(5_000_000_000);
        let mut clock = ArrivalClock::new(&config, thread, start).unwrap();
        let take = |_| {
            let at = clock.next();
            clock.advance();
            at.since(start) as f64 / 1e9
        };
        (0..count).map(take).collect()
    }

    #[test]
    fn a_closed_loop_has_no_schedule() {
        assert!(ArrivalClock::new(&Config::default(), 0, Nanos(1)).is_none());
    }

    #[test]
    fn constant_arrivals_are_even_over_all_threads_and_do_not_drift() {
        let arrivals = Arrivals::Constant { per_s: 3000.0 };
        let mut all: Vec<f64> = (0..3).flat_map(|thread| times_s(&arrivals, thread, 3, 100_000)).collect();
        all.sort_by(f64::total_cmp);
        for (number, time_s) in all.iter().enumerate() {
            assert!((time_s - number as f64 / 3000.0).abs() < 2e-9, "{number}: {time_s}");
        }
    }

    /// The Kolmogorov-Smirnov distance of the values from a distribution, times the square root of their number.
    fn distance(mut values: Vec<f64>, distribution: impl Fn(f64) -> f64) -> f64 {
        values.sort_by(f64::total_cmp);
        let count = values.len() as f64;
        let far = |(index, value): (usize, &f64)| {
            let expected = distribution(*value);
            (expected - index as f64 / count).abs().max((expected - (index + 1) as f64 / count).abs())
        };
        values.iter().enumerate().map(far).fold(0.0, f64::max) * count.sqrt()
    }

    #[test]
    fn gaps_are_exponential_and_independent() {
        for (threads, per_s) in [(1, 1000.0), (2, 50_000.0)] {
            let arrivals = Arrivals::Poisson { per_s };
            let mut times: Vec<f64> =
                (0..threads).flat_map(|thread| times_s(&arrivals, thread, threads, 100_000)).collect();
            times.sort_by(f64::total_cmp);
            // The sum is incomplete once the first thread's part has ended.
            let gaps: Vec<f64> = times.windows(2).take(150_000).map(|pair| pair[1] - pair[0]).collect();
            let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
            assert!((mean * per_s - 1.0).abs() < 0.015, "{threads}: {mean}");
            // One seed in a hundred would exceed 1.63.
            let far = distance(gaps.clone(), |gap| 1.0 - (-gap * per_s).exp());
            assert!(far < 1.63, "{threads}: {far}");
            let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
            let lagged =
                gaps.windows(2).map(|pair| (pair[0] - mean) * (pair[1] - mean)).sum::<f64>() / gaps.len() as f64;
            assert!((lagged / variance).abs() < 3.3 / (gaps.len() as f64).sqrt(), "{threads}: {}", lagged / variance);
        }
    }

    #[test]
    fn bursts_have_the_mean_rate_and_pauses_are_empty() {
        let (on, off) = (Duration::from_millis(200), Duration::from_millis(800));
        for thread in 0..2 {
            let times = times_s(&Arrivals::Bursty { per_s: 1000.0, on, off }, thread, 2, 50_000);
            assert!(times.iter().all(|time_s| time_s % 1.0 < 0.2 + 1e-9), "a request while it is off");
            let per_s = times.len() as f64 / times.last().unwrap();
            assert!((per_s - 500.0).abs() < 10.0, "{per_s}");
            let within: Vec<f64> = times.iter().map(|time_s| time_s % 1.0).collect();
            assert!(distance(within, |time_s| time_s / 0.2) < 1.63);
        }
    }

    #[test]
    fn gaps_of_any_shape_are_scaled_to_the_rate() {
        let shape = variates::Variate::parse("fb_ia", variates::Unit::Time).unwrap();
        let times = times_s(&Arrivals::Gaps { per_s: 2000.0, shape: shape.clone() }, 0, 1, 200_000);
        let per_s = times.len() as f64 / times.last().unwrap();
        assert!((per_s - 2000.0).abs() < 20.0, "{per_s}");
        let stretch = 1.0 / 2000.0 / shape.mean();
        let mut gaps: Vec<f64> = times.windows(2).map(|pair| (pair[1] - pair[0]) / stretch).collect();
        gaps.sort_by(f64::total_cmp);
        for share in [0.1, 0.5, 0.9, 0.99] {
            let gap = gaps[(share * gaps.len() as f64) as usize];
            let expected = shape.quantile(share);
            assert!((gap / expected - 1.0).abs() < 0.05, "{share}: {gap}, and not {expected}");
        }
    }

    #[test]
    fn a_seed_gives_the_same_schedule_and_threads_differ() {
        let arrivals = Arrivals::Poisson { per_s: 1000.0 };
        assert_eq!(times_s(&arrivals, 0, 2, 100), times_s(&arrivals, 0, 2, 100));
        assert_ne!(times_s(&arrivals, 0, 2, 100), times_s(&arrivals, 1, 2, 100));
    }
}
