//! Connections for bulk reads: opened at the first use, and closed when they are not used for a while.

use super::{BackendConnection, State};
use crate::path::backend::server::Purpose;
use clock::Nanos;
use std::time::Duration;

/// A bulk connection that was not used for this long is closed.
const BULK_IDLE: Duration = Duration::from_secs(5);

impl BackendConnection {
    /// Records that a request is meant for this connection, which is opened at the next tick if it is closed for lack of use.
    pub(crate) fn wake(&mut self, now: Nanos) {
        self.used = now;
        if let State::Closed { retry_at: Nanos::NEVER } = self.state
            && !self.backend.is_drained
        {
            self.state = State::Closed { retry_at: Nanos::UNSET };
        }
    }

    /// Whether it is open, and a request would be accepted now.
    pub(crate) fn is_open(&self) -> bool {
        self.state == State::Open && self.admits().is_ok()
    }

    /// When it is closed for lack of use, if no request is in flight.
    pub(super) fn unused_at(&self) -> Nanos {
        match self.state {
            State::Closed { retry_at: Nanos::NEVER } => Nanos::NEVER,
            _ if self.purpose == Purpose::Bulk => self.used + BULK_IDLE,
            _ => Nanos::NEVER,
        }
    }
}
