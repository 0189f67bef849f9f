//! The configuration as a file or the arguments give it: every key is optional. The fields are the keys of the file, which
//! examples/proxy/reference.toml describes.

use crate::config::client_limits::ClientLimits;
use crate::config::listener::ListenerConfig;
use crate::config::logging::{LogConfig, LogFormat, LogLevel, LoggedKeys};
use crate::config::named::named;
use crate::config::operations::Operations;
use crate::config::pool::{
    Failover, FailoverPool, Hedge, NearCache, PoolConfig, RateLimit, Reads, Resolve, RouteConfig, ServerConfig, Shadow,
    Timeouts, WarmUp, Writes,
};
use crate::config::proxy::{Config, Discipline, MultiGet, PartFailure, RecordsConfig, Stamps};
use crate::config::text::{list_key, opt_list, opt_tag, opt_times};
use crate::config::tracing::TracesFile;
use crate::config::transport::{CertificateFiles, ProxyProtocol, TlsConfig, TransportConfig};
use crate::config::{ConfigError, Distribution, Hash};
use configuration::text::{opt_size, opt_time};
use configuration::{FromDocument, is_key_of};
use net::IdentityFiles;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// The discipline, without its numbers of slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DispatchConfig {
    /// `pipelined`
    Pipelined,
    /// `per-backend`
    PerBackend,
    /// `shared`
    Shared,
}

named!(DispatchConfig { Pipelined = "pipelined", PerBackend = "per-backend", Shared = "shared" });

/// The keys of the proxy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, expecting = "a table")]
#[allow(missing_docs, reason = "the keys are those of Config")]
pub struct ProxyFile {
    #[serde(with = "opt_list", default)]
    pub listen: Option<Vec<ListenerConfig>>,
    /// Whether another process passes the listening sockets, so that none need be opened. Not a key of the file.
    #[serde(skip)]
    pub is_given_sockets: bool,
    pub loops: Option<usize>,
    pub slow_down: Option<f64>,
    pub dispatch: Option<DispatchConfig>,
    pub readers: Option<usize>,
    pub writers: Option<usize>,
    #[serde(with = "opt_time", default)]
    pub fault_write_poll: Option<Duration>,
    pub workers: Option<usize>,
    pub multi_get: Option<MultiGet>,
    #[serde(with = "opt_time", default)]
    pub fault_write_hold: Option<Duration>,
    pub queue: Option<usize>,
    pub part_failure: Option<PartFailure>,
    pub metrics: Option<String>,
    #[serde(with = "opt_time", default)]
    pub metrics_timeout: Option<Duration>,
    pub metrics_connections: Option<usize>,
    pub stamps: Option<Stamps>,
    pub records: Option<PathBuf>,
    pub sample: Option<u32>,
    pub backend_window: Option<usize>,
    #[serde(with = "opt_size", default)]
    pub backend_buffer: Option<u64>,
    pub client_window: Option<usize>,
    #[serde(with = "opt_size", default)]
    pub client_buffer: Option<u64>,
    #[serde(with = "opt_size", default)]
    pub memory: Option<u64>,
    #[serde(with = "opt_size", default)]
    pub value_max: Option<u64>,
    #[serde(with = "opt_size", default)]
    pub reply_max: Option<u64>,
    pub clients_max: Option<usize>,
    pub clients_per_address: Option<usize>,
    #[serde(with = "opt_time", default)]
    pub client_idle_timeout: Option<Duration>,
    #[serde(with = "opt_time", default)]
    pub client_request_timeout: Option<Duration>,
    #[serde(with = "opt_time", default)]
    pub client_unread_timeout: Option<Duration>,
    #[serde(with = "opt_time", default)]
    pub tcp_keepalive: Option<Duration>,
    pub client_auth_file: Option<PathBuf>,
    pub hot_keys: Option<usize>,
    pub hot_keys_metrics: Option<bool>,
    pub log_level: Option<LogLevel>,
    pub log_format: Option<LogFormat>,
    pub log_keys: Option<LoggedKeys>,
    #[serde(with = "opt_time", default)]
    pub slow_requests: Option<Duration>,
    pub slow_requests_per_second: Option<u32>,
    pub traces: Option<String>,
    pub traces_sample: Option<u32>,
    pub traces_queue: Option<usize>,
    pub traces_keys: Option<LoggedKeys>,
    pub traces_service: Option<String>,
    #[serde(with = "opt_time", default)]
    pub resolve_every: Option<Duration>,
    pub resolver: Option<String>,
    pub control: Option<PathBuf>,
    #[serde(with = "opt_time", default)]
    pub hand_over_wait: Option<Duration>,
    pub tls_certificate: Option<PathBuf>,
    pub tls_key: Option<PathBuf>,
    pub tls_certificates: Option<Vec<CertificateFiles>>,
    pub tls_client_authority: Option<PathBuf>,
    #[serde(with = "opt_time", default)]
    pub tls_handshake_timeout: Option<Duration>,
    pub tls_backend_authority: Option<PathBuf>,
    pub tls_backend_certificate: Option<PathBuf>,
    pub tls_backend_key: Option<PathBuf>,
    #[serde(with = "opt_list", default)]
    pub proxy_protocol: Option<Vec<String>>,
    #[serde(with = "opt_list", default)]
    pub proxy_protocol_from: Option<Vec<String>>,
    #[serde(with = "opt_time", default)]
    pub proxy_protocol_timeout: Option<Duration>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<PoolFile>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<RouteConfig>,
}

