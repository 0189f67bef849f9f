//! Messages to an event loop from other threads, over a bounded channel that wakes the loop.

use crate::poller::{Poller, Token};
use mio::Waker;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

/// Messages that the channel can buffer.
const MAILBOX_MESSAGES: usize = 4096;

/// The receiving end of the event loop.
#[derive(Debug)]
pub struct Mailbox<T> {
    receiver: Receiver<T>,
}

/// The sending end of the other threads.
#[derive(Debug)]
pub struct Post<T> {
    sender: SyncSender<T>,
    waker: Arc<Waker>,
}

/// The reason why a message was not sent, with the message.
#[derive(Debug)]
pub enum Refused<T> {
    /// The mailbox is full.
    Full(T),
    /// The loop has ended.
    Ended(T),
}

/// Creates a mailbox; `poller` reports `token` when a message arrives.
///
/// # Errors
/// If the kernel has no descriptor for it.
pub fn mailbox<T>(poller: &Poller, token: Token) -> io::Result<(Post<T>, Mailbox<T>)> {
    let (sender, receiver) = sync_channel(MAILBOX_MESSAGES);
    let waker = Arc::new(Waker::new(poller.registry(), token)?);
    Ok((Post { sender, waker }, Mailbox { receiver }))
}

impl<T> Post<T> {
    /// Sends a message.
    ///
    /// # Errors
    /// Returns the message if the mailbox is full or the loop has ended.
    pub fn send(&self, message: T) -> Result<(), T> {
        self.try_send(message).map_err(|(Refused::Full(message) | Refused::Ended(message))| message)
    }

    /// Sends a message.
    ///
    /// # Errors
    /// Returns the message, and whether another attempt can succeed.
    pub fn try_send(&self, message: T) -> Result<(), Refused<T>> {
        self.sender.try_send(message).map_err(|error| match error {
            TrySendError::Full(message) => Refused::Full(message),
            TrySendError::Disconnected(message) => Refused::Ended(message),
        })?;
        self.wake();
        Ok(())
    }

    /// Sends a message. Waits while the mailbox is full.
    ///
    /// # Errors
    /// Returns the message if the loop has ended.
    pub fn send_blocking(&self, message: T) -> Result<(), T> {
        self.sender.send(message).map_err(|error| error.0)?;
        self.wake();
        Ok(())
    }

    fn wake(&self) {
        // A waker fails only if its loop has ended, and then no loop waits for it.
        let _ = self.waker.wake();
    }
}

impl<T> Clone for Post<T> {
    fn clone(&self) -> Self {
        Post { sender: self.sender.clone(), waker: self.waker.clone() }
    }
}

impl<T> Mailbox<T> {
    /// The next message, if any.
    pub fn take(&self) -> Option<T> {
        self.receiver.try_recv().ok()
    }
}
