//! Waits for readiness. Interest is registered once, for reading and writing, and reported edge-triggered, so that no
//! system call is needed to change it.

use crate::connection::Connection;
use crate::control::{Channel, ControlSocket};
use crate::listening::Listening;
use crate::timer::Timer;
use mio::net::TcpListener;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll};
use std::io;
use std::time::Duration;

pub use mio::Token;

/// Events fetched in one system call.
const EVENTS_PER_WAIT: usize = 1024;

/// The readiness queue of one event loop.
#[derive(Debug)]
pub struct Poller {
    poll: Poll,
    events: Events,
}

/// The readiness of one source.
#[derive(Clone, Copy, Debug)]
pub struct Ready {
    /// The token it was registered with.
    pub token: Token,
    /// Bytes can be read, or a connection accepted.
    pub readable: bool,
    /// Bytes can be written, or a connection attempt has ended.
    pub writable: bool,
    /// The peer has closed its sending side, or the connection is broken.
    pub closing: bool,
}

impl Poller {
    /// Creates a queue without sources.
    ///
    /// # Errors
    /// If the process has too many open files.
    /// When the process has too many open files.
    pub fn new() -> io::Result<Poller> {
        Ok(Poller { poll: Poll::new()?, events: Events::with_capacity(EVENTS_PER_WAIT) })
    }

    /// Adds a connection.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn add(&self, connection: &mut Connection, token: Token) -> io::Result<()> {
        self.poll.registry().register(connection.source(), token, Interest::READABLE | Interest::WRITABLE)
    }

    /// Adds a connection for reading only, because its outbox is not expected to fill up. Without readiness to write the
    /// poller wakes less often. If the outbox does fill up, [`Poller::rename`] adds the other direction.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn add_reading(&self, connection: &mut Connection, token: Token) -> io::Result<()> {
        self.poll.registry().register(connection.source(), token, Interest::READABLE)
    }

    /// Adds a timer.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn add_timer(&self, timer: &Timer, token: Token) -> io::Result<()> {
        self.poll.registry().register(&mut SourceFd(&timer.raw()), token, Interest::READABLE)
    }

    /// Stops reporting a connection, which moves to another poller.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn remove(&self, connection: &mut Connection) -> io::Result<()> {
        self.registry().deregister(connection.source())
    }

    /// Reports a connection under another token from now on.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn rename(&self, connection: &mut Connection, token: Token) -> io::Result<()> {
        self.poll.registry().reregister(connection.source(), token, Interest::READABLE | Interest::WRITABLE)
    }

    /// Adds a listening socket.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn add_listener(&self, listener: &mut TcpListener, token: Token) -> io::Result<()> {
        self.poll.registry().register(listener, token, Interest::READABLE)
    }

    /// Adds a listening socket of any kind.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn add_listening(&self, listening: &mut Listening, token: Token) -> io::Result<()> {
        self.poll.registry().register(listening.source(), token, Interest::READABLE)
    }

    /// Removes a listening socket. Closing it would not be enough while another process or configuration listens on it, too.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn remove_listening(&self, listening: &mut Listening) -> io::Result<()> {
        self.poll.registry().deregister(listening.source())
    }

    /// Adds a control socket.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn add_control(&self, control: &ControlSocket, token: Token) -> io::Result<()> {
        self.poll.registry().register(&mut SourceFd(&control.raw()), token, Interest::READABLE)
    }

    /// Adds a connection between two processes.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn add_channel(&self, channel: &Channel, token: Token) -> io::Result<()> {
        self.poll.registry().register(&mut SourceFd(&channel.raw()), token, Interest::READABLE)
    }

    /// Waits until a source is ready or the timeout expires, and fills `ready`.
    ///
    /// # Errors
    /// If the kernel refuses; an interrupted call is not an error.
    pub fn wait(&mut self, mut timeout: Option<Duration>, ready: &mut Vec<Ready>) -> io::Result<()> {
        ready.clear();
        while let Err(error) = self.poll.poll(&mut self.events, timeout) {
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
            // The process was stopped and continued. Events of this time are returned without a wait.
            timeout = Some(Duration::ZERO);
        }
        ready.extend(self.events.iter().map(|event| Ready {
            token: event.token(),
            readable: event.is_readable(),
            writable: event.is_writable(),
            closing: event.is_read_closed() || event.is_error(),
        }));
        Ok(())
    }

    pub(crate) fn registry(&self) -> &mio::Registry {
        self.poll.registry()
    }
}
