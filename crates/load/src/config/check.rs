//! Checks that the settings of a run are consistent, and warns of surprising ones.

use crate::config::messages::MessagesConfig;
use crate::config::{Arrivals, Config, KEY_BYTES_MAX};
use crate::messages::VERIFIED_BYTES_MIN;
use crate::workload::think_time::ThinkTime;
use std::time::Duration;

/// The versions of all keys are kept in memory, eight bytes each.
const KEYS_MAX: u64 = 1 << 27;
/// Digits of the largest key number.
const DIGITS_MAX: usize = 20;
/// memcached's default limit on a value.
const USUAL_VALUE_BYTES_MAX: usize = 1 << 20;
/// A larger value is most likely a mistake.
const VALUE_BYTES_MAX: usize = 1 << 30;
/// These limits only keep mistakes from using up all memory.
const CLIENTS_MAX: usize = 60_000;
const THREADS_MAX: usize = 255;
const RATE_MIN_PER_S: f64 = 0.001;
const RATE_MAX_PER_S: f64 = 1e8;
const PIPELINE_MAX: usize = 65_536;
const MULTI_KEY_GET_MAX: usize = 10_000;
const QUEUES_MAX: usize = 1_000_000;
/// A number follows the prefix, or two for a client's own queue. The service allows names of 80 bytes.
const PREFIX_BYTES_MAX: usize = 50;
/// The limits of the service (docs/messages.md).
const LEASE_MAX: Duration = Duration::from_secs(12 * 3600);
const ATTEMPTS_MAX: u32 = 1000;

impl Config {
    /// Rejects settings that cannot be run, in one line that says how to correct them.
    ///
    /// # Errors
    /// The first contradiction found.
    pub fn check(&self) -> Result<(), String> {
        if let Some(trace) = &self.trace {
            trace.check().map_err(|error| format!("--trace: {error}"))?;
            if self.arrivals != Arrivals::Closed || self.requests.is_some() || self.multi_key_get > 1 {
                return Err(
                    "--trace determines the requests and their times; omit --rate, --requests (see --trace-rows) \
                    and --multi-key-get"
                        .to_owned(),
                );
            }
        }
        let limits = self.size_limits().into_iter().chain(self.loop_limits());
        if let Some((_, line)) = limits.into_iter().find(|(is_violated, _)| *is_violated) {
            return Err(line);
        }
        if let Arrivals::Gaps { shape, .. } = &self.arrivals
            && shape.finite_mean().is_ok_and(|mean| mean <= 0.0)
        {
            return Err(format!("--arrivals gaps:{shape}: their mean must be above 0"));
        }
        if self.keys() > KEYS_MAX {
            return Err(format!("{} keys are too many to verify; give at most {KEYS_MAX}", self.keys()));
        }
        if let Some(messages) = &self.messages {
            messages.check(self)?;
        }
        self.key_pattern.check(self.keys()).map_err(|error| format!("--key-pattern: {error}"))?;
        Ok(())
    }

    /// Limits on clients, keys, values and pipelines: whether each is violated, and the message.
    fn size_limits(&self) -> Vec<(bool, String)> {
        let prefix_is_text = self.key_prefix.bytes().all(|byte| byte.is_ascii_graphic());
        vec![
            (self.servers.is_empty(), "no server to load; give --server HOST:PORT".to_owned()),
            (
                self.threads == 0 || self.threads > THREADS_MAX,
                format!("--threads {} must be 1 to {THREADS_MAX}", self.threads),
            ),
            (
                self.clients < self.threads,
                format!(
                    "--clients {} is the total over --threads {}; give at least one client for each thread",
                    self.clients, self.threads
                ),
            ),
            (self.clients > CLIENTS_MAX, format!("--clients {} must be at most {CLIENTS_MAX}", self.clients)),
            (
                self.ratio_set == 0 && self.ratio_get == 0,
                "--ratio 0:0 leaves nothing to send; it is set:get, for example 1:10".to_owned(),
            ),
            (
                self.key_maximum < self.key_minimum,
                format!("--key-maximum {} is below --key-minimum {}", self.key_maximum, self.key_minimum),
            ),
            (!prefix_is_text, "--key-prefix must be visible ASCII characters without spaces".to_owned()),
            (
                self.key_prefix.len() > KEY_BYTES_MAX - DIGITS_MAX,
                format!("--key-prefix must be at most {} bytes", KEY_BYTES_MAX - DIGITS_MAX),
            ),
            (
                self.value_sizes().largest() > VALUE_BYTES_MAX,
                format!("--data-size must be at most {VALUE_BYTES_MAX} bytes"),
            ),
            (
                self.multi_key_get == 0 || self.multi_key_get > MULTI_KEY_GET_MAX,
                format!("--multi-key-get {} must be 1 to {MULTI_KEY_GET_MAX}", self.multi_key_get),
            ),
            (
                self.pipeline == 0 || self.pipeline > PIPELINE_MAX,
                format!("--pipeline {} must be 1 to {PIPELINE_MAX}; 1 is one request at a time", self.pipeline),
            ),
        ]
    }

