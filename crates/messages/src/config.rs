//! What the service is told: where the database is, where to listen, how to dispatch, and every limit.

mod settings;
mod token;

pub use configuration::{ConfigError, Document, FileError};
pub use settings::{DispatchKind, Settings, TokenSettings};
pub(crate) use token::hash;

pub use net::IdentityFiles;
use std::path::PathBuf;
use std::time::Duration;
pub use token::{Permission, TokenConfig};

const DAY_S: u64 = 24 * 60 * 60;

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
    /// No database: every request is answered at once, for measuring what is around the database.
    None {
        /// Bytes of the message that whoever reads gets; without it there is never one.
        body_bytes: Option<usize>,
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
    /// Bytes of bodies and replies that may be held at once, of all clients together.
    pub memory: usize,
    /// Requests that may poll for a message at the same time.
    pub long_polls: usize,
    /// The longest time that a request may poll.
    pub long_poll: Duration,
    /// Messages in one statement.
    pub statement_messages: usize,
    /// Bytes of bodies in one statement.
    pub statement_bytes: usize,
    /// The longest delay of a message, when it is sent or returned.
    pub delay: Duration,
    /// The longest expiry of a message.
    pub expiry: Duration,
    /// The longest lease.
    pub lease: Duration,
    /// How long the keys of sends are kept.
    pub keys_kept: Duration,
}

/// How many clients there may be, and how long each may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clients {
    /// Connections; more are told so and closed.
    pub connections_max: usize,
    /// Between two requests.
    pub idle_timeout: Duration,
    /// For the head of a request, from its first byte, and for a handshake of TLS.
    pub head_timeout: Duration,
    /// For the body of a request, from its head.
    pub body_timeout: Duration,
    /// Without taking a byte of a reply.
    pub unread_timeout: Duration,
}

/// Where records go, and how many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordsConfig {
    /// Record files are written into this directory.
    pub directory: PathBuf,
    /// One request in so many is kept.
    pub sample: u32,
}

/// Everything the service needs to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// A PostgreSQL URL or `key=value` words, as libpq takes them.
    pub database: String,
    /// PEM: who vouches for the database; with it TLS is spoken, and the database's name is verified.
    pub database_authority: Option<PathBuf>,
    /// HOST:PORT; port 0 takes a free one.
    pub listen: String,
    /// With it, TLS is spoken to clients.
    pub tls: Option<IdentityFiles>,
    /// Who may do what; empty: everyone everything.
    pub tokens: Vec<TokenConfig>,
    /// Whether `/metrics` is for tokens with the permission `admin` only.
    pub metrics_need_token: bool,
    /// How many there may be.
    pub clients: Clients,
    /// How requests reach the database.
    pub dispatch: Dispatch,
    /// Threads that serve; none: one for each two processors, since a database at the same place needs the others, and threads that
    /// wake each other cost more than they do.
    pub threads: Option<usize>,
    /// Where records of requests go; none: nowhere.
    pub records: Option<RecordsConfig>,
    /// What is refused.
    pub limits: Limits,
    /// Messages that are taken out of a queue for a receiver before it is looked where its messages begin now;
    /// `usize::MAX`: never.
    pub low_water_worth: usize,
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
            memory: 256 << 20,
            long_polls: 10_000,
            long_poll: Duration::from_secs(60),
            statement_messages: 512,
            statement_bytes: 4 << 20,
            delay: Duration::from_secs(15 * DAY_S),
            expiry: Duration::from_secs(400 * DAY_S),
            lease: Duration::from_secs(DAY_S / 2),
            keys_kept: Duration::from_secs(DAY_S),
        }
    }
}

impl Default for Clients {
    fn default() -> Clients {
        Clients {
            connections_max: 10_000,
            idle_timeout: Duration::from_secs(75),
            head_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            unread_timeout: Duration::from_secs(30),
        }
    }
}

impl Default for Config {
    fn default() -> Config {
        Config {
            database: String::new(),
            database_authority: None,
            listen: "127.0.0.1:8080".into(),
            tls: None,
            tokens: Vec::new(),
            metrics_need_token: false,
            clients: Clients::default(),
            dispatch: Dispatch::Fused { lanes: 2 },
            threads: None,
            records: None,
            limits: Limits::default(),
            low_water_worth: 250,
            poll_interval: Duration::from_millis(500),
            end_within: Duration::from_secs(10),
        }
    }
}
