//! One process replaces another without a gap in listening. The successor receives the listening sockets themselves and reports
//! when it serves. Only then does its predecessor stop accepting.
//!
//! ```text
//!   successor: take-over ------> predecessor        (both have the sockets, the predecessor accepts)
//!              <------ sockets, a line each
//!              serving ------>                      (both accept)
//!              <------ stopped                      (the successor accepts, the predecessor serves its clients)
//! ```

use crate::path::messages::AcceptMessage;
use net::{Channel, ControlSocket, Inherited, Mailbox, Poller, Post, Token, mailbox};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// The first message. The number is the version of these messages.
const TAKE_OVER: &str = "take-over 1";
const SERVING: &str = "serving";
const STOPPED: &str = "stopped";
/// Precedes the address of a unix socket whose file changes owner.
const WITH_FILE: &str = "with file ";
/// The name of the metrics' socket.
pub(crate) const METRICS: &str = "metrics";
/// How long the other process may take to send its next message.
const MESSAGE_WAIT: Duration = Duration::from_secs(5);
/// A successor may take this many times `MESSAGE_WAIT` until it serves.
const START_MESSAGES: usize = 12;
const CONTROL: Token = Token(0);
const STOP: Token = Token(1);

/// A hand-over as the successor sees it, after it has received the sockets.
#[derive(Debug)]
pub(crate) struct TakeOver {
    channel: Channel,
}

/// The thread that waits for a successor.
#[derive(Debug)]
pub(crate) struct Controller {
    stop: Post<()>,
    is_ending: Arc<AtomicBool>,
    is_handed_over: Arc<AtomicBool>,
    thread: JoinHandle<io::Result<()>>,
}

/// The state of that thread.
struct Control {
    socket: ControlSocket,
    poller: Poller,
    stop: Mailbox<()>,
    acceptor: Post<AcceptMessage>,
    metrics: Option<OwnedFd>,
    is_ending: Arc<AtomicBool>,
    is_handed_over: Arc<AtomicBool>,
    notice: SyncSender<()>,
}

impl TakeOver {
    /// Requests the sockets of the process that listens on `path`.
    pub(crate) fn begin(path: &Path) -> io::Result<(TakeOver, Vec<Inherited>)> {
        let channel = Channel::connect(path)?;
        channel.send(TAKE_OVER, &[])?;
        let (text, sockets) = channel.receive(MESSAGE_WAIT)?;
        let names: Vec<&str> = text.lines().collect();
        if names.len() != sockets.len() {
            return Err(io::Error::other(format!("{} names came with {} sockets", names.len(), sockets.len())));
        }
        let inherited = names.into_iter().zip(sockets).map(|(line, socket)| {
            let file = line.strip_prefix(WITH_FILE);
            Inherited { name: file.unwrap_or(line).into(), owns_file: file.is_some(), socket }
        });
        Ok((TakeOver { channel }, inherited.collect()))
    }

    /// Reports that this process serves. Returns when the predecessor has stopped accepting.
    pub(crate) fn finish(self) -> io::Result<()> {
        self.channel.send(SERVING, &[])?;
        match self.channel.receive(MESSAGE_WAIT)? {
            (text, _) if text == STOPPED => Ok(()),
            (text, _) => Err(io::Error::other(format!("{text:?} instead of {STOPPED:?}"))),
        }
    }
}

impl Controller {
    /// Starts to wait for a successor. A message is sent to `notice` when it has taken over.
    pub(crate) fn start(
        socket: ControlSocket,
        acceptor: Post<AcceptMessage>,
        metrics: Option<OwnedFd>,
        notice: SyncSender<()>,
    ) -> io::Result<Controller> {
        let poller = Poller::new()?;
        poller.add_control(&socket, CONTROL)?;
        let (post, stop) = mailbox(&poller, STOP)?;
        let (is_ending, is_handed_over) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let control = Control {
            socket,
            poller,
            stop,
            acceptor,
            metrics,
            is_ending: is_ending.clone(),
            is_handed_over: is_handed_over.clone(),
            notice,
        };
        let thread = Builder::new().name("control".into()).spawn(move || control.run())?;
        Ok(Controller { stop: post, is_ending, is_handed_over, thread })
    }

