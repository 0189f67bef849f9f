//! The memcached proxy. The modules stand in the order in which a request meets them:
//!
//! ```text
//!  client -> accept -> session -> (wire) -> route -> dispatch -> backend -> memcached
//!  client <----------- session <- join <------------------------ backend <- memcached
//!                         `-> journal: counted, histograms, records
//! ```
//! docs/life-of-a-request.md walks the whole way.

mod accept;
mod session;

mod core;
mod job;
mod overlap;

mod route;

mod dispatch;
mod meta;

mod backend;
mod backends;
mod finished;
mod in_flight;
mod join;
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
mod running;

pub use config::{
    Config, ConfigError, Discipline, Dispatch, Distribution, Document, Failover, FailoverPool, FileError, Hash, Hedge,
    MultiGet, PartFailure, PoolConfig, PoolSettings, Reads, RecordsConfig, RouteConfig, ServerConfig, Settings, Shadow,
    Stamps, Timeouts, WarmUp, Writes,
};
pub use local::VERSION_LINE;
pub use route::{Placement, Router};
pub use running::{ProxyError, Running, Totals, start};
