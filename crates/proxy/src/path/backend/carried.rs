//! Requests that are carried over to a reopened connection: the lost one had not written a byte of them, so no server can have
//! applied them.

use crate::path::backend::in_flight::Pending;
use net::Outbox;
use std::collections::VecDeque;

/// Requests that wait for the next connection, with their encoded bytes.
#[derive(Debug)]
pub(crate) struct Carried {
    pub(crate) requests: VecDeque<Pending>,
    bytes: Vec<u8>,
}

impl Carried {
    /// Takes the bytes of these requests, which are the last ones in the output of the lost connection.
    pub(crate) fn new(requests: VecDeque<Pending>, outbox: &Outbox) -> Option<Box<Carried>> {
        let first = requests.front()?.begin;
        Some(Box::new(Carried { bytes: outbox.unwritten_from(first), requests }))
    }

    /// Moves the bytes to the output of the new connection; returns the requests with their new offsets.
    pub(crate) fn move_to(self, outbox: &mut Outbox) -> VecDeque<Pending> {
        let Carried { mut requests, bytes } = self;
        let (old, new) = (requests.front().map_or(0, |first| first.begin), outbox.queued_total());
        outbox.append_owned(bytes);
        for pending in &mut requests {
            (pending.begin, pending.end) = (pending.begin - old + new, pending.end - old + new);
            pending.is_carried = true;
        }
        requests
    }
}
