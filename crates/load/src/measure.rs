//! What is counted and timed during a run: per request, per second and per thread, and how these add up.

pub(crate) mod histogram;
pub(crate) mod part;
pub(crate) mod request;
pub(crate) mod seconds;
pub(crate) mod tally;
pub(crate) mod times;
