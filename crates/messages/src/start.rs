//! Starts and stops the service. Stopping closes the listening socket first, then finishes requests in progress, then stops the lanes.

use crate::config::{Config, DispatchConfig};
use crate::database::cleanup::Cleanup;
use crate::database::connection::Database;
use crate::database::monitor;
use crate::database::peers::Peers;
use crate::database::redelivery::Redelivery;
use crate::http::accept::Acceptor;
use crate::http::browsers::Browsers;
use crate::http::handle::Service;
use crate::http::router::Part;
use crate::http::routes::Routes;
use crate::http::tokens::Tokens;
use crate::observe::client_connections::ClientConnections;
use crate::observe::journal::Journal;
use crate::observe::record_file::{FLUSH_INTERVAL, RecordFile, RecordSink};
use crate::path::admit::Admission;
use crate::path::caller::AddressShares;
use crate::path::dispatch::Dispatcher;
use crate::path::health::Health;
use crate::path::long_polls::LongPolls;
use crate::path::memory::Memory;
use clock::Clock;
use net::ServerTls;
use records::WriterTotals;
use records::report;
use rustls::ServerConfig;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The largest number of connections to `admin-listen`.
const ADMIN_CONNECTIONS_MAX: usize = 100;
/// How long the start waits for the schema. Longer than connecting to an unresponsive host takes, so that such a host is reported as that.
const START_PATIENCE: Duration = Duration::from_secs(15);
/// How long lanes have at least to close their connections.
const LANES_CLOSE: Duration = Duration::from_millis(500);

/// Why the service did not start.
#[derive(Debug, Error)]
pub enum MessagesError {
    /// The threads could not be started.
    #[error("cannot start threads: {0}")]
    Threads(std::io::Error),
    /// The address cannot be used.
    #[error("cannot listen on {0}: {1}; give another --listen")]
    Listen(String, std::io::Error),
    /// A setting has an invalid value.
    #[error("{0}")]
    Setting(String),
    /// Records cannot be written.
    #[error("records: {0}")]
    Records(std::io::Error),
    /// The database refuses the service until its configuration changes.
    #[error("the database cannot be used: {0}")]
    Database(String),
}

/// A running service.
#[derive(Debug)]
pub struct RunningService {
    address: SocketAddr,
    admin_address: Option<SocketAddr>,
    tokens: Tokens,
    /// Replaces the certificate. None: clients use no TLS.
    tls: Option<watch::Sender<Arc<ServerConfig>>>,
    is_database_reachable: bool,
    shutdown: watch::Sender<bool>,
    server: JoinHandle<()>,
    lanes: Vec<JoinHandle<()>>,
    dispatcher: Arc<Dispatcher>,
    journal: Arc<Journal>,
    record_file: RecordFile,
    shutdown_timeout: Duration,
    runtime: Runtime,
}

