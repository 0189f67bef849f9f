//! Messages to an event loop from other threads: a bounded channel that wakes the loop.

use crate::poller::{Poller, Token};
use mio::Waker;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

/// Messages that may wait.
const MAILBOX_MESSAGES: usize = 4096;

/// The loop's end.
#[derive(Debug)]
pub struct Mailbox<T> {
    receiver: Receiver<T>,
}

/// The other threads' end.
#[derive(Debug)]
pub struct Post<T> {
    sender: SyncSender<T>,
    waker: Arc<Waker>,
}

/// A mailbox whose messages make `poller` report `token`.
///
/// # Errors
/// When the kernel refuses another descriptor.
pub fn mailbox<T>(poller: &Poller, token: Token) -> io::Result<(Post<T>, Mailbox<T>)> {
    let (sender, receiver) = sync_channel(MAILBOX_MESSAGES);
    let waker = Arc::new(Waker::new(poller.registry(), token)?);
    Ok((Post { sender, waker }, Mailbox { receiver }))
}

impl<T> Post<T> {
    /// Sends a message, or gives it back when the box is full or the loop is gone.
    ///
    /// # Errors
    /// The message itself.
    pub fn send(&self, message: T) -> Result<(), T> {
        self.sender.try_send(message).map_err(|error| match error {
            TrySendError::Full(message) | TrySendError::Disconnected(message) => message,
        })?;
        // A waker fails only when its loop is gone, and then nobody waits.
        let _ = self.waker.wake();
        Ok(())
    }
}

impl<T> Clone for Post<T> {
    fn clone(&self) -> Self {
        Post { sender: self.sender.clone(), waker: self.waker.clone() }
    }
}

impl<T> Mailbox<T> {
    /// The next message, if there is one.
    pub fn take(&self) -> Option<T> {
        self.receiver.try_recv().ok()
    }
}
