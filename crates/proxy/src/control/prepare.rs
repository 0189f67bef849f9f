//! Builds all parts of a proxy before it serves. Each step can fail. Dropping the parts undoes what was opened
//! and started.

use crate::config::{Config, PoolConfig, RecordsConfig, ServerConfig, TransportConfig};
use crate::control::auth::Auth;
use crate::control::error::ProxyError;
use crate::control::inherit::{Inheritance, Servers};
use crate::control::listeners::{self, Opened};
use crate::control::logging::Log;
use crate::control::resolve::{Resolver, Resolving};
use crate::control::running::{MetricsThread, Running};
use crate::control::threads::Worker;
use crate::control::traces::Traces;
use crate::control::transport::{Target, equip, targets};
use crate::observe::counters::{AcceptCounters, NameCounters};
use crate::observe::health::Health;
use crate::observe::hot_keys::HotKeysBoard;
use crate::observe::log::slow_log::SlowLog;
use crate::observe::metrics::Subject;
use crate::observe::metrics_server::{MetricsServer, ScrapeLimits};
use crate::observe::process_counts::ProcessCounts;
use crate::observe::scraper::RequestHistograms;
use crate::observe::stats::{Stats, settings};
use crate::observe::tally::{CountedNames, ServerName, Tally};
use crate::observe::traces::sampler::TraceSampler;
use crate::observe::watchdog::{Heartbeat, Watchdog};
use crate::path::accept::{self, Acceptor, LoopPost, Relays};
use crate::path::addresses::Addresses;
use crate::path::backend::connection::BackendConnection;
use crate::path::backend::connections::Connections;
use crate::path::backend::server::{Backend, BackendLimits, Purpose};
use crate::path::core::{Core, SessionSettings};
use crate::path::dispatch::discipline::{connections_of_loop, queue_names};
use crate::path::dispatch::dispatcher::Dispatcher;
use crate::path::event_loop::{EventLoop, LoopEnd, MAILBOX};
use crate::path::jobs::Jobs;
use crate::path::journal::Journal;
use crate::path::key_versions::KeyVersions;
use crate::path::listeners::Listeners;
use crate::path::messages::{AcceptMessage, LoopMessage};
use crate::path::near_cache::NearCaches;
use crate::path::rate_limits::{Buckets, RateLimits, buckets};
use crate::path::rewrite::Rewriter;
use crate::path::route::Router;
use crate::replication::pending_invalidations::{LINGER, PendingInvalidations};
use clock::{Clock, Nanos};
use net::{Address, ControlSocket, Inherited, Listening, Mailbox, Poller, Post, Token, mailbox};
use records::{Program, Writer};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use wire::Limits;

/// The sockets on which a new proxy listens.
pub(super) struct Sockets {
    listeners: Vec<Listening>,
    pub(super) listening: Vec<Address>,
    /// The predecessor's sockets on which the new proxy does not listen.
    pub(super) unused: Vec<Inherited>,
    pub(super) control: Option<ControlSocket>,
    metrics: Option<Listening>,
}

/// A proxy whose threads have started, but do not serve yet.
pub(super) struct Prepared {
    pub(super) resolving: Resolving,
    pub(super) accept_post: Post<AcceptMessage>,
    pub(super) acceptor: Worker<()>,
    pub(super) clients_open: Arc<AtomicUsize>,
    pub(super) posts: Vec<Post<LoopMessage>>,
    pub(super) loops: Vec<Worker<LoopEnd>>,
    pub(super) tally: Arc<Tally>,
    pub(super) counts: Arc<ProcessCounts>,
    pub(super) metrics: Option<MetricsThread>,
    pub(super) is_stopping: Arc<AtomicBool>,
    pub(super) log: Option<Log>,
    pub(super) traces: Option<Traces>,
    pub(super) records: NewRecords,
    pub(super) inheritance: Inheritance,
    pub(super) servers: Servers,
    pub(super) buckets: Buckets,
    pub(super) key_versions: KeyVersions,
    pub(super) warnings: Vec<String>,
}

impl Sockets {
    /// Opens the sockets, or uses those that were opened before.
    pub(super) fn open(
        config: &Config,
        opened: Opened,
        metrics: Option<OwnedFd>,
        itself: Option<&Running>,
    ) -> Result<Sockets, ProxyError> {
        let listen: Vec<&str> = config.listeners().map(|(listener, _)| listener.address.as_str()).collect();
        let (mut listeners, unused) = listeners::open(&listen, opened)?;
        equip(&mut listeners, &config.transport.tls)?;
        let listening = listeners.iter().map(|listening| listening.address().clone()).collect();
        let control = open_control(&config.transport, itself)?;
        let metrics = config.metrics.as_deref().map(|address| MetricsServer::listen(address, metrics));
        let metrics = metrics.transpose().map_err(ProxyError::Metrics)?;
        Ok(Sockets { listeners, listening, unused, control, metrics })
    }
}

