//! The popularity of keys: the patterns of access and their mini-language.

use crate::VariateError;
use crate::unit::number;
use crate::zipf::Zipf;
use std::fmt;
use std::str::FromStr;

/// The largest number of keys; beyond it, floating point numbers cannot distinguish all keys well.
pub const KEYS_MAX: u64 = 1 << 48;

const PATTERNS: &str = "uniform, sequential, zipf:EXPONENT, gaussian[:CENTRE:DEVIATION], hot:KEYS_SHARE:REQUESTS_SHARE";

/// The popularity of keys. Key numbers count from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Popularity {
    /// Every key is equally likely.
    #[default]
    Uniform,
    /// One key after another.
    Sequential,
    /// The key of rank k = 1, 2, ... has a share in proportion to k^-exponent.
    Zipf {
        /// At least 0.
        exponent: f64,
    },
    /// Normal around one key, truncated at the first and the last key.
    Gaussian {
        /// The most likely key and the standard deviation in keys; without them the middle, and a sixth of the
        /// distance between the first and the last key, as in memtier.
        centre_and_deviation: Option<(f64, f64)>,
    },
    /// A few keys get most of the requests; within both groups every key is equally likely.
    Hot {
        /// The share of keys that are hot, above 0 and at most 1; at least one key is hot.
        keys_share: f64,
        /// The share of requests that go to them, 0 to 1.
        requests_share: f64,
    },
}

impl Popularity {
    /// Checks the pattern for this number of keys.
    ///
    /// # Errors
    /// If there are no keys or more than [`KEYS_MAX`], the centre is not among them, or a value is out of range.
    pub fn check(&self, keys: u64) -> Result<(), VariateError> {
        let refuse = |problem: String| Err(VariateError::new(&self.to_string(), problem, self.example(keys)));
        if keys == 0 || keys > KEYS_MAX {
            let problem = format!("cannot be drawn from {keys} keys, only from 1 to 2^48");
            return Err(VariateError::new(&self.to_string(), problem, "10000 keys"));
        }
        if let Popularity::Gaussian { centre_and_deviation: Some((centre, _)) } = self
            && *centre > (keys - 1) as f64
        {
            return refuse(format!(
                "CENTRE {centre} is above the last of the keys, which count from 0 to {}",
                keys - 1
            ));
        }
        self.problem().map_or(Ok(()), refuse)
    }

    /// Whether keys have ranks that are scattered over their numbers, as in `zipf` and `hot`.
    pub fn has_ranks(&self) -> bool {
        matches!(self, Popularity::Zipf { .. } | Popularity::Hot { .. })
    }

    /// The share of requests for the `top` most popular of `keys` keys, both at least 1. This is the best hit ratio of a cache
    /// for that many keys. `None` for `gaussian`, which has no simple formula.
    pub fn top_share(&self, keys: u64, top: u64) -> Option<f64> {
        let top = top.min(keys);
        match *self {
            Popularity::Uniform | Popularity::Sequential => Some(top as f64 / keys as f64),
            Popularity::Zipf { exponent } => {
                let zipf = Zipf::new(keys, exponent);
                Some(zipf.weight(top) / zipf.weight(keys))
            }
            Popularity::Gaussian { .. } => None,
            Popularity::Hot { keys_share, requests_share } => {
                let hot_keys = hot_keys(keys, keys_share);
                let share = |part: u64, of: u64| if of == 0 { 0.0 } else { part as f64 / of as f64 };
                let requests_share = if hot_keys == keys { 1.0 } else { requests_share };
                let (hot, cold) =
                    (share(top.min(hot_keys), hot_keys), share(top.saturating_sub(hot_keys), keys - hot_keys));
                Some(requests_share * hot + (1.0 - requests_share) * cold)
            }
        }
    }

