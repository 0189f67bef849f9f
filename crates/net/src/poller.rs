//! Waits for readiness. Interest is registered once, for reading and writing, and reported when it changes:
//! no call to the kernel is needed to change it afterwards.

use crate::connection::Connection;
use crate::control::ControlSocket;
use crate::listening::Listening;
use crate::timer::Timer;
use mio::net::TcpListener;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll};
use std::io;
use std::time::Duration;

pub use mio::Token;

/// Events taken from the kernel at once.
const EVENTS_PER_WAIT: usize = 1024;

/// The readiness queue of one event loop.
#[derive(Debug)]
pub struct Poller {
    poll: Poll,
    events: Events,
}

/// What one source is ready for.
#[derive(Clone, Copy, Debug)]
pub struct Ready {
    /// The token it was registered with.
    pub token: Token,
    /// There is something to read, or to accept.
    pub readable: bool,
    /// There is room to write, or a connection attempt has ended.
    pub writable: bool,
    /// The peer has closed its sending side, or the connection is broken.
    pub closing: bool,
}

impl Poller {
    /// A queue without sources.
    ///
    /// # Errors
    /// When the process has too many open files.
    pub fn new() -> io::Result<Poller> {
        Ok(Poller { poll: Poll::new()?, events: Events::with_capacity(EVENTS_PER_WAIT) })
    }

    /// Adds a connection.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn add(&self, connection: &mut Connection, token: Token) -> io::Result<()> {
        self.poll.registry().register(connection.source(), token, Interest::READABLE | Interest::WRITABLE)
    }

    /// Adds a connection of which only what is to be read is of interest: its outbox is never expected to fill up.
    /// Where it does, [`Poller::rename`] adds the rest. Readiness to write that nobody waits for wakes the poller less often.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn add_reading(&self, connection: &mut Connection, token: Token) -> io::Result<()> {
        self.poll.registry().register(connection.source(), token, Interest::READABLE)
    }

    /// Adds a timer.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn add_timer(&self, timer: &Timer, token: Token) -> io::Result<()> {
        self.poll.registry().register(&mut SourceFd(&timer.raw()), token, Interest::READABLE)
    }

    /// Reports a connection's readiness no longer: it goes to another poller.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn remove(&self, connection: &mut Connection) -> io::Result<()> {
        self.registry().deregister(connection.source())
    }

    /// Lets a connection that has been added be reported under another token.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn rename(&self, connection: &mut Connection, token: Token) -> io::Result<()> {
        self.poll.registry().reregister(connection.source(), token, Interest::READABLE | Interest::WRITABLE)
    }

    /// Adds a listening socket.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn add_listener(&self, listener: &mut TcpListener, token: Token) -> io::Result<()> {
        self.poll.registry().register(listener, token, Interest::READABLE)
    }

    /// Adds a listening socket of any kind.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn add_listening(&self, listening: &mut Listening, token: Token) -> io::Result<()> {
        self.poll.registry().register(listening.source(), token, Interest::READABLE)
    }

    /// Adds a control socket.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn add_control(&self, control: &ControlSocket, token: Token) -> io::Result<()> {
        self.poll.registry().register(&mut SourceFd(&control.raw()), token, Interest::READABLE)
    }

    /// Waits until something is ready or the time is over, and puts what is ready into `ready`.
    ///
    /// # Errors
    /// When the kernel refuses; being interrupted is not an error.
    pub fn wait(&mut self, timeout: Option<Duration>, ready: &mut Vec<Ready>) -> io::Result<()> {
        ready.clear();
        match self.poll.poll(&mut self.events, timeout) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
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
