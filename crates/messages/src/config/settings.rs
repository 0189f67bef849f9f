//! The configuration as it is written: what a file or the arguments say, and nothing about what they leave out.
//! Keys here are the keys of the file and, where there is one, of the argument; examples/messages/reference.toml describes each.

use super::token;
use super::{Clients, Config, Dispatch, IdentityFiles, Limits, Permission, RecordsConfig, TokenConfig};
use configuration::text::{opt_size, opt_time};
use configuration::{ConfigError, FromDocument};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// How requests reach the database, without the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DispatchKind {
    /// Lanes.
    Fused,
    /// Connections.
    Pool,
    /// No database.
    None,
}

/// What is said about a token.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, expecting = "a table")]
#[allow(missing_docs, reason = "the keys are those of TokenConfig")]
pub struct TokenSettings {
    pub token: Option<String>,
    pub token_file: Option<PathBuf>,
    pub sender: String,
    pub may: Vec<Permission>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queues: Option<Vec<String>>,
}

/// What is said about the service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, expecting = "a table")]
#[allow(missing_docs, reason = "the keys are those of Config")]
pub struct Settings {
    pub listen: Option<String>,
    pub database: Option<String>,
    pub database_authority: Option<PathBuf>,
    pub dispatch: Option<DispatchKind>,
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
    pub body_limit: Option<usize>,
    pub batch_limit: Option<usize>,
    pub queue: Option<usize>,
    #[serde(with = "opt_size", default)]
    pub queue_bytes: Option<usize>,
    #[serde(with = "opt_size", default)]
    pub memory: Option<usize>,
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
    pub keys_kept: Option<Duration>,
    #[serde(with = "opt_time", default)]
    pub end_within: Option<Duration>,
    pub metrics_need_token: Option<bool>,
    #[serde(rename = "token", default, skip_serializing_if = "Vec::is_empty")]
    pub tokens: Vec<TokenSettings>,
}

/// One request in so many is recorded when nothing is said.
const SAMPLE: u32 = 100;
const LANES: usize = 2;
const CONNECTIONS: usize = 40;

/// Takes from the second what it says, and from the first the rest.
macro_rules! overridden {
    ($base:ident, $by:ident, { $($field:ident),+ $(,)? }) => {
        Settings { $($field: $by.$field.or($base.$field),)+ tokens: if $by.tokens.is_empty() { $base.tokens } else { $by.tokens } }
    };
}

impl FromDocument for Settings {}

impl Settings {
    /// These settings, except where the others say something.
    #[must_use]
    pub fn overridden_by(self, by: Settings) -> Settings {
        overridden!(self, by, {
            listen, database, database_authority, dispatch, lanes, connections, threads, null_body, records, sample,
            tls_certificate, tls_key, connections_max, idle_timeout, head_timeout, body_timeout, unread_timeout,
            body_limit, batch_limit, queue, queue_bytes, memory, long_polls, long_poll_limit, poll_interval,
            statement_messages, statement_bytes, delay_limit, expiry_limit, lease_limit, keys_kept, end_within,
            metrics_need_token,
        })
    }

    /// The configuration, with defaults for what is not said.
    ///
    /// # Errors
    /// When something cannot work, or means nothing with the rest.
    pub fn config(self) -> Result<Config, ConfigError> {
        let defaults = Config::default();
        let dispatch = self.dispatch()?;
        let tls = self.tls()?;
        if let (Some(sample), None) = (self.sample, &self.records) {
            return Err(refuse("sample", format!("{sample} belongs to records, of which none are kept; give records")));
        }
        let tokens = self.tokens.into_iter().enumerate().map(|(place, token)| token.config(place));
        let config = Config {
            database: self.database.unwrap_or_default(),
            database_authority: self.database_authority,
            listen: self.listen.unwrap_or(defaults.listen),
            tls,
            tokens: tokens.collect::<Result<_, _>>()?,
            metrics_need_token: self.metrics_need_token.unwrap_or(false),
            clients: Clients {
                connections_max: self.connections_max.unwrap_or(defaults.clients.connections_max),
                idle_timeout: self.idle_timeout.unwrap_or(defaults.clients.idle_timeout),
                head_timeout: self.head_timeout.unwrap_or(defaults.clients.head_timeout),
                body_timeout: self.body_timeout.unwrap_or(defaults.clients.body_timeout),
                unread_timeout: self.unread_timeout.unwrap_or(defaults.clients.unread_timeout),
            },
            dispatch,
            threads: self.threads,
            records: self.records.map(|directory| RecordsConfig { directory, sample: self.sample.unwrap_or(SAMPLE) }),
            limits: Limits {
                body_bytes: self.body_limit.unwrap_or(defaults.limits.body_bytes),
                batch_messages: self.batch_limit.unwrap_or(defaults.limits.batch_messages),
                waiting_requests: self.queue.unwrap_or(defaults.limits.waiting_requests),
                waiting_bytes: self.queue_bytes.unwrap_or(defaults.limits.waiting_bytes),
                memory: self.memory.unwrap_or(defaults.limits.memory),
                long_polls: self.long_polls.unwrap_or(defaults.limits.long_polls),
                long_poll: self.long_poll_limit.unwrap_or(defaults.limits.long_poll),
                statement_messages: self.statement_messages.unwrap_or(defaults.limits.statement_messages),
                statement_bytes: self.statement_bytes.unwrap_or(defaults.limits.statement_bytes),
                delay: self.delay_limit.unwrap_or(defaults.limits.delay),
                expiry: self.expiry_limit.unwrap_or(defaults.limits.expiry),
                lease: self.lease_limit.unwrap_or(defaults.limits.lease),
                keys_kept: self.keys_kept.unwrap_or(defaults.limits.keys_kept),
            },
            low_water_worth: defaults.low_water_worth,
            poll_interval: self.poll_interval.unwrap_or(defaults.poll_interval),
            end_within: self.end_within.unwrap_or(defaults.end_within),
        };
        check(&config)?;
        Ok(config)
    }

