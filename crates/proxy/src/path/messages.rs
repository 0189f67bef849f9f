//! What threads send each other: to the acceptor, and to an event loop.

use crate::observe::histograms::HistogramRequest;
use crate::path::addresses::Permit;
use crate::path::listeners::Listener;
use clock::Nanos;
use net::{ClientAddress, Connection, Endpoint, Inherited, Post, Refused};
use std::io;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A message to the acceptor.
#[derive(Debug)]
pub(crate) enum AcceptMessage {
    /// Send duplicates of the listening sockets, for another process or another configuration.
    Lend(SyncSender<io::Result<Vec<Inherited>>>),
    /// Accept this client, which another set of loops has served until now.
    Adopt(Box<Moving>),
    /// Stop accepting, and leave the files of unix sockets to the process that listens now. The sender is dropped when accepting
    /// has stopped. Clients are still adopted, and move on with those of this configuration.
    Retire(SyncSender<()>),
    /// End, and remove the files of unix sockets.
    Stop,
}

/// A client that moves to another set of loops.
#[derive(Debug)]
pub(crate) struct Moving {
    pub(crate) connection: Connection,
    /// Where it has connected, in the configuration that it leaves.
    pub(crate) listener: Listener,
    pub(crate) address: ClientAddress,
    pub(crate) admission: Admission,
}

/// How far a client is before its first request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// The header of a load balancer is expected.
    Header,
    /// The first byte is expected, which shows the protocol, and the authentication if clients need one.
    New,
    /// It was served, and needed no authentication.
    Open,
    /// It has authenticated.
    Authenticated,
}

/// From where a client comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientOrigin {
    /// It was accepted.
    New,
    /// It was accepted, and begins with the header of a load balancer.
    Relayed,
    /// Another set of loops has served it until now.
    Moved(Admission),
    /// As above, and its listener is gone: it receives its replies and is closed.
    Leaving,
}

/// A message to an event loop.
#[derive(Debug)]
pub(crate) enum LoopMessage {
    /// Serve this client.
    Client {
        connection: Box<Connection>,
        number: u32,
        address: ClientAddress,
        permit: Option<Permit>,
        listener: Listener,
        origin: ClientOrigin,
    },
    /// The name of a backend resolves to another address.
    BackendMoved { backend: u16, endpoint: Endpoint },
    /// Send the histograms, and continue with empty ones.
    Histograms(Box<HistogramRequest>),
    /// Send each client to the acceptor of the newest configuration as soon as none of its requests is in flight.
    MoveClients(NewestAcceptor),
    /// Take no more requests, finish those in flight, and end.
    Drain(DrainLimits),
}

/// How long a loop that takes no more requests waits for its clients. It ends earlier if it has no clients.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DrainLimits {
    pub(crate) until: Nanos,
    /// It ends earlier if no client's request has been in flight and no client has read anything for this time.
    pub(crate) patience: Duration,
}

/// The acceptor of the newest configuration of this process, until it ends. A client that moves late skips the configurations
/// in between.
#[derive(Clone, Debug)]
pub(crate) struct NewestAcceptor(Arc<Mutex<Option<Post<AcceptMessage>>>>);

impl NewestAcceptor {
    /// The acceptor of the first configuration.
    pub(crate) fn new(post: Post<AcceptMessage>) -> NewestAcceptor {
        NewestAcceptor(Arc::new(Mutex::new(Some(post))))
    }

    /// Replaces it, for all configurations.
    pub(crate) fn replace(&self, post: Post<AcceptMessage>) {
        *self.lock() = Some(post);
    }

    /// Records that the acceptor ends. Its mailbox now has every client that was handed to it, and no other client follows.
    pub(crate) fn end(&self) {
        *self.lock() = None;
    }

    /// Sends a message. Returns it if there is no room now, or if the acceptor has ended.
    pub(crate) fn try_send(&self, message: AcceptMessage) -> Result<(), Refused<AcceptMessage>> {
        match self.lock().as_ref() {
            Some(post) => post.try_send(message),
            None => Err(Refused::Ended(message)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Post<AcceptMessage>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