/// The keys of a pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, expecting = "a table")]
#[allow(missing_docs, reason = "the keys are those of PoolConfig")]
pub struct PoolFile {
    pub name: Option<String>,
    #[serde(with = "opt_list", default)]
    pub listen: Option<Vec<ListenerConfig>>,
    pub servers: Option<Vec<ServerConfig>>,
    pub servers_file: Option<PathBuf>,
    pub srv: Option<String>,
    pub resolve: Option<Resolve>,
    pub distribution: Option<Distribution>,
    pub hash: Option<Hash>,
    #[serde(with = "opt_tag", default)]
    pub hash_tag: Option<[u8; 2]>,
    pub replicas: Option<usize>,
    pub writes: Option<Writes>,
    pub reads: Option<Reads>,
    pub failover: Option<Failover>,
    pub hedge: Option<Hedge>,
    pub failover_pool: Option<FailoverPool>,
    pub warm_up: Option<WarmUp>,
    pub shadow: Option<Shadow>,
    pub read_pool: Option<String>,
    pub delete_pools: Option<Vec<String>>,
    pub flush: Option<bool>,
    pub rate_limit: Option<RateLimit>,
    pub near_cache: Option<NearCache>,
    #[serde(with = "opt_times", default)]
    pub timeouts: Option<Timeouts>,
    pub failures: Option<u32>,
    pub ready_servers: Option<usize>,
    pub server_auth_file: Option<PathBuf>,
}

/// The default number of slots.
const SLOTS: usize = 16;
/// By default, one request in this many is recorded.
const SAMPLE: u32 = 100;
/// The default address, if neither the proxy nor a pool has one.
const LISTEN: &str = "127.0.0.1:11211";
/// The default name of the only pool.
const POOL: &str = "default";

/// Takes each field from the second value if it is set there, and otherwise from the first. The last block is taken as it is.
macro_rules! overridden {
    ($type:ident, $base:ident, $by:ident, { $($field:ident),+ }, { $($kept:ident),* }) => {
        $type { $($field: $by.$field.or($base.$field),)+ $($kept),* }
    };
}

impl FromDocument for ProxyFile {
    /// In TOML, all keys after [[pools]] belong to the pool.
    fn misplaced(key: &str) -> Option<String> {
        let name = key.rsplit('.').next()?;
        let above = &key[..key.len() - name.len()];
        let in_list = |list: &str| above.strip_prefix(list).is_some_and(|place| place.matches('.').count() == 1);
        if above.is_empty() && is_key_of::<PoolFile>(name) {
            Some("this is a key of a pool; write it below [[pools]]".into())
        } else if (in_list("pools.") || in_list("routes.")) && is_key_of::<ProxyFile>(name) {
            Some("this is a key of the proxy; write it before the first [[pools]]".into())
        } else {
            None
        }
    }
}

