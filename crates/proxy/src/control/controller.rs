//! The predecessor's side of a hand-over: a thread that waits for a successor on the control socket. It also receives requests to
//! change a server, and passes them on with their connections. The thread never blocks on
//! a connection, and limits their number and duration. So no connection delays another one, a reload or the exit of the proxy.

use crate::control::change::ChangeRequest;
use crate::control::hand_over::{MESSAGE_WAIT, METRICS, SERVING, STOPPED, TAKE_OVER, WITH_FILE};
use crate::path::messages::AcceptMessage;
use clock::{Clock, Nanos};
use net::{Channel, ControlSocket, Inherited, Mailbox, Poller, Post, Ready, Token, mailbox};
use slab::Slab;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// How long a successor may take until it serves.
const START_WAIT: Duration = Duration::from_secs(60);
/// The most connections. One more closes the oldest of those that have not received the sockets.
const CONNECTIONS_MAX: usize = 8;
/// The pause after a process could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);
const CONTROL: Token = Token(0);
const STOP: Token = Token(1);
/// The token of the first connection.
const FIRST: usize = 2;

/// The thread that waits for a successor.
#[derive(Debug)]
pub(crate) struct Controller {
    stop: Post<Stop>,
    is_handed_over: Arc<AtomicBool>,
    /// The thread; set until it is joined.
    thread: Option<JoinHandle<io::Result<Ended>>>,
}

/// Tells the thread to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    RemoveFile,
    /// The next configuration of this process listens on the path.
    KeepFile,
}

/// How the thread has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// No process has the sockets.
    Alone,
    /// A process has the sockets, but has not reported that it serves.
    Lent,
    HandedOver,
}

/// The state of that thread.
struct Control {
    socket: ControlSocket,
    poller: Poller,
    stop: Mailbox<Stop>,
    connections: Slab<Connected>,
    /// Set if more processes may be waiting to be accepted: how long to wait before the next attempt.
    accept_after: Option<Duration>,
    acceptor: Post<AcceptMessage>,
    metrics: Option<OwnedFd>,
    is_handed_over: Arc<AtomicBool>,
    notices: Notices,
    clock: Clock,
}

/// Where the thread reports what it has received.
#[derive(Clone, Debug)]
pub(crate) struct Notices {
    /// A successor has taken over.
    pub(crate) taken_over: SyncSender<()>,
    /// An operator requests a change of a server.
    pub(crate) changes: SyncSender<ChangeRequest>,
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
    /// Starts to wait for a successor.
    pub(crate) fn start(
        socket: ControlSocket,
        acceptor: Post<AcceptMessage>,
        metrics: Option<OwnedFd>,
        notices: Notices,
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
            accept_after: Some(Duration::ZERO),
            acceptor,
            metrics,
            is_handed_over: is_handed_over.clone(),
            notices,
            clock,
        };
        let thread = Builder::new().name("control".into()).spawn(move || control.run())?;
        Ok(Controller { stop: post, is_handed_over, thread: Some(thread) })
    }

    /// Whether a successor has taken over.
    pub(crate) fn is_handed_over(&self) -> bool {
        self.is_handed_over.load(Ordering::Acquire)
    }

    /// Stops the thread, and leaves the socket's file to the next configuration. From now on no successor can take over. Returns
    /// false if one has done so before.
    pub(crate) fn retire(&mut self) -> bool {
        self.end(Stop::KeepFile);
        !self.is_handed_over()
    }

    /// Stops the thread. Returns whether a process has the sockets and does not serve yet.
    pub(crate) fn stop(mut self) -> bool {
        self.end(Stop::RemoveFile) == Some(Ended::Lent)
    }

    /// Stops the thread. Returns how it has ended, if it did so orderly and now.
    fn end(&mut self, order: Stop) -> Option<Ended> {
        // If this fails, the thread has ended already.
        let _ = self.stop.send(order);
        // An error of this thread does not fail the proxy's orderly end.
        self.thread.take()?.join().ok()?.ok()
    }
}

impl Control {
    fn run(mut self) -> io::Result<Ended> {
        let mut ready: Vec<Ready> = Vec::new();
        loop {
            self.poller.wait(self.timeout(), &mut ready)?;
            if let Some(order) = self.stop.take() {
                if order == Stop::KeepFile {
                    self.socket.keep_file();
                }
                return Ok(if self.is_lent() { Ended::Lent } else { Ended::Alone });
            }
            if ready.iter().any(|event| event.token == CONTROL) {
                self.accept_after = Some(Duration::ZERO);
            }
            self.accept();
            for event in ready.iter().filter(|event| event.token.0 >= FIRST) {
                if self.receive(event.token.0 - FIRST) {
                    self.socket.keep_file();
                    // The receiver may have ended.
                    let _ = self.notices.taken_over.try_send(());
                    return Ok(Ended::HandedOver);
                }
            }
            let now = self.clock.now();
            self.connections.retain(|_, connected| connected.until > now);
            self.lend_next();
        }
    }

    fn timeout(&self) -> Option<Duration> {
        let next = self.connections.iter().map(|(_, connected)| connected.until).min();
        let next = next.map(|until| until.after(self.clock.now()));
        self.accept_after.into_iter().chain(next).min()
    }