/// Starts the service. It also starts if the database is unreachable, but not if the database refuses it or has a newer schema.
///
/// # Errors
///
/// When a setting is invalid, the address is in use or the database refuses the service.
pub fn start(config: &Config, clock: Clock) -> Result<RunningService, MessagesError> {
    let (database, tls) = prepare(config)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .thread_name("messages")
        .worker_threads(threads(config))
        .enable_all()
        .build()
        .map_err(MessagesError::Threads)?;
    let (listener, address) = runtime.block_on(listen(&config.listen))?;
    let admin = config.admin_listen.as_ref().map(|address| runtime.block_on(listen(address))).transpose()?;
    let is_database_reachable = match &database {
        Some(database) => connect_once(&runtime, database, &clock)?,
        None => true,
    };
    let guard = runtime.enter();
    let (rows, record_file) = RecordSink::begin(config.records.as_ref(), &clock).map_err(MessagesError::Records)?;
    let limits = database.as_ref().map(Database::limits).unwrap_or_default();
    let journal = Arc::new(Journal::new(rows, limits));
    let health = Arc::new(Health::new(clock.clone(), database.is_some(), is_database_reachable));
    let memory = Arc::new(Memory::new(config.limits.memory));
    let (dispatcher, lanes) = match (&database, config.dispatch) {
        (Some(database), _) => Dispatcher::start(config, database, &memory, &clock, &journal, &health),
        (None, dispatch) => (Dispatcher::null(dispatch, &memory, &clock), Vec::new()),
    };
    tokio::spawn(flush_records(journal.clone()));
    let dispatcher = Arc::new(dispatcher);
    let (shutdown, shutdown_requested) = watch::channel(false);
    let BackgroundLoops { long_polls, peers, cleanup, redelivery } =
        start_loops(config, database, &clock, &journal, &health);
    let admission = Admission {
        memory: memory.clone(),
        dispatcher: dispatcher.clone(),
        long_polls,
        peers,
        cleanup,
        redelivery,
        clock: clock.clone(),
        poll_interval: config.poll_interval,
        shutdown: shutdown_requested.clone(),
    };
    let connections = Arc::new(ClientConnections::new(config.clients.connections_max));
    let tokens = Tokens::new(&config.tokens, config.limits.memory_per_client);
    let (tls, certificate) = tls.map(watch::channel).unzip();
    let addresses = [&config.listen].into_iter().chain(&config.admin_listen);
    let service = Arc::new(Service {
        admission,
        memory,
        journal: journal.clone(),
        health,
        limits: config.limits,
        clients: config.clients,
        connections: connections.clone(),
        operators: Arc::new(ClientConnections::new(ADMIN_CONNECTIONS_MAX)),
        tokens: tokens.clone(),
        browsers: Browsers::new(&config.browsers, addresses, !config.tokens.is_empty(), config.tls.is_some()),
        metrics_need_token: config.metrics_need_token,
        clock: clock.clone(),
    });
    let part = if admin.is_some() { Part::Clients } else { Part::All };
    let acceptor = Acceptor {
        routes: Routes::new(service.clone(), part),
        journal: journal.clone(),
        clock,
        clients: config.clients,
        connections,
        shares: Arc::new(AddressShares::new(config.limits.memory_per_client)),
        tls: certificate,
        shutdown: shutdown_requested,
    };
    let admin_address = admin.as_ref().map(|(_, address)| *address);
    let server = tokio::spawn(serve(acceptor, listener, service, admin.map(|(listener, _)| listener)));
    drop(guard);
    let shutdown_timeout = config.shutdown_timeout;
    Ok(RunningService {
        address,
        admin_address,
        tokens,
        tls,
        is_database_reachable,
        shutdown,
        server,
        lanes,
        dispatcher,
        journal,
        record_file,
        shutdown_timeout,
        runtime,
    })
}

