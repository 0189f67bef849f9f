//! The settings of a run as it used them, for the summary.

use crate::config::messages::MessagesConfig;
use crate::config::{Arrivals, Config, FAILED_MAX, Protocol, ServerChoice};
use crate::measure::times::PERCENTILES;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The settings as used. `test_time_s` is missing if a number of requests limited the run; `sample` is 0 without
/// records.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "docs/load-summary.md describes every key")]
pub struct Settings {
    pub servers: Vec<String>,
    pub distribution: String,
    pub protocol: String,
    pub noreply: bool,
    pub r#loop: String,
    pub arrivals: Option<String>,
    pub offered_per_s: Option<f64>,
    pub trace: Option<String>,
    pub clients: usize,
    pub threads: usize,
    #[serde(default)]
    pub spin: bool,
    pub ratio_set: u32,
    pub ratio_get: u32,
    pub data_size: String,
    pub data_size_bytes: Option<usize>,
    pub key_size: Option<String>,
    pub key_pattern: String,
    pub key_minimum: u64,
    pub key_maximum: u64,
    pub key_prefix: String,
    pub multi_key_get: usize,
    pub pipeline: usize,
    pub test_time_s: Option<f64>,
    pub requests: Option<u64>,
    pub warm_up_s: f64,
    pub think_time: String,
    pub think_mean_s: f64,
    pub prefill: bool,
    pub expect_hit_ratio: Option<f64>,
    #[serde(default = "default_failed_max")]
    pub failed_max: f64,
    #[serde(default)]
    pub achieved_min: Option<f64>,
    #[serde(default)]
    pub reply_timeout_s: f64,
    pub seed: u64,
    pub sample: u32,
    pub percentiles: Vec<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messages: Option<MessageSettings>,
}

/// The settings of a run with messages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "docs/load-summary.md describes every key")]
pub struct MessageSettings {
    pub operations: String,
    pub queues: usize,
    pub queue_prefix: Option<String>,
    pub prefill: u64,
    pub keep: bool,
    pub verify: bool,
    pub tokens: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leases: Option<LeaseSettings>,
}

/// The settings of receives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "docs/load-summary.md describes every key")]
pub struct LeaseSettings {
    pub lease_s: f64,
    pub after_receive: String,
    pub redelivery_time_s: f64,
    pub attempts: Option<u32>,
}

impl Settings {
    pub(crate) fn new(config: &Config) -> Settings {
        let is_open = config.is_open();
        Settings {
            servers: config.servers.clone(),
            distribution: distribution(if config.messages.is_some() { ServerChoice::Any } else { config.distribution })
                .into(),
            protocol: if config.messages.is_some() { HTTP } else { protocol(config.protocol) }.into(),
            noreply: config.noreply,
            r#loop: if is_open { OPEN } else { CLOSED }.into(),
            arrivals: match &config.trace {
                Some(trace) => Some(format!("trace {}, timing {}", trace.path.display(), trace.timing)),
                None => arrivals(&config.arrivals),
            },
            offered_per_s: config.arrivals.per_s(),
            trace: config.trace.as_ref().map(|trace| trace.path.display().to_string()),
            clients: config.clients,
            threads: config.threads,
            spin: config.spin,
            ratio_set: config.ratio_set,
            ratio_get: config.ratio_get,
            data_size: config.data_size.to_string(),
            data_size_bytes: config.data_size.fixed_value().map(|bytes| bytes as usize),
            key_size: config.key_size.as_ref().map(ToString::to_string),
            key_pattern: config.key_pattern.to_string(),
            key_minimum: config.key_minimum,
            key_maximum: config.key_maximum,
            key_prefix: config.key_prefix.clone(),
            multi_key_get: config.multi_key_get,
            pipeline: config.pipeline,
            test_time_s: config.requests.is_none().then_some(config.test_time.as_secs_f64()),
            requests: config.requests,
            warm_up_s: config.warm_up.as_secs_f64(),
            think_time: config.think_time.to_string(),
            think_mean_s: config.think_time.mean_s(),
            prefill: config.prefill && config.trace.is_none() && config.messages.is_none(),
            expect_hit_ratio: config.expect_hit_ratio,
            failed_max: config.failed_max,
            achieved_min: config.achieved_min,
            reply_timeout_s: config.reply_timeout.as_secs_f64(),
            seed: config.seed,
            sample: if config.records.is_some() { config.sample } else { 0 },
            percentiles: if config.percentiles.is_empty() { PERCENTILES.into() } else { config.percentiles.clone() },
            messages: config.messages.as_ref().map(MessageSettings::new),
        }
    }

