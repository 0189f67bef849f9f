//! Starts the threads of a proxy: event loops, acceptor, metrics, resolver, and the thread that waits for a successor.

use crate::config::{Config, PoolConfig, RecordsConfig, ServerConfig, TransportConfig};
use crate::control::controller::Controller;
use crate::control::error::ProxyError;
use crate::control::hand_over::{TakeOver, take_metrics};
use crate::control::inherit::{Inheritance, Servers};
use crate::control::listeners::{self, Opened};
use crate::control::resolve::Resolver;
use crate::control::running::{MetricsThread, Running};
use crate::control::threads::Worker;
use crate::control::transport::{Target, equip, targets};
use crate::observe::counters::{AcceptCounters, LoopCounters, NameCounters};
use crate::observe::hot_keys::HotKeysBoard;
use crate::observe::metrics::{ServerName, Subject};
use crate::observe::metrics_server::{MetricsServer, ScrapeLimits};
use crate::observe::scraper::RequestHistograms;
use crate::observe::stats::{Stats, settings};
use crate::path::accept::{self, Acceptor, LoopPost};
use crate::path::addresses::Addresses;
use crate::path::backend::connection::BackendConnection;
use crate::path::backend::connections::Connections;
use crate::path::backend::server::{Backend, BackendLimits, Purpose};
use crate::path::core::{Core, SessionSettings};
use crate::path::dispatch::discipline::{connections_of_loop, queue_names};
use crate::path::dispatch::dispatcher::Dispatcher;
use crate::path::event_loop::{EventLoop, MAILBOX};
use crate::path::jobs::Jobs;
use crate::path::journal::Journal;
use crate::path::messages::{AcceptMessage, LoopMessage, NewestAcceptor};
use crate::replication::pending_invalidations::PendingInvalidations;
use clock::{Clock, Nanos};
use net::{ControlSocket, Inherited, Listening, Mailbox, Poller, Post, Token, mailbox};
use records::{Program, Writer};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use wire::Limits;

/// The parts of one event loop.
struct Parts {
    poller: Poller,
    mailbox: Mailbox<LoopMessage>,
    core: Core,
}

/// Starts a proxy. It serves when this returns.
///
/// # Errors
/// If the configuration is invalid, an address cannot be used or a file cannot be written.
pub fn start(config: Config, clock: Clock) -> Result<Running, ProxyError> {
    start_with(config, Vec::new(), clock)
}

/// Starts a proxy that also listens on sockets that the service manager has opened for it.
///
/// # Errors
/// As [`start`].
pub fn start_with(config: Config, activated: Vec<Inherited>, clock: Clock) -> Result<Running, ProxyError> {
    config.check()?;
    let (take_over, mut handed) = begin_take_over(&config.transport)?;
    let metrics = take_metrics(&mut handed);
    let opened = Opened { activated, handed };
    start_after(config, Before { opened, metrics, take_over, ..Before::default() }, clock)
}

/// What the new proxy takes over from another process, or from this process with another configuration.
#[derive(Default)]
pub(crate) struct Before<'r> {
    pub(crate) opened: Opened,
    /// The listening socket of the metrics.
    pub(crate) metrics: Option<OwnedFd>,
    pub(crate) take_over: Option<TakeOver>,
    /// The proxy of this process that is replaced.
    pub(crate) itself: Option<&'r mut Running>,
}

