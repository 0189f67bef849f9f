//! A random variate: a size, a time or a number. Its language is in `language`, its formulas in `kind`.

use crate::VariateError;
use crate::kind::Kind;
use crate::unit::Unit;
use rand::Rng;

/// A random variate, as docs/random-variates.md describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Variate {
    pub(crate) unit: Unit,
    pub(crate) kind: Kind,
}

impl Variate {
    /// A constant, in the base unit (bytes, nanoseconds); it must be finite.
    pub fn fixed(value: f64, unit: Unit) -> Variate {
        debug_assert!(value.is_finite(), "a fixed value is finite");
        Variate { unit, kind: Kind::Fixed(value) }
    }

    /// An exponential variate with this mean in the base unit; the mean must be finite and at least 0.
    pub fn exponential(mean: f64, unit: Unit) -> Variate {
        debug_assert!(mean.is_finite() && mean >= 0.0, "the mean of an exponential distribution is at least 0");
        Variate { unit, kind: Kind::Exponential { mean } }
    }

    /// Draws a value: bytes, nanoseconds or a plain number. The value is that of the formula, so a normal or extreme value may
    /// be below 0. Uses a varying number of random numbers, and no memory.
    #[inline]
    pub fn draw<R: Rng + ?Sized>(&self, random: &mut R) -> f64 {
        self.kind.draw(random)
    }

    /// Draws a size: rounded to the nearest whole number and then clamped to `minimum..=maximum`. It is not drawn again, so that
    /// one size is one draw; a limit that cuts off a large share therefore occurs often.
    /// Sizes from `uniform:` are whole numbers of equal probability, both ends included.
    ///
    /// # Panics
    /// If `minimum` is above `maximum`.
    #[inline]
    pub fn draw_size<R: Rng + ?Sized>(&self, random: &mut R, minimum: usize, maximum: usize) -> usize {
        assert!(minimum <= maximum, "the smallest size is at most the largest");
        if let Some((low, high)) = self.whole_ends() {
            return random.random_range(low..=high).clamp(minimum, maximum);
        }
        whole(self.kind.draw(random)).clamp(minimum, maximum)
    }

    /// The size at quantile `u`, rounded and clamped as by [`Variate::draw_size`]: for a size that is a function of a known
    /// number, such as a hash of the key scaled to 0 up to, not including, 1.
    ///
    /// # Panics
    /// If `minimum` is above `maximum`.
    #[inline]
    pub fn size_at(&self, u: f64, minimum: usize, maximum: usize) -> usize {
        assert!(minimum <= maximum, "the smallest size is at most the largest");
        if let Some((low, high)) = self.whole_ends() {
            let above = (u.clamp(0.0, 1.0) * (high - low + 1) as f64) as usize;
            return low.saturating_add(above).min(high).clamp(minimum, maximum);
        }
        whole(self.quantile(u)).clamp(minimum, maximum)
    }

    /// The first and the last whole number of a uniform variate that contains one.
    #[inline]
    fn whole_ends(&self) -> Option<(usize, usize)> {
        let Kind::Uniform { low, high } = self.kind else { return None };
        let (low, high) = (low.ceil(), high.floor());
        (0.0 <= low && low <= high && high < 2f64.powi(53)).then_some((low as usize, high as usize))
    }

    /// Draws a time in whole nanoseconds, rounded, and 0 instead of a negative value.
    #[inline]
    pub fn draw_ns<R: Rng + ?Sized>(&self, random: &mut R) -> u64 {
        self.kind.draw(random).round() as u64
    }

    /// The `u` quantile. `quantile(0)` and `quantile(1)` are the ends, which may be infinite. `u` is clamped to 0 to 1.
    pub fn quantile(&self, u: f64) -> f64 {
        self.kind.quantile(u.clamp(0.0, 1.0))
    }

    /// The mean before rounding and limits; infinite for `pareto:` and `gev:` with a shape of 1 or more.
    pub fn mean(&self) -> f64 {
        self.kind.mean()
    }

    /// The mean for uses that need a finite one, such as inter-arrival times at a rate.
    ///
    /// # Errors
    /// If the mean is infinite.
    pub fn finite_mean(&self) -> Result<f64, VariateError> {
        let mean = self.mean();
        if mean.is_finite() {
            return Ok(mean);
        }
        let problem = "the mean is not finite, but one is needed here; the tail is too heavy";
        Err(VariateError::new(&self.to_string(), problem, format!("exp:{}", self.unit.examples().1)))
    }

    /// The value of a constant; `None` for other variates.
    pub fn fixed_value(&self) -> Option<f64> {
        let (low, high) = (self.quantile(0.0), self.quantile(1.0));
        (low == high).then_some(low)
    }

    /// The unit of its numbers.
    pub fn unit(&self) -> Unit {
        self.unit
    }

    /// The name and the formula.
    pub fn formula(&self) -> &'static str {
        self.kind.formula()
    }
}

