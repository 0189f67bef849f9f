//! A running proxy and its orderly end: accept no more clients, finish the requests in flight, close the records.

use crate::config::Config;
use crate::control::change::ChangeRequest;
use crate::control::controller::Controller;
use crate::control::error::ProxyError;
use crate::control::inherit::Servers;
use crate::control::logging::Log;
use crate::control::resolve::Resolving;
use crate::control::threads::Worker;
use crate::control::traces::Traces;
use crate::observe::counters::ListCounter;
use crate::observe::log::event::{LogEvent, ProcessEvent};
use crate::observe::metrics_server::MetricsServer;
use crate::observe::process_counts::ProcessCounts;
use crate::observe::tally::Tally;
use crate::observe::watchdog::Watchdog;
use crate::path::event_loop::LoopEnd;
use crate::path::key_versions::KeyVersions;
use crate::path::messages::{AcceptMessage, DrainLimits, LoopMessage, NewestAcceptor};
use crate::path::rate_limits::Buckets;
use crate::replication::pending_invalidations::PendingInvalidations;
use clock::{Clock, Nanos};
use net::{Address, Post};
use records::{Writer, WriterTotals};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How long clients that do not read their last replies can delay the exit of the proxy.
const DRAIN_PATIENCE: Duration = Duration::from_secs(2);

/// The interval at which `wait_for_clients` checks whether clients are left.
const CLIENTS_POLL: Duration = Duration::from_millis(10);

/// A running proxy.
pub struct Running {
    /// The addresses that clients connect to, with the actual ports.
    pub listening: Vec<Address>,
    /// The address of the metrics.
    pub metrics_address: Option<SocketAddr>,
    /// Problems that do not keep the proxy from serving, one line each.
    pub warnings: Vec<String>,
    pub(crate) notice: Mutex<Option<Receiver<()>>>,
    pub(crate) changes: Mutex<Option<Receiver<ChangeRequest>>>,
    pub(crate) resolving: Resolving,
    pub(crate) controller: Option<Controller>,
    pub(crate) config: Config,
    pub(crate) clock: Clock,
    pub(crate) accept_post: Post<AcceptMessage>,
    /// All configurations of this process share it.
    pub(crate) newest_acceptor: NewestAcceptor,
    pub(crate) acceptor: Worker<()>,
    pub(crate) clients_open: Arc<AtomicUsize>,
    pub(crate) posts: Vec<Post<LoopMessage>>,
    pub(crate) loops: Vec<Worker<LoopEnd>>,
    pub(crate) tally: Arc<Tally>,
    /// All configurations of this process share it.
    pub(crate) counts: Arc<ProcessCounts>,
    pub(crate) metrics: Option<MetricsThread>,
    /// The metrics port reports that the proxy is not ready.
    pub(crate) is_stopping: Arc<AtomicBool>,
    pub(crate) watchdog: Option<Watchdog>,
    pub(crate) log: Option<Log>,
    pub(crate) traces: Option<Traces>,
    pub(crate) writer: Option<Writer>,
    /// By backend.
    pub(crate) pending: Vec<PendingInvalidations>,
    pub(crate) servers: Servers,
    /// By pool.
    pub(crate) buckets: Buckets,
    /// All configurations of this process share it.
    pub(crate) key_versions: KeyVersions,
    /// Another proxy of this process accepts clients now.
    pub(crate) is_replaced: bool,
}

/// The metrics server, and its thread.
#[derive(Debug)]
pub(crate) struct MetricsThread {
    pub(crate) server: MetricsServer,
    pub(crate) thread: Worker<()>,
}

/// What a proxy has done from its start to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Totals {
    /// The number of requests that were answered or failed.
    pub requests: u64,
    /// The number of jobs that never ended. Anything but zero is a bug.
    pub lost: u64,
    /// The number of records written and dropped.
    pub records: Option<WriterTotals>,
}

impl MetricsThread {
    /// Stops the server, and closes all its connections. Waits for at most one scrape, whose time is limited.
    pub(crate) fn stop(self) {
        self.server.stop();
        // A panic of the metrics server does not fail the proxy's orderly end.
        let _ = self.thread.join();
    }
}

impl Running {
    /// A receiver that gets a message when a successor has taken over. None without a control socket, and on the second call.
    pub fn handed_over(&self) -> Option<Receiver<()>> {
        self.notice.lock().ok()?.take()
    }

    /// A receiver of requests to change a server. None without a control socket, and on the second call.
    pub fn change_requests(&self) -> Option<Receiver<ChangeRequest>> {
        self.changes.lock().ok()?.take()
    }

    /// Whether another process has taken over.
    pub(crate) fn is_handed_over(&self) -> bool {
        self.controller.as_ref().is_some_and(Controller::is_handed_over)
    }