    /// Accepts waiting processes, up to a number that does not delay the thread's other work.
    fn accept(&mut self) {
        if self.accept_after.is_none() {
            return;
        }
        for _ in 0..CONNECTIONS_MAX {
            match self.socket.accept() {
                Ok(channel) => self.add(channel),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return self.accept_after = None,
                // No file descriptor was free, and the kernel does not report the waiting process again.
                Err(_) => return self.accept_after = Some(ACCEPT_PAUSE),
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
                Ok((text, _)) if connected.step == Step::Connected && ChangeRequest::is_one(&text) => {
                    self.pass_on(slot, &text);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                _ => _ = self.connections.remove(slot),
            }
        }
        false
    }

    /// Passes a request to change a server on, together with its connection, on which the reply is sent.
    fn pass_on(&mut self, slot: usize, text: &str) {
        let Some(connected) = self.connections.try_remove(slot) else { return };
        let Some(request) = ChangeRequest::new(text, connected.channel) else { return };
        // The receiver lives as long as this thread.
        if let Err(TrySendError::Full(request)) = self.notices.changes.try_send(request) {
            request.reply(Err("other changes are in progress; try again".into()));
        }
    }

    /// Sends the sockets to the process that has waited for them longest, unless another one has them.
    fn lend_next(&mut self) {
        if self.is_lent() {
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

    /// Whether a process has the sockets, and has not reported that it serves.
    fn is_lent(&self) -> bool {
        self.connections.iter().any(|(_, connected)| connected.step == Step::Starting)
    }

    fn lend(&self, channel: &Channel) -> io::Result<()> {
        let (sender, receiver) = sync_channel(1);
        self.acceptor.send_blocking(AcceptMessage::Lend(sender)).map_err(|_| gone())?;
        let lent = receiver.recv_timeout(MESSAGE_WAIT).map_err(|_| gone())??;
        self.send(channel, &lent)
    }

    /// Stops accepting, because this process serves. Returns whether that was possible.
    fn finish(&mut self, slot: usize) -> bool {
        let (sender, receiver) = sync_channel(1);
        if self.acceptor.send_blocking(AcceptMessage::Retire(sender)).is_err() {
            self.connections.remove(slot);
            return false;
        }
        // The acceptor stops between two turns. From here on the hand-over is final.
        self.is_handed_over.store(true, Ordering::Release);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_mailbox_of_the_acceptor_delays_a_hand_over() {
        const PATIENCE: Duration = Duration::from_secs(20);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control");
        let poller = Poller::new().unwrap();
        let (acceptor, messages) = mailbox(&poller, Token(0)).unwrap();
        let (taken_over, notices) = sync_channel(1);
        let (changes, requests) = sync_channel(1);
        // Only so that the reply is not empty.
        let metrics = std::fs::File::open("/dev/null").unwrap().into();
        let socket = ControlSocket::bind(&path, false).unwrap();
        let mut controller = Controller::start(
            socket,
            acceptor.clone(),
            Some(metrics),
            Notices { taken_over, changes },
            Clock::monotonic(),
        )
        .unwrap();
        let fill = || while acceptor.send(AcceptMessage::Lend(sync_channel(1).0)).is_ok() {};
        let changed = "server 1\n\na:1\ndrain";
        let operators = [Channel::connect(&path).unwrap(), Channel::connect(&path).unwrap()];
        for operator in &operators {
            operator.send(changed, &[]).unwrap();
            std::thread::sleep(Duration::from_millis(100));
        }
        // The first one waits for its turn, and there is no room for a second one.
        assert!(operators[1].receive(PATIENCE).unwrap().0.starts_with("refused\nother changes are in progress"));
        requests.recv_timeout(PATIENCE).unwrap().reply(Ok("yes".into()));
        assert_eq!(operators[0].receive(PATIENCE).unwrap().0, "done\nyes");
        let successor = Channel::connect(&path).unwrap();
        for (request, reply) in [(TAKE_OVER, "metrics\n"), (SERVING, STOPPED)] {
            fill();
            successor.send(request, &[]).unwrap();
            let early = successor.receive(Duration::from_millis(100)).unwrap_err();
            assert_eq!(early.kind(), io::ErrorKind::WouldBlock);
            assert!(!controller.is_handed_over() && notices.try_recv().is_err());
            let received = std::thread::scope(|scope| {
                let received = scope.spawn(|| successor.receive(PATIENCE));
                while !received.is_finished() {
                    match messages.take() {
                        // The sender is dropped, which means that the acceptor has stopped.
                        Some(AcceptMessage::Retire(sender)) => drop(sender),
                        Some(AcceptMessage::Lend(sender)) => _ = sender.try_send(Ok(Vec::new())),
                        _ => std::thread::yield_now(),
                    }
                }
                received.join().unwrap()
            });
            assert_eq!(received.unwrap().0, reply);
        }
        notices.recv_timeout(PATIENCE).expect("the hand-over is complete");
        assert!(!controller.retire(), "a successor has taken over");
    }
}
