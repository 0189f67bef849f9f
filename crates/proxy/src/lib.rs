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
mod job;
mod overlap;

mod ketama;
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
mod journal;

mod counters;
mod local;
mod metrics;
mod metrics_server;

mod config;
mod event_loop;
mod resolve;
mod running;
mod transport;

pub use config::{
    Config, ConfigError, Discipline, Distribution, Failover, FailoverPool, Hedge, MultiGet, PartFailure, PoolConfig,
    Reads, RecordsConfig, RouteConfig, ServerConfig, Shadow, Stamps, Timeouts, WarmUp, Writes,
};
pub use local::VERSION_LINE;
pub use route::Router;
pub use running::{ProxyError, Running, Totals, start, start_with};
pub use transport::{Lookup, TlsConfig, TlsConfigError, TransportConfig};
