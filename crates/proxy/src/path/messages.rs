//! What threads send each other: to the acceptor, and to an event loop.

use crate::observe::histograms::StageHistograms;
use clock::Nanos;
use net::{Connection, Endpoint, Inherited, Post};
use std::io;
use std::sync::mpsc::SyncSender;

/// What other threads tell the acceptor.
#[derive(Debug)]
pub(crate) enum AcceptMessage {
    /// Give copies of the listening sockets for another process.
    Lend(SyncSender<io::Result<Vec<Inherited>>>),
    /// Serve this client, which came to another loop before.
    Adopt(Box<Connection>),
    /// The files of unix sockets are this one's from now on.
    OwnFiles,
    /// End: another process listens on the sockets. Their files stay. The sender is dropped when nothing more is accepted.
    Leave(SyncSender<()>),
    /// End.
    Stop,
}

/// What other threads tell a loop.
#[derive(Debug)]
pub(crate) enum LoopMessage {
    /// Serve this client.
    Client { connection: Box<Connection>, number: u32 },
    /// A backend is at another address.
    Moved { backend: u16, endpoint: Endpoint },
    /// Send a copy of the histograms.
    Histograms(SyncSender<StageHistograms>),
    /// Let go of each client as soon as nothing of it is under way: another acceptor gives it to another loop.
    Move(Post<AcceptMessage>),
    /// Take no more requests, finish those in flight until then, and end.
    Drain { until: Nanos },
}
