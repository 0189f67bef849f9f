//! The configuration as a file or the arguments contain it, without defaults, and its checks. The fields are the keys of the file and, in
//! part, arguments; examples/messages/reference.toml describes each.

use super::exposure;
use super::token;
use super::{
    BrowserConfig, ClientLimits, Config, DispatchConfig, IdentityFiles, Limits, Permission, RecordsConfig, TokenConfig,
};
use configuration::text::{opt_size, opt_time};
use configuration::{ConfigError, FromDocument};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// A request whose server is unreachable is given up after a minute, and its client then repeats it with the same idempotency key.
const KEY_RETENTION_MIN: Duration = Duration::from_secs(120);

/// PostgreSQL adds these times to a timestamp, or subtracts them, and has no timestamps before 4713 BC.
const FROM_NOW_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// How requests reach the database, without the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Discipline {
    /// Lanes, which combine waiting requests into one statement.
    Fused,
    /// A connection pool.
    Pool,
    /// No database.
    None,
}

/// A `[[token]]` table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, expecting = "a table")]
#[allow(missing_docs, reason = "the keys are those of TokenConfig")]
pub struct TokenFile {
    pub token: Option<String>,
    pub token_file: Option<PathBuf>,
    pub sender: String,
    pub permissions: Vec<Permission>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_prefixes: Option<Vec<String>>,
}

/// The whole file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, expecting = "a table")]
#[allow(missing_docs, reason = "the keys are those of Config")]
pub struct ServiceFile {
    pub listen: Option<String>,
    pub admin_listen: Option<String>,
    pub database: Option<String>,
    pub database_file: Option<PathBuf>,
    pub database_authority: Option<PathBuf>,
    #[serde(with = "opt_time", default)]
    pub replication_timeout: Option<Duration>,
    pub dispatch: Option<Discipline>,
    pub lanes: Option<usize>,
    pub connections: Option<usize>,
    pub threads: Option<usize>,
    #[serde(with = "opt_size", default)]
    pub null_body: Option<usize>,
    pub records: Option<PathBuf>,
    pub sample: Option<u32>,
    pub tls_certificate: Option<PathBuf>,
    pub tls_key: Option<PathBuf>,
    pub connections_max: Option<usize>,
    #[serde(with = "opt_time", default)]
    pub idle_timeout: Option<Duration>,
    #[serde(with = "opt_time", default)]
    pub head_timeout: Option<Duration>,
    #[serde(with = "opt_time", default)]
    pub body_timeout: Option<Duration>,
    #[serde(with = "opt_time", default)]
    pub unread_timeout: Option<Duration>,
    #[serde(with = "opt_size", default)]
    pub reply_rate_min: Option<usize>,
    #[serde(with = "opt_size", default)]
    pub body_limit: Option<usize>,
    pub batch_limit: Option<usize>,
    pub queue: Option<usize>,
    #[serde(with = "opt_size", default)]
    pub queue_bytes: Option<usize>,
    pub queue_per_sender: Option<usize>,
    #[serde(with = "opt_size", default)]
    pub memory: Option<usize>,
    #[serde(with = "opt_size", default)]
    pub memory_per_client: Option<usize>,
    pub long_polls: Option<usize>,
    #[serde(with = "opt_time", default)]
    pub long_poll_limit: Option<Duration>,
    #[serde(with = "opt_time", default)]
    pub poll_interval: Option<Duration>,
    pub statement_messages: Option<usize>,
    #[serde(with = "opt_size", default)]
    pub statement_bytes: Option<usize>,
    #[serde(with = "opt_time", default)]
    pub delay_limit: Option<Duration>,
    #[serde(with = "opt_time", default)]
    pub expiry_limit: Option<Duration>,
    #[serde(with = "opt_time", default)]
    pub lease_limit: Option<Duration>,
    #[serde(with = "opt_time", default)]
    pub key_retention: Option<Duration>,
    pub low_water_marks: Option<usize>,
    #[serde(with = "opt_time", default)]
    pub shutdown_timeout: Option<Duration>,
    pub metrics_need_token: Option<bool>,
    pub insecure: Option<bool>,
    pub allowed_hosts: Option<Vec<String>>,
    pub cors_origins: Option<Vec<String>>,
    #[serde(rename = "token", default, skip_serializing_if = "Vec::is_empty")]
    pub tokens: Vec<TokenFile>,
}