async fn listen(address: &str) -> Result<(TcpListener, SocketAddr), MessagesError> {
    let failed = |error| MessagesError::Listen(address.to_string(), error);
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

/// Serves clients and, at an address of their own, operators. Operators have their own limit of connections, so that clients cannot use
/// it up.
async fn serve(clients: Acceptor, listener: TcpListener, service: Arc<Service>, admin: Option<TcpListener>) {
    let Some(admin) = admin else { return clients.run(listener).await };
    let connections = service.operators.clone();
    let operators = Acceptor { routes: Routes::new(service, Part::Admin), connections, ..clients.clone() };
    tokio::join!(clients.run(listener), operators.run(admin));
}

/// The parts of the background loops that requests use.
struct BackgroundLoops {
    long_polls: Arc<LongPolls>,
    peers: Arc<Peers>,
    cleanup: Cleanup,
    redelivery: Redelivery,
}

/// Starts the background loops, if there is a database.
fn start_loops(
    config: &Config,
    database: Option<Database>,
    clock: &Clock,
    journal: &Arc<Journal>,
    health: &Arc<Health>,
) -> BackgroundLoops {
    let (redelivery, cleanup) = (Redelivery::default(), Cleanup::default());
    let long_polls = LongPolls::new(config.limits.long_polls);
    let peers = Peers::new(long_polls.clone(), clock.clone(), journal.limits.clone());
    if let Some(database) = database {
        let (journal, health) = (|| journal.clone(), || health.clone());
        tokio::spawn(monitor::run(database.liveness.clone(), health()));
        tokio::spawn(peers.clone().run(database.clone(), journal(), health()));
        tokio::spawn(cleanup.clone().run(database.clone(), journal(), health(), config.limits.key_retention));
        tokio::spawn(redelivery.clone().run(database, journal(), health(), peers.clone()));
    }
    BackgroundLoops { long_polls, peers, cleanup, redelivery }
}

impl RunningService {
    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address for operators, if they have their own.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin_address
    }

    /// Replaces the tokens, and reads the certificate and its key again. Other settings stay as they are. Requests that have begun keep
    /// their token, and connections their certificate.
    ///
    /// # Errors
    ///
    /// When the certificate cannot be read, or when tokens or TLS would be switched on or off, which needs a restart. Nothing changes then.
    pub fn reload(&self, config: &Config) -> Result<(), MessagesError> {
        let refuse = |what: &str| {
            Err(MessagesError::Setting(format!("{what} cannot be switched on or off by a reload; restart the service")))
        };
        if self.tokens.is_empty() != config.tokens.is_empty() {
            return refuse("tokens");
        }
        match (&self.tls, load_tls(config)?) {
            (Some(certificate), Some(tls)) => drop(certificate.send_replace(tls)),
            (None, None) => {}
            _ => return refuse("TLS"),
        }
        self.tokens.replace(&config.tokens);
        Ok(())
    }

    /// Whether the database answered at the start.
    pub fn is_database_reachable(&self) -> bool {
        self.is_database_reachable
    }

    /// Stops the service: accepts no more connections, ends long polls and finishes requests in progress. Returns how many records were
    /// written and dropped, if records are configured.
    ///
    /// # Errors
    ///
    /// When the disk refused records. Everything else is done.
    pub fn stop(self) -> Result<Option<WriterTotals>, MessagesError> {
        // Sending fails only if all receivers have ended already.
        let _ = self.shutdown.send(true);
        let RunningService { server, lanes, dispatcher, journal, record_file, shutdown_timeout, runtime, .. } = self;
        runtime.block_on(finish(server, || dispatcher.close(), lanes, shutdown_timeout));
        runtime.shutdown_background();
        journal.rows.end();
        record_file.close().map_err(MessagesError::Records)
    }
}

/// Waits for requests in progress and then for the lanes, for this long in all. If the requests use it up, the lanes still get a moment, which
/// suffices for a lane without a statement to close its connection.
async fn finish(server: JoinHandle<()>, close: impl FnOnce(), lanes: Vec<JoinHandle<()>>, limit: Duration) {
    let mut deadline = pin!(tokio::time::sleep(limit));
    tokio::select! {
        // An error is a panic, which has been reported.
        _ = server => {}
        () = &mut deadline => {}
    }
    close();
    let all = async {
        for lane in lanes {
            let _ = lane.await;
        }
    };
    let ends = async { tokio::join!(deadline, tokio::time::sleep(LANES_CLOSE)) };
    tokio::select! {
        () = all => {}
        _ = ends => {}
    }
}

/// Whether the database can be reached. An unreachable database may come up later; one that refuses the service is an error. A step of the
/// schema that takes longer, or a wait for the step of another program, goes on beside the service, which can be stopped meanwhile.
fn connect_once(runtime: &Runtime, database: &Database, clock: &Clock) -> Result<bool, MessagesError> {
    let (database, clock) = (database.clone(), clock.clone());
    let connecting = runtime.spawn(async move { database.connect(&clock).await.map(drop) });
    let connected = runtime.block_on(async { tokio::time::timeout(START_PATIENCE, connecting).await });
    let reason = match connected {
        Ok(Ok(Ok(()))) => return Ok(true),
        Ok(Ok(Err(error))) if error.is_lasting() => return Err(MessagesError::Database(error.to_string())),
        Ok(Ok(Err(error))) => error.to_string(),
        Ok(Err(panicked)) => panicked.to_string(),
        Err(_) => {
            "its schema is being updated, another program has locked it, or the server has stopped responding".into()
        }
    };
    report(format_args!("waystage: messages: the database cannot be used yet, trying again later: {reason}"));
    Ok(false)
}