    /// Whether arrivals are independent of replies.
    pub fn is_open(&self) -> bool {
        self.r#loop == OPEN
    }
}

fn default_failed_max() -> f64 {
    FAILED_MAX
}

/// The protocol of a message service.
const HTTP: &str = "http";
/// Arrivals are independent of replies.
pub(crate) const OPEN: &str = "open";
/// Clients wait for replies.
pub(crate) const CLOSED: &str = "closed";
/// Some of the merged generators have an open loop and others a closed one.
pub(crate) const MIXED: &str = "mixed";

impl MessageSettings {
    fn new(messages: &MessagesConfig) -> MessageSettings {
        MessageSettings {
            operations: messages.mix.to_string(),
            queues: messages.queues,
            queue_prefix: messages.queue_prefix.clone(),
            prefill: messages.prefill,
            keep: messages.keep,
            verify: messages.verify,
            tokens: messages.tokens.len(),
            leases: messages.mix.is_leasing().then(|| LeaseSettings {
                lease_s: messages.lease.as_secs_f64(),
                after_receive: messages.after_receive.to_string(),
                redelivery_time_s: messages.redelivery_time.as_secs_f64(),
                attempts: messages.attempts,
            }),
        }
    }
}

/// The arrivals as text, such as "poisson 5000/s"; none in a closed loop.
fn arrivals(arrivals: &Arrivals) -> Option<String> {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    match arrivals {
        Arrivals::Closed => None,
        Arrivals::Constant { per_s } => Some(format!("constant {per_s}/s")),
        Arrivals::Poisson { per_s } => Some(format!("poisson {per_s}/s")),
        Arrivals::Gaps { per_s, shape } => Some(format!("gaps {shape} at {per_s}/s")),
        Arrivals::Bursty { per_s, on, off } => {
            Some(format!("bursty {per_s}/s, {} ms on, {} ms off", ms(*on), ms(*off)))
        }
    }
}

fn protocol(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Text => "text",
        Protocol::Meta => "meta",
    }
}

fn distribution(distribution: ServerChoice) -> &'static str {
    match distribution {
        ServerChoice::Ketama => "ketama",
        ServerChoice::Any => "any",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_are_described_in_words() {
        let (on, off) = (Duration::from_millis(50), Duration::from_millis(150));
        let texts =
            [Arrivals::Poisson { per_s: 5000.0 }, Arrivals::Bursty { per_s: 12.5, on, off }].map(|one| arrivals(&one));
        assert_eq!(texts[0].as_deref(), Some("poisson 5000/s"));
        assert_eq!(texts[1].as_deref(), Some("bursty 12.5/s, 50 ms on, 150 ms off"));
        let arrivals = Arrivals::Constant { per_s: 1e6 };
        let settings = Settings::new(&Config { arrivals, ..Config::default() });
        assert!(settings.is_open() && settings.arrivals.as_deref() == Some("constant 1000000/s"));
        assert_eq!(settings.offered_per_s, Some(1e6));
    }

    #[test]
    fn a_closed_loop_offers_no_rate() {
        let settings = Settings::new(&Config::default());
        assert_eq!((settings.r#loop.as_str(), settings.arrivals, settings.offered_per_s), ("closed", None, None));
        assert_eq!((settings.protocol.as_str(), settings.distribution.as_str()), ("text", "ketama"));
        let json = serde_json::to_value(Settings::new(&Config::default())).unwrap();
        assert_eq!(json["loop"], "closed");
    }
}