/// By default, one of this many requests is recorded.
const SAMPLE: u32 = 100;
const LANES: usize = 2;
const CONNECTIONS: usize = 40;

/// Takes each field from `$by`, or from `$base` if `$by` does not have it.
macro_rules! overridden {
    ($base:ident, $by:ident, { $($field:ident),+ $(,)? }) => {
        ServiceFile { $($field: $by.$field.or($base.$field),)+ tokens: if $by.tokens.is_empty() { $base.tokens } else { $by.tokens } }
    };
}

impl FromDocument for ServiceFile {}

impl ServiceFile {
    /// This file, overridden by the fields that the other one has.
    #[must_use]
    pub fn overridden_by(mut self, by: ServiceFile) -> ServiceFile {
        if by.database.is_some() {
            self.database_file = None;
        }
        overridden!(self, by, {
            listen, admin_listen, database, database_file, database_authority, replication_timeout, dispatch, lanes, connections, threads, null_body, records, sample,
            tls_certificate, tls_key, connections_max, idle_timeout, head_timeout, body_timeout, unread_timeout, reply_rate_min,
            body_limit, batch_limit, queue, queue_bytes, queue_per_sender, memory, memory_per_client, long_polls, long_poll_limit, poll_interval,
            statement_messages, statement_bytes, delay_limit, expiry_limit, lease_limit, key_retention, low_water_marks, shutdown_timeout,
            metrics_need_token, insecure, allowed_hosts, cors_origins,
        })
    }

    /// The checked configuration, with defaults for missing keys.
    ///
    /// # Errors
    ///
    /// The first key with an invalid value, or with a value that contradicts another key.
    pub fn config(self) -> Result<Config, ConfigError> {
        let defaults = Config::default();
        let dispatch = self.dispatch()?;
        let tls = self.tls()?;
        let database = self.database()?;
        if let (Some(sample), None) = (self.sample, &self.records) {
            return Err(refuse("sample", format!("{sample} has no effect without records; give records, a directory")));
        }
        let tokens = self.tokens.into_iter().enumerate().map(|(place, token)| token.config(place));
        let is_insecure = self.insecure.unwrap_or(false);
        let config = Config {
            database,
            database_authority: self.database_authority,
            replication_timeout: self.replication_timeout.unwrap_or(defaults.replication_timeout),
            listen: self.listen.unwrap_or(defaults.listen),
            admin_listen: self.admin_listen,
            tls,
            tokens: tokens.collect::<Result<_, _>>()?,
            metrics_need_token: self.metrics_need_token.unwrap_or(false),
            browsers: BrowserConfig {
                allowed_hosts: self.allowed_hosts.unwrap_or_default(),
                cors_origins: self.cors_origins.unwrap_or_default(),
            },
            clients: ClientLimits {
                connections_max: self.connections_max.unwrap_or(defaults.clients.connections_max),
                idle_timeout: self.idle_timeout.unwrap_or(defaults.clients.idle_timeout),
                head_timeout: self.head_timeout.unwrap_or(defaults.clients.head_timeout),
                body_timeout: self.body_timeout.unwrap_or(defaults.clients.body_timeout),
                unread_timeout: self.unread_timeout.unwrap_or(defaults.clients.unread_timeout),
                reply_rate_min: self.reply_rate_min.unwrap_or(defaults.clients.reply_rate_min),
            },
            dispatch,
            threads: self.threads,
            records: self.records.map(|directory| RecordsConfig { directory, sample: self.sample.unwrap_or(SAMPLE) }),
            limits: Limits {
                body_bytes: self.body_limit.unwrap_or(defaults.limits.body_bytes),
                batch_messages: self.batch_limit.unwrap_or(defaults.limits.batch_messages),
                waiting_requests: self.queue.unwrap_or(defaults.limits.waiting_requests),
                waiting_bytes: self.queue_bytes.unwrap_or(defaults.limits.waiting_bytes),
                waiting_requests_of_party: self.queue_per_sender.unwrap_or(defaults.limits.waiting_requests_of_party),
                memory: self.memory.unwrap_or(defaults.limits.memory),
                memory_per_client: self
                    .memory_per_client
                    .unwrap_or_else(|| self.memory.map_or(defaults.limits.memory_per_client, |all| (all / 4).max(1))),
                long_polls: self.long_polls.unwrap_or(defaults.limits.long_polls),
                long_poll: self.long_poll_limit.unwrap_or(defaults.limits.long_poll),
                statement_messages: self.statement_messages.unwrap_or(defaults.limits.statement_messages),
                statement_bytes: self.statement_bytes.unwrap_or(defaults.limits.statement_bytes),
                delay: self.delay_limit.unwrap_or(defaults.limits.delay),
                expiry: self.expiry_limit.unwrap_or(defaults.limits.expiry),
                lease: self.lease_limit.unwrap_or(defaults.limits.lease),
                key_retention: self.key_retention.unwrap_or(defaults.limits.key_retention),
                low_water_marks: self.low_water_marks.unwrap_or(defaults.limits.low_water_marks),
            },
            low_water_refresh_after: defaults.low_water_refresh_after,
            poll_interval: self.poll_interval.unwrap_or(defaults.poll_interval),
            shutdown_timeout: self.shutdown_timeout.unwrap_or(defaults.shutdown_timeout),
        };
        check(&config)?;
        exposure::check(&config, is_insecure)?;
        Ok(config)
    }