impl ProxyFile {
    /// These settings, overridden by those that `by` sets. The pool in `by`, if there is one, overrides the first pool.
    #[must_use]
    pub fn overridden_by(mut self, by: ProxyFile) -> ProxyFile {
        let mut by_pools = by.pools.into_iter();
        if let Some(pool) = by_pools.next() {
            match self.pools.first_mut() {
                Some(first) => *first = std::mem::take(first).overridden_by(pool),
                None => self.pools.push(pool),
            }
        }
        let (pools, routes) = (self.pools, self.routes);
        let is_given_sockets = self.is_given_sockets || by.is_given_sockets;
        overridden!(ProxyFile, self, by, {
            listen, loops, slow_down, dispatch, readers, writers, fault_write_poll, workers, multi_get, fault_write_hold, queue, part_failure, metrics, metrics_timeout,
            metrics_connections, stamps,
            records, sample, backend_window, backend_buffer, client_window, client_buffer, memory, value_max, reply_max,
            clients_max, clients_per_address, client_idle_timeout, client_request_timeout, client_unread_timeout,
            tcp_keepalive, client_auth_file, hot_keys, hot_keys_metrics, log_level, log_format, log_keys, slow_requests,
            slow_requests_per_second, traces, traces_sample, traces_queue, traces_keys, traces_service, resolve_every, resolver, control, hand_over_wait, tls_certificate, tls_key, tls_certificates,
            tls_client_authority, tls_handshake_timeout, tls_backend_authority, tls_backend_certificate,
            tls_backend_key, proxy_protocol, proxy_protocol_from, proxy_protocol_timeout
        }, { pools, routes, is_given_sockets })
    }

    /// The configuration, with defaults for keys that are not set.
    ///
    /// # Errors
    /// If a key does not apply with the others. `Config::check` checks the values.
    pub fn config(self) -> Result<Config, ConfigError> {
        let has_other_sockets = self.is_given_sockets;
        // If pools have listeners of their own, a further one is an explicit choice.
        let has_pool_listeners =
            self.pools.iter().any(|pool| pool.listen.as_ref().is_some_and(|list| !list.is_empty()));
        let usual = if has_other_sockets || has_pool_listeners { Vec::new() } else { vec![LISTEN.into()] };
        let listen = self.listen.clone().unwrap_or(usual);
        let defaults = Config::new(LISTEN, &[]);
        let transport = self.transport()?;
        let client_limits = self.client_limits(&defaults.client_limits);
        let loops = self.loops.unwrap_or(defaults.loops);
        let discipline = self.discipline(loops)?;
        if let (Some(sample), None) = (self.sample, &self.records) {
            return Err(ConfigError::value("sample", sample, "has no effect without records; give records"));
        }
        let sample = self.sample.unwrap_or(SAMPLE);
        let per_second = self.slow_requests_per_second;
        if let (Some(most), None) = (per_second, self.slow_requests) {
            let problem = "has no effect without slow-requests; give slow-requests";
            return Err(ConfigError::value("slow-requests-per-second", most, problem));
        }
        let traces = TracesFile {
            url: self.traces,
            sample: self.traces_sample,
            queue: self.traces_queue,
            keys: self.traces_keys,
            service: self.traces_service,
        };
        let is_only = self.pools.len() == 1;
        let pools = self.pools.into_iter().enumerate().map(|(index, pool)| pool.config(index, is_only));
        let config = Config {
            listen,
            transport,
            pools: pools.collect::<Result<_, _>>()?,
            routes: self.routes,
            loops,
            slow_down: self.slow_down,
            discipline,
            queue: self.queue.unwrap_or(defaults.queue),
            stamps: self.stamps.unwrap_or(defaults.stamps),
            records: self.records.map(|directory| RecordsConfig { directory, sample }),
            metrics: self.metrics,
            operations: Operations {
                hot_keys: self.hot_keys.unwrap_or(defaults.operations.hot_keys),
                hot_keys_metrics: self.hot_keys_metrics.unwrap_or(defaults.operations.hot_keys_metrics),
                metrics_timeout: self.metrics_timeout.unwrap_or(defaults.operations.metrics_timeout),
                metrics_connections: self.metrics_connections.unwrap_or(defaults.operations.metrics_connections),
            },
            log: LogConfig {
                level: self.log_level.unwrap_or(defaults.log.level),
                format: self.log_format.unwrap_or(defaults.log.format),
                keys: self.log_keys.unwrap_or(defaults.log.keys),
                slow_requests: self.slow_requests,
                slow_requests_per_second: per_second.unwrap_or(defaults.log.slow_requests_per_second),
                output: defaults.log.output,
            },
            traces: traces.config()?,
            part_failure: self.part_failure.unwrap_or(defaults.part_failure),
            backend_window: self.backend_window.unwrap_or(defaults.backend_window),
            client_window: self.client_window.unwrap_or(defaults.client_window),
            client_buffer_bytes: self.client_buffer.unwrap_or(defaults.client_buffer_bytes),
            memory_bytes: self.memory.unwrap_or(defaults.memory_bytes),
            backend_buffer_bytes: self.backend_buffer.unwrap_or(defaults.backend_buffer_bytes),
            value_bytes: self.value_max.map_or(defaults.value_bytes, |bytes| bytes as usize),
            reply_bytes: self.reply_max.map_or(defaults.reply_bytes, |bytes| bytes as usize),
            clients_max: self.clients_max.unwrap_or(defaults.clients_max),
            client_limits,
            client_auth_file: self.client_auth_file,
        };
        config.check_tls(has_other_sockets)?;
        Ok(config)
    }