/// Starts a proxy that continues the work of another one.
pub(crate) fn start_after(config: Config, before: Before<'_>, clock: Clock) -> Result<Running, ProxyError> {
    let Before { opened, metrics: handed_metrics, take_over, itself } = before;
    // Up to the order to begin everything can fail. What has been opened and started until then is undone when it is dropped.
    let (mut listeners, unused) = listeners::open(&config.listen, opened)?;
    equip(&mut listeners, &config.transport.tls)?;
    let listening = listeners.iter().map(|listening| listening.address().clone()).collect();
    let control = open_control(&config.transport, itself.as_deref())?;
    let metrics_socket = config.metrics.as_deref().map(|address| MetricsServer::listen(address, handed_metrics));
    let metrics_socket = metrics_socket.transpose().map_err(ProxyError::Metrics)?;
    let Resolved { backends, servers, resolver, mut warnings, name_counters } = resolve_backends(&config, &clock)?;
    let mut records = NewRecords::create(&config, &clock)?;
    let queues = queue_names(&config).len();
    let counters: Vec<_> =
        (0..config.loops).map(|_| Arc::new(LoopCounters::new(config.pools.len(), backends.len(), queues))).collect();
    let inheritance = match &itself {
        Some(old) => Inheritance::from((&old.servers, &old.pending), &servers),
        None => Inheritance::none(backends.len()),
    };
    let pending = &inheritance.pending;
    let accept_counters = Arc::new(AcceptCounters::default());
    let stats = Stats {
        loops: counters.clone(),
        accept: accept_counters.clone(),
        hot_keys: HotKeysBoard::new(config.loops, config.operations.hot_keys, &clock),
        servers: config.unique_backend_names(),
        replicas: config.pools[0].replicas,
        invalidations_pending: pending.iter().map(PendingInvalidations::count).collect(),
        clients_max: config.clients_max,
        settings: settings(&config),
        started: clock.now(),
        clock: clock.clone(),
    };
    let clients_open = Arc::new(AtomicUsize::new(0));
    let (mut posts, mut loops) = (Vec::new(), Vec::new());
    for index in 0..config.loops {
        let (post, parts) = build(&config, &backends, &stats, pending, records.0.as_ref(), index)?;
        let event_loop = EventLoop::new(parts.poller, parts.mailbox, parts.core, clients_open.clone());
        loops.push(Worker::prepare(format!("loop-{index}"), move || event_loop.run())?);
        posts.push(post);
    }
    let subject = subject(&config, &stats, name_counters);
    let mut metrics =
        metrics_socket.map(|socket| prepare_metrics(socket, &config, subject, &posts, &clock)).transpose()?;
    let mut resolving = resolver.prepare(posts.clone())?;
    let (accept_post, mut acceptor) = prepare_accepting(listeners, &posts, &clients_open, &config, accept_counters)?;
    // From here on nothing fails.
    inheritance.pass_on(clock.now());
    resolving.begin();
    loops.iter_mut().for_each(Worker::begin);
    metrics.iter_mut().for_each(|metrics| metrics.thread.begin());
    acceptor.begin();
    let newest_acceptor = match &itself {
        Some(old) => old.newest_acceptor.clone(),
        None => NewestAcceptor::new(accept_post.clone()),
    };
    let (notice, receiver) = sync_channel(1);
    let control = Controlled { control, take_over, metrics: metrics.as_ref(), itself, unused };
    let controller = control.start(&accept_post, notice, clock.clone(), &mut warnings);
    Ok(Running {
        listening,
        metrics_address: metrics.as_ref().and_then(|metrics| metrics.server.address()),
        warnings,
        notice: Mutex::new(Some(receiver).filter(|_| controller.is_some())),
        resolving,
        controller,
        config,
        clock,
        accept_post,
        newest_acceptor,
        acceptor,
        clients_open,
        posts,
        loops,
        counters,
        metrics,
        writer: records.0.take(),
        pending: inheritance.pending,
        servers,
        is_replaced: false,
    })
}

/// The record file of a proxy that may still fail to start: it is removed on drop.
struct NewRecords(Option<Writer>);

impl NewRecords {
    fn create(config: &Config, clock: &Clock) -> io::Result<NewRecords> {
        let create =
            |records: &RecordsConfig| Writer::create(&records.directory, Program::Proxy, records.sample, clock);
        config.records.as_ref().map(create).transpose().map(NewRecords)
    }
}

impl Drop for NewRecords {
    fn drop(&mut self) {
        if let Some(writer) = self.0.take() {
            writer.discard();
        }
    }
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

/// The control socket, on which a successor may request the listening sockets. A predecessor keeps the path until it has
/// stopped accepting.
fn open_control(transport: &TransportConfig, itself: Option<&Running>) -> Result<Option<ControlSocket>, ProxyError> {
    let Some(path) = &transport.control else { return Ok(None) };
    let is_own = itself.is_some_and(|old| old.config.transport.control.as_ref() == Some(path));
    let is_successor = is_own || transport.take_over.as_ref() == Some(path);
    let control = ControlSocket::bind(path, is_successor);
    Ok(Some(control.map_err(|source| ProxyError::Control { path: path.clone(), source })?))
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
        notice: SyncSender<()>,
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
            Controller::start(control, acceptor.clone(), metrics, notice, clock)
        })();
        started.map_err(|error| warnings.push(format!("no successor can take over: {error}"))).ok()
    }
}

/// The accepting thread, with its mailbox.
fn prepare_accepting(
    listeners: Vec<Listening>,
    loops: &[Post<LoopMessage>],
    clients_open: &Arc<AtomicUsize>,
    config: &Config,
    counters: Arc<AcceptCounters>,
) -> io::Result<(Post<AcceptMessage>, Worker<()>)> {
    let poller = Poller::new()?;
    let (post, mailbox) = mailbox(&poller, accept::MAILBOX)?;
    let loops = loops.iter().cloned().map(LoopPost::new).collect();
    let clients_open = clients_open.clone();
    let acceptor = Acceptor {
        listeners,
        poller,
        mailbox,
        loops,
        clients_open,
        clients_max: config.clients_max,
        limits: config.client_limits.clone(),
        addresses: Addresses::default(),
        counters,
    };
    Ok((post, Worker::prepare("accept", move || acceptor.run())?))
}

/// The backends, with the result of the first name resolution.
struct Resolved {
    backends: Vec<Backend>,
    servers: Servers,
    resolver: Resolver,
    warnings: Vec<String>,
    name_counters: Arc<NameCounters>,
}

