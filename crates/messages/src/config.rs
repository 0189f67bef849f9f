//! The checked configuration of the service: the database, the address, the dispatch discipline, and every limit.

mod exposure;
mod file;
mod token;

pub use configuration::{ConfigError, Document, FileError};
pub use file::{Discipline, ServiceFile, TokenFile};
pub(crate) use token::hash;

pub use net::IdentityFiles;
use std::path::PathBuf;
use std::time::Duration;
pub use token::{Permission, TokenConfig};

const DAY_S: u64 = 24 * 60 * 60;
/// Connections of a service besides those of its lanes or its pool: lists, sends with keys, redelivery, cleanup, low-water marks,
/// notifications, and checks of the others.
const OTHER_CONNECTIONS: usize = 7;
/// Connections that operators can open beside the service, for example with `psql` or `pg_dump`.
const CONNECTIONS_OF_OPERATORS: usize = 10;

/// How requests reach the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DispatchConfig {
    /// A number of lanes with one connection each, chosen by the queue's name. A free lane sends everything that waits as one statement.
    Fused {
        /// The number of lanes.
        lanes: usize,
    },
    /// One queue before a number of connections, and one statement for each request.
    Pool {
        /// The number of connections.
        connections: usize,
    },
    /// No database: every request is answered at once, to measure everything around the database.
    None {
        /// Size of the message that every pop, receive and peek returns. None: no message.
        body_bytes: Option<usize>,
    },
}

/// Limits of requests, statements and queue settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a message's body.
    pub body_bytes: usize,
    /// Messages in one batch, and messages returned at once.
    pub batch_messages: usize,
    /// Requests that can wait for a lane or for the pool.
    pub waiting_requests: usize,
    /// Bytes of bodies that can wait for a lane or for the pool.
    pub waiting_bytes: usize,
    /// Requests of one sender or receiver that can wait for a lane or for the pool.
    pub waiting_requests_of_party: usize,
    /// Bytes of bodies and replies in memory, of all clients together.
    pub memory: usize,
    /// Bytes of bodies, and bytes of replies, of one client: a token's sender, or an address if there are no tokens.
    pub memory_per_client: usize,
    /// Requests that can wait for a message at the same time.
    pub long_polls: usize,
    /// The longest `wait` of a request.
    pub long_poll: Duration,
    /// Messages in one statement.
    pub statement_messages: usize,
    /// Bytes of bodies in one statement.
    pub statement_bytes: usize,
    /// The longest delay of a send or a nack.
    pub delay: Duration,
    /// The longest expiry of a message.
    pub expiry: Duration,
    /// The longest visibility timeout.
    pub lease: Duration,
    /// How long idempotency keys are kept.
    pub key_retention: Duration,
    /// Pairs of a queue and a receiver whose low-water mark is remembered.
    pub low_water_marks: usize,
}

/// Limits and timeouts of client connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientLimits {
    /// Client connections. Further ones receive 503 and are closed.
    pub connections_max: usize,
    /// Between two requests.
    pub idle_timeout: Duration,
    /// For the head of a request, from its first byte, and for a TLS handshake.
    pub head_timeout: Duration,
    /// For the body of a request, from its head.
    pub body_timeout: Duration,
    /// While the client reads nothing of a reply.
    pub unread_timeout: Duration,
    /// The least number of bytes of its replies that a client must read per second, on average over each `unread_timeout`.
    pub reply_rate_min: usize,
}

/// What web pages in browsers may do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BrowserConfig {
    /// Names of the service besides `localhost` and the one in `listen`. Without tokens, requests for other names are refused.
    pub allowed_hosts: Vec<String>,
    /// Origins whose pages may use the service, such as `https://app.example`.
    pub cors_origins: Vec<String>,
}

/// Where records are written, and of how many requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordsConfig {
    /// The directory of the record files.
    pub directory: PathBuf,
    /// One of this many requests is recorded.
    pub sample: u32,
}

