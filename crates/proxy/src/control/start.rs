//! Starts a proxy. It can replace another process, or another configuration of this process.

use crate::config::{Config, TransportConfig};
use crate::control::controller::{Controller, Notices};
use crate::control::error::ProxyError;
use crate::control::hand_over::{TakeOver, take_metrics};
use crate::control::listeners::Opened;
use crate::control::prepare::{Prepared, Sockets};
use crate::control::running::{MetricsThread, Running};
use crate::observe::watchdog::Watchdog;
use crate::path::messages::{AcceptMessage, NewestAcceptor};
use clock::Clock;
use net::{ControlSocket, Inherited, Post};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::sync::mpsc::sync_channel;

/// Requests to change a server that may wait for their turn.
const CHANGES_MAX: usize = 8;

/// Starts a proxy. It serves when this returns.
///
/// # Errors
/// If the configuration is invalid, an address cannot be used or a file cannot be written.
pub fn start(config: Config, clock: Clock) -> Result<Running, ProxyError> {
    start_with(config, FromManager::default(), clock)
}

/// What a service manager gives a process that it starts.
#[derive(Debug, Default)]
pub struct FromManager {
    /// Sockets that it has opened for the proxy, which listens on them.
    pub sockets: Vec<Inherited>,
    /// Where it expects signs of life.
    pub watchdog: Option<Watchdog>,
}

/// Starts a proxy under a service manager.
///
/// # Errors
/// As [`start`].
pub fn start_with(config: Config, manager: FromManager, clock: Clock) -> Result<Running, ProxyError> {
    let FromManager { sockets: activated, watchdog } = manager;
    config.check()?;
    let (take_over, mut handed) = begin_take_over(&config.transport)?;
    let metrics = take_metrics(&mut handed);
    let opened = Opened { activated, handed };
    start_after(config, Before { opened, metrics, take_over, watchdog, itself: None }, clock)
}

/// What the new proxy takes over from another process, or from this process with another configuration.
pub(crate) struct Before<'r> {
    pub(crate) opened: Opened,
    /// The listening socket of the metrics.
    pub(crate) metrics: Option<OwnedFd>,
    pub(crate) take_over: Option<TakeOver>,
    pub(crate) watchdog: Option<Watchdog>,
    /// The proxy of this process that is replaced.
    pub(crate) itself: Option<&'r mut Running>,
}

/// Starts a proxy that continues the work of another one.
pub(crate) fn start_after(config: Config, before: Before<'_>, clock: Clock) -> Result<Running, ProxyError> {
    let Before { opened, metrics, take_over, watchdog, mut itself } = before;
    let mut sockets = Sockets::open(&config, opened, metrics, itself.as_deref())?;
    let mut prepared = Prepared::new(&config, &mut sockets, itself.as_deref(), watchdog.as_ref(), &clock)?;
    if let Some(old) = &mut itself {
        old.stop_handing_over()?;
    }
    // From here on nothing fails.
    prepared.begin(clock.now());
    let newest_acceptor = match &itself {
        Some(old) => old.newest_acceptor.clone(),
        None => NewestAcceptor::new(prepared.accept_post.clone()),
    };
    let Sockets { listening, unused, control, .. } = sockets;
    let (taken_over, receiver) = sync_channel(1);
    let (changes, requests) = sync_channel(CHANGES_MAX);
    let notices = Notices { taken_over, changes };
    let control = Controlled { control, take_over, metrics: prepared.metrics.as_ref(), itself, unused };
    let controller = control.start(&prepared.accept_post, notices, clock.clone(), &mut prepared.warnings);
    Ok(Running {
        listening,
        metrics_address: prepared.metrics.as_ref().and_then(|metrics| metrics.server.address()),
        warnings: prepared.warnings,
        notice: Mutex::new(Some(receiver).filter(|_| controller.is_some())),
        changes: Mutex::new(Some(requests).filter(|_| controller.is_some())),
        resolving: prepared.resolving,
        controller,
        config,
        clock,
        accept_post: prepared.accept_post,
        newest_acceptor,
        acceptor: prepared.acceptor,
        clients_open: prepared.clients_open,
        posts: prepared.posts,
        loops: prepared.loops,
        tally: prepared.tally,
        counts: prepared.counts,
        metrics: prepared.metrics,
        is_stopping: prepared.is_stopping,
        watchdog,
        log: prepared.log,
        traces: prepared.traces,
        writer: prepared.records.keep(),
        pending: prepared.inheritance.pending,
        servers: prepared.servers,
        buckets: prepared.buckets,
        key_versions: prepared.key_versions,
        is_replaced: false,
    })
}

/// Requests the predecessor's sockets, if there is one.
fn begin_take_over(transport: &TransportConfig) -> Result<(Option<TakeOver>, Vec<Inherited>), ProxyError> {
    let Some(path) = &transport.take_over else { return Ok((None, Vec::new())) };
    let begun = TakeOver::begin(path).map_err(|source| match source.kind() {
        io::ErrorKind::PermissionDenied => ProxyError::TakeOverRefused { path: path.clone(), source },
        _ => ProxyError::TakeOver { path: path.clone(), source },
    })?;
    Ok((Some(begun.0), begun.1))
}

/// The steps of a hand-over that follow once the new proxy serves.
struct Controlled<'a> {
    control: Option<ControlSocket>,
    take_over: Option<TakeOver>,
    metrics: Option<&'a MetricsThread>,
    itself: Option<&'a mut Running>,
    /// The predecessor's sockets on which nobody listens any more.
    unused: Vec<Inherited>,
}

impl Controlled<'_> {
    /// Makes the predecessor stop accepting, and starts to wait for a successor.
    fn start(
        mut self,
        acceptor: &Post<AcceptMessage>,
        notices: Notices,
        clock: Clock,
        warnings: &mut Vec<String>,
    ) -> Option<Controller> {
        let is_successor = self.take_over.is_some() || self.itself.is_some();
        if let Some(old) = self.itself.take() {
            old.move_clients_to(acceptor);
        }
        if let Some(Err(error)) = self.take_over.take().map(TakeOver::finish) {
            warnings.push(format!("the replaced process did not confirm that it has stopped accepting: {error}"));
        }
        self.unused.into_iter().for_each(Inherited::retire);
        let mut control = self.control?;
        // The proxy serves already, so an error here is only a warning.
        let started = (|| {
            if is_successor {
                control.succeed()?;
            }
            let metrics = self.metrics.map(|metrics| metrics.server.socket()).transpose()?;
            Controller::start(control, acceptor.clone(), metrics, notices, clock)
        })();
        started.map_err(|error| warnings.push(format!("no successor can take over: {error}"))).ok()
    }
}