    /// Whether a successor has taken over.
    pub(crate) fn is_handed_over(&self) -> bool {
        self.is_handed_over.load(Ordering::Acquire)
    }

    /// Stops the thread, and leaves the socket's file to the next process.
    pub(crate) fn retire(self) {
        self.is_handed_over.store(true, Ordering::Release);
        self.stop();
    }

    /// Stops the thread.
    pub(crate) fn stop(self) {
        self.is_ending.store(true, Ordering::Release);
        // If this fails, the thread has ended already.
        let _ = self.stop.send(());
        // An error of this thread does not fail the proxy's orderly end.
        let _ = self.thread.join();
    }
}

impl Control {
    fn run(mut self) -> io::Result<()> {
        let mut ready = Vec::new();
        loop {
            self.poller.wait(None, &mut ready)?;
            if self.stop.take().is_some() {
                if self.is_handed_over.load(Ordering::Acquire) {
                    self.socket.keep_file();
                }
                return Ok(());
            }
            while let Ok(channel) = self.socket.accept() {
                // A hand-over that fails changes nothing.
                if self.hand_over(&channel).is_ok() {
                    self.socket.keep_file();
                    // The receiver may have ended.
                    let _ = self.notice.try_send(());
                    return Ok(());
                }
            }
        }
    }

    fn hand_over(&self, channel: &Channel) -> io::Result<()> {
        if channel.receive(MESSAGE_WAIT)?.0 != TAKE_OVER {
            return Err(io::Error::other("unexpected message"));
        }
        let (sender, receiver) = sync_channel(1);
        let gone = || io::Error::other("the accepting thread has ended");
        self.acceptor.send(AcceptMessage::Lend(sender)).map_err(|_| gone())?;
        let lent = receiver.recv_timeout(MESSAGE_WAIT).map_err(|_| gone())??;
        self.send(channel, &lent)?;
        drop(lent);
        for _ in 0..START_MESSAGES {
            match channel.receive(MESSAGE_WAIT) {
                Ok((text, _)) if text == SERVING => {
                    self.is_handed_over.store(true, Ordering::Release);
                    let (sender, receiver) = sync_channel(1);
                    self.acceptor.send(AcceptMessage::Retire(sender)).map_err(|_| gone())?;
                    // The acceptor stops between two turns. From here on the hand-over is final.
                    let _ = receiver.recv_timeout(MESSAGE_WAIT);
                    let _ = channel.send(STOPPED, &[]);
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && !self.is_ending.load(Ordering::Acquire) => {}
                Err(error) => return Err(error),
                Ok(_) => return Err(io::Error::other("unexpected message")),
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    }

    fn send(&self, channel: &Channel, lent: &[Inherited]) -> io::Result<()> {
        let line = |inherited: &Inherited| {
            let with_file = if inherited.owns_file { WITH_FILE } else { "" };
            format!("{with_file}{}\n", inherited.name)
        };
        let mut text: String = lent.iter().map(line).collect();
        let mut sockets: Vec<BorrowedFd<'_>> = lent.iter().map(|inherited| inherited.socket.as_fd()).collect();
        if let Some(metrics) = &self.metrics {
            text += METRICS;
            text.push('\n');
            sockets.push(metrics.as_fd());
        }
        channel.send(&text, &sockets)
    }
}

/// Removes the metrics' socket from the inherited ones.
pub(crate) fn take_metrics(handed: &mut Vec<Inherited>) -> Option<OwnedFd> {
    let at = handed.iter().position(|inherited| inherited.name == METRICS)?;
    Some(handed.remove(at).socket)
}
