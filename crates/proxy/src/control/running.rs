//! A proxy that serves: what is known of it, and its end in order: accept no more, finish what is in flight, close the records.

use crate::config::Config;
use crate::control::error::ProxyError;
use crate::control::hand_over::Controller;
use crate::control::resolve::Resolving;
use crate::observe::counters::LoopCounters;
use crate::observe::metrics_server::MetricsServer;
use crate::path::messages::{AcceptMessage, LoopMessage};
use crate::replication::pending_invalidations::PendingInvalidations;
use clock::Clock;
use net::{Address, Post};
use records::{Writer, WriterTotals};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// Beyond the backends' timeout, clients get so long to take their last replies.
const DRAIN_GRACE: Duration = Duration::from_secs(1);

/// How often is looked whether clients are left.
const LINGER_LOOK: Duration = Duration::from_millis(10);

/// A proxy that serves.
pub struct Running {
    /// Where clients connect, with the ports that were taken.
    pub listening: Vec<Address>,
    /// Where metrics are served.
    pub metrics_address: Option<SocketAddr>,
    /// What is wrong, though it serves; a line each.
    pub warnings: Vec<String>,
    pub(crate) notice: Mutex<Option<Receiver<()>>>,
    pub(crate) resolving: Resolving,
    pub(crate) controller: Option<Controller>,
    pub(crate) config: Config,
    pub(crate) clock: Clock,
    pub(crate) accept_post: Post<AcceptMessage>,
    pub(crate) acceptor: JoinHandle<io::Result<()>>,
    pub(crate) clients_open: Arc<AtomicUsize>,
    pub(crate) posts: Vec<Post<LoopMessage>>,
    pub(crate) loops: Vec<JoinHandle<io::Result<u64>>>,
    pub(crate) counters: Vec<Arc<LoopCounters>>,
    pub(crate) metrics: Option<MetricsServer>,
    pub(crate) writer: Option<Writer>,
    /// By backend.
    pub(crate) pending: Vec<PendingInvalidations>,
    /// Another one of this process accepts clients now.
    pub(crate) is_left: bool,
}

/// What a proxy did in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Totals {
    /// Requests that were answered or failed.
    pub requests: u64,
    /// Jobs that never ended; anything but zero is a bug.
    pub lost: u64,
    /// What became of the records.
    pub records: Option<WriterTotals>,
}

impl Running {
    /// Receives a word when a successor has taken over. None without a control socket, and the second time.
    pub fn handed_over(&self) -> Option<Receiver<()>> {
        self.notice.lock().ok()?.take()
    }

    /// When a successor has taken over: waits until the clients that are left have gone, though not longer than configured,
    /// nor when there is a hurry. Then it is time to stop.
    pub fn linger(&mut self, is_hurried: impl Fn() -> bool) {
        if !self.is_left && !self.controller.as_ref().is_some_and(Controller::is_handed_over) {
            return;
        }
        if let Some(metrics) = self.metrics.take() {
            metrics.stop();
        }
        let until = self.clock.now() + self.config.transport.hand_over_wait;
        while self.clients_open.load(Ordering::Relaxed) > 0 && self.clock.now() < until && !is_hurried() {
            std::thread::sleep(LINGER_LOOK);
        }
    }

    /// Accepts no more clients, finishes the requests that have been read, and ends.
    ///
    /// # Errors
    /// When a thread failed or the records could not be completed.
    pub fn stop(self) -> Result<Totals, ProxyError> {
        // An acceptor that cannot be told has ended already.
        let _ = self.accept_post.send(AcceptMessage::Stop);
        let accepted = joined(self.acceptor);
        let until = self.clock.now() + self.config.longest_timeout() + DRAIN_GRACE;
        for (post, event_loop) in self.posts.iter().zip(&self.loops) {
            // A mailbox that is full empties, unless its loop is gone.
            while post.send(LoopMessage::Drain { until }).is_err() && !event_loop.is_finished() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        let mut lost = 0;
        for event_loop in self.loops {
            lost += joined(event_loop)?;
        }
        accepted?;
        self.resolving.stop();
        if let Some(controller) = self.controller {
            controller.stop();
        }
        if let Some(metrics) = self.metrics {
            metrics.stop();
        }
        let records = self.writer.map(|writer| writer.close(lost)).transpose()?;
        let requests = self.counters.iter().map(|counters| counters.requests_total()).sum();
        Ok(Totals { requests, lost, records })
    }

    /// The first address at which clients connect by TCP, if there is one.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listening.iter().find_map(|address| address.host_port()?.number())
    }

    /// The configuration it runs with.
    pub fn config(&self) -> &Config {
        &self.config
    }
}

/// The outcome of a thread.
fn joined<T>(thread: JoinHandle<io::Result<T>>) -> Result<T, ProxyError> {
    match thread.join() {
        Ok(outcome) => Ok(outcome?),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_string()));
            Err(ProxyError::Panicked(text.unwrap_or_default()))
        }
    }
}
