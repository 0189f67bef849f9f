//! What few sessions have: the address of a client behind a load balancer, and the permit of a client whose address has a limit. It is
//! boxed, so that a session stays small.

use crate::path::addresses::Permit;
use net::{ClientAddress, Connection, HeaderReader};
use std::io::ErrorKind;

/// Why a client is closed before its first request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoHeader {
    /// It has sent something else, or only a part of the header.
    Invalid,
    /// It has sent nothing, as a load balancer does that checks whether the port is open.
    Silent,
}

/// What is known of a client.
#[derive(Debug, Default)]
pub(super) struct Visitor {
    address: ClientAddress,
    /// Counts the client for its address.
    permit: Option<Permit>,
    /// Reads the header, until it is complete.
    header: Option<Box<HeaderReader>>,
}

impl Visitor {
    /// Returns nothing for a client of which there is nothing to know.
    pub(super) fn new(address: ClientAddress, permit: Option<Permit>) -> Option<Box<Visitor>> {
        let is_ordinary = permit.is_none() && address == ClientAddress::OfPeer;
        (!is_ordinary).then(|| Box::new(Visitor { address, permit, header: None }))
    }

    /// A client that begins with a header.
    pub(super) fn with_header() -> Box<Visitor> {
        Box::new(Visitor { header: Some(Box::new(HeaderReader::new())), ..Visitor::default() })
    }

    /// The address that was reported.
    pub(super) fn address(&self) -> ClientAddress {
        self.address
    }

    /// Counts the client for its address from now on.
    pub(super) fn keep(&mut self, permit: Permit) {
        self.permit = Some(permit);
    }

    /// Reads the header. Returns true if it is complete.
    pub(super) fn receive_header(&mut self, connection: &mut Connection) -> Result<bool, NoHeader> {
        let Some(reader) = &mut self.header else { return Ok(true) };
        match connection.receive_header(reader) {
            Ok(None) => Ok(false),
            Ok(Some(address)) => {
                (self.address, self.header) = (address, None);
                Ok(true)
            }
            Err(error) if reader.has_begun() || error.kind() == ErrorKind::InvalidData => Err(NoHeader::Invalid),
            Err(_) => Err(NoHeader::Silent),
        }
    }
}
