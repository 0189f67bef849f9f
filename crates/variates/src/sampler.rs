//! Draws key numbers for one part of a run, such as one thread. Allocates nothing.

use crate::popularity::{Popularity, hot_keys};
use crate::scatter::Scatter;
use crate::zipf::Zipf;
use rand::Rng;
use rand_distr::{Distribution as _, StandardNormal};

/// Draws keys by their [`Popularity`]: from 0 up to, not including, the number of keys.
#[derive(Clone, Debug)]
pub struct KeySampler {
    keys: u64,
    scatter: Scatter,
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Uniform,
    /// A range of the keys, and the next key in it.
    Sequential {
        from: u64,
        to: u64,
        next: u64,
    },
    Zipf(Zipf),
    /// Keys are the whole parts of normal values with mean `centre`.
    Gaussian {
        centre: f64,
        deviation: f64,
    },
    Hot {
        hot_keys: u64,
        requests_share: f64,
    },
}

impl Popularity {
    /// A sampler for part `part` of `parts`, such as one thread of several. Only `sequential` has parts: each part has its own
    /// range of the keys, so that all parts together request every key once before any key is repeated.
    ///
    /// # Panics
    /// If [`Popularity::check`] fails, or `part` is not below `parts`.
    pub fn sampler(&self, keys: u64, part: usize, parts: usize) -> KeySampler {
        if let Err(error) = self.check(keys) {
            panic!("an unchecked pattern: {error}");
        }
        assert!(part < parts, "parts count from 0");
        KeySampler::new(self, keys, part as u64, parts as u64)
    }
}

impl KeySampler {
    /// A sampler for a pattern that has been checked.
    fn new(popularity: &Popularity, keys: u64, part: u64, parts: u64) -> KeySampler {
        let state = match *popularity {
            Popularity::Uniform => State::Uniform,
            Popularity::Sequential => {
                let end = |part: u64| (u128::from(keys) * u128::from(part) / u128::from(parts)) as u64;
                // With more parts than keys, some parts share a key.
                let from = end(part).min(keys - 1);
                State::Sequential { from, to: end(part + 1).max(from + 1), next: from }
            }
            Popularity::Zipf { exponent } => State::Zipf(Zipf::new(keys, exponent)),
            Popularity::Gaussian { centre_and_deviation: None } => {
                State::Gaussian { centre: keys as f64 / 2.0, deviation: (keys - 1) as f64 / 6.0 }
            }
            // A key has width 1, so it is most likely in its middle.
            Popularity::Gaussian { centre_and_deviation: Some((centre, deviation)) } => {
                State::Gaussian { centre: centre + 0.5, deviation }
            }
            Popularity::Hot { keys_share, requests_share } => {
                State::Hot { hot_keys: hot_keys(keys, keys_share), requests_share }
            }
        };
        KeySampler { keys, scatter: Scatter::new(keys), state }
    }

    /// The next key.
    #[inline]
    pub fn draw<R: Rng + ?Sized>(&mut self, random: &mut R) -> u64 {
        let drawn = self.draw_rank(random);
        self.key_of_rank(drawn)
    }

    /// The rank of the next key, 0 for the most popular one; the key itself if the pattern has no ranks.
    #[inline]
    pub fn draw_rank<R: Rng + ?Sized>(&mut self, random: &mut R) -> u64 {
        match &mut self.state {
            State::Uniform => random.random_range(0..self.keys),
            State::Sequential { from, to, next } => {
                let key = *next;
                *next = if key + 1 == *to { *from } else { key + 1 };
                key
            }
            State::Zipf(zipf) => zipf.draw(random),
            State::Gaussian { centre, deviation } => gaussian(*centre, *deviation, self.keys, random),
            State::Hot { hot_keys, requests_share } => {
                if *hot_keys == self.keys {
                    random.random_range(0..self.keys)
                } else if random.random::<f64>() < *requests_share {
                    random.random_range(0..*hot_keys)
                } else {
                    random.random_range(*hot_keys..self.keys)
                }
            }
        }
    }

    /// The key with this rank; the rank itself if the pattern has no ranks. For the same number of keys it is the same in every
    /// thread, process and version.
    ///
    /// # Panics
    /// If the rank is not below the number of keys.
    #[inline]
    pub fn key_of_rank(&self, rank: u64) -> u64 {
        assert!(rank < self.keys, "ranks count from 0");
        match self.state {
            State::Zipf(_) | State::Hot { .. } => self.scatter.key(rank),
            _ => rank,
        }
    }
}

/// A normal value between 0 and `keys`, truncated to a whole number. Values outside are drawn again. If most would be
/// outside, a uniform value is accepted in proportion to the normal density, at least every second one.
fn gaussian<R: Rng + ?Sized>(centre: f64, deviation: f64, keys: u64, random: &mut R) -> u64 {
    let width = keys as f64;
    // The area of a normal density of height 1.
    let area = deviation * (2.0 * std::f64::consts::PI).sqrt();
    loop {
        let point = if area < width {
            let normal: f64 = StandardNormal.sample(random);
            centre + deviation * normal
        } else {
            let point = width * random.random::<f64>();
            let distance = (point - centre) / deviation;
            if random.random::<f64>() >= (-distance * distance / 2.0).exp() {
                continue;
            }
            point
        };
        if (0.0..width).contains(&point) {
            return point as u64;
        }
    }
}
