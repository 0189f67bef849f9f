//! What precedes the first request of a client: the header of a load balancer, the first byte, which shows the protocol, and the
//! authentication. None of it is a request, so no job, no record and no line about slow requests contains any of it.

use crate::path::addresses::Permit;
use crate::path::core::Core;
use crate::path::messages::Admission;
use crate::path::session::visitor::{NoHeader, Visitor};
use crate::path::session::{Session, Taken};
use net::ClientAddress;
use std::net::SocketAddr;
use wire::{AUTHENTICATED, AUTHENTICATION_FAILED, AuthRequest, parse_auth};

impl Session {
    /// Waits for the header of a load balancer, which comes first.
    pub(crate) fn expect_header(&mut self) {
        (self.admission, self.visitor) = (Admission::Header, Some(Visitor::with_header()));
    }

    /// Whether the header of a load balancer is not complete.
    pub(crate) fn awaits_header(&self) -> bool {
        self.admission == Admission::Header
    }

    /// Reads the header. Returns true if it is complete.
    pub(crate) fn receive_header(&mut self) -> Result<bool, NoHeader> {
        let Some(visitor) = &mut self.visitor else { return Ok(true) };
        let is_complete = visitor.receive_header(&mut self.connection)?;
        if is_complete {
            self.admission = Admission::New;
            self.port = self.address().map_or(0, |address| address.port());
        }
        Ok(is_complete)
    }

    /// The address of the client, as a load balancer has reported it.
    pub(crate) fn reported_address(&self) -> ClientAddress {
        self.visitor.as_ref().map_or(ClientAddress::OfPeer, |visitor| visitor.address())
    }

    /// The address of the client, if it has one.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.connection.client_address(self.reported_address())
    }

    /// Counts the client for its address from now on.
    pub(crate) fn keep(&mut self, permit: Permit) {
        self.visitor.get_or_insert_default().keep(permit);
    }

    /// How far the client is before its first request.
    pub(crate) fn admission(&self) -> Admission {
        self.admission
    }

    /// Continues with a client that another set of loops has served until now. If it needed no authentication then, and needs one now,
    /// it receives its replies and is closed: it cannot know that it must authenticate.
    pub(crate) fn enter_again(&mut self, admission: Admission, core: &Core) {
        self.admission = admission;
        self.is_ending |= admission == Admission::Open && core.settings.users.is_some();
    }

    /// Whether the client must authenticate before its first request.
    pub(super) fn must_authenticate(&self, core: &Core) -> bool {
        self.admission == Admission::New && core.settings.users.is_some()
    }

    /// Takes what precedes the first request. Returns nothing if that is complete.
    pub(super) fn enter(&mut self, unread: &[u8], core: &mut Core) -> Option<Taken> {
        if let Some(taken) = self.refuse_binary(unread, core) {
            return Some(taken);
        }
        let Some(users) = &core.settings.users else {
            self.admission = Admission::Open;
            return None;
        };
        let counters = &core.journal.counters;
        let (reply, consumed) = match parse_auth(unread) {
            AuthRequest::Incomplete => return Some(Taken::Incomplete),
            AuthRequest::Login { user, password, consumed } if users.permits(user, password) => {
                counters.clients_authenticated.add(1);
                self.admission = Admission::Authenticated;
                (AUTHENTICATED, consumed)
            }
            AuthRequest::Login { consumed, .. } => {
                counters.client_auth_failed.add(1);
                (AUTHENTICATION_FAILED, consumed)
            }
            AuthRequest::Refused { reply, consumed } => {
                counters.client_unauthenticated.add(1);
                (reply, consumed)
            }
            AuthRequest::TooLong { reply } => {
                counters.client_unauthenticated.add(1);
                self.is_ending = true;
                (reply, unread.len())
            }
        };
        counters.received_bytes.add(consumed as u64);
        counters.replied_bytes.add(reply.len() as u64);
        // Nothing else is in flight, so the reply needs no job to be in its place.
        self.connection.outbox.append(|out| out.extend_from_slice(reply));
        Some(Taken::Bytes(consumed))
    }
}
