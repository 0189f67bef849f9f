//! The configuration: the keys of a file, the checks, and the checked types that all other rooms read. Depends on no other room.

mod check;
mod check_lists;
mod check_pool;
mod check_routes;
mod check_shared;
mod check_transport;
mod client_limits;
mod commands;
mod file;
mod listener;
mod logging;
mod named;
mod operations;
mod pool;
mod proxy;
mod server_list;
mod text;
mod tracing;
mod transport;

pub(crate) use check_shared::{FirstSame, first_same, is_same_address};
pub use client_limits::ClientLimits;
pub use commands::{CommandGroup, Commands};
pub use configuration::{ConfigError, Document, FileError};
pub use file::{DispatchConfig, PoolFile, ProxyFile};
pub use key_distribution::{Distribution, Hash};
pub use listener::ListenerConfig;
pub use logging::{LogConfig, LogFormat, LogLevel, LogOutput, LoggedKeys};
pub use operations::Operations;
pub use pool::{
    Failover, FailoverPool, Hedge, NearCache, PoolConfig, RateLimit, Reads, Resolve, RouteConfig, ServerConfig, Shadow,
    Timeouts, WarmUp, Writes,
};
pub(crate) use proxy::share;
pub use proxy::{Config, Discipline, MultiGet, PartFailure, RecordsConfig, Stamps};
pub use server_list::{SERVERS_MAX, read_servers};
pub use tracing::{Collector, TracesConfig};
pub use transport::{CertificateFiles, Lookup, ProxyProtocol, TlsConfig, TlsConfigError, TransportConfig};
