//! What threads send each other: to the acceptor, and to an event loop.

use crate::observe::histograms::StageHistograms;
use crate::path::addresses::Permit;
use clock::Nanos;
use net::{Connection, Endpoint, Inherited, Post};
use std::io;
use std::sync::mpsc::SyncSender;

/// A message to the acceptor.
#[derive(Debug)]
pub(crate) enum AcceptMessage {
    /// Send duplicates of the listening sockets, for another process or another configuration.
    Lend(SyncSender<io::Result<Vec<Inherited>>>),
    /// Accept this client, which another set of loops has served until now.
    Adopt(Box<Connection>),
    /// End, and leave the files of unix sockets to the process that listens now. The sender is dropped when accepting has stopped.
    Retire(SyncSender<()>),
    /// End, and remove the files of unix sockets.
    Stop,
}

/// A message to an event loop.
#[derive(Debug)]
pub(crate) enum LoopMessage {
    /// Serve this client.
    Client { connection: Box<Connection>, number: u32, permit: Option<Permit> },
    /// The name of a backend resolves to another address.
    BackendMoved { backend: u16, endpoint: Endpoint },
    /// Send a copy of the histograms.
    Histograms(SyncSender<StageHistograms>),
    /// Send each client to the acceptor of the new configuration as soon as none of its requests is in flight.
    MoveClients(Post<AcceptMessage>),
    /// Take no more requests, finish those in flight until this time, and end.
    Drain { until: Nanos },
}