    /// The database URL; empty if none is given.
    fn database(&self) -> Result<String, ConfigError> {
        match (&self.database, &self.database_file) {
            (Some(_), Some(_)) => Err(refuse("database-file", "database is also given; give only one of the two")),
            (given, None) => Ok(given.clone().unwrap_or_default()),
            (None, Some(path)) => match std::fs::read_to_string(path) {
                Ok(text) if text.trim().is_empty() => {
                    Err(refuse("database-file", format!("{}: is empty; it must contain the URL", path.display())))
                }
                Ok(text) => Ok(text.trim().to_string()),
                Err(error) => Err(refuse("database-file", format!("{}: cannot read it: {error}", path.display()))),
            },
        }
    }

    /// The dispatch discipline. A key that has no effect with it is an error.
    fn dispatch(&self) -> Result<DispatchConfig, ConfigError> {
        let kind = self.dispatch.unwrap_or(Discipline::Fused);
        let belongs = [
            ("lanes", self.lanes, Discipline::Fused, "fused"),
            ("connections", self.connections, Discipline::Pool, "pool"),
            ("null-body", self.null_body, Discipline::None, "none"),
        ];
        for (key, value, of, name) in belongs {
            if let (Some(value), true) = (value, of != kind) {
                return Err(refuse(key, format!("{value} has an effect with dispatch {name} only")));
            }
        }
        Ok(match kind {
            Discipline::Fused => DispatchConfig::Fused { lanes: self.lanes.unwrap_or(LANES) },
            Discipline::Pool => DispatchConfig::Pool { connections: self.connections.unwrap_or(CONNECTIONS) },
            Discipline::None => DispatchConfig::None { body_bytes: self.null_body },
        })
    }

    fn tls(&self) -> Result<Option<IdentityFiles>, ConfigError> {
        match (&self.tls_certificate, &self.tls_key) {
            (Some(certificate), Some(key)) => {
                Ok(Some(IdentityFiles { certificate: certificate.clone(), key: key.clone() }))
            }
            (None, None) => Ok(None),
            (Some(_), None) => Err(refuse("tls-certificate", "has no key; give tls-key")),
            (None, Some(_)) => Err(refuse("tls-key", "has no certificate; give tls-certificate")),
        }
    }
}

impl TokenFile {
    fn config(self, place: usize) -> Result<TokenConfig, ConfigError> {
        let at = |key: &str| format!("token.{place}.{key}");
        let token = match (self.token, self.token_file) {
            (Some(token), None) => token,
            (None, Some(path)) => std::fs::read_to_string(&path)
                .map_err(|error| refuse(at("token-file"), format!("{}: cannot read it: {error}", path.display())))?
                .trim()
                .to_string(),
            (Some(_), Some(_)) => {
                return Err(refuse(at("token-file"), "token is also given; give only one of the two"));
            }
            (None, None) => return Err(refuse(at("token"), "is missing; give token or token-file")),
        };
        TokenConfig::new(token, self.sender, self.permissions, self.queue_prefixes)
            .map_err(|(key, problem)| refuse(at(key), problem))
    }
}

