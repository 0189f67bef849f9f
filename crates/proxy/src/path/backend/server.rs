//! A backend, as all connections of one event loop to it see it: its name, its address and its limits.

use crate::config::Timeouts;
use crate::path::auth::Login;
use crate::path::backend::match_reply::Expect;
use net::Endpoint;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use wire::{Limits, Verb};

/// One backend.
#[derive(Clone, Debug)]
pub(crate) struct Backend {
    /// Its number in the configuration.
    pub(crate) index: u16,
    pub(crate) name: Arc<str>,
    /// Its address, or none as long as its name does not resolve.
    pub(crate) endpoint: Option<Endpoint>,
    /// Its connections are never opened, so that it receives no requests.
    pub(crate) is_drained: bool,
    pub(crate) reporter: Reporter,
    /// What is sent first on each connection, if the server requires authentication.
    pub(crate) login: Option<Login>,
    pub(crate) limits: BackendLimits,
}

/// What a connection to a backend is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Requests of clients. A backend without an open connection of this kind is ejected.
    Requests,
    /// Background jobs only.
    Background,
    /// Reads whose replies are expected to be large, so that these do not delay other replies. The connection is opened when it is
    /// first needed, and closed when it was not used for a while. While it is not open, such reads use the ordinary one.
    Bulk,
}

/// The limits of each connection to a backend.
#[derive(Clone, Debug)]
pub(crate) struct BackendLimits {
    pub(crate) timeouts: Timeouts,
    /// After this many timeouts in a row, without a reply between, connections are closed.
    pub(crate) failures: u32,
    pub(crate) window: usize,
    pub(crate) buffer_bytes: u64,
    /// The largest reply to one request. A larger one is read to its end and discarded, and the request fails.
    pub(crate) reply_bytes: usize,
    pub(crate) wire: Limits,
    /// Zero: the kernel does not check whether the backend still exists.
    pub(crate) keepalive: Duration,
}

impl BackendLimits {
    /// The timeout of a request with this kind of reply.
    pub(crate) fn timeout(&self, expect: Expect) -> Duration {
        match expect {
            Expect::Login | Expect::Probe => self.timeouts.connect,
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
    /// The connection was never open.
    pub(crate) is_unreachable: bool,
}

/// Receives connection failures.
#[derive(Clone)]
pub(crate) struct Reporter(Arc<dyn Fn(Failure) + Send + Sync>);

impl Reporter {
    /// Calls this function, which must not block.
    pub(crate) fn new(report: impl Fn(Failure) + Send + Sync + 'static) -> Reporter {
        Reporter(Arc::new(report))
    }

    /// Reports a failure.
    pub(crate) fn report(&self, failure: Failure) {
        (self.0)(failure);
    }
}

impl fmt::Debug for Reporter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Reporter")
    }
}