    fn client_limits(&self, defaults: &ClientLimits) -> ClientLimits {
        ClientLimits {
            idle_timeout: self.client_idle_timeout.unwrap_or(defaults.idle_timeout),
            request_timeout: self.client_request_timeout.unwrap_or(defaults.request_timeout),
            unread_timeout: self.client_unread_timeout.unwrap_or(defaults.unread_timeout),
            keepalive: self.tcp_keepalive.unwrap_or(defaults.keepalive),
            per_address: self.clients_per_address.unwrap_or(defaults.per_address),
        }
    }

    /// The configuration of transports.
    fn transport(&self) -> Result<TransportConfig, ConfigError> {
        let identity = |names: [&str; 2], certificate: &Option<PathBuf>, key: &Option<PathBuf>| match (certificate, key)
        {
            (Some(certificate), Some(key)) => {
                Ok(Some(IdentityFiles { certificate: certificate.clone(), key: key.clone() }))
            }
            (None, None) => Ok(None),
            (Some(_), None) => Err(ConfigError::at(names[0], format!("has no key; give {}", names[1]))),
            (None, Some(_)) => Err(ConfigError::at(names[1], format!("has no certificate; give {}", names[0]))),
        };
        let other =
            |files: &CertificateFiles| IdentityFiles { certificate: files.certificate.clone(), key: files.key.clone() };
        let defaults = TransportConfig::default();
        let backend_names = ["tls-backend-certificate", "tls-backend-key"];
        Ok(TransportConfig {
            resolve_every: self.resolve_every.unwrap_or(defaults.resolve_every),
            control: self.control.clone(),
            hand_over_wait: self.hand_over_wait.unwrap_or(defaults.hand_over_wait),
            proxy_protocol: self.proxy_protocol(defaults.proxy_protocol)?,
            tls: TlsConfig {
                identity: identity(["tls-certificate", "tls-key"], &self.tls_certificate, &self.tls_key)?,
                other_identities: self.tls_certificates.iter().flatten().map(other).collect(),
                client_authority: self.tls_client_authority.clone(),
                handshake_timeout: self.tls_handshake_timeout.unwrap_or(defaults.tls.handshake_timeout),
                backend_authority: self.tls_backend_authority.clone(),
                backend_identity: identity(backend_names, &self.tls_backend_certificate, &self.tls_backend_key)?,
            },
            ..defaults
        })
    }

    /// The listeners with the PROXY protocol.
    fn proxy_protocol(&self, defaults: ProxyProtocol) -> Result<ProxyProtocol, ConfigError> {
        let from = self.proxy_protocol_from.as_deref().unwrap_or_default();
        if let (Some(first), None) = (from.first(), &self.proxy_protocol) {
            let problem = "has no effect without proxy-protocol; give proxy-protocol";
            return Err(ConfigError::value(list_key("proxy-protocol-from", from, 0), format!("{first:?}"), problem));
        }
        let network = |(index, text): (usize, &String)| {
            let refuse = |error: net::NetworkError| {
                ConfigError::at(list_key("proxy-protocol-from", from, index), error.to_string())
            };
            text.parse().map_err(refuse)
        };
        Ok(ProxyProtocol {
            listeners: self.proxy_protocol.clone().unwrap_or_default(),
            from: from.iter().enumerate().map(network).collect::<Result<_, _>>()?,
            timeout: self.proxy_protocol_timeout.unwrap_or(defaults.timeout),
        })
    }

