//! Station 1. Accepts connections, gives each a number and hands it to a loop in turn.
//! A thread of its own: it is not on the path of a request, and when descriptors run out it may pause without harm.

use crate::counters::AcceptCounters;
use crate::event_loop::Message;

use net::{Connection, Listener, Mailbox, Poller, Post, Ready, Token};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const LISTENER: Token = Token(0);
/// The token of the mailbox through which the acceptor is told to stop.
pub(crate) const STOP: Token = Token(1);
/// The pause after the kernel had no descriptor for a connection.
const PAUSE: Duration = Duration::from_millis(20);

/// Hands out connections until it is told to stop.
#[derive(Debug)]
pub(crate) struct Acceptor {
    pub(crate) listener: Listener,
    pub(crate) poller: Poller,
    pub(crate) stop: Mailbox<()>,
    pub(crate) loops: Vec<Post<Message>>,
    pub(crate) clients_open: Arc<AtomicUsize>,
    pub(crate) clients_max: usize,
    pub(crate) counters: Arc<AcceptCounters>,
}

impl Acceptor {
    /// The thread. The listening socket is closed when it ends.
    pub(crate) fn run(mut self) -> io::Result<()> {
        self.poller.add_listener(&mut self.listener, LISTENER)?;
        let mut ready: Vec<Ready> = Vec::new();
        let mut number = 0u32;
        let mut pause = None;
        loop {
            self.poller.wait(pause, &mut ready)?;
            if self.stop.take().is_some() {
                return Ok(());
            }
            pause = self.accept_all(&mut number);
        }
    }

    /// Accepts what waits; a pause is returned when it must be tried again although nothing new arrives.
    fn accept_all(&mut self, number: &mut u32) -> Option<Duration> {
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    // Beyond the limit a client is closed at once: it can try elsewhere, which one that hangs cannot.
                    if self.clients_open.load(Ordering::Relaxed) < self.clients_max {
                        self.hand_over(Connection::new(stream), *number);
                        *number = number.wrapping_add(1);
                    } else {
                        self.counters.refused.add(1);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // A client that has given up already is its own affair.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(_) => {
                    self.counters.pauses.add(1);
                    return Some(PAUSE);
                }
            }
        }
    }

    fn hand_over(&self, connection: Connection, number: u32) {
        let post = &self.loops[number as usize % self.loops.len()];
        self.clients_open.fetch_add(1, Ordering::Relaxed);
        if post.send(Message::Client { connection: Box::new(connection), number }).is_err() {
            self.clients_open.fetch_sub(1, Ordering::Relaxed);
            self.counters.refused.add(1);
        }
    }
}