/// Parses the backends' addresses and resolves the names among them.
fn resolve_backends(config: &Config, clock: &Clock) -> Result<Resolved, ProxyError> {
    let targets = targets(&config.backend_names(), &config.transport.tls)?;
    let name_counters = Arc::new(NameCounters::new(targets.len()));
    let TransportConfig { lookup, resolve_every, .. } = config.transport.clone();
    let servers = Servers::new(&targets);
    let mut resolver = Resolver::new(&targets, resolve_every, lookup, clock, servers.clone(), name_counters.clone());
    let warnings = resolver.resolve_all();
    Ok(Resolved { backends: backends(config, &targets, &resolver), servers, resolver, warnings, name_counters })
}

/// All backends, in the order of their numbers, with the addresses that are known so far.
fn backends(config: &Config, targets: &[Target], resolver: &Resolver) -> Vec<Backend> {
    let reporter = resolver.reporter();
    let backend_of = |(index, ((pool, server), target)): (usize, ((&PoolConfig, &ServerConfig), &Target))| Backend {
        index: index as u16,
        name: server.address.as_str().into(),
        endpoint: target.fixed().or_else(|| resolver.endpoint(index)),
        reporter: reporter.clone(),
        limits: BackendLimits {
            timeouts: pool.timeouts,
            failures: pool.failures,
            window: config.backend_window,
            buffer_bytes: config.backend_buffer_bytes,
            reply_bytes: config.reply_bytes,
            keepalive: config.client_limits.keepalive,
            // Other clients of the backend may have stored a value that is larger than this proxy would accept.
            wire: Limits { value_bytes: config.reply_bytes, ..SessionSettings::new(config).wire },
        },
    };
    config.backends().zip(targets).enumerate().map(backend_of).collect()
}

/// The parts of the loop with this index, and its mailbox.
fn build(
    config: &Config,
    backends: &[Backend],
    stats: &Stats,
    pending: &[PendingInvalidations],
    writer: Option<&Writer>,
    index: usize,
) -> Result<(Post<LoopMessage>, Parts), ProxyError> {
    let poller = Poller::new()?;
    let (post, mailbox) = mailbox(&poller, MAILBOX)?;
    let settings = SessionSettings::new(config);
    let (own, clock) = (&stats.loops[index], &stats.clock);
    let connection = |(number, (backend, purpose)): (usize, (usize, Purpose))| {
        BackendConnection::new(backends[backend].clone(), purpose, Token(number), own.clone())
    };
    let connections = connections_of_loop(config, index).into_iter().enumerate().map(connection).collect();
    let core = Core {
        settings,
        clock: clock.clone(),
        turn: clock.now(),
        progressed: Nanos::UNSET,
        jobs: Jobs::new(config),
        answered: Vec::new(),
        dispatcher: Dispatcher::new(config, index, Connections::new(connections), pending.to_vec(), own),
        journal: Journal::new(
            own.clone(),
            stats.hot_keys.as_ref().map(|board| board.counter(index)),
            writer.map(Writer::sender),
            index as u8,
        ),
        stats: stats.clone(),
    };
    Ok((post, Parts { poller, mailbox, core }))
}

/// The sources of the metrics.
fn subject(config: &Config, stats: &Stats, names: Arc<NameCounters>) -> Subject {
    let server_name = |(pool, server): (&PoolConfig, &ServerConfig)| ServerName {
        pool: pool.name.clone(),
        address: server.address.clone(),
    };
    Subject {
        loops: stats.loops.clone(),
        accept: stats.accept.clone(),
        names,
        pools: config.pools.iter().map(|pool| pool.name.clone()).collect(),
        servers: config.backends().map(server_name).collect(),
        invalidations_pending: stats.invalidations_pending.clone(),
        queues: queue_names(config),
        clients_max: config.clients_max,
        dispatch: config.discipline.name(),
        started_unix_ns: clock::unix_now(),
        hot_keys: stats.hot_keys.clone().filter(|_| config.operations.hot_keys_metrics),
    }
}

/// The metrics server on this socket, and its thread.
fn prepare_metrics(
    socket: Listening,
    config: &Config,
    subject: Subject,
    posts: &[Post<LoopMessage>],
    clock: &Clock,
) -> io::Result<MetricsThread> {
    let operations = &config.operations;
    let limits = ScrapeLimits { time: operations.metrics_timeout, connections: operations.metrics_connections };
    let requests = posts.iter().map(histograms_of).collect();
    let (server, serving) = MetricsServer::new(socket, limits, subject, requests, clock.clone())?;
    let thread = Worker::prepare("metrics", move || {
        serving.run();
        Ok(())
    })?;
    Ok(MetricsThread { server, thread })
}

/// Requests a copy of one loop's histograms.
fn histograms_of(post: &Post<LoopMessage>) -> RequestHistograms {
    let post = post.clone();
    Box::new(move |sender| post.send(LoopMessage::Histograms(sender)).is_ok())
}