    /// The dispatch. A setting that says nothing in it is a mistake, not a wish to be passed over.
    fn dispatch(&self) -> Result<Dispatch, ConfigError> {
        let kind = self.dispatch.unwrap_or(DispatchKind::Fused);
        let belongs = [
            ("lanes", self.lanes, DispatchKind::Fused, "fused"),
            ("connections", self.connections, DispatchKind::Pool, "pool"),
            ("null-body", self.null_body, DispatchKind::None, "none"),
        ];
        for (key, value, of, name) in belongs {
            if let (Some(value), true) = (value, of != kind) {
                return Err(refuse(key, format!("{value} belongs to dispatch {name} only")));
            }
        }
        Ok(match kind {
            DispatchKind::Fused => Dispatch::Fused { lanes: self.lanes.unwrap_or(LANES) },
            DispatchKind::Pool => Dispatch::Pool { connections: self.connections.unwrap_or(CONNECTIONS) },
            DispatchKind::None => Dispatch::None { body_bytes: self.null_body },
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

impl TokenSettings {
    fn config(self, place: usize) -> Result<TokenConfig, ConfigError> {
        let at = |key: &str| format!("token.{place}.{key}");
        let token = match (self.token, self.token_file) {
            (Some(token), None) => token,
            (None, Some(path)) => std::fs::read_to_string(&path)
                .map_err(|error| refuse(at("token-file"), format!("{}: cannot read it: {error}", path.display())))?
                .trim()
                .to_string(),
            (Some(_), Some(_)) => {
                return Err(refuse(at("token-file"), "there is a token already; give one of the two"));
            }
            (None, None) => return Err(refuse(at("token"), "is missing; give token or token-file")),
        };
        TokenConfig::new(token, self.sender, self.may, self.queues).map_err(|(key, problem)| refuse(at(key), problem))
    }
}

fn refuse(key: impl Into<String>, problem: impl Into<String>) -> ConfigError {
    ConfigError::at(key, problem)
}

/// What cannot work.
fn check(config: &Config) -> Result<(), ConfigError> {
    let (Config { limits, clients, .. }, one) = (config, 1usize);
    if config.metrics_need_token && config.tokens.is_empty() {
        return Err(refuse("metrics-need-token", "there are no tokens, so it would protect nothing; add [[token]]"));
    }
    let (key, number) = match config.dispatch {
        Dispatch::Fused { lanes } => ("lanes", lanes),
        Dispatch::Pool { connections } => ("connections", connections),
        Dispatch::None { .. } => ("connections", one),
    };
    let numbers = [
        (key, number, 1000),
        ("threads", config.threads.unwrap_or(one), 1000),
        ("connections-max", clients.connections_max, 1 << 20),
        ("body-limit", limits.body_bytes, 64 << 20),
        ("batch-limit", limits.batch_messages, 10_000),
        ("queue", limits.waiting_requests, 10_000_000),
        ("queue-bytes", limits.waiting_bytes, usize::MAX >> 1),
        ("memory", limits.memory, usize::MAX >> 1),
        ("long-polls", limits.long_polls, 10_000_000),
        ("statement-messages", limits.statement_messages, 10_000),
        ("statement-bytes", limits.statement_bytes, 256 << 20),
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
        ("end-within", config.end_within),
    ];
    match times.into_iter().find(|(_, time)| time.is_zero()) {
        Some((key, _)) => Err(refuse(key, "must be longer than nothing")),
        None => token::check(&config.tokens)
            .map_err(|(place, key, problem)| refuse(format!("token.{place}.{key}"), problem)),
    }
}
