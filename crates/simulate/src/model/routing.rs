//! The next place of a request: routes with precomputed cumulative probabilities, or a list of visits.

use rand::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;

/// With more alternatives than this, a draw uses binary search.
const LINEAR_MAX: usize = 16;

/// The routing of requests.
#[derive(Clone, Debug)]
pub(crate) enum Routing {
    /// By class and node; the client is the node after the last.
    Routes(Vec<Choice<Hop>>),
    /// By the class in which the request began, in the order of nodes.
    Visits(Vec<Vec<Visit>>),
}

/// A node, and the class at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hop {
    pub(crate) node: u32,
    pub(crate) class: u32,
}

/// A whole number of visits, and one more with a probability.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Visit {
    pub(crate) node: u32,
    pub(crate) certain: u32,
    pub(crate) one_more: f64,
}

/// A discrete random choice.
#[derive(Clone, Debug)]
pub(crate) struct Choice<T> {
    /// Cumulative probabilities. The last is 1 or more, so that every draw finds an alternative.
    cumulative: Vec<f64>,
    items: Vec<T>,
}

impl<T: Copy> Choice<T> {
    /// From alternatives with probabilities that sum to one within rounding.
    pub(crate) fn new(parts: impl IntoIterator<Item = (T, f64)>) -> Choice<T> {
        let (mut sum, mut cumulative, mut items) = (0.0, Vec::new(), Vec::new());
        for (item, probability) in parts {
            if probability > 0.0 {
                sum += probability;
                cumulative.push(sum);
                items.push(item);
            }
        }
        if let Some(last) = cumulative.last_mut() {
            *last = f64::INFINITY;
        }
        Choice { cumulative, items }
    }

    /// Draws one of them. A single alternative uses no random number.
    #[inline]
    pub(crate) fn draw(&self, random: &mut Xoshiro256PlusPlus) -> T {
        if self.items.len() == 1 {
            return self.items[0];
        }
        let draw: f64 = random.random();
        let index = if self.items.len() <= LINEAR_MAX {
            self.cumulative.iter().take_while(|&&sum| sum <= draw).count()
        } else {
            self.cumulative.partition_point(|&sum| sum <= draw)
        };
        self.items[index]
    }
}

impl Visit {
    /// From a mean number of visits.
    pub(crate) fn new(node: u32, mean: f64) -> Visit {
        Visit { node, certain: mean as u32, one_more: mean - mean.floor() }
    }

    /// Draws the number of visits of a request.
    #[inline]
    pub(crate) fn draw(&self, random: &mut Xoshiro256PlusPlus) -> u32 {
        self.certain + u32::from(self.one_more > 0.0 && random.random::<f64>() < self.one_more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn shares_match_the_configured_probabilities() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(5);
        for count in [3, 40] {
            let total = (count * (count + 1) / 2) as f64;
            let choice = Choice::new((0..count).map(|item| (item, (item + 1) as f64 / total)));
            let mut drawn = vec![0.0; count];
            (0..200_000).for_each(|_| drawn[choice.draw(&mut random)] += 1.0 / 200_000.0);
            for (item, share) in drawn.iter().enumerate() {
                assert!((share - (item + 1) as f64 / total).abs() < 0.005, "{item} of {count}: {share}");
            }
        }
    }

    #[test]
    fn visits_have_their_mean() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(6);
        let visit = Visit::new(0, 2.3);
        let sum: u32 = (0..100_000).map(|_| visit.draw(&mut random)).sum();
        assert!((f64::from(sum) / 100_000.0 - 2.3).abs() < 0.01);
        assert_eq!(Visit::new(0, 3.0).draw(&mut random), 3);
    }
}
