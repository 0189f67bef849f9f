//! What do random sizes, times and keys look like? Distributions and popularities in a mini-language
//! (docs/distributions.md), drawn from whatever generator of random numbers one brings.
//! Knows no clock, no files and nothing of what is drawn for.

mod distribution;
mod drawer;
mod error;
mod kind;
mod language;
mod popularity;
mod presets;
mod scatter;
mod special;
mod tails;
mod unit;
mod weighted;
mod zipf;

pub use distribution::Distribution;
pub use drawer::Drawer;
pub use error::DrawError;
pub use popularity::{KEYS_MAX, Popularity};
pub use unit::Unit;