    /// Limits on the window, the loop and all connections: whether each is violated, and the message.
    fn loop_limits(&self) -> Vec<(bool, String)> {
        let window_is_empty = self.requests.is_none() && self.test_time.is_zero();
        vec![
            (window_is_empty, "--test-time 0 leaves nothing to measure".to_owned()),
            (self.requests == Some(0), "--requests 0 leaves nothing to measure".to_owned()),
            (self.reply_timeout.is_zero(), "--reply-timeout must be more than 0".to_owned()),
            (
                self.arrivals.per_s().is_some_and(|per_s| !(RATE_MIN_PER_S..=RATE_MAX_PER_S).contains(&per_s)),
                format!("--rate must be {RATE_MIN_PER_S} to {RATE_MAX_PER_S} requests per second"),
            ),
            (
                self.arrivals.per_s().is_some() && self.think_time != ThinkTime::NONE,
                "--rate and --think-time contradict each other: an open loop does not wait for replies".to_owned(),
            ),
            (
                matches!(&self.arrivals, Arrivals::Bursty { on, off, .. } if on.is_zero() || off.is_zero()),
                "--arrivals bursty needs times above 0: bursty:200ms:800ms".to_owned(),
            ),
            (
                self.connections() > CLIENTS_MAX,
                format!(
                    "--clients {} with a connection to each of {} servers are too many; at most {CLIENTS_MAX} in all",
                    self.clients,
                    self.servers.len()
                ),
            ),
        ]
    }

    /// Settings that can be run but may surprise, one line each.
    pub fn warnings(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.messages.is_some() {
            return lines;
        }
        if self.value_sizes().largest() > USUAL_VALUE_BYTES_MAX {
            lines.push(
                "--data-size is above 1 MiB, and memcached rejects such values unless started with -I".to_owned(),
            );
        }
        let smallest = self.data_size.quantile(0.0);
        if smallest < 16.0 {
            lines.push(format!(
                "a value of {smallest:.0} bytes is too short for its key and version (16 bytes), so {} cannot be detected",
                if smallest > 8.0 { "some old versions" } else { "old versions and some values of other keys" }
            ));
        }
        if self.ratio_set > 0 && self.keys() < (self.clients * self.pipeline) as u64 {
            lines.push(
                "fewer keys than requests in flight: a set of a key with another set in flight becomes a get"
                    .to_owned(),
            );
        }
        lines
    }
}

