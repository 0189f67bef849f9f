//! Starts the threads of a proxy, and ends them in order: accept no more, finish what is in flight, close the records.

use crate::accept::{Acceptor, STOP};
use crate::backend::Backend;
use crate::backends::Backends;
use crate::config::{Config, ConfigError, PoolConfig, ServerConfig};
use crate::core::{Core, Settings};
use crate::counters::{AcceptCounters, LoopCounters};
use crate::debts::Debts;
use crate::dispatch::{Dispatch, Line};
use crate::event_loop::{EventLoop, MAILBOX, Message};
use crate::hot_keys::HotKeysBoard;
use crate::jobs::Jobs;
use crate::journal::Journal;
use crate::local::{Local, settings};
use crate::metrics::{ServerName, Subject};
use crate::metrics_server::MetricsServer;
use crate::peer::{Peer, PeerLimits};
use clock::Clock;
use net::{Mailbox, Poller, Post, Token, bind, mailbox, resolve};
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
    /// Where clients connect.
    pub address: SocketAddr,
    /// Where metrics are served.
    pub metrics_address: Option<SocketAddr>,
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
    Address(#[from] net::BindError),
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
    let addresses = config.backends().map(|(_, server)| resolve(&server.address)).collect::<Result<Vec<_>, _>>()?;
    let listener = bind(&config.listen)?;
    let address = listener.local_addr()?;
    let writer = match &config.records {
        Some(records) => Some(Writer::create(&records.directory, Program::Proxy, records.sample, &clock)?),
        None => None,
    };
    let counters: Vec<_> = (0..config.loops)
        .map(|_| Arc::new(LoopCounters::new(config.pools.len(), addresses.len(), Line::queues(&config).len())))
        .collect();
    let debts: Vec<Arc<Debts>> = addresses.iter().map(|_| Arc::default()).collect();
    let accept_counters = Arc::new(AcceptCounters::default());
    let local = Local {
        loops: counters.clone(),
        accept: accept_counters.clone(),
        hot_keys: HotKeysBoard::new(config.loops, config.operations.hot_keys, &clock),
        servers: config.backend_names_apart(),
        replicas: config.pools[0].replicas,
        debts,
        clients_max: config.clients_max,
        settings: settings(&config),
        started: clock.now(),
        clock: clock.clone(),
    };
    let clients_open = Arc::new(AtomicUsize::new(0));
    let (mut posts, mut loops) = (Vec::new(), Vec::new());
    for index in 0..config.loops {
        let (post, parts) = build(&config, &addresses, &local, writer.as_ref(), index)?;
        let event_loop = EventLoop::new(parts.poller, parts.mailbox, parts.core, clients_open.clone());
        loops.push(Builder::new().name(format!("loop-{index}")).spawn(move || event_loop.run())?);
        posts.push(post);
    }
    let metrics = start_metrics(&config, &posts, &local)?;
    let poller = Poller::new()?;
    let (stop_accepting, stop) = mailbox(&poller, STOP)?;
    let (loops_posts, clients_max) = (posts.clone(), config.clients_max);
    let acceptor =
        Acceptor { listener, poller, stop, loops: loops_posts, clients_open, clients_max, counters: accept_counters };
    let acceptor = Builder::new().name("accept".into()).spawn(move || acceptor.run())?;
    let metrics_address = metrics.as_ref().and_then(MetricsServer::address);
    Ok(Running {
        address,
        metrics_address,
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

/// The parts of the loop with this index, and how to send it messages.
fn build(
    config: &Config,
    addresses: &[SocketAddr],
    local: &Local,
    writer: Option<&Writer>,
    index: usize,
) -> Result<(Post<Message>, Parts), ProxyError> {
    let poller = Poller::new()?;
    let (post, mailbox) = mailbox(&poller, MAILBOX)?;
    let settings = Settings::new(config);
    let (own, clock) = (&local.loops[index], &local.clock);
    let peers = peers(config, addresses, &settings.wire);
    let connection =
        |(number, backend): (usize, usize)| Backend::new(peers[backend].clone(), Token(number), own.clone());
    let connections = Line::layout(config, index).into_iter().enumerate().map(connection).collect();
    let line = Line::new(config, index, own);
    let core = Core {
        settings,
        clock: clock.clone(),
        turn: clock.now(),
        jobs: Jobs::default(),
        finished: Vec::new(),
        dispatch: Dispatch::new(config, line, Backends::new(connections), &local.debts, own),
        journal: Journal::new(
            own.clone(),
            local.hot_keys.as_ref().map(|board| board.counter(index)),
            writer.map(Writer::sender),
            index as u8,
        ),
        local: local.clone(),
    };
    Ok((post, Parts { poller, mailbox, core }))
}

/// All backends, in the order of their numbers.
fn peers(config: &Config, addresses: &[SocketAddr], limits: &Limits) -> Vec<Peer> {
    let peer = |(index, ((pool, server), address)): (usize, ((&PoolConfig, &ServerConfig), &SocketAddr))| Peer {
        index: index as u16,
        name: server.address.as_str().into(),
        address: *address,
        limits: PeerLimits {
            timeouts: pool.timeouts,
            window: config.backend_window,
            buffer_bytes: config.backend_buffer_bytes,
            reply_bytes: config.reply_bytes,
            // A value that other ways than this proxy have stored may be larger than what it would pass on.
            wire: Limits { value_bytes: config.reply_bytes, ..limits.clone() },
        },
    };
    config.backends().zip(addresses).enumerate().map(peer).collect()
}

fn start_metrics(config: &Config, posts: &[Post<Message>], local: &Local) -> Result<Option<MetricsServer>, ProxyError> {
    let Some(address) = &config.metrics else { return Ok(None) };
    let server_name = |(pool, server): (&PoolConfig, &ServerConfig)| ServerName {
        pool: pool.name.clone(),
        address: server.address.clone(),
    };
    let subject = Subject {
        loops: local.loops.clone(),
        accept: local.accept.clone(),
        pools: config.pools.iter().map(|pool| pool.name.clone()).collect(),
        servers: config.backends().map(server_name).collect(),
        debts: local.debts.clone(),
        queues: Line::queues(config),
        clients_max: config.clients_max,
        dispatch: config.discipline.name(),
        started_unix_ns: clock::unix_now(),
        hot_keys: local.hot_keys.clone().filter(|_| config.operations.hot_keys_metrics),
    };
    MetricsServer::start(address, subject, posts.to_vec()).map(Some).map_err(ProxyError::Metrics)
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
        let until = self.clock.now() + self.config.longest_timeout() + DRAIN_GRACE;
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
        if let Some(metrics) = self.metrics {
            metrics.stop();
        }
        let records = self.writer.map(|writer| writer.close(lost)).transpose()?;
        let requests = self.counters.iter().map(|counters| counters.requests_total()).sum();
        Ok(Totals { requests, lost, records })
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