/// The checked configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// A PostgreSQL URL or libpq's `key=value` form.
    pub database: String,
    /// PEM file of the certificate authority. If set, the connection to the database uses TLS and verifies the server's name.
    pub database_authority: Option<PathBuf>,
    /// How long a commit can wait for a synchronous standby before the request fails as in doubt.
    pub replication_timeout: Duration,
    /// HOST:PORT; port 0 selects a free port.
    pub listen: String,
    /// HOST:PORT for `/readyz`, `/metrics`, `/docs` and `/openapi.json`, which `listen` then does not serve.
    pub admin_listen: Option<String>,
    /// If set, clients must use TLS.
    pub tls: Option<IdentityFiles>,
    /// Bearer tokens. Empty: no token is needed, and everything is permitted.
    pub tokens: Vec<TokenConfig>,
    /// Whether `/metrics` requires a token with the permission `admin`.
    pub metrics_need_token: bool,
    /// What web pages may do.
    pub browsers: BrowserConfig,
    /// Limits of client connections.
    pub clients: ClientLimits,
    /// How requests reach the database.
    pub dispatch: DispatchConfig,
    /// Worker threads. None: half as many as cores, because a database on the same host needs the others, and threads that wake each other
    /// cost more than they bring.
    pub threads: Option<usize>,
    /// Where records of requests are written. None: nowhere.
    pub records: Option<RecordsConfig>,
    /// Limits of requests.
    pub limits: Limits,
    /// Messages that are taken out of a queue for a receiver before its low-water mark is read again; `usize::MAX`: never.
    pub low_water_refresh_after: usize,
    /// How often a waiting request tries again without a notification.
    pub poll_interval: Duration,
    /// How long requests in progress can take during shutdown.
    pub shutdown_timeout: Duration,
}

impl DispatchConfig {
    /// Connections to the database for the requests of message queues.
    pub fn request_connections(self) -> usize {
        match self {
            DispatchConfig::Fused { lanes } => lanes,
            DispatchConfig::Pool { connections } => connections,
            DispatchConfig::None { .. } => 0,
        }
    }

    /// Connections that the service's own database must accept. Twice those of the service, because the processes of connections that have
    /// fallen silent can remain beside the new ones; otherwise, a second service can use them.
    pub fn accepted_connections(self) -> usize {
        2 * (self.request_connections() + OTHER_CONNECTIONS) + CONNECTIONS_OF_OPERATORS
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            body_bytes: 256 << 10,
            batch_messages: 100,
            waiting_requests: 10_000,
            waiting_bytes: 64 << 20,
            waiting_requests_of_party: 5000,
            memory: 256 << 20,
            memory_per_client: 64 << 20,
            long_polls: 10_000,
            long_poll: Duration::from_secs(60),
            statement_messages: 512,
            statement_bytes: 4 << 20,
            delay: Duration::from_secs(15 * DAY_S),
            expiry: Duration::from_secs(400 * DAY_S),
            lease: Duration::from_secs(DAY_S / 2),
            key_retention: Duration::from_secs(DAY_S),
            low_water_marks: 10_000,
        }
    }
}

impl Default for ClientLimits {
    fn default() -> ClientLimits {
        ClientLimits {
            connections_max: 10_000,
            idle_timeout: Duration::from_secs(75),
            head_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            unread_timeout: Duration::from_secs(30),
            reply_rate_min: 1 << 10,
        }
    }
}

impl Default for Config {
    fn default() -> Config {
        Config {
            database: String::new(),
            database_authority: None,
            replication_timeout: Duration::from_secs(10),
            listen: "127.0.0.1:8080".into(),
            admin_listen: None,
            tls: None,
            tokens: Vec::new(),
            metrics_need_token: false,
            browsers: BrowserConfig::default(),
            clients: ClientLimits::default(),
            dispatch: DispatchConfig::Fused { lanes: 2 },
            threads: None,
            records: None,
            limits: Limits::default(),
            low_water_refresh_after: 250,
            poll_interval: Duration::from_millis(500),
            shutdown_timeout: Duration::from_secs(10),
        }
    }
}