impl Prepared {
    /// Builds the proxy on these sockets. Takes the listeners and the metrics' socket out of them.
    pub(super) fn new(
        config: &Config,
        sockets: &mut Sockets,
        itself: Option<&Running>,
        watchdog: Option<&Watchdog>,
        clock: &Clock,
    ) -> Result<Prepared, ProxyError> {
        let counts = itself.map_or_else(|| Arc::new(ProcessCounts::new(clock)), |old| old.counts.clone());
        let tally = Arc::new(Tally::new(Arc::new(counted_names(config)), config.loops));
        let auth = Auth::load(config)?;
        let Resolved { backends, servers, resolver, mut warnings } =
            resolve_backends(config, &auth, itself, tally.resolver.clone(), clock)?;
        let same = servers.first_same();
        config.check_shared_servers(&same)?;
        warnings.extend(config.check_same_servers(&same)?);
        let router = Arc::new(Router::new(config).with_servers(same));
        let records = NewRecords::create(config, clock)?;
        let inheritance = match itself {
            Some(old) => Inheritance::from((&old.servers, &old.pending), &servers),
            None => Inheritance::none(backends.len()),
        };
        let stats = stats(config, (&tally, &counts), &inheritance.pending, clock);
        let is_stopping = Arc::new(AtomicBool::new(false));
        let before = itself.and_then(|old| old.log.as_ref());
        let log = Log::prepare(config, &stats, &is_stopping, before)?;
        let traces = Traces::prepare(config, &tally, clock)?;
        let buckets = buckets(config, itself.map(|old| (&old.config, &old.buckets)), clock.now());
        let key_versions = itself.map_or_else(KeyVersions::default, |old| old.key_versions.clone());
        let has_near_cache = config.pools.iter().any(|pool| pool.near_cache.is_some());
        let longest_reply = config.pools.iter().map(|pool| pool.timeouts.reply).max().unwrap_or_default();
        key_versions.begin_configuration(has_near_cache, longest_reply + LINGER, clock.now());
        let (clients_open, addresses) = (Arc::new(AtomicUsize::new(0)), Addresses::default());
        let (mut posts, mut loops) = (Vec::new(), Vec::new());
        for (index, heartbeat) in Heartbeat::of_loops(watchdog, config.loops).into_iter().enumerate() {
            let journal = journal(config, &stats, (log.as_ref(), traces.as_ref()), records.0.as_ref(), index);
            let limits = RateLimits::new(config, &buckets, &router, &tally.loops[index]);
            let near = NearCaches::new(config, &router, &key_versions);
            let own = (journal, limits, near, key_versions.clone());
            let (post, mut parts) = build(config, &router, &backends, &stats, &inheritance.pending, own, index)?;
            parts.core.settings.users.clone_from(&auth.users);
            let shared = (clients_open.clone(), addresses.clone());
            let event_loop = EventLoop::new(parts.poller, parts.mailbox, parts.core, shared, heartbeat);
            loops.push(Worker::prepare(format!("loop-{index}"), move || event_loop.run())?);
            posts.push(post);
        }
        let subject = subject(config, &stats);
        let metrics = sockets.metrics.take();
        let metrics = metrics
            .map(|socket| prepare_metrics(socket, config, subject, &posts, is_stopping.clone(), clock))
            .transpose()?;
        let resolving = resolver.prepare(posts.clone())?;
        let listeners = std::mem::take(&mut sockets.listeners);
        let accept_counters = tally.accept.clone();
        let shared = (clients_open.clone(), addresses);
        let (accept_post, acceptor) = prepare_accepting(listeners, &posts, shared, config, accept_counters)?;
        Ok(Prepared {
            resolving,
            accept_post,
            acceptor,
            clients_open,
            posts,
            loops,
            tally,
            counts,
            metrics,
            is_stopping,
            log,
            traces,
            records,
            inheritance,
            servers,
            buckets,
            key_versions,
            warnings,
        })
    }

