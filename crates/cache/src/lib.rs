//! A small memcached-compatible server whose service time is configured: a backend with a known queueing model.
//!
//! One thread, one store, no locks. The path of a request:
//!
//! ```text
//! event_loop -> session -> handler -> service            when the request will be served
//!                               |  -> execute or meta -> operations, arithmetic -> store (expiry, recency)
//!                               |  -> statistics
//!               session <- reply, delayed until the request is served, in the order of the requests
//!               journal     its record
//! ```
//!
//! Requests about the server itself (`version`, `verbosity`, `stats`, `mn`, `quit`) and malformed requests take no service time.

mod arithmetic;
mod config;
mod event_loop;
mod execute;
mod expiry;
mod handler;
mod journal;
mod meta;
mod operations;
mod recency;
mod service;
mod session;
mod statistics;
mod store;

pub use config::{Config, ConfigError, RecordsConfig, SERVICE_TIME_MAXIMUM, ServiceTime, Stall, WORKERS_MAXIMUM};
pub use statistics::Counters;

use clock::Clock;
use event_loop::{EventLoop, LISTENER, MAILBOX, Stop, TIMER};
use handler::Handler;
use journal::Journal;
use net::{BindError, Poller, Post, Timer};
use records::{Program, Writer};
use std::io;
use std::net::SocketAddr;
use std::thread::JoinHandle;

/// A running cache.
#[derive(Debug)]
pub struct Running {
    address: SocketAddr,
    post: Post<Stop>,
    thread: JoinHandle<io::Result<Handler>>,
    writer: Option<Writer>,
}

/// The counts of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Counters since the start, or since the last `stats reset`.
    pub counters: Counters,
    /// Records written.
    pub records_written: u64,
    /// Records dropped because the disk was too slow.
    pub records_dropped: u64,
}

/// The reason why a cache cannot start, or failed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the message of each variant describes it")]
pub enum CacheError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Bind(#[from] BindError),
    #[error("cannot write records: {0}")]
    Records(io::Error),
    #[error("cannot serve: {0}")]
    Serve(#[from] io::Error),
    #[error("the event loop panicked; this is a bug")]
    Panicked,
}

/// Opens everything and serves in its own thread.
///
/// # Errors
/// If the configuration cannot work, the address cannot be listened on, or the record file cannot be written.
pub fn start(config: &Config, clock: Clock) -> Result<Running, CacheError> {
    config.check()?;
    let mut listener = net::bind(&config.listen)?;
    let address = listener.local_addr()?;
    let poller = Poller::new()?;
    poller.add_listener(&mut listener, LISTENER)?;
    let (post, mailbox) = net::mailbox(&poller, MAILBOX)?;
    let timer = Timer::new()?;
    poller.add_timer(&timer, TIMER)?;
    let writer = match &config.records {
        None => None,
        Some(records) => {
            let created = Writer::create(&records.directory, Program::Cache, records.sample, &clock);
            Some(created.map_err(CacheError::Records)?)
        }
    };
    let journal = Journal::new(writer.as_ref().map(Writer::sender), clock.clone());
    let handler = Handler::new(config, journal, clock);
    let event_loop = EventLoop::new(poller, timer, listener, mailbox, handler, config.stall);
    let thread = std::thread::Builder::new().name("cache".into()).spawn(move || event_loop.run())?;
    Ok(Running { address, post, thread, writer })
}

impl Running {
    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Makes it answer the requests that have arrived, for at most five seconds, and stop.
    pub fn stop(&self) {
        // A full mailbox contains this message already, and a loop that has ended needs none.
        let _ = self.post.send(Stop);
    }

    /// Waits until it has stopped and its record file is complete.
    ///
    /// # Errors
    /// If the event loop failed or the record file could not be written.
    pub fn join(self) -> Result<Totals, CacheError> {
        let Handler { counters, journal, .. } = self.thread.join().map_err(|_| CacheError::Panicked)??;
        let lost = journal.missing();
        // The writer waits until every sender is dropped.
        drop(journal);
        let Some(writer) = self.writer else { return Ok(Totals { counters, ..Totals::default() }) };
        let totals = writer.close(lost).map_err(CacheError::Records)?;
        Ok(Totals { counters, records_written: totals.written, records_dropped: totals.dropped })
    }
}
