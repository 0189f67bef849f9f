//! The memcached proxy. The modules stand in the order in which a request meets them:
//!
//! ```text
//!  client -> accept -> session -> (wire) -> route -> dispatch -> backend -> memcached
//!  client <----------- session <- join <------------------------ backend <- memcached
//!                         `-> journal: counted, histograms, records
//! ```
//! docs/life-of-a-request.md walks the whole way.

mod config;
mod control;
mod observe;
mod path;
mod replication;

pub use config::{
    Config, ConfigError, Discipline, DispatchConfig, Distribution, Document, Failover, FailoverPool, FileError, Hash,
    Hedge, Lookup, MultiGet, Operations, PartFailure, PoolConfig, PoolFile, ProxyFile, Reads, RecordsConfig,
    RouteConfig, ServerConfig, Shadow, Stamps, Timeouts, TlsConfig, TlsConfigError, TransportConfig, WarmUp, Writes,
};
pub use control::{ProxyError, Running, Totals, start, start_with};
pub use observe::stats::VERSION_LINE;
pub use path::route::{Explanation, Router};
