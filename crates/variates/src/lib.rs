//! Random sizes, times and keys: random variates and popularities of keys, each with a mini-language
//! (docs/random-variates.md). The caller passes the generator of random numbers.
//! Knows no clock, no files and not what the values are used for.

mod kind;
mod language;
mod popularity;
mod presets;
mod sampler;
mod scatter;
mod special;
mod tails;
mod unit;
mod variate;
mod weighted;
mod zipf;

pub use popularity::{KEYS_MAX, Popularity};
pub use sampler::KeySampler;
pub use unit::Unit;
pub use variate::Variate;

use thiserror::Error;

/// A text that is neither a random variate nor a popularity: one line with the part that is wrong and an example.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{text:?}: {problem}; for example {example}")]
pub struct VariateError {
    text: String,
    problem: String,
    example: String,
}

impl VariateError {
    pub(crate) fn new(text: &str, problem: impl Into<String>, example: impl Into<String>) -> VariateError {
        VariateError { text: text.to_owned(), problem: problem.into(), example: example.into() }
    }
}