    /// The discipline. A key that does not apply to it is an error.
    fn discipline(&self, loops: usize) -> Result<Discipline, ConfigError> {
        let dispatch = self.dispatch.unwrap_or(DispatchConfig::Pipelined);
        let time_text = |time: Option<Duration>| time.map(|time| format!("{:?}", quantity::duration_text(time)));
        let belongs = [
            ("readers", self.readers.map(|slots| slots.to_string()), DispatchConfig::PerBackend),
            ("writers", self.writers.map(|slots| slots.to_string()), DispatchConfig::PerBackend),
            ("fault-write-poll", time_text(self.fault_write_poll), DispatchConfig::PerBackend),
            ("workers", self.workers.map(|slots| slots.to_string()), DispatchConfig::Shared),
            ("multi-get", self.multi_get.map(|multi_get| format!("{:?}", multi_get.name())), DispatchConfig::Shared),
            ("fault-write-hold", time_text(self.fault_write_hold), DispatchConfig::Shared),
        ];
        for (key, value, of) in belongs {
            if let (Some(value), true) = (value, of != dispatch) {
                let problem = format!("belongs to dispatch {}, not to {}", of.name(), dispatch.name());
                return Err(ConfigError::value(key, value, problem));
            }
        }
        if let (Some(queue), DispatchConfig::Pipelined) = (self.queue, dispatch) {
            let problem =
                "dispatch pipelined has no queue; set backend-window, which limits the requests that wait for replies";
            return Err(ConfigError::value("queue", queue, problem));
        }
        Ok(match dispatch {
            DispatchConfig::Pipelined => Discipline::Pipelined,
            DispatchConfig::PerBackend => Discipline::PerBackend {
                readers: self.readers.unwrap_or(SLOTS),
                writers: self.writers.unwrap_or(loops),
                fault_write_poll: self.fault_write_poll,
            },
            DispatchConfig::Shared => Discipline::Shared {
                workers: self.workers.unwrap_or(SLOTS),
                multi_get: self.multi_get.unwrap_or(MultiGet::ByKey),
                fault_write_hold: self.fault_write_hold,
            },
        })
    }
}

impl PoolFile {
    fn overridden_by(mut self, by: PoolFile) -> PoolFile {
        if by.servers.is_some() {
            (self.servers_file, self.srv) = (None, None);
        }
        overridden!(PoolFile, self, by, {
            name, listen, servers, servers_file, srv, resolve, distribution, hash, hash_tag, replicas, writes, reads, failover, hedge, failover_pool,
            warm_up, shadow, read_pool, delete_pools, flush, rate_limit, near_cache, timeouts, failures, ready_servers, server_auth_file
        }, {})
    }

    fn config(self, index: usize, is_only: bool) -> Result<PoolConfig, ConfigError> {
        let Some(name) = self.name.or_else(|| is_only.then(|| POOL.into())) else {
            return Err(ConfigError::at(format!("pools.{index}.name"), "is missing; give each pool a name"));
        };
        let defaults = PoolConfig::new(&name, &[]);
        Ok(PoolConfig {
            name,
            listen: self.listen.unwrap_or_default(),
            servers: self.servers.unwrap_or_default(),
            servers_file: self.servers_file,
            srv: self.srv,
            resolve: self.resolve.unwrap_or(defaults.resolve),
            distribution: self.distribution.unwrap_or(defaults.distribution),
            hash: self.hash,
            hash_tag: self.hash_tag,
            replicas: self.replicas.unwrap_or(defaults.replicas),
            writes: self.writes.unwrap_or(defaults.writes),
            reads: self.reads.unwrap_or(defaults.reads),
            failover: self.failover.unwrap_or(defaults.failover),
            hedge: self.hedge,
            failover_pool: self.failover_pool,
            warm_up: self.warm_up,
            shadow: self.shadow,
            read_pool: self.read_pool,
            delete_pools: self.delete_pools.unwrap_or_default(),
            flush: self.flush.unwrap_or(defaults.flush),
            rate_limit: self.rate_limit,
            near_cache: self.near_cache,
            timeouts: self.timeouts.unwrap_or(defaults.timeouts),
            failures: self.failures.unwrap_or(defaults.failures),
            ready_servers: self.ready_servers.unwrap_or(defaults.ready_servers),
            server_auth_file: self.server_auth_file,
        })
    }
}
