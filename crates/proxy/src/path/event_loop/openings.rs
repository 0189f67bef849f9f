//! Clients before their first request, whose time is limited: some wait for the header of a load balancer, and some are in a TLS
//! handshake.

use crate::path::core::Core;
use crate::path::messages::ClientOrigin;
use crate::path::session::Session;
use clock::Nanos;
use std::collections::VecDeque;

/// The deadline, slot and number of a session.
type Waiting = (Nanos, usize, u32);

/// The clients of one event loop.
#[derive(Debug, Default)]
pub(super) struct Openings {
    headers: VecDeque<Waiting>,
    handshakes: VecDeque<Waiting>,
}

impl Openings {
    /// Lets a session begin as its origin requires.
    pub(super) fn begin(&mut self, session: &mut Session, origin: ClientOrigin, core: &Core) {
        match origin {
            ClientOrigin::Relayed => {
                session.expect_header();
                self.headers.push_back(waiting(session, core.turn + core.settings.header_timeout));
            }
            ClientOrigin::New => self.begin_handshake(session, core),
            ClientOrigin::Moved(admission) => session.enter_again(admission, core),
            ClientOrigin::Leaving => session.leave(),
        }
    }

    /// Limits the time of the handshake, if the session begins with one.
    pub(super) fn begin_handshake(&mut self, session: &mut Session, core: &Core) {
        if session.connection().is_handshaking() {
            self.handshakes.push_back(waiting(session, core.turn + core.settings.handshake_timeout));
        }
    }

    /// The slot and number of a session whose time for the header is over.
    pub(super) fn next_header(&mut self, now: Nanos) -> Option<(usize, u32)> {
        next(&mut self.headers, now)
    }

    /// The slot and number of a session whose time for the handshake is over.
    pub(super) fn next_handshake(&mut self, now: Nanos) -> Option<(usize, u32)> {
        next(&mut self.handshakes, now)
    }

    /// The next deadline.
    pub(super) fn deadline(&self) -> Nanos {
        let first = |list: &VecDeque<Waiting>| list.front().map_or(Nanos::NEVER, |&(until, _, _)| until);
        first(&self.headers).min(first(&self.handshakes))
    }
}

fn waiting(session: &Session, until: Nanos) -> Waiting {
    (until, session.reference().slot as usize, session.number())
}

fn next(list: &mut VecDeque<Waiting>, now: Nanos) -> Option<(usize, u32)> {
    let &(until, slot, number) = list.front()?;
    if until > now {
        return None;
    }
    list.pop_front();
    Some((slot, number))
}
