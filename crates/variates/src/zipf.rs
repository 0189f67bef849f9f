//! Ranks by Zipf's law, exact for every exponent and any number of ranks, without tables.
//! Rejection-inversion: W. Hörmann and G. Derflinger, "Rejection-inversion to generate variates from monotone
//! discrete distributions", ACM Transactions on Modeling and Computer Simulation 6(3), 1996, section 4.
//! `rand_distr` has a correct one, too; it computes three powers where this computes one logarithm and one exponential.

use rand::Rng;

/// Rank k of n has a share in proportion to k^-exponent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Zipf {
    ranks: f64,
    exponent: f64,
    /// The area under the hat up to the upper end of the first rank, minus the share of the first rank.
    from: f64,
    /// The area under the hat up to the upper end of the last rank.
    to: f64,
    /// A rank this close above its point is accepted without computing its share.
    near: f64,
}

impl Zipf {
    /// At least one rank, and an exponent of at least 0.
    pub(crate) fn new(ranks: u64, exponent: f64) -> Zipf {
        let mut zipf = Zipf { ranks: ranks as f64, exponent, from: 0.0, to: 0.0, near: 0.0 };
        zipf.from = zipf.area(1.5) - 1.0;
        zipf.to = zipf.area(zipf.ranks + 0.5);
        zipf.near = 2.0 - zipf.point(zipf.area(2.5) - zipf.share(2.0));
        zipf
    }

    /// Draws a rank, counted from 0, the most popular.
    #[inline]
    pub(crate) fn draw<R: Rng + ?Sized>(&self, random: &mut R) -> u64 {
        loop {
            let area = self.to + random.random::<f64>() * (self.from - self.to);
            let point = self.point(area);
            let rank = (point + 0.5).floor().clamp(1.0, self.ranks);
            if rank - point <= self.near || area >= self.area(rank + 0.5) - self.share(rank) {
                return rank as u64 - 1;
            }
        }
    }

    /// The sum of k^-exponent over the first `ranks` ranks: summed directly at the start, then by the Euler-Maclaurin formula,
    /// whose next term is below the precision of a float.
    pub(crate) fn weight(&self, ranks: u64) -> f64 {
        const ADDED: u64 = 1000;
        let added: f64 = (1..=ranks.min(ADDED)).rev().map(|rank| self.share(rank as f64)).sum();
        if ranks <= ADDED {
            return added;
        }
        let (from, to) = (ADDED as f64, ranks as f64);
        let [(share_from, slope_from), (share_to, slope_to)] =
            [from, to].map(|rank| (self.share(rank), -self.exponent * self.share(rank) / rank));
        added + self.area(to) - self.area(from) + (share_to - share_from) / 2.0 + (slope_to - slope_from) / 12.0
    }

    /// The integral of the hat x^-exponent from 1 to `point`.
    fn area(&self, point: f64) -> f64 {
        let logarithm = point.ln();
        let power = (1.0 - self.exponent) * logarithm;
        // This form keeps all digits for exponents near 1, and is 1 at exponent 1.
        if power == 0.0 { logarithm } else { logarithm * (power.exp_m1() / power) }
    }

    /// The point at which the integral is `area`.
    #[inline]
    fn point(&self, area: f64) -> f64 {
        let power = (1.0 - self.exponent) * area;
        if power == 0.0 { area.exp() } else { (area * (power.max(-1.0).ln_1p() / power)).exp() }
    }

    fn share(&self, rank: f64) -> f64 {
        (-self.exponent * rank.ln()).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_distr::Distribution as _;
    use rand_xoshiro::Xoshiro256PlusPlus;

    const EXPONENTS: [f64; 13] = [0.0, 0.3, 0.5, 0.9, 0.99, 1.0 - 1e-12, 1.0, 1.0 + 1e-12, 1.01, 1.2, 2.0, 3.0, 8.0];

    /// Chi-square of counts against Zipf's law, and its degrees of freedom; ranks with an expectation below ten are pooled.
    fn chi_square(counts: &[u64], exponent: f64) -> (f64, f64) {
        let shares: Vec<f64> = (1..=counts.len()).map(|rank| (rank as f64).powf(-exponent)).collect();
        let (total, drawn) = (shares.iter().sum::<f64>(), counts.iter().sum::<u64>() as f64);
        let (mut sum, mut cells, mut rest) = (0.0, 0.0, (0.0, 0.0));
        for (count, share) in counts.iter().zip(shares) {
            rest = (rest.0 + *count as f64, rest.1 + share / total * drawn);
            if rest.1 >= 10.0 {
                sum += (rest.0 - rest.1).powi(2) / rest.1;
                cells += 1.0;
                rest = (0.0, 0.0);
            }
        }
        (sum, cells - 1.0)
    }

    /// Five standard deviations above the expectation.
    fn limit(freedom: f64) -> f64 {
        freedom + 5.0 * (2.0 * freedom).sqrt() + 10.0
    }

    #[test]
    fn ranks_have_their_shares_at_every_exponent() {
        for exponent in EXPONENTS {
            for ranks in [1, 2, 3, 10, 1000] {
                let zipf = Zipf::new(ranks, exponent);
                let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
                let mut counts = vec![0; ranks as usize];
                (0..60_000).for_each(|_| counts[zipf.draw(&mut random) as usize] += 1);
                let (sum, freedom) = chi_square(&counts, exponent);
                assert!(sum <= limit(freedom), "{ranks} ranks, exponent {exponent}: {sum} of {freedom}");
            }
        }
    }

    #[test]
    fn another_exponent_would_be_noticed() {
        let zipf = Zipf::new(1000, 0.99);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut counts = vec![0; 1000];
        (0..60_000).for_each(|_| counts[zipf.draw(&mut random) as usize] += 1);
        for wrong in [0.95, 1.03] {
            let (sum, freedom) = chi_square(&counts, wrong);
            assert!(sum > limit(freedom), "{wrong}: {sum} of {freedom}");
        }
    }

    #[test]
    fn both_implementations_are_correct() {
        for exponent in EXPONENTS {
            let zipf = rand_distr::Zipf::new(1000.0, exponent).unwrap();
            let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
            let mut counts = vec![0; 1000];
            (0..60_000).for_each(|_| counts[zipf.sample(&mut random) as usize - 1] += 1);
            let (sum, freedom) = chi_square(&counts, exponent);
            assert!(sum <= limit(freedom), "{exponent}: {sum} of {freedom}");
        }
    }

    #[test]
    fn cumulative_weights_are_sums() {
        for exponent in EXPONENTS {
            let zipf = Zipf::new(1, exponent);
            for ranks in [1u32, 999, 1000, 1001, 100_000] {
                let sum: f64 = (1..=ranks).rev().map(|rank| f64::from(rank).powf(-exponent)).sum();
                assert!((zipf.weight(u64::from(ranks)) / sum - 1.0).abs() < 1e-12, "{exponent}: {ranks}");
            }
        }
    }

    #[test]
    fn many_ranks_and_large_exponents_stay_in_range() {
        for exponent in [0.0, 0.5, 1.0, 1.5, 20.0, 300.0] {
            for ranks in [1 << 27, 1 << 48] {
                let zipf = Zipf::new(ranks, exponent);
                let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
                assert!((0..1000).all(|_| zipf.draw(&mut random) < ranks), "{exponent} {ranks}");
            }
        }
    }
}