/// Passes on collected records at an interval, until the runtime ends.
async fn flush_records(journal: Arc<Journal>) {
    loop {
        tokio::time::sleep(FLUSH_INTERVAL).await;
        journal.rows.flush();
    }
}

/// Checks everything that needs no socket: numbers, the database URL, TLS files.
///
/// # Errors
///
/// The first setting that is invalid or cannot be read.
pub fn check(config: &Config) -> Result<(), MessagesError> {
    prepare(config).map(|_| ())
}

fn prepare(config: &Config) -> Result<(Option<Database>, Option<Arc<ServerConfig>>), MessagesError> {
    check_numbers(config)?;
    let database = match config.dispatch {
        DispatchConfig::None { .. } => None,
        _ => Some(database(config)?),
    };
    Ok((database, load_tls(config)?))
}

/// The certificate, if clients use TLS.
fn load_tls(config: &Config) -> Result<Option<Arc<ServerConfig>>, MessagesError> {
    let load = |files| ServerTls::load(files, None).map_err(|error| MessagesError::Setting(error.to_string()));
    Ok(config.tls.as_ref().map(load).transpose()?.map(|tls| tls.config()))
}

/// The database of a configuration.
pub(crate) fn database(config: &Config) -> Result<Database, MessagesError> {
    Database::parse(&config.database, config.database_authority.as_deref(), config.replication_timeout).map_err(
        |error| {
            MessagesError::Setting(format!(
                "--database: {error}; give postgres://USER:PASSWORD@HOST:PORT/NAME or host=/run/postgresql"
            ))
        },
    )
}

fn threads(config: &Config) -> usize {
    let half = || std::thread::available_parallelism().map_or(1, |cores| cores.get().div_ceil(2));
    config.threads.unwrap_or_else(half)
}

fn check_numbers(config: &Config) -> Result<(), MessagesError> {
    if let Some(threads) = config.threads.filter(|threads| !(1..=1000).contains(threads)) {
        return Err(MessagesError::Setting(format!("--threads: {threads} is not a number from 1 to 1000")));
    }
    let (what, number) = match config.dispatch {
        DispatchConfig::Fused { lanes } => ("--lanes", lanes),
        DispatchConfig::Pool { connections } => ("--connections", connections),
        DispatchConfig::None { .. } => return Ok(()),
    };
    if !(1..=1000).contains(&number) {
        return Err(MessagesError::Setting(format!("{what}: {number} is not a number from 1 to 1000")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Time is virtual: it passes when every task waits.
    #[tokio::test(start_paused = true)]
    async fn requests_and_lanes_that_hang_hold_up_a_stop_for_the_shutdown_timeout_once() {
        let limit = Duration::from_secs(10);
        let hanging = || tokio::spawn(std::future::pending());
        let stop = finish(hanging(), || (), vec![hanging()], limit);
        assert!(tokio::time::timeout(limit + 2 * LANES_CLOSE, stop).await.is_ok(), "requests and lanes");
        let stop = finish(tokio::spawn(async {}), || (), vec![hanging()], limit);
        assert!(tokio::time::timeout(limit - LANES_CLOSE, stop).await.is_err(), "lanes have all of the time");
        let stop = finish(hanging(), || (), vec![tokio::spawn(tokio::time::sleep(limit + LANES_CLOSE / 2))], limit);
        assert!(tokio::time::timeout(limit + LANES_CLOSE / 4 * 3, stop).await.is_ok(), "lanes that end in time");
    }
}