    /// The name, with the formula.
    pub fn formula(&self) -> &'static str {
        match self {
            Popularity::Uniform => "every key is equally likely",
            Popularity::Sequential => "one key after the other, from the first again after the last",
            Popularity::Zipf { .. } => "Zipf's law: rank k = 1, 2, ... has a share in proportion to k^-EXPONENT",
            Popularity::Gaussian { .. } => {
                "normal around CENTRE with DEVIATION (default: the middle, a sixth of the way from the first to the last key), cut off at both ends"
            }
            Popularity::Hot { .. } => "KEYS_SHARE of the keys get REQUESTS_SHARE of the requests, each group uniformly",
        }
    }

    /// The value that is out of range, if any.
    fn problem(&self) -> Option<String> {
        let share = |value: f64| (0.0..=1.0).contains(&value);
        match *self {
            Popularity::Zipf { exponent } if !(exponent >= 0.0 && exponent.is_finite()) => {
                Some(format!("EXPONENT {exponent} is below 0"))
            }
            Popularity::Gaussian { centre_and_deviation: Some((centre, _)) }
                if !(centre >= 0.0 && centre.is_finite()) =>
            {
                Some(format!("CENTRE {centre} is below 0"))
            }
            Popularity::Gaussian { centre_and_deviation: Some((_, deviation)) }
                if !(deviation > 0.0 && deviation.is_finite()) =>
            {
                Some(format!("DEVIATION {deviation} is not above 0"))
            }
            Popularity::Hot { keys_share, .. } if !(share(keys_share) && keys_share > 0.0) => {
                Some(format!("KEYS_SHARE {keys_share} is not above 0 and at most 1"))
            }
            Popularity::Hot { requests_share, .. } if !share(requests_share) => {
                Some(format!("REQUESTS_SHARE {requests_share} is not 0 to 1"))
            }
            _ => None,
        }
    }

    fn example(&self, keys: u64) -> String {
        match self {
            Popularity::Uniform => "uniform".into(),
            Popularity::Sequential => "sequential".into(),
            Popularity::Zipf { .. } => "zipf:0.99".into(),
            Popularity::Gaussian { .. } => format!("gaussian:{}:{}", keys / 2, (keys / 6).max(1)),
            Popularity::Hot { .. } => "hot:0.1:0.9".into(),
        }
    }
}

/// The number of hot keys, at least one.
pub(crate) fn hot_keys(keys: u64, keys_share: f64) -> u64 {
    ((keys as f64 * keys_share).round() as u64).clamp(1, keys)
}

/// Reads a pattern by its name, or by memtier's letters R, S, G and Z.
impl FromStr for Popularity {
    type Err = VariateError;

    fn from_str(text: &str) -> Result<Popularity, VariateError> {
        let mut parts = text.split(':');
        let name = parts.next().unwrap_or_default();
        let values = parts.map(number).collect::<Result<Vec<f64>, String>>();
        let values = values.map_err(|line| VariateError::new(text, line, "zipf:0.99"))?;
        let (popularity, wanted) = match (name, values.as_slice()) {
            ("uniform" | "R", []) => (Some(Popularity::Uniform), "no values"),
            ("sequential" | "S", []) => (Some(Popularity::Sequential), "no values"),
            // memtier's default exponent.
            ("Z", []) => (Some(Popularity::Zipf { exponent: 1.0 }), ""),
            ("zipf" | "Z", [exponent]) => (Some(Popularity::Zipf { exponent: *exponent }), ""),
            ("gaussian" | "G", []) => (Some(Popularity::Gaussian { centre_and_deviation: None }), ""),
            ("gaussian" | "G", [centre, deviation]) => {
                (Some(Popularity::Gaussian { centre_and_deviation: Some((*centre, *deviation)) }), "")
            }
            ("hot", [keys_share, requests_share]) => {
                (Some(Popularity::Hot { keys_share: *keys_share, requests_share: *requests_share }), "")
            }
            ("uniform" | "R" | "sequential" | "S", _) => (None, "no values"),
            ("zipf" | "Z", _) => (None, "zipf:EXPONENT"),
            ("gaussian" | "G", _) => (None, "gaussian or gaussian:CENTRE:DEVIATION"),
            ("hot", _) => (None, "hot:KEYS_SHARE:REQUESTS_SHARE"),
            _ => {
                return Err(VariateError::new(
                    text,
                    format!("{name:?} is no pattern; there are {PATTERNS}"),
                    "zipf:0.99",
                ));
            }
        };
        let Some(popularity) = popularity else {
            let example = if name == "hot" { "hot:0.1:0.9" } else { "zipf:0.99" };
            return Err(VariateError::new(text, format!("wanted {wanted}, not {} values", values.len()), example));
        };
        match popularity.problem() {
            Some(problem) => Err(VariateError::new(text, problem, popularity.example(1000))),
            None => Ok(popularity),
        }
    }
}

/// The text that is read as the same pattern again.
impl fmt::Display for Popularity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Popularity::Uniform => formatter.write_str("uniform"),
            Popularity::Sequential => formatter.write_str("sequential"),
            Popularity::Zipf { exponent } => write!(formatter, "zipf:{exponent}"),
            Popularity::Gaussian { centre_and_deviation: None } => formatter.write_str("gaussian"),
            Popularity::Gaussian { centre_and_deviation: Some((centre, deviation)) } => {
                write!(formatter, "gaussian:{centre}:{deviation}")
            }
            Popularity::Hot { keys_share, requests_share } => write!(formatter, "hot:{keys_share}:{requests_share}"),
        }
    }
}
