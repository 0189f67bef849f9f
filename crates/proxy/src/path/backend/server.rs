//! Which backend a connection goes to, and what it may take: the same for all connections of one loop to that backend.

use crate::config::Timeouts;
use crate::path::backend::match_reply::Expect;
use net::Endpoint;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use wire::{Limits, Verb};

/// One backend, as the configuration says it.
#[derive(Clone, Debug)]
pub(crate) struct Backend {
    /// Its place in the configuration.
    pub(crate) index: u16,
    pub(crate) name: Arc<str>,
    /// Where it is; none as long as its name means nothing.
    pub(crate) endpoint: Option<Endpoint>,
    pub(crate) reporter: Reporter,
    pub(crate) limits: BackendLimits,
}

/// Limits of each connection to it.
#[derive(Clone, Debug)]
pub(crate) struct BackendLimits {
    pub(crate) timeouts: Timeouts,
    pub(crate) window: usize,
    pub(crate) buffer_bytes: u64,
    /// The largest reply to one request; its rest is read and dropped, and the answer is an error.
    pub(crate) reply_bytes: usize,
    pub(crate) wire: Limits,
}

impl BackendLimits {
    /// The time for what is answered like this.
    pub(crate) fn timeout(&self, expect: Expect) -> Duration {
        match expect {
            Expect::Probe => self.timeouts.connect,
            Expect::Values | Expect::Line(Verb::Mg | Verb::Me) => self.timeouts.read,
            Expect::Line(_) => self.timeouts.write,
        }
    }
}

/// A connection that was lost or could not be opened.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) backend: u16,
    pub(crate) endpoint: Endpoint,
    /// It has not been open at all.
    pub(crate) is_unreachable: bool,
}

/// Who is told of failures.
#[derive(Clone)]
pub(crate) struct Reporter(Arc<dyn Fn(Failure) + Send + Sync>);

impl Reporter {
    /// Calls this function, which must not wait.
    pub(crate) fn new(report: impl Fn(Failure) + Send + Sync + 'static) -> Reporter {
        Reporter(Arc::new(report))
    }

    /// Tells of a failure.
    pub(crate) fn report(&self, failure: Failure) {
        (self.0)(failure);
    }
}

impl fmt::Debug for Reporter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Reporter")
    }
}
