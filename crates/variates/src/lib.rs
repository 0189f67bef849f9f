//! What do random sizes, times and keys look like? Random variates and popularities in a mini-language
//! (docs/random-variates.md), drawn from whatever generator of random numbers one brings.
//! Knows no clock, no files and nothing of what is drawn for.

mod error;
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

pub use error::VariateError;
pub use popularity::{KEYS_MAX, Popularity};
pub use sampler::KeySampler;
pub use unit::Unit;
pub use variate::Variate;
