//! Station 1. Accepts connections, gives each a number and hands it to a loop in turn.
//! A thread of its own: it is not on the path of a request, and when descriptors run out it may pause without harm.

use crate::observe::counters::AcceptCounters;
use crate::path::messages::{AcceptMessage, LoopMessage};
use net::{Connection, Listening, Mailbox, Poller, Post, Ready, Token};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The token of the acceptor's mailbox; those below are listening sockets.
pub(crate) const MAILBOX: Token = Token(1 << 20);
/// Clients accepted on one socket before the others get their turn.
const ACCEPTED_PER_TURN: usize = 256;
/// The pause after the kernel had no descriptor for a connection.
const PAUSE: Duration = Duration::from_millis(20);

/// Hands out connections until it is told to stop.
#[derive(Debug)]
pub(crate) struct Acceptor {
    pub(crate) listeners: Vec<Listening>,
    pub(crate) poller: Poller,
    pub(crate) mailbox: Mailbox<AcceptMessage>,
    pub(crate) loops: Vec<Post<LoopMessage>>,
    pub(crate) clients_open: Arc<AtomicUsize>,
    pub(crate) clients_max: usize,
    pub(crate) counters: Arc<AcceptCounters>,
}

impl Acceptor {
    /// The thread. The listening sockets are closed when it ends.
    pub(crate) fn run(mut self) -> io::Result<()> {
        for (index, listening) in self.listeners.iter_mut().enumerate() {
            self.poller.add_listening(listening, Token(index))?;
        }
        let mut ready: Vec<Ready> = Vec::new();
        // Sockets on which somebody may wait: readiness is only reported when it changes.
        let mut waiting = vec![false; self.listeners.len()];
        let mut number = 0u32;
        let mut pause = None;
        loop {
            self.poller.wait(pause, &mut ready)?;
            while let Some(message) = self.mailbox.take() {
                match message {
                    AcceptMessage::Stop => return Ok(()),
                    AcceptMessage::Leave(_told_when_dropped) => {
                        self.listeners.iter_mut().for_each(Listening::keep_file);
                        return Ok(());
                    }
                    AcceptMessage::Adopt(connection) => {
                        self.hand_over(*connection, number);
                        number = number.wrapping_add(1);
                    }
                    // A file that has been taken away by hand is nobody's.
                    AcceptMessage::OwnFiles => {
                        self.listeners.iter_mut().for_each(|listening| drop(listening.own_file()))
                    }
                    AcceptMessage::Lend(sender) => {
                        // Whoever asked may have given up.
                        let _ = sender.try_send(self.listeners.iter().map(Listening::lend).collect());
                    }
                }
            }
            for event in ready.iter().filter(|event| event.token < MAILBOX) {
                waiting[event.token.0] = true;
            }
            pause = None;
            for (index, waiting) in waiting.iter_mut().enumerate().filter(|(_, waiting)| **waiting) {
                let again = self.accept_some(index, &mut number);
                *waiting = again.is_some();
                pause = pause.max(again);
            }
        }
    }

    /// Accepts from one socket; when it must be tried again although nothing new arrives, the pause until then is returned.
    fn accept_some(&self, index: usize, number: &mut u32) -> Option<Duration> {
        for _ in 0..ACCEPTED_PER_TURN {
            match self.listeners[index].accept() {
                Ok(connection) => {
                    // Beyond the limit a client is closed at once: it can try elsewhere, which one that hangs cannot.
                    if self.clients_open.load(Ordering::Relaxed) < self.clients_max {
                        self.hand_over(connection, *number);
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
        Some(Duration::ZERO)
    }

    fn hand_over(&self, connection: Connection, number: u32) {
        let post = &self.loops[number as usize % self.loops.len()];
        self.clients_open.fetch_add(1, Ordering::Relaxed);
        if post.send(LoopMessage::Client { connection: Box::new(connection), number }).is_err() {
            self.clients_open.fetch_sub(1, Ordering::Relaxed);
            self.counters.refused.add(1);
        }
    }
}