impl MessagesConfig {
    /// Rejects settings that cannot be run, in one line that says how to correct them.
    ///
    /// # Errors
    /// The first contradiction found.
    fn check(&self, config: &Config) -> Result<(), String> {
        if self.queues == 0 || self.queues > QUEUES_MAX {
            return Err(format!("--queues must be 1 to {QUEUES_MAX}"));
        }
        if config.pipeline != 1 {
            return Err("--pipeline is 1 with --messages: one request is in flight on a connection".into());
        }
        let smallest = config.data_size.quantile(0.0);
        if self.verify && smallest < VERIFIED_BYTES_MIN as f64 {
            return Err(format!(
                "--data-size {}: a body of {smallest:.0} bytes is too short to be verified; give at least {VERIFIED_BYTES_MIN}, or use \
                 --no-verify",
                config.data_size
            ));
        }
        if self.lease.is_zero() || self.lease > LEASE_MAX {
            return Err(format!("--lease must be more than 0, and at most {} h", LEASE_MAX.as_secs() / 3600));
        }
        if self.redelivery_time.is_zero() {
            return Err("--redelivery-time must be more than 0".into());
        }
        if self.attempts.is_some_and(|attempts| attempts == 0 || attempts > ATTEMPTS_MAX) {
            return Err(format!("--attempts must be 1 to {ATTEMPTS_MAX}"));
        }
        if self.verify && self.mix.is_leasing() && self.drain < self.lease + self.redelivery_time {
            return Err(format!(
                "--drain-time {:?} is shorter than --lease {:?} and --redelivery-time {:?} together, so messages could \
                 not return in time",
                self.drain, self.lease, self.redelivery_time
            ));
        }
        if let Some(prefix) = &self.queue_prefix {
            let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
            let begins_well = prefix.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric() || first == b'_');
            if !begins_well || prefix.len() > PREFIX_BYTES_MAX || !prefix.bytes().all(is_name) {
                return Err(format!(
                    "--queue-prefix {prefix:?}: 1 to {PREFIX_BYTES_MAX} letters, digits, '_', '-' and '.', not starting with '-' or '.'"
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::fixed_bytes;

    fn valid() -> Config {
        Config { servers: vec!["127.0.0.1:11211".into()], ..Config::default() }
    }

    fn refusal(change: impl FnOnce(&mut Config)) -> String {
        let mut config = valid();
        change(&mut config);
        config.check().unwrap_err()
    }

    #[test]
    fn the_default_is_valid_without_warnings() {
        assert_eq!(valid().check(), Ok(()));
        assert_eq!(valid().warnings(), Vec::<String>::new());
    }

    #[test]
    fn contradictions_are_one_line_that_names_the_flag() {
        assert!(refusal(|config| config.servers.clear()).contains("--server"));
        assert!(refusal(|config| config.threads = 2).contains("--clients 1 is the total"));
        assert!(refusal(|config| (config.ratio_set, config.ratio_get) = (0, 0)).contains("--ratio 0:0"));
        assert!(refusal(|config| config.key_minimum = 20_000).contains("--key-maximum 10000 is below"));
        assert!(refusal(|config| config.pipeline = 0).contains("--pipeline"));
        assert!(refusal(|config| config.multi_key_get = 0).contains("--multi-key-get"));
        assert!(refusal(|config| config.key_prefix = "a b".into()).contains("--key-prefix"));
        assert!(refusal(|config| config.key_maximum = u64::MAX).contains("too many"));
        assert!(refusal(|config| config.test_time = Duration::ZERO).contains("--test-time"));
        assert!(refusal(|config| config.requests = Some(0)).contains("--requests"));
    }

    #[test]
    fn an_open_loop_needs_a_possible_rate_and_no_think_time() {
        let open = |arrivals| refusal(move |config| config.arrivals = arrivals);
        assert!(open(Arrivals::Constant { per_s: 0.0 }).contains("--rate"));
        assert!(open(Arrivals::Poisson { per_s: f64::NAN }).contains("--rate"));
        let (on, off) = (Duration::ZERO, Duration::from_secs(1));
        assert!(open(Arrivals::Bursty { per_s: 1.0, on, off }).contains("bursty"));
        let thinking = refusal(|config| {
            config.arrivals = Arrivals::Poisson { per_s: 1.0 };
            config.think_time = ThinkTime::fixed(Duration::from_secs(1));
        });
        assert!(thinking.contains("contradict"), "{thinking}");
    }

    #[test]
    fn surprising_settings_have_warnings() {
        let warned = |change: fn(&mut Config)| {
            let mut config = valid();
            change(&mut config);
            assert_eq!(config.check(), Ok(()));
            config.warnings().join("\n")
        };
        assert!(warned(|config| config.data_size = fixed_bytes(2 << 20)).contains("1 MiB"));
        assert!(warned(|config| config.data_size = fixed_bytes(10)).contains("some old versions"));
        assert!(warned(|config| config.key_maximum = 0).is_empty());
        assert!(warned(|config| (config.key_maximum, config.clients) = (0, 2)).contains("fewer keys"));
    }
}
