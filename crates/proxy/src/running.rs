//! Starts the threads of a proxy, and ends them in order: accept no more, finish what is in flight, close the records.

use crate::accept::{Acceptor, STOP};
use crate::backend::Backend;
use crate::backends::Backends;
use crate::config::{Config, ConfigError};
use crate::core::{Core, Settings};
use crate::counters::{AcceptCounters, LoopCounters, NameCounters};
use crate::dispatch::{Dispatch, Line};
use crate::event_loop::{EventLoop, MAILBOX, Message};
use crate::job::Jobs;
use crate::journal::Journal;
use crate::local::Local;
use crate::metrics_server::{MetricsServer, Sources};
use crate::peer::{Peer, PeerLimits};
use crate::resolve::{Resolver, Resolving};
use crate::transport::{Target, TransportConfig};
use clock::Clock;
use net::{Address, AddressError, Listening, Mailbox, Poller, Post, Token, mailbox};
use records::{Program, Writer, WriterTotals};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;
use wire::Limits;

/// Beyond the backends' timeout, clients get so long to take their last replies.
const DRAIN_GRACE: Duration = Duration::from_secs(1);

/// A proxy that serves.
pub struct Running {
    /// Where clients connect, with the ports that were taken.
    pub listening: Vec<Address>,
    /// Where metrics are served.
    pub metrics_address: Option<SocketAddr>,
    /// What is wrong, though it serves; a line each.
    pub warnings: Vec<String>,
    resolving: Resolving,
    config: Config,
    clock: Clock,
    stop_accepting: Post<()>,
    acceptor: JoinHandle<io::Result<()>>,
    posts: Vec<Post<Message>>,
    loops: Vec<JoinHandle<io::Result<u64>>>,
    counters: Vec<Arc<LoopCounters>>,
    metrics: Option<MetricsServer>,
    writer: Option<Writer>,
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

/// Why a proxy cannot run.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the message of each variant says what it is")]
pub enum ProxyError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Address(#[from] AddressError),
    #[error(transparent)]
    Bind(#[from] net::BindError),
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Metrics(String),
    #[error("an event loop ended by a bug: {0}")]
    Panicked(String),
}

/// Everything that one loop is built from.
struct Parts {
    poller: Poller,
    mailbox: Mailbox<Message>,
    core: Core,
}

/// Starts a proxy; it serves when this returns.
///
/// # Errors
/// When the configuration cannot work, an address cannot be used or a file cannot be written.
pub fn start(config: Config, clock: Clock) -> Result<Running, ProxyError> {
    config.check()?;
    let targets = config.servers.iter().map(|server| Ok(Target { address: server.parse()? }));
    let targets = targets.collect::<Result<Vec<Target>, ProxyError>>()?;
    let listeners = config.listen.iter().map(|text| Ok(Listening::bind(&text.parse()?)?));
    let listeners = listeners.collect::<Result<Vec<_>, ProxyError>>()?;
    let listening = listeners.iter().map(|listening| listening.address().clone()).collect();
    let name_counters = Arc::new(NameCounters::new(targets.len()));
    let TransportConfig { lookup, resolve_every, .. } = config.transport.clone();
    let mut resolver = Resolver::new(&targets, resolve_every, lookup, &clock, name_counters.clone());
    let warnings = resolver.start_looking();
    let peers = peers(&config, &targets, &resolver);
    let writer = match &config.records {
        Some(records) => Some(Writer::create(&records.directory, Program::Proxy, records.sample, &clock)?),
        None => None,
    };
    let counters: Vec<_> =
        (0..config.loops).map(|_| Arc::new(LoopCounters::new(targets.len(), Line::queues(&config).len()))).collect();
    let clients_open = Arc::new(AtomicUsize::new(0));
    let (mut posts, mut loops) = (Vec::new(), Vec::new());
    for index in 0..config.loops {
        let (post, parts) = build(&config, &clock, &peers, &counters, writer.as_ref(), index)?;
        let event_loop = EventLoop::new(parts.poller, parts.mailbox, parts.core, clients_open.clone());
        loops.push(Builder::new().name(format!("loop-{index}")).spawn(move || event_loop.run())?);
        posts.push(post);
    }
    let accept_counters = Arc::new(AcceptCounters::default());
    let metrics = start_metrics(&config, &posts, &counters, &accept_counters, name_counters)?;
    let resolving = resolver.run(posts.clone())?;
    let poller = Poller::new()?;
    let (stop_accepting, stop) = mailbox(&poller, STOP)?;
    let (loops_posts, clients_max) = (posts.clone(), config.clients_max);
    let acceptor =
        Acceptor { listeners, poller, stop, loops: loops_posts, clients_open, clients_max, counters: accept_counters };
    let acceptor = Builder::new().name("accept".into()).spawn(move || acceptor.run())?;
    let metrics_address = metrics.as_ref().and_then(MetricsServer::address);
    Ok(Running {
        listening,
        metrics_address,
        warnings,
        resolving,
        config,
        clock,
        stop_accepting,
        acceptor,
        posts,
        loops,
        counters,
        metrics,
        writer,
    })
}

/// What connections go to, for each backend, as far as its name means something.
fn peers(config: &Config, targets: &[Target], resolver: &Resolver) -> Vec<Peer> {
    let limits = PeerLimits {
        timeout: config.backend_timeout,
        window: config.backend_window,
        buffer_bytes: config.backend_buffer_bytes,
        reply_bytes: config.reply_bytes,
        // A value that other ways than this proxy have stored may be larger than what it would pass on.
        wire: Limits { value_bytes: config.reply_bytes, ..Settings::new(config).wire },
    };
    let reporter = resolver.reporter();
    let peer = |(index, target): (usize, &Target)| Peer {
        index: index as u16,
        name: config.servers[index].as_str().into(),
        endpoint: target.fixed().or_else(|| resolver.endpoint(index)),
        reporter: reporter.clone(),
        limits: limits.clone(),
    };
    targets.iter().enumerate().map(peer).collect()
}

/// The parts of the loop with this index, and how to send it messages.
fn build(
    config: &Config,
    clock: &Clock,
    peers: &[Peer],
    counters: &[Arc<LoopCounters>],
    writer: Option<&Writer>,
    index: usize,
) -> Result<(Post<Message>, Parts), ProxyError> {
    let poller = Poller::new()?;
    let (post, mailbox) = mailbox(&poller, MAILBOX)?;
    let settings = Settings::new(config);
    let own = &counters[index];
    let connection =
        |(number, backend): (usize, usize)| Backend::new(peers[backend].clone(), Token(number), own.clone());
    let connections = Line::layout(config, index).into_iter().enumerate().map(connection).collect();
    let line = Line::new(config, index, own);
    let local = Local {
        loops: counters.to_vec(),
        servers: config.servers.clone(),
        replicas: config.replicas,
        started: clock.now(),
        clock: clock.clone(),
    };
    let core = Core {
        settings,
        clock: clock.clone(),
        turn: clock.now(),
        jobs: Jobs::default(),
        finished: Vec::new(),
        dispatch: Dispatch::new(config, line, Backends::new(connections)),
        journal: Journal::new(own.clone(), writer.map(Writer::sender), index as u8),
        local,
    };
    Ok((post, Parts { poller, mailbox, core }))
}

fn start_metrics(
    config: &Config,
    posts: &[Post<Message>],
    counters: &[Arc<LoopCounters>],
    accept_counters: &Arc<AcceptCounters>,
    names: Arc<NameCounters>,
) -> Result<Option<MetricsServer>, ProxyError> {
    let Some(address) = &config.metrics else { return Ok(None) };
    let sources = Sources {
        posts: posts.to_vec(),
        loops: counters.to_vec(),
        accept: accept_counters.clone(),
        names,
        servers: config.servers.clone(),
        queues: Line::queues(config),
    };
    MetricsServer::start(address, sources).map(Some).map_err(ProxyError::Metrics)
}

impl Running {
    /// Accepts no more clients, finishes the requests that have been read, and ends.
    ///
    /// # Errors
    /// When a thread failed or the records could not be completed.
    pub fn stop(self) -> Result<Totals, ProxyError> {
        // An acceptor that cannot be told has ended already.
        let _ = self.stop_accepting.send(());
        let accepted = joined(self.acceptor);
        let until = self.clock.now() + self.config.backend_timeout + DRAIN_GRACE;
        for (post, event_loop) in self.posts.iter().zip(&self.loops) {
            // A mailbox that is full empties, unless its loop is gone.
            while post.send(Message::Drain { until }).is_err() && !event_loop.is_finished() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        let mut lost = 0;
        for event_loop in self.loops {
            lost += joined(event_loop)?;
        }
        accepted?;
        self.resolving.stop();
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
