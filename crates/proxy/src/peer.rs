//! Which backend a connection goes to, and what it may take: the same for all connections of one loop to that backend.

use net::Endpoint;
use std::sync::Arc;
use std::time::Duration;
use wire::Limits;

/// One backend, as the configuration says it.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    /// Its place in the configuration.
    pub(crate) index: u16,
    pub(crate) name: Arc<str>,
    pub(crate) endpoint: Endpoint,
    pub(crate) limits: PeerLimits,
}

/// Limits of each connection to it.
#[derive(Clone, Debug)]
pub(crate) struct PeerLimits {
    pub(crate) timeout: Duration,
    pub(crate) window: usize,
    pub(crate) buffer_bytes: u64,
    /// The largest reply to one request; its rest is read and dropped, and the answer is an error.
    pub(crate) reply_bytes: usize,
    pub(crate) wire: Limits,
}
