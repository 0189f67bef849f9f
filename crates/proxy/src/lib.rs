//! The memcached proxy. The modules stand in the order in which a request meets them:
//!
//! ```text
//!  client -> accept -> session -> (wire) -> route -> dispatch -> backend -> memcached
//!  client <----------- session <- join <------------------------ backend <- memcached
//!                         `-> journal: counted, histograms, records
//! ```
//! docs/life-of-a-request.md walks the whole way.

mod accept;
mod hand_over;
mod listeners;
mod session;

mod core;
mod debts;
mod job;
mod jobs;
mod leg;
mod overlap;
mod refused;

mod policy;
mod route;

mod dispatch;
mod meta;

mod backend;
mod backends;
mod finished;
mod in_flight;
mod join;
mod leaving;
mod peer;
mod retry;
mod verdict;

mod histograms;
mod hot_keys;
mod journal;
mod space_saving;

mod catalogue;
mod counters;
mod exposition;
mod labels;
mod local;
mod metrics;
mod metrics_server;

mod config;
mod event_loop;
mod operations;
mod reload;
mod resolve;
mod running;
mod starting;
mod transport;

pub use config::{
    Config, ConfigError, Discipline, Dispatch, Distribution, Document, Failover, FailoverPool, FileError, Hash, Hedge,
    MultiGet, PartFailure, PoolConfig, PoolSettings, Reads, RecordsConfig, RouteConfig, ServerConfig, Settings, Shadow,
    Stamps, Timeouts, WarmUp, Writes,
};
pub use local::VERSION_LINE;
pub use operations::Operations;
pub use route::{Explanation, Router};
pub use running::{ProxyError, Running, Totals};
pub use starting::{start, start_with};
pub use transport::{Lookup, TlsConfig, TlsConfigError, TransportConfig};
