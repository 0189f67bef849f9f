//! One process replaces another without a moment in which nobody listens: the successor gets the listening sockets
//! themselves, says when it serves, and only then does its predecessor stop accepting.
//!
//! ```text
//!   successor: take-over ------> predecessor        (both hold the sockets, the predecessor accepts)
//!              <------ sockets, a line each
//!              serving ------>                      (both accept)
//!              <------ leaving                      (the successor accepts, the predecessor serves whom it has)
//! ```

use crate::path::messages::AcceptMessage;
use net::{Channel, ControlSocket, Inherited, Mailbox, Poller, Post, Token, mailbox};
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// The first message; the number is raised when the messages change.
const TAKE_OVER: &str = "take-over 1";
const SERVING: &str = "serving";
const LEAVING: &str = "leaving";
/// Before the address of a unix socket whose file goes over, too.
const WITH_FILE: &str = "with file ";
/// What the socket of the metrics is called.
pub(crate) const METRICS: &str = "metrics";
/// How long a process at the other end may take for its next word.
const WORD_WAIT: Duration = Duration::from_secs(5);
/// How many times that long a successor may take until it serves.
const START_WORDS: usize = 12;
const CONTROL: Token = Token(0);
const STOP: Token = Token(1);

/// A successor that has the sockets and has not said yet that it serves.
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

/// What that thread works with.
struct Control {
    socket: ControlSocket,
    poller: Poller,
    stop: Mailbox<()>,
    acceptor: Post<AcceptMessage>,
    metrics: Option<TcpListener>,
    is_ending: Arc<AtomicBool>,
    is_handed_over: Arc<AtomicBool>,
    notice: SyncSender<()>,
}

impl TakeOver {
    /// Asks the process that listens on `path` for its sockets.
    pub(crate) fn begin(path: &Path) -> io::Result<(TakeOver, Vec<Inherited>)> {
        let channel = Channel::connect(path)?;
        channel.send(TAKE_OVER, &[])?;
        let (text, sockets) = channel.receive(WORD_WAIT)?;
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

    /// Says that the sockets are served; returns when the predecessor has stopped accepting.
    pub(crate) fn finish(self) -> io::Result<()> {
        self.channel.send(SERVING, &[])?;
        match self.channel.receive(WORD_WAIT)? {
            (word, _) if word == LEAVING => Ok(()),
            (word, _) => Err(io::Error::other(format!("{word:?} instead of {LEAVING:?}"))),
        }
    }
}

impl Controller {
    /// Waits for a successor. `notice` is sent when the sockets have been handed over.
    pub(crate) fn start(
        socket: ControlSocket,
        acceptor: Post<AcceptMessage>,
        metrics: Option<TcpListener>,
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

    /// Ends it, and leaves its file to whoever listens next on its path.
    pub(crate) fn retire(self) {
        self.is_handed_over.store(true, Ordering::Release);
        self.stop();
    }

    /// Ends it.
    pub(crate) fn stop(self) {
        self.is_ending.store(true, Ordering::Release);
        // A thread that cannot be told has ended.
        let _ = self.stop.send(());
        // What went wrong in it is no reason to fail the proxy's orderly end.
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
                // One that fails leaves everything as it was.
                if self.hand_over(&channel).is_ok() {
                    self.socket.keep_file();
                    // Whoever is told may have ended.
                    let _ = self.notice.try_send(());
                    return Ok(());
                }
            }
        }
    }

    fn hand_over(&self, channel: &Channel) -> io::Result<()> {
        if channel.receive(WORD_WAIT)?.0 != TAKE_OVER {
            return Err(io::Error::other("unknown words"));
        }
        let (sender, receiver) = sync_channel(1);
        let gone = || io::Error::other("the acceptor is gone");
        self.acceptor.send(AcceptMessage::Lend(sender)).map_err(|_| gone())?;
        let lent = receiver.recv_timeout(WORD_WAIT).map_err(|_| gone())??;
        self.send(channel, &lent)?;
        drop(lent);
        for _ in 0..START_WORDS {
            match channel.receive(WORD_WAIT) {
                Ok((word, _)) if word == SERVING => {
                    self.is_handed_over.store(true, Ordering::Release);
                    let (sender, receiver) = sync_channel(1);
                    self.acceptor.send(AcceptMessage::Leave(sender)).map_err(|_| gone())?;
                    // It stops between two turns. From here on there is no way back, whatever the successor hears.
                    let _ = receiver.recv_timeout(WORD_WAIT);
                    let _ = channel.send(LEAVING, &[]);
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && !self.is_ending.load(Ordering::Acquire) => {}
                Err(error) => return Err(error),
                Ok(_) => return Err(io::Error::other("unknown words")),
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

/// Takes the socket of the metrics out of what was handed over.
pub(crate) fn take_metrics(handed: &mut Vec<Inherited>) -> Option<OwnedFd> {
    let at = handed.iter().position(|inherited| inherited.name == METRICS)?;
    Some(handed.remove(at).socket)
}
