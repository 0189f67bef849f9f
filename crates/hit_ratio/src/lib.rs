//! The hit ratio that a cache would have with other amounts of memory, computed from a sequence of requests.
//!
//! ```text
//! requests -> census (counts, sizes, which keys are sampled) -> sample
//! requests -> simulation (one small cache for each amount of memory) -> curve
//! ```
//!
//! The requests are read twice. The first pass chooses the keys by their hashes (SHARDS: C. A. Waldspurger et al.,
//! "Efficient MRC construction with SHARDS", FAST 2015). The second pass simulates caches that are smaller by the share
//! of the keys (C. A. Waldspurger et al., "Cache modeling and optimization using miniature simulations", USENIX ATC
//! 2017). The most popular keys are simulated in any case, because no sample stands for them. A simulation needs no stack
//! distances, which are not exact with sizes, deletions and expiry.
//! Knows no files, no clock and no terminal.

mod cache;
mod census;
mod grid;
mod lists;
mod lru;
mod memcached;
mod popular;
mod request;
mod simulation;
mod slabs;

pub use cache::{Cache, Item};
pub use census::{Census, Sample};
pub use grid::{lru_sizes, memcached_sizes};
pub use lru::ByteLru;
pub use memcached::SegmentedLru;
pub use request::{Operation, Request};
pub use simulation::{Curve, Point, Policy, Simulation};
pub use slabs::{SlabClass, SlabClasses, SlabSettings};

/// The reasons why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the message of each variant describes it")]
pub enum HitRatioError {
    #[error("there are {0} requests and no get, so there is no hit ratio")]
    NoReads(u64),
    #[error("no request has a value size; give one for all values, for example --value-size 100")]
    NoSizes,
    #[error("all {0} requests are for one key; the hit ratio does not depend on the memory")]
    OneKey(u64),
    #[error("no get is for a key that an earlier request named, so no amount of memory gives a hit")]
    AllNew,
    #[error("no key of the sample has a get after its first request (keys in the sample: {0}); use --samples all")]
    SampleAllNew(u64),
    #[error("no key of the sample has a value size, but others have (keys in the sample: {0}); use --samples all")]
    SampleWithoutSizes(u64),
    #[error("{0}")]
    Slabs(String),
}
