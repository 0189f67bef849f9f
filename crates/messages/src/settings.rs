//! What a queue can be told, and what it tells of itself. Knows neither HTTP nor SQL.

/// Where the counts of a queue end.
pub(crate) const COUNTED: i64 = 10_000;

/// Attempts of a queue that has a queue for dead letters and says no number.
pub(crate) const ATTEMPTS: i32 = 5;

/// A queue's settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    /// How often a message may be received before it is a dead letter; only together with `dead_letters`.
    pub(crate) attempts: Option<i32>,
    /// The queue for those that nobody acknowledged.
    pub(crate) dead_letters: Option<String>,
    /// How long a message lives that does not say it.
    pub(crate) expiry_ms: Option<i64>,
    /// How long a lease holds that does not say it.
    pub(crate) lease_ms: Option<i64>,
}

/// A queue as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QueueState {
    pub(crate) name: String,
    pub(crate) settings: Settings,
    /// Messages that somebody may have; at most [`COUNTED`].
    pub(crate) waiting: i64,
    /// Messages under a lease, or delayed; at most [`COUNTED`].
    pub(crate) held: i64,
}