    /// Lets all threads begin. The proxy serves from now on.
    pub(super) fn begin(&mut self, now: Nanos) {
        self.inheritance.pass_on(now);
        self.counts.begin(&self.tally);
        self.resolving.begin();
        self.loops.iter_mut().for_each(Worker::begin);
        self.metrics.iter_mut().for_each(|metrics| metrics.thread.begin());
        self.log.iter_mut().for_each(Log::begin);
        self.traces.iter_mut().for_each(Traces::begin);
        self.acceptor.begin();
    }
}

/// The names of what this configuration counts.
fn counted_names(config: &Config) -> CountedNames {
    let server_name = |(pool, server): (&PoolConfig, &ServerConfig)| ServerName {
        pool: pool.name.clone(),
        address: server.address.clone(),
    };
    CountedNames {
        pools: config.pools.iter().map(|pool| pool.name.clone()).collect(),
        servers: config.backends().map(server_name).collect(),
        queues: queue_names(config),
    }
}

/// What `stats` reports about this configuration.
fn stats(
    config: &Config,
    (tally, counts): (&Arc<Tally>, &Arc<ProcessCounts>),
    pending: &[PendingInvalidations],
    clock: &Clock,
) -> Stats {
    Stats {
        tally: tally.clone(),
        counts: counts.clone(),
        hot_keys: HotKeysBoard::new(config.loops, config.operations.hot_keys, clock),
        servers: config.unique_backend_names(),
        replicas: config.pools[0].replicas,
        invalidations_pending: pending.iter().map(PendingInvalidations::count).collect(),
        clients_max: config.clients_max,
        settings: settings(config),
        clock: clock.clone(),
    }
}

/// The parts of one event loop.
struct Parts {
    poller: Poller,
    mailbox: Mailbox<LoopMessage>,
    core: Core,
}

/// The record file of a proxy that may still fail to start: it is removed on drop.
pub(super) struct NewRecords(Option<Writer>);

impl NewRecords {
    fn create(config: &Config, clock: &Clock) -> io::Result<NewRecords> {
        let create =
            |records: &RecordsConfig| Writer::create(&records.directory, Program::Proxy, records.sample, clock);
        config.records.as_ref().map(create).transpose().map(NewRecords)
    }

    /// The writer of a proxy that has started.
    pub(super) fn keep(mut self) -> Option<Writer> {
        self.0.take()
    }
}