    /// After a successor has taken over, waits until the remaining clients have disconnected, at most for the configured time.
    /// Then it accepts no more requests, and waits for clients that still read their replies. It gives up when no client has read
    /// anything for the configured time, or when `is_hurried` returns true. The caller then stops this proxy.
    pub fn wait_for_clients(&mut self, is_hurried: impl Fn() -> bool) {
        self.wait_for_all_clients(|| false, is_hurried);
    }

    /// As [`Running::wait_for_clients`], while proxies with earlier configurations may still move clients to this one
    /// (`may_get_more`).
    pub fn wait_for_all_clients(&mut self, may_get_more: impl Fn() -> bool, is_hurried: impl Fn() -> bool) {
        if !self.is_replaced && !self.is_handed_over() {
            return;
        }
        if let Some(metrics) = self.metrics.take() {
            metrics.stop();
        }
        let until = self.clock.now() + self.config.transport.hand_over_wait;
        let has_clients = || may_get_more() || self.clients_open.load(Ordering::Relaxed) > 0;
        while has_clients() && self.clock.now() < until && !is_hurried() {
            std::thread::sleep(CLIENTS_POLL);
        }
        if self.clients_open.load(Ordering::Relaxed) > 0 && !is_hurried() {
            self.is_stopping.store(true, Ordering::Relaxed);
            let patience = self.config.transport.hand_over_wait.max(DRAIN_PATIENCE);
            drain(&self.posts, DrainLimits { until: Nanos::NEVER, patience });
            while !self.loops.iter().all(Worker::is_finished) && !is_hurried() {
                std::thread::sleep(CLIENTS_POLL);
            }
        }
    }

    /// Accepts no more clients, finishes the requests that have been read, and ends.
    ///
    /// # Errors
    /// When a thread failed or the records could not be completed.
    pub fn stop(self) -> Result<Totals, ProxyError> {
        self.is_stopping.store(true, Ordering::Relaxed);
        if !self.is_replaced {
            self.newest_acceptor.end();
        }
        // If these messages cannot be sent, the acceptor has ended already.
        if self.controller.is_some_and(Controller::stop) {
            // A process that has the sockets may soon serve. It needs the files of the unix sockets.
            let _ = self.accept_post.send_blocking(AcceptMessage::Retire(sync_channel(1).0));
        }
        let _ = self.accept_post.send_blocking(AcceptMessage::Stop);
        let accepted = joined(self.acceptor);
        let until = self.clock.now() + self.config.longest_timeout() + DRAIN_PATIENCE;
        drain(&self.posts, DrainLimits { until, patience: DRAIN_PATIENCE });
        let mut lost = 0;
        for event_loop in self.loops {
            let end = joined(event_loop)?;
            lost += end.lost;
            self.counts.add_times(&end.histograms);
        }
        accepted?;
        self.resolving.stop();
        if let Some(metrics) = self.metrics {
            metrics.stop();
        }
        // Before the log, which reports what could not be sent.
        if let Some(traces) = self.traces {
            traces.end();
        }
        if let Some(log) = self.log {
            log.end();
        }
        let records = self.writer.map(|writer| writer.close(lost)).transpose()?;
        self.counts.end(&self.tally);
        let requests = self.tally.loops.iter().map(|counters| counters.requests_total()).sum();
        Ok(Totals { requests, lost, records })
    }

    /// The first TCP address that clients connect to, if there is one.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listening.iter().find_map(|address| address.host_port()?.number())
    }

    /// Writes a line about the process to the log.
    pub fn log(&self, event: ProcessEvent) {
        if let Some(log) = &self.log {
            log.event(LogEvent::Process(event));
        }
    }

    /// Counts that a pool has got other servers from its file or its names.
    pub fn count_list_change(&self, pool: &str) {
        self.list(pool).into_iter().for_each(|list| list.changes.add(1));
    }

    /// Counts and logs that a list of servers of a pool cannot be used.
    pub fn report_list_failure(&self, pool: &str, reason: &str) {
        self.list(pool).into_iter().for_each(|list| list.failures.add(1));
        self.log(ProcessEvent::ServerListFailed { pool: pool.into(), reason: reason.into() });
    }

    fn list(&self, pool: &str) -> Option<&ListCounter> {
        self.config.pool(pool).map(|index| &self.tally.lists[index])
    }

    /// The configuration of this proxy.
    pub fn config(&self) -> &Config {
        &self.config
    }
}

/// Lets the loops take no more requests, and end.
fn drain(posts: &[Post<LoopMessage>], limits: DrainLimits) {
    for post in posts {
        // If this fails, the loop has ended.
        let _ = post.send_blocking(LoopMessage::Drain(limits));
    }
}

/// The result of a thread, or an error if it panicked.
fn joined<T: Send + 'static>(thread: Worker<T>) -> Result<T, ProxyError> {
    match thread.join() {
        Ok(outcome) => Ok(outcome?),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_string()));
            Err(ProxyError::Panicked(text.unwrap_or_default()))
        }
    }
}
