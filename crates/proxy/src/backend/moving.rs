//! What a connection does when its backend is at another address: what is in flight stays with the old connection until it
//! is answered, and requests go to the new one.

use crate::backend::{Backend, State};
use crate::finished::Finished;
use crate::peer::Failure;
use clock::Nanos;
use net::{Endpoint, Poller, Token};
use records::Outcome;

impl Backend {
    /// Goes to another address. What is in flight is returned, as a connection that takes nothing more.
    pub(crate) fn move_to(
        &mut self,
        endpoint: Endpoint,
        poller: &Poller,
        finished: &mut Finished<'_>,
        now: Nanos,
    ) -> Option<Backend> {
        if self.peer.endpoint.as_ref() == Some(&endpoint) {
            return None;
        }
        self.peer.endpoint = Some(endpoint);
        match self.state {
            // It waits out its pause, so that addresses of which none can be reached are not tried without end.
            State::Closed { .. } => return None,
            State::Opening { .. } | State::Open => {}
        }
        if self.waiting() == 0 {
            self.close(Outcome::BackendLost, finished, now);
            self.retry.succeeded();
            self.open(poller, true, finished, now);
            return None;
        }
        let fresh = Backend::new(self.peer.clone(), self.token, self.counters.clone());
        let mut old = std::mem::replace(self, fresh);
        old.is_leaving = true;
        self.open(poller, true, finished, now);
        Some(old)
    }

    /// Lets readiness be reported under another token; false when the kernel refuses.
    pub(crate) fn rename(&mut self, poller: &Poller, token: Token) -> bool {
        self.token = token;
        self.connection.as_mut().is_none_or(|connection| poller.rename(connection, token).is_ok())
    }

    /// Whether it takes nothing more and has nothing left to wait for.
    pub(crate) fn is_over(&self) -> bool {
        self.is_leaving && self.in_flight.is_empty()
    }

    /// Tells that it was lost or could not be opened.
    pub(super) fn report(&self) {
        if let Some(endpoint) = self.peer.endpoint.clone().filter(|_| !self.is_leaving) {
            let is_unreachable = self.state != State::Open;
            self.peer.reporter.report(Failure { backend: self.peer.index, endpoint, is_unreachable });
        }
    }
}
