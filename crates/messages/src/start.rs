//! Starts the service and ends it: first no new connections, then what is under way, then the lanes.

use crate::config::{Config, Dispatch};
use crate::database::cleanup::Sweeper;
use crate::database::connection::Database;
use crate::database::peers::Neighbours;
use crate::database::redelivery::Mover;
use crate::http::accept::Accepting;
use crate::http::handle::Service;
use crate::http::router;
use crate::http::tokens::Tokens;
use crate::observe::client_connections::Connections;
use crate::observe::journal::Journal;
use crate::observe::record_file::{HAND_OVER_WITHIN, RecordFile, Rows};
use crate::path::admit::Admission;
use crate::path::dispatch::Dispatcher;
use crate::path::long_polls::Waiting;
use crate::path::memory::Memory;
use clock::Clock;
use net::ServerTls;
use records::WriterTotals;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// Why the service did not start.
#[derive(Debug, Error)]
pub enum MessagesError {
    /// The threads could not be started.
    #[error("cannot start threads: {0}")]
    Threads(std::io::Error),
    /// The address cannot be used.
    #[error("{0}: cannot listen: {1}")]
    Listen(String, std::io::Error),
    /// A setting makes no sense.
    #[error("{0}")]
    Setting(String),
    /// Records cannot be written.
    #[error("records: {0}")]
    Records(std::io::Error),
    /// Somebody has to change something before the database can be used.
    #[error("the database cannot be used: {0}")]
    Database(String),
}

/// A service that runs.
#[derive(Debug)]
pub struct Running {
    address: SocketAddr,
    is_database_there: bool,
    ending: watch::Sender<bool>,
    server: JoinHandle<()>,
    lanes: Vec<JoinHandle<()>>,
    dispatcher: Arc<Dispatcher>,
    journal: Arc<Journal>,
    record_file: RecordFile,
    end_within: Duration,
    runtime: Runtime,
}

/// Starts it. A database that is not there yet is no reason not to; one that refuses us, or has newer tables, is.
///
/// # Errors
/// When a setting makes no sense, the address is taken or the database can never be used as it is.
pub fn start(config: &Config, clock: Clock) -> Result<Running, MessagesError> {
    let (database, tls) = prepare(config)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .thread_name("messages")
        .worker_threads(threads(config))
        .enable_all()
        .build()
        .map_err(MessagesError::Threads)?;
    let listener = runtime
        .block_on(TcpListener::bind(&config.listen))
        .map_err(|error| MessagesError::Listen(config.listen.clone(), error))?;
    let address = listener.local_addr().map_err(|error| MessagesError::Listen(config.listen.clone(), error))?;
    let is_database_there = match &database {
        Some(database) => reach(&runtime, database, &clock)?,
        None => true,
    };
    let guard = runtime.enter();
    let (rows, record_file) = Rows::begin(config.records.as_ref(), &clock).map_err(MessagesError::Records)?;
    let journal = Arc::new(Journal::new(rows));
    let sweeper = Sweeper::default();
    let memory = Arc::new(Memory::new(config.limits.memory));
    let (dispatcher, lanes) = match (&database, config.dispatch) {
        (Some(database), _) => Dispatcher::start(config, database, &memory, &clock, &journal),
        (None, dispatch) => (Dispatcher::null(dispatch, &memory, &clock), Vec::new()),
    };
    tokio::spawn(hand_over(journal.clone()));
    let dispatcher = Arc::new(dispatcher);
    let (ending, told) = watch::channel(false);
    let (mover, waiting) = (Mover::default(), Waiting::new(config.limits.long_polls));
    let neighbours = Neighbours::new(waiting.clone(), clock.clone());
    if let Some(database) = database {
        tokio::spawn(neighbours.clone().run(database.clone(), journal.clone()));
        tokio::spawn(sweeper.clone().run(database.clone(), journal.clone(), config.limits.keys_kept));
        tokio::spawn(mover.clone().run(database, journal.clone(), neighbours.clone()));
    }
    let admission = Admission {
        memory: memory.clone(),
        dispatcher: dispatcher.clone(),
        waiting,
        neighbours,
        sweeper,
        mover,
        clock: clock.clone(),
        poll_interval: config.poll_interval,
        ending: told.clone(),
    };
    let connections = Arc::new(Connections::new(config.clients.connections_max));
    let service = Service {
        admission,
        memory,
        journal: journal.clone(),
        limits: config.limits,
        clients: config.clients,
        connections: connections.clone(),
        tokens: Tokens::new(&config.tokens),
        metrics_need_token: config.metrics_need_token,
        clock: clock.clone(),
    };
    let accepting = Accepting {
        router: router::router(Arc::new(service)),
        journal: journal.clone(),
        clock,
        clients: config.clients,
        connections,
        tls,
        ending: told,
    };
    let server = tokio::spawn(accepting.run(listener));
    drop(guard);
    let end_within = config.end_within;
    Ok(Running {
        address,
        is_database_there,
        ending,
        server,
        lanes,
        dispatcher,
        journal,
        record_file,
        end_within,
        runtime,
    })
}