impl Drop for NewRecords {
    fn drop(&mut self) {
        if let Some(writer) = self.0.take() {
            writer.discard();
        }
    }
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

/// The accepting thread, with its mailbox.
fn prepare_accepting(
    listeners: Vec<Listening>,
    loops: &[Post<LoopMessage>],
    (clients_open, addresses): (Arc<AtomicUsize>, Addresses),
    config: &Config,
    counters: Arc<AcceptCounters>,
) -> io::Result<(Post<AcceptMessage>, Worker<()>)> {
    let poller = Poller::new()?;
    let (post, mailbox) = mailbox(&poller, accept::MAILBOX)?;
    let loops = loops.iter().cloned().map(LoopPost::new).collect();
    let header = &config.transport.proxy_protocol;
    let relays = Relays {
        listeners: listeners.iter().map(|listening| header.applies_to(listening.configured())).collect(),
        networks: header.from.clone(),
    };
    let configured = Listeners::new(config, &listeners);
    let acceptor = Acceptor {
        listeners,
        poller,
        mailbox,
        loops,
        clients_open,
        clients_max: config.clients_max,
        limits: config.client_limits.clone(),
        configured,
        relays,
        addresses,
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
}

/// Parses the backends' addresses and resolves the names among them.
fn resolve_backends(
    config: &Config,
    auth: &Auth,
    itself: Option<&Running>,
    counters: Arc<NameCounters>,
    clock: &Clock,
) -> Result<Resolved, ProxyError> {
    let targets = targets(&config.backend_names(), &config.transport.tls)?;
    let TransportConfig { lookup, resolve_every, .. } = config.transport.clone();
    let servers = Servers::new(&targets);
    let mut resolver = Resolver::new(&targets, resolve_every, lookup, clock, servers.clone(), counters);
    let warnings = resolver.resolve_all(itself.map(|old| &old.servers));
    Ok(Resolved { backends: backends(config, auth, &targets, &resolver), servers, resolver, warnings })
}

/// All backends, in the order of their numbers, with the addresses that are known so far.
fn backends(config: &Config, auth: &Auth, targets: &[Target], resolver: &Resolver) -> Vec<Backend> {
    let reporter = resolver.reporter();
    let with_login = config.pools.iter().zip(&auth.logins);
    let logins: Vec<_> = with_login.flat_map(|(pool, login)| vec![login.clone(); pool.servers.len()]).collect();
    let backend_of = |(index, ((pool, server), target)): (usize, ((&PoolConfig, &ServerConfig), &Target))| Backend {
        index: index as u16,
        name: server.address.as_str().into(),
        is_drained: server.is_drained,
        endpoint: target.fixed().or_else(|| resolver.endpoint(index)),
        reporter: reporter.clone(),
        login: logins[index].clone(),
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

/// The journal of the loop with this index.
fn journal(
    config: &Config,
    stats: &Stats,
    (log, traces): (Option<&Log>, Option<&Traces>),
    writer: Option<&Writer>,
    index: usize,
) -> Journal {
    let counters = &stats.tally.loops[index];
    let sampler = config.traces.as_ref().zip(traces);
    Journal::new(
        counters.clone(),
        stats.hot_keys.as_ref().map(|board| board.counter(index)),
        SlowLog::new(&config.log, config.loops, log.map(|log| &log.queue), counters),
        sampler.map(|(config, traces)| TraceSampler::new(config, traces.queue.clone(), index)),
        writer.map(Writer::sender),
        index as u8,
    )
}

/// The parts of the loop with this index, and its mailbox.
fn build(
    config: &Config,
    router: &Arc<Router>,
    backends: &[Backend],
    stats: &Stats,
    pending: &[PendingInvalidations],
    (journal, rate_limits, near_caches, key_versions): (
        Journal,
        Option<RateLimits>,
        Option<Box<NearCaches>>,
        KeyVersions,
    ),
    index: usize,
) -> Result<(Post<LoopMessage>, Parts), ProxyError> {
    let poller = Poller::new()?;
    let (post, mailbox) = mailbox(&poller, MAILBOX)?;
    let settings = SessionSettings::new(config);
    let (own, clock) = (&stats.tally.loops[index], &stats.clock);
    for (backend, counters) in backends.iter().zip(&own.backends) {
        counters.is_drained.set(backend.is_drained.into());
    }
    let connection = |(number, (backend, purpose)): (usize, (usize, Purpose))| {
        BackendConnection::new(backends[backend].clone(), purpose, Token(number), own.clone())
    };
    let connections = connections_of_loop(config, index).into_iter().enumerate().map(connection).collect();
    let core = Core {
        settings,
        clock: clock.clone(),
        turn: clock.now(),
        progressed: Nanos::UNSET,
        jobs: Jobs::new(config, key_versions),
        answered: Vec::new(),
        rate_limits,
        rewriter: Rewriter::new(router),
        near_caches,
        dispatcher: Dispatcher::new(
            config,
            router.clone(),
            index,
            Connections::new(connections),
            pending.to_vec(),
            own,
        ),
        journal,
        stats: stats.clone(),
    };
    Ok((post, Parts { poller, mailbox, core }))
}

/// The sources of the metrics.
fn subject(config: &Config, stats: &Stats) -> Subject {
    Subject {
        tally: stats.tally.clone(),
        counts: stats.counts.clone(),
        invalidations_pending: stats.invalidations_pending.clone(),
        clients_max: config.clients_max,
        dispatch: config.discipline.name(),
        hot_keys: stats.hot_keys.clone().filter(|_| config.operations.hot_keys_metrics),
    }
}

/// The metrics server on this socket, and its thread.
fn prepare_metrics(
    socket: Listening,
    config: &Config,
    subject: Subject,
    posts: &[Post<LoopMessage>],
    is_stopping: Arc<AtomicBool>,
    clock: &Clock,
) -> io::Result<MetricsThread> {
    let operations = &config.operations;
    let limits = ScrapeLimits { time: operations.metrics_timeout, connections: operations.metrics_connections };
    let requests = posts.iter().map(histograms_of).collect();
    let health = Health::new(config, subject.tally.loops.clone(), is_stopping);
    let (server, serving) = MetricsServer::new(socket, limits, subject, requests, health, clock.clone())?;
    let thread = Worker::prepare("metrics", move || {
        serving.run();
        Ok(())
    })?;
    Ok(MetricsThread { server, thread })
}

/// Requests one loop's histograms.
fn histograms_of(post: &Post<LoopMessage>) -> RequestHistograms {
    let post = post.clone();
    Box::new(move |request| post.send(LoopMessage::Histograms(Box::new(request))).is_ok())
}
