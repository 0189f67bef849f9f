//! Clients that come through a load balancer: their header is read before anything else, and their address is known only then. Closes
//! clients whose header or TLS handshake takes too long.

use crate::path::event_loop::EventLoop;
use crate::path::session::NoHeader;

impl EventLoop {
    /// Reads the header of a client, and then what follows it.
    pub(super) fn receive_header(&mut self, slot: usize) {
        let Some(session) = self.sessions.get_mut(slot) else { return };
        match session.receive_header() {
            Ok(true) => {}
            Ok(false) => return,
            Err(NoHeader::Invalid) => return self.refuse_header(slot),
            Err(NoHeader::Silent) => return self.remove(slot),
        }
        let address = session.address().map(|address| address.ip());
        let most = self.core.settings.limits.per_address;
        if let Some(address) = address.filter(|_| most > 0) {
            let Some(permit) = self.addresses.try_enter(address, most) else {
                self.core.journal.counters.clients_refused_address.add(1);
                return self.remove(slot);
            };
            session.keep(permit);
        }
        let address = address.filter(|_| self.core.journal.shows_clients());
        self.core.jobs.clients.set_address(session.reference(), address);
        self.openings.begin_handshake(session, &self.core);
        self.receive(slot);
    }

    /// Closes the connections of clients whose header or TLS handshake did not end in time.
    pub(super) fn end_openings(&mut self) {
        let now = self.core.turn;
        while let Some((slot, number)) = self.openings.next_header(now) {
            let session = self.sessions.get(slot).filter(|session| session.number() == number);
            if session.is_some_and(|session| session.awaits_header()) {
                self.refuse_header(slot);
            }
        }
        while let Some((slot, number)) = self.openings.next_handshake(now) {
            let session = self.sessions.get_mut(slot).filter(|session| session.number() == number);
            if session.is_some_and(|session| session.connection().is_handshaking()) {
                self.core.journal.counters.clients_tls_failed.add(1);
                self.remove(slot);
            }
        }
    }

    fn refuse_header(&mut self, slot: usize) {
        self.core.journal.counters.clients_header_failed.add(1);
        self.remove(slot);
    }
}
