//! What the service is told: where the database is, where to listen, how to dispatch, and every limit.

use std::time::Duration;

/// How requests reach the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dispatch {
    /// So many lanes with a connection each, chosen by the queue's name. A free lane sends everything that waits as one statement.
    Fused {
        /// How many.
        lanes: usize,
    },
    /// One queue in front of so many connections, and a statement for each request.
    Pool {
        /// How many.
        connections: usize,
    },
}

/// What is refused, and where things are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a message's body.
    pub body_bytes: usize,
    /// Messages of one batch, and messages handed out at once.
    pub batch_messages: usize,
    /// Requests that may wait for a lane, or for the pool.
    pub waiting_requests: usize,
    /// Bytes of bodies that may wait for a lane, or for the pool.
    pub waiting_bytes: usize,
    /// Requests that may poll for a message at the same time.
    pub long_polls: usize,
    /// The longest time that a request may poll.
    pub long_poll: Duration,
    /// Messages in one statement.
    pub statement_messages: usize,
    /// Bytes of bodies in one statement.
    pub statement_bytes: usize,
}

/// Everything the service needs to know.
#[derive(Clone, Debug)]
pub struct Config {
    /// A PostgreSQL URL or `key=value` words, as libpq takes them.
    pub database: String,
    /// HOST:PORT; port 0 takes a free one.
    pub listen: String,
    /// How requests reach the database.
    pub dispatch: Dispatch,
    /// What is refused.
    pub limits: Limits,
    /// How often a long poll looks by itself for messages that came in through another service.
    pub poll_interval: Duration,
    /// How long requests under way may take when the service ends.
    pub end_within: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            body_bytes: 256 << 10,
            batch_messages: 100,
            waiting_requests: 10_000,
            waiting_bytes: 64 << 20,
            long_polls: 10_000,
            long_poll: Duration::from_secs(60),
            statement_messages: 512,
            statement_bytes: 4 << 20,
        }
    }
}

impl Default for Config {
    fn default() -> Config {
        Config {
            database: String::new(),
            listen: "127.0.0.1:8080".into(),
            dispatch: Dispatch::Fused { lanes: 2 },
            limits: Limits::default(),
            poll_interval: Duration::from_millis(500),
            end_within: Duration::from_secs(10),
        }
    }
}
