//! The predecessor's side of a hand-over: a thread that waits for a successor on the control socket. The thread never blocks on
//! a connection, and limits their number and duration. So no connection delays another one, a reload or the exit of the proxy.

use crate::control::hand_over::{MESSAGE_WAIT, METRICS, SERVING, STOPPED, TAKE_OVER, WITH_FILE};
use crate::path::messages::AcceptMessage;
use clock::{Clock, Nanos};
use net::{Channel, ControlSocket, Inherited, Mailbox, Poller, Post, Ready, Token, mailbox};
use slab::Slab;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// How long a successor may take until it serves.
const START_WAIT: Duration = Duration::from_secs(60);
/// The most connections. One more closes the oldest of those that have not received the sockets.
const CONNECTIONS_MAX: usize = 8;
const CONTROL: Token = Token(0);
const STOP: Token = Token(1);
/// The token of the first connection.
const FIRST: usize = 2;

/// The thread that waits for a successor.
#[derive(Debug)]
pub(crate) struct Controller {
    stop: Post<()>,
    is_handed_over: Arc<AtomicBool>,
    thread: JoinHandle<io::Result<()>>,
}

/// The state of that thread.
struct Control {
    socket: ControlSocket,
    poller: Poller,
    stop: Mailbox<()>,
    connections: Slab<Connected>,
    /// More processes may be waiting to be accepted.
    is_waiting: bool,
    acceptor: Post<AcceptMessage>,
    metrics: Option<OwnedFd>,
    is_handed_over: Arc<AtomicBool>,
    notice: SyncSender<()>,
    clock: Clock,
}

/// One connection.
struct Connected {
    channel: Channel,
    step: Step,
    since: Nanos,
    /// When the connection is closed, unless its next message comes.
    until: Nanos,
}

/// How far a hand-over is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Connected,
    /// It has requested the sockets, while another process has them.
    Requested,
    /// It has the sockets, and has not reported that it serves.
    Starting,
    /// It serves.
    Finished,
}

impl Controller {
    /// Starts to wait for a successor. A message is sent to `notice` when it has taken over.
    pub(crate) fn start(
        socket: ControlSocket,
        acceptor: Post<AcceptMessage>,
        metrics: Option<OwnedFd>,
        notice: SyncSender<()>,
        clock: Clock,
    ) -> io::Result<Controller> {
        let poller = Poller::new()?;
        poller.add_control(&socket, CONTROL)?;
        let (post, stop) = mailbox(&poller, STOP)?;
        let is_handed_over = Arc::new(AtomicBool::new(false));
        let control = Control {
            socket,
            poller,
            stop,
            connections: Slab::new(),
            is_waiting: true,
            acceptor,
            metrics,
            is_handed_over: is_handed_over.clone(),
            notice,
            clock,
        };
        let thread = Builder::new().name("control".into()).spawn(move || control.run())?;
        Ok(Controller { stop: post, is_handed_over, thread })
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
        // If this fails, the thread has ended already.
        let _ = self.stop.send(());
        // An error of this thread does not fail the proxy's orderly end.
        let _ = self.thread.join();
    }
}

impl Control {
    fn run(mut self) -> io::Result<()> {
        let mut ready: Vec<Ready> = Vec::new();
        loop {
            self.poller.wait(self.timeout(), &mut ready)?;
            if self.stop.take().is_some() {
                if self.is_handed_over.load(Ordering::Acquire) {
                    self.socket.keep_file();
                }
                return Ok(());
            }
            self.is_waiting |= ready.iter().any(|event| event.token == CONTROL);
            self.accept();
            for event in ready.iter().filter(|event| event.token.0 >= FIRST) {
                if self.receive(event.token.0 - FIRST) {
                    self.socket.keep_file();
                    // The receiver may have ended.
                    let _ = self.notice.try_send(());
                    return Ok(());
                }
            }
            let now = self.clock.now();
            self.connections.retain(|_, connected| connected.until > now);
            self.lend_next();
        }
    }

    fn timeout(&self) -> Option<Duration> {
        if self.is_waiting {
            return Some(Duration::ZERO);
        }
        let next = self.connections.iter().map(|(_, connected)| connected.until).min()?;
        Some(next.after(self.clock.now()))
    }

    /// Accepts waiting processes, up to a number that does not delay the thread's other work.
    fn accept(&mut self) {
        for _ in 0..CONNECTIONS_MAX {
            if !self.is_waiting {
                return;
            }
            match self.socket.accept() {
                Ok(channel) => self.add(channel),
                Err(_) => self.is_waiting = false,
            }
        }
    }

    fn add(&mut self, channel: Channel) {
        if self.connections.len() >= CONNECTIONS_MAX {
            let without = self.connections.iter().filter(|(_, connected)| connected.step != Step::Starting);
            if let Some((oldest, _)) = without.min_by_key(|(_, connected)| connected.since) {
                self.connections.remove(oldest);
            }
        }
        let since = self.clock.now();
        let entry = self.connections.vacant_entry();
        let slot = entry.key();
        // If one of these fails, the connection is closed.
        if channel.stop_blocking().is_ok() && self.poller.add_channel(&channel, Token(FIRST + slot)).is_ok() {
            entry.insert(Connected { channel, step: Step::Connected, since, until: since + MESSAGE_WAIT });
        }
    }

    /// Receives what a process has sent. Returns whether it has taken over. Closes its connection if a message is wrong.
    fn receive(&mut self, slot: usize) -> bool {
        while let Some(connected) = self.connections.get_mut(slot) {
            match connected.channel.receive(Duration::ZERO) {
                Ok((text, _)) if text == TAKE_OVER && connected.step == Step::Connected => {
                    connected.step = Step::Requested;
                    self.lend_next();
                }
                Ok((text, _)) if text == SERVING && connected.step == Step::Starting => {
                    connected.step = Step::Finished;
                    return self.finish(slot);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                _ => _ = self.connections.remove(slot),
            }
        }
        false
    }

    /// Sends the sockets to the process that has waited for them longest, unless another one has them.
    fn lend_next(&mut self) {
        if self.connections.iter().any(|(_, connected)| connected.step == Step::Starting) {
            return;
        }
        let requested = self.connections.iter().filter(|(_, connected)| connected.step == Step::Requested);
        let Some((slot, _)) = requested.min_by_key(|(_, connected)| connected.since) else { return };
        match self.lend(&self.connections[slot].channel) {
            Ok(()) => {
                let connected = &mut self.connections[slot];
                (connected.step, connected.until) = (Step::Starting, self.clock.now() + START_WAIT);
            }
            Err(_) => _ = self.connections.remove(slot),
        }
    }

    fn lend(&self, channel: &Channel) -> io::Result<()> {
        let (sender, receiver) = sync_channel(1);
        self.acceptor.send(AcceptMessage::Lend(sender)).map_err(|_| gone())?;
        let lent = receiver.recv_timeout(MESSAGE_WAIT).map_err(|_| gone())??;
        self.send(channel, &lent)
    }

    /// Stops accepting, because this process serves. Returns whether that was possible.
    fn finish(&mut self, slot: usize) -> bool {
        self.is_handed_over.store(true, Ordering::Release);
        let (sender, receiver) = sync_channel(1);
        if self.acceptor.send(AcceptMessage::Retire(sender)).is_err() {
            self.connections.remove(slot);
            return false;
        }
        // The acceptor stops between two turns. From here on the hand-over is final.
        let _ = receiver.recv_timeout(MESSAGE_WAIT);
        let _ = self.connections[slot].channel.send(STOPPED, &[]);
        true
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

fn gone() -> io::Error {
    io::Error::other("the accepting thread has ended")
}
