//! Starts the service and ends it: first no new connections, then what is under way, then the lanes.

use crate::admit::Admission;
use crate::config::{Config, Dispatch};
use crate::connection::Database;
use crate::dispatch::Dispatcher;
use crate::journal::Journal;
use crate::listen::{self, Service};
use crate::sweep::Sweeper;
use crate::waiting::Waiting;
use clock::Clock;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinHandle;

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
    end_within: Duration,
    runtime: Runtime,
}

/// Starts it. A database that is not there yet is no reason not to; one that refuses us, or has newer tables, is.
///
/// # Errors
/// When a setting makes no sense, the address is taken or the database can never be used as it is.
pub fn start(config: &Config, clock: Clock) -> Result<Running, MessagesError> {
    check(config)?;
    let database =
        Database::parse(&config.database).map_err(|error| MessagesError::Setting(format!("--database: {error}")))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .thread_name("messages")
        .enable_all()
        .build()
        .map_err(MessagesError::Threads)?;
    let listener = runtime
        .block_on(TcpListener::bind(&config.listen))
        .map_err(|error| MessagesError::Listen(config.listen.clone(), error))?;
    let address = listener.local_addr().map_err(|error| MessagesError::Listen(config.listen.clone(), error))?;
    let is_database_there = match runtime.block_on(database.connect()) {
        Ok(_) => true,
        Err(error) if error.is_lasting() => return Err(MessagesError::Database(error.to_string())),
        Err(error) => {
            eprintln!("waystage: messages: the database is not there yet: {error}");
            false
        }
    };
    let guard = runtime.enter();
    let journal = Arc::new(Journal::new());
    let (dispatcher, lanes) = Dispatcher::start(config, &database, &clock, &journal);
    let dispatcher = Arc::new(dispatcher);
    let (ending, told) = watch::channel(false);
    let sweeper = Sweeper::default();
    tokio::spawn(sweeper.clone().run(database, journal.clone()));
    let admission = Admission {
        dispatcher: dispatcher.clone(),
        waiting: Waiting::new(config.limits.long_polls),
        sweeper,
        clock: clock.clone(),
        poll_interval: config.poll_interval,
        ending: told.clone(),
    };
    let service = Service { admission, journal, limits: config.limits, clock };
    let server = tokio::spawn(serve(listener, listen::router(Arc::new(service)), told));
    drop(guard);
    let end_within = config.end_within;
    Ok(Running { address, is_database_there, ending, server, lanes, dispatcher, end_within, runtime })
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

    /// Takes no more connections, ends polls, answers what is under way, and ends.
    pub fn stop(self) {
        // They listen as long as the server runs; when it has ended already, there is nobody to tell.
        let _ = self.ending.send(true);
        let Running { server, lanes, dispatcher, end_within, runtime, .. } = self;
        runtime.block_on(async {
            let _ = tokio::time::timeout(end_within, server).await;
            dispatcher.close();
            for lane in lanes {
                let _ = tokio::time::timeout(end_within, lane).await;
            }
        });
        runtime.shutdown_background();
    }
}

async fn serve(listener: TcpListener, router: axum::Router, mut told: watch::Receiver<bool>) {
    use axum::serve::ListenerExt;
    // Replies are small and complete: to wait for more of them only costs time.
    let listener = listener.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    let end = async move {
        let _ = told.wait_for(|is_ending| *is_ending).await;
    };
    // It ends only when it is told to: errors of single connections are theirs.
    let _ = axum::serve(listener, router).with_graceful_shutdown(end).await;
}

fn check(config: &Config) -> Result<(), MessagesError> {
    let (what, number) = match config.dispatch {
        Dispatch::Fused { lanes } => ("--lanes", lanes),
        Dispatch::Pool { connections } => ("--connections", connections),
    };
    if !(1..=1000).contains(&number) {
        return Err(MessagesError::Setting(format!("{what}: {number} is not a number from 1 to 1000")));
    }
    Ok(())
}