/// The nearest whole number, clamped to the range of the type.
#[inline]
fn whole(value: f64) -> usize {
    value.round() as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    const SPECS: [&str; 14] = [
        "fixed:7",
        "uniform:10:20",
        "normal:100:15",
        "normal:5:0",
        "lognormal:300:0.8",
        "exp:50",
        "exp:0",
        "pareto:15:214.476:0.348238",
        "pareto:1:2:-0.3",
        "gev:30:8:0.08",
        "gev:30:8:-0.2",
        "list:1:0.5,2:0.25,9:0.25",
        "fb_key",
        "fb_value",
    ];

    fn random() -> Xoshiro256PlusPlus {
        Xoshiro256PlusPlus::seed_from_u64(11)
    }

    fn plain(text: &str) -> Variate {
        Variate::parse(text, Unit::Plain).unwrap()
    }

    #[test]
    fn the_share_of_draws_below_a_quantile_matches_it() {
        const DRAWS: usize = 100_000;
        for spec in SPECS.into_iter().chain(["fb_ia", "pareto:0:1:1.5", "gev:0:1:0"]) {
            let variate = plain(spec);
            let mut random = random();
            let draws: Vec<f64> = (0..DRAWS).map(|_| variate.draw(&mut random)).collect();
            for u in [0.001, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999] {
                let quantile = variate.quantile(u);
                let share = |count: usize| count as f64 / DRAWS as f64;
                let below = share(draws.iter().filter(|draw| **draw < quantile).count());
                let upto = share(draws.iter().filter(|draw| **draw <= quantile).count());
                let slack = 5.0 * (u * (1.0 - u) / DRAWS as f64).sqrt();
                assert!(below <= u + slack && upto >= u - slack, "{spec} at {u}: {below} to {upto}");
            }
        }
    }

    #[test]
    fn draws_have_the_mean() {
        for spec in SPECS.into_iter().chain(["fb_ia", "gev:0:1:0"]) {
            let variate = plain(spec);
            let mut random = random();
            let mean = (0..200_000).map(|_| variate.draw(&mut random)).sum::<f64>() / 2e5;
            assert!((mean - variate.mean()).abs() <= 0.015 * variate.mean().abs(), "{spec}: {mean}");
        }
    }

    #[test]
    fn quantiles_rise_and_end_where_draws_do() {
        for spec in SPECS {
            let variate = plain(spec);
            let quantiles: Vec<f64> = (0..=1000).map(|step| variate.quantile(f64::from(step) / 1000.0)).collect();
            assert!(quantiles.windows(2).all(|pair| pair[0] <= pair[1]), "{spec}");
            let mut random = random();
            for _ in 0..1000 {
                let draw = variate.draw(&mut random);
                assert!(quantiles[0] <= draw && draw <= quantiles[1000], "{spec}: {draw}");
            }
        }
    }

    #[test]
    fn sizes_are_rounded_and_moved_to_their_limits() {
        let mut random = random();
        let normal = Variate::parse("normal:100:80", Unit::Bytes).unwrap();
        let sizes: Vec<usize> = (0..10_000).map(|_| normal.draw_size(&mut random, 16, 200)).collect();
        assert_eq!((sizes.iter().min(), sizes.iter().max()), (Some(&16), Some(&200)));
        // A share of Phi((200 - 100) / 80) = 0.106 lies above the limit, and is not drawn again.
        let largest = sizes.iter().filter(|size| **size == 200).count();
        assert!((900..1200).contains(&largest), "{largest}");
        let fixed = Variate::parse("16.5", Unit::Bytes).unwrap();
        assert_eq!(fixed.draw_size(&mut random, 0, 100), 17);
        assert_eq!(Variate::parse("pareto:0:1g:9", Unit::Bytes).unwrap().draw_size(&mut random, 3, 3), 3);
    }

    #[test]
    fn uniform_sizes_are_equally_likely() {
        let mut random = random();
        let uniform = Variate::parse("uniform:1:3", Unit::Bytes).unwrap();
        let mut counts = [0; 4];
        (0..30_000).for_each(|_| counts[uniform.draw_size(&mut random, 0, 10)] += 1);
        assert!(counts[0] == 0 && counts[1..].iter().all(|count| (9_600..10_400).contains(count)), "{counts:?}");
        let narrow = Variate::parse("uniform:1.2:1.4", Unit::Bytes).unwrap();
        assert_eq!(narrow.draw_size(&mut random, 0, 10), 1);
    }

    #[test]
    fn sizes_at_a_quantile_are_as_those_drawn() {
        let size = |text| move |u| Variate::parse(text, Unit::Bytes).unwrap().size_at(u, 1, 1000);
        assert_eq!([0.0, 0.333, 0.334, 0.667, 0.999, 1.0].map(size("uniform:1:3")), [1, 1, 2, 3, 3, 3]);
        assert_eq!([0.0, 0.005, 0.1, 0.999_999].map(size("fb_value")), [1, 1, 2, 1000]);
        assert_eq!([0.0, 0.5, 1.0].map(size("normal:100:5")), [1, 100, 1000]);
        assert_eq!([0.2, 0.7].map(size("list:10:0.5,20:0.5")), [10, 20]);
    }

    #[test]
    fn times_are_nanoseconds_from_zero_on() {
        let mut random = random();
        let time = |text| Variate::parse(text, Unit::Time).unwrap();
        assert_eq!(time("1.5ms").draw_ns(&mut random), 1_500_000);
        assert_eq!(time("fb_ia").mean(), 1000.0 * plain("fb_ia").mean());
        let normal = time("normal:1us:1us");
        assert!((0..1000).any(|_| normal.draw_ns(&mut random) == 0));
    }

    #[test]
    fn a_mean_that_is_needed_must_be_finite() {
        assert_eq!(plain("exp:3").finite_mean(), Ok(3.0));
        let line = plain("pareto:0:1:1").finite_mean().unwrap_err().to_string();
        assert!(line.contains("pareto:0:1:1") && line.contains("the mean is not finite"), "{line}");
        assert!(plain("gev:0:1:-1000").finite_mean().is_err());
        assert_eq!(plain("exp:0").fixed_value(), Some(0.0));
        assert_eq!(plain("list:4:1,4:1").fixed_value(), Some(4.0));
        assert_eq!(plain("exp:1").fixed_value(), None);
    }
}