impl Running {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether the database answered at the start.
    pub fn is_database_there(&self) -> bool {
        self.is_database_there
    }

    /// Takes no more connections, ends polls, answers what is under way, and ends. What became of the records, if there are any.
    ///
    /// # Errors
    /// When the disk refused records; everything else was done.
    pub fn stop(self) -> Result<Option<WriterTotals>, MessagesError> {
        // They listen as long as the server runs; when it has ended already, there is nobody to tell.
        let _ = self.ending.send(true);
        let Running { server, lanes, dispatcher, journal, record_file, end_within, runtime, .. } = self;
        runtime.block_on(async {
            let _ = tokio::time::timeout(end_within, server).await;
            dispatcher.close();
            let all = async {
                for lane in lanes {
                    let _ = lane.await;
                }
            };
            let _ = tokio::time::timeout(end_within, all).await;
        });
        runtime.shutdown_background();
        journal.rows.end();
        record_file.close().map_err(MessagesError::Records)
    }
}

/// Whether the database is there. One that is not may come; one that refuses us is of no use.
fn reach(runtime: &Runtime, database: &Database, clock: &Clock) -> Result<bool, MessagesError> {
    match runtime.block_on(database.connect(clock)) {
        Ok(_) => Ok(true),
        Err(error) if error.is_lasting() => Err(MessagesError::Database(error.to_string())),
        Err(error) => {
            eprintln!("waystage: messages: the database is not there yet: {error}");
            Ok(false)
        }
    }
}

/// Hands over records now and then, until the runtime ends.
async fn hand_over(journal: Arc<Journal>) {
    loop {
        tokio::time::sleep(HAND_OVER_WITHIN).await;
        journal.rows.flush();
    }
}

/// Whether it could be started, as far as that can be told without a socket: numbers, the database's URL, the files of TLS.
///
/// # Errors
/// The first thing that makes no sense or cannot be read.
pub fn check(config: &Config) -> Result<(), MessagesError> {
    prepare(config).map(|_| ())
}

fn prepare(config: &Config) -> Result<(Option<Database>, Option<TlsAcceptor>), MessagesError> {
    check_numbers(config)?;
    let database = match config.dispatch {
        Dispatch::None { .. } => None,
        _ => Some(
            Database::parse(&config.database, config.database_authority.as_deref())
                .map_err(|error| MessagesError::Setting(format!("--database: {error}")))?,
        ),
    };
    let tls = match &config.tls {
        None => None,
        Some(files) => {
            let tls = ServerTls::load(files, None).map_err(|error| MessagesError::Setting(error.to_string()))?;
            Some(TlsAcceptor::from(tls.config()))
        }
    };
    Ok((database, tls))
}

fn threads(config: &Config) -> usize {
    let half = || std::thread::available_parallelism().map_or(1, |processors| processors.get().div_ceil(2));
    config.threads.unwrap_or_else(half)
}

fn check_numbers(config: &Config) -> Result<(), MessagesError> {
    if let Some(threads) = config.threads.filter(|threads| !(1..=1000).contains(threads)) {
        return Err(MessagesError::Setting(format!("--threads: {threads} is not a number from 1 to 1000")));
    }
    let (what, number) = match config.dispatch {
        Dispatch::Fused { lanes } => ("--lanes", lanes),
        Dispatch::Pool { connections } => ("--connections", connections),
        Dispatch::None { .. } => return Ok(()),
    };
    if !(1..=1000).contains(&number) {
        return Err(MessagesError::Setting(format!("{what}: {number} is not a number from 1 to 1000")));
    }
    Ok(())
}
