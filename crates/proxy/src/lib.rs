//! The memcached proxy. A request passes ten steps, which are functions in `path`:
//!
//! ```text
//!  client -> accept -> 2 session -> 3 core -> 4 dispatcher -> 5 discipline -> 6 backend connection -> memcached
//!  client <----------- 9 session <- 8 core, join <--------------------------- 7 backend connection <- memcached
//!                          `-> 10 journal: counters, histograms, records          (1: the event loop calls them)
//! ```
//! docs/life-of-a-request.md describes them in this order. `replication` has the policies of pools, which steps 4 and 8 apply.
//! A room may import only rooms below it: `config`, `observe`, `path` and `replication`, `control`. A test has the exact order.

mod config;
mod control;
mod observe;
mod path;
mod replication;

pub use config::{
    CertificateFiles, ClientLimits, Collector, CommandGroup, Commands, Config, ConfigError, Discipline, DispatchConfig,
    Distribution, Document, Failover, FailoverPool, FileError, Hash, Hedge, ListenerConfig, LogConfig, LogFormat,
    LogLevel, LogOutput, LoggedKeys, Lookup, MultiGet, NearCache, Operations, PartFailure, PoolConfig, PoolFile,
    ProxyFile, ProxyProtocol, RateLimit, Reads, RecordsConfig, Resolve, RouteConfig, SERVERS_MAX, ServerConfig, Shadow,
    Stamps, Timeouts, TlsConfig, TlsConfigError, TracesConfig, TransportConfig, WarmUp, Writes, read_servers,
};
pub use control::{
    ChangeRequest, ChangedServer, FromManager, ProxyError, Running, ServerChange, Totals, change_server, check_files,
    start, start_with,
};
pub use observe::log::event::ProcessEvent;
pub use observe::watchdog::Watchdog;
pub use path::route::{Explanation, Router};