fn refuse(key: impl Into<String>, problem: impl Into<String>) -> ConfigError {
    ConfigError::at(key, problem)
}

/// Checks ranges, and that tokens exist where they are required.
fn check(config: &Config) -> Result<(), ConfigError> {
    let (Config { limits, clients, .. }, one) = (config, 1usize);
    if config.metrics_need_token && config.tokens.is_empty() {
        return Err(refuse("metrics-need-token", "requires tokens; add a [[token]] table"));
    }
    let (key, number) = match config.dispatch {
        DispatchConfig::Fused { lanes } => ("lanes", lanes),
        DispatchConfig::Pool { connections } => ("connections", connections),
        DispatchConfig::None { .. } => ("connections", one),
    };
    let is_address =
        |text: &str| text.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    let addresses = [("listen", Some(&config.listen)), ("admin-listen", config.admin_listen.as_ref())];
    for (key, address) in addresses.into_iter().filter_map(|(key, text)| Some((key, text?))) {
        if !is_address(address) {
            return Err(refuse(key, format!("{address:?} is not HOST:PORT")));
        }
    }
    let numbers = [
        (key, number, 1000),
        ("threads", config.threads.unwrap_or(one), 1000),
        ("connections-max", clients.connections_max, 1 << 20),
        ("reply-rate-min", clients.reply_rate_min, 1 << 30),
        ("body-limit", limits.body_bytes, 64 << 20),
        ("batch-limit", limits.batch_messages, 10_000),
        ("queue", limits.waiting_requests, 10_000_000),
        ("queue-bytes", limits.waiting_bytes, usize::MAX >> 1),
        ("queue-per-sender", limits.waiting_requests_of_party, 10_000_000),
        ("memory", limits.memory, usize::MAX >> 1),
        ("memory-per-client", limits.memory_per_client, usize::MAX >> 1),
        ("long-polls", limits.long_polls, 10_000_000),
        ("statement-messages", limits.statement_messages, 10_000),
        ("statement-bytes", limits.statement_bytes, 256 << 20),
        ("low-water-marks", limits.low_water_marks, 10_000_000),
        ("sample", config.records.as_ref().map_or(one, |records| records.sample as usize), u32::MAX as usize),
    ];
    for (key, value, most) in numbers {
        if !(1..=most).contains(&value) {
            return Err(refuse(key, format!("{value} is not a number from 1 to {most}")));
        }
    }
    let times = [
        ("idle-timeout", clients.idle_timeout),
        ("head-timeout", clients.head_timeout),
        ("body-timeout", clients.body_timeout),
        ("unread-timeout", clients.unread_timeout),
        ("poll-interval", config.poll_interval),
        ("replication-timeout", config.replication_timeout),
        ("shutdown-timeout", config.shutdown_timeout),
    ];
    if limits.key_retention < KEY_RETENTION_MIN {
        let [given, least] = [limits.key_retention, KEY_RETENTION_MIN].map(quantity::duration_text);
        let reason = "because clients repeat a send in doubt after up to a minute";
        return Err(refuse("key-retention", format!("{given} is too short; give at least {least}, {reason}")));
    }
    let of_timestamps = [
        ("delay-limit", limits.delay),
        ("expiry-limit", limits.expiry),
        ("lease-limit", limits.lease),
        ("key-retention", limits.key_retention),
    ];
    if let Some((key, time)) = of_timestamps.into_iter().find(|(_, time)| *time > FROM_NOW_MAX) {
        let [given, most] = [time, FROM_NOW_MAX].map(quantity::duration_text);
        return Err(refuse(key, format!("{given} is too long; give at most {most} (100 years)")));
    }
    match times.into_iter().find(|(_, time)| time.is_zero()) {
        Some((key, _)) => Err(refuse(key, "is 0; give a duration such as 10s")),
        None => token::check(&config.tokens)
            .map_err(|(place, key, problem)| refuse(format!("token.{place}.{key}"), problem)),
    }
}
