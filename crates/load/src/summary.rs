//! What a run has shown: the JSON of docs/load-summary.md, and whether it is to be believed.
//! Knows what the threads have counted, not how.

use crate::config::Config;
use crate::distribution::Distribution;
use crate::seconds::Second;
use crate::tally::{OperationTally, Tally, Verified};
use base64::Engine;
use clock::{CpuTime, Nanos};
use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};
use serde::Serialize;
use std::collections::BTreeMap;

/// Name and version of the format.
pub const FORMAT: &str = "waystage-load/1";
/// Percentiles that are shown whenever there is a value ...
const PERCENTILES: [(&str, f64); 5] = [("50", 50.0), ("75", 75.0), ("90", 90.0), ("95", 95.0), ("99", 99.0)];
/// ... and those that are shown only when at least ten values lie above them.
const RARE_PERCENTILES: [(&str, f64); 2] = [("99.9", 99.9), ("99.99", 99.99)];

/// Everything that is known of a run. docs/load-summary.md describes every key.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "docs/load-summary.md describes every key")]
pub struct Summary {
    pub format: &'static str,
    pub version: &'static str,
    pub arguments: Vec<String>,
    pub settings: Settings,
    pub started_unix_ns: u64,
    pub measure_from_clock_ns: u64,
    pub measure_to_clock_ns: u64,
    pub measured_s: f64,
    pub totals: Totals,
    pub throughput_per_s: f64,
    pub operations: Operations,
    pub seconds: Vec<Second>,
    pub cpu: Cpu,
    pub verification: Verification,
    pub errors: BTreeMap<String, u64>,
    pub valid: bool,
    pub reasons: Vec<String>,
}

/// The settings as used. Without a test time a number of requests decided; without records nothing is sampled.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "docs/load-summary.md describes every key")]
pub struct Settings {
    pub servers: Vec<String>,
    pub clients: usize,
    pub threads: usize,
    pub ratio_set: u32,
    pub ratio_get: u32,
    pub data_size_bytes: usize,
    pub key_minimum: u64,
    pub key_maximum: u64,
    pub multi_key_get: usize,
    pub pipeline: usize,
    pub test_time_s: Option<f64>,
    pub warm_up_s: f64,
    pub think_time: String,
    pub seed: u64,
    pub sample: u32,
}

/// Sums over the window, and over the run where the name says so.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "docs/load-summary.md describes every key")]
pub struct Totals {
    pub requests: u64,
    pub keys: u64,
    pub hits: u64,
    pub misses: u64,
    pub errors: u64,
    pub sent_bytes: u64,
    pub received_bytes: u64,
    pub requests_sent: u64,
    pub requests_answered: u64,
}

/// Per operation, and all together.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "docs/load-summary.md describes every key")]
pub struct Operations {
    pub get: OperationSummary,
    pub set: OperationSummary,
    pub all: OperationSummary,
}

/// One operation within the window. Requests answered by an error are in `errors` and nowhere else.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "docs/load-summary.md describes every key")]
pub struct OperationSummary {
    pub count: u64,
    pub hits: u64,
    pub misses: u64,
    pub errors: u64,
    pub response: Times,
    pub service: Times,
    pub slip: Times,
}

/// A distribution of times. A percentile with fewer than ten values above it is left out beyond the 99th.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "docs/load-summary.md describes every key")]
pub struct Times {
    pub mean_ns: f64,
    pub std_ns: f64,
    pub min_ns: u64,
    pub max_ns: u64,
    pub percentiles: BTreeMap<&'static str, u64>,
    pub histogram: String,
}

/// Processor time of the load generator over the window.
#[derive(Clone, Copy, Debug, Serialize)]
#[allow(missing_docs, reason = "docs/load-summary.md describes every key")]
pub struct Cpu {
    pub user_s: f64,
    pub system_s: f64,
    pub share: f64,
}

/// What became of every value that was returned, over the whole run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "docs/load-summary.md describes every key")]
pub struct Verification {
    pub checked: u64,
    pub wrong: u64,
    pub torn: u64,
    pub stale: u64,
    pub unexpected_reply: u64,
    pub keys_uncertain: u64,
}

/// When a run was measured, and what it cost.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub(crate) started_unix_ns: u64,
    pub(crate) from: Nanos,
    pub(crate) to: Nanos,
    pub(crate) cpu_from: CpuTime,
    pub(crate) cpu_to: CpuTime,
    pub(crate) start: Nanos,
    pub(crate) keys_uncertain: u64,
    /// Why the run ended before its time, if it did for a reason that spoils it.
    pub(crate) broken: Option<String>,
}

impl Summary {
    /// Puts together what all threads have counted.
    pub(crate) fn new(config: &Config, measured: &Measured, tally: &Tally, mut seconds: Vec<Second>) -> Summary {
        let measured_ns = measured.to.since(measured.from);
        let measured_s = measured_ns as f64 / 1e9;
        for second in &mut seconds {
            let begins = measured.start.0 + second.second * 1_000_000_000;
            second.measured = begins >= measured.from.0 && begins + 1_000_000_000 <= measured.to.0;
        }
        let mut all = tally.get.clone();
        all.merge(&tally.set);
        let reasons = reasons(tally, all.count(), measured);
        Summary {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION"),
            arguments: config.arguments.clone(),
            settings: Settings::new(config),
            started_unix_ns: measured.started_unix_ns,
            measure_from_clock_ns: measured.from.0,
            measure_to_clock_ns: measured.to.0,
            measured_s,
            totals: Totals::new(tally, &all),
            throughput_per_s: if measured_ns == 0 { 0.0 } else { all.count() as f64 / measured_s },
            operations: Operations {
                get: OperationSummary::new(&tally.get),
                set: OperationSummary::new(&tally.set),
                all: OperationSummary::new(&all),
            },
            seconds,
            cpu: Cpu::new(measured, measured_s * config.threads as f64),
            verification: Verification::new(tally.verified, measured.keys_uncertain),
            errors: tally.errors.clone(),
            valid: reasons.is_empty(),
            reasons,
        }
    }

    /// The summary as one JSON object.
    ///
    /// # Errors
    /// Never with the types used here.
    pub fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self).map(|json| json + "\n")
    }
}

/// Everything that spoils the run.
fn reasons(tally: &Tally, count: u64, measured: &Measured) -> Vec<String> {
    let verified = tally.verified;
    let found = [
        (verified.wrong, "belong to another key"),
        (verified.torn, "are torn (not as any one set wrote them)"),
        (verified.stale, "are stale (older than the last acknowledged set, or not of this run)"),
    ];
    let found = found.into_iter().filter(|(values, _)| *values > 0);
    let mut reasons: Vec<String> =
        found.map(|(values, what)| format!("{values} of {} values {what}", verified.checked)).collect();
    if verified.unexpected_reply > 0 {
        reasons.push(format!("{} replies were not replies to what was asked", verified.unexpected_reply));
    }
    reasons.extend(measured.broken.clone());
    if count == 0 {
        reasons.push("nothing was measured: no request was answered within the window other than by an error".into());
    }
    reasons
}

impl Settings {
    fn new(config: &Config) -> Settings {
        Settings {
            servers: config.servers.clone(),
            clients: config.clients,
            threads: config.threads,
            ratio_set: config.ratio_set,
            ratio_get: config.ratio_get,
            data_size_bytes: config.value_sizes().largest(),
            key_minimum: config.key_minimum,
            key_maximum: config.key_maximum,
            multi_key_get: config.multi_key_get,
            pipeline: config.pipeline,
            test_time_s: config.requests.is_none().then_some(config.test_time.as_secs_f64()),
            warm_up_s: config.warm_up.as_secs_f64(),
            think_time: config.think_time.to_string(),
            seed: config.seed,
            sample: if config.records.is_some() { config.sample } else { 0 },
        }
    }
}

impl Totals {
    fn new(tally: &Tally, all: &OperationTally) -> Totals {
        Totals {
            requests: all.count(),
            keys: tally.keys,
            hits: all.hits,
            misses: all.misses,
            errors: all.errors,
            sent_bytes: tally.sent_bytes,
            received_bytes: tally.received_bytes,
            requests_sent: tally.requests_sent,
            requests_answered: tally.requests_answered,
        }
    }
}

impl OperationSummary {
    fn new(tally: &OperationTally) -> OperationSummary {
        OperationSummary {
            count: tally.count(),
            hits: tally.hits,
            misses: tally.misses,
            errors: tally.errors,
            response: Times::new(&tally.response),
            service: Times::new(&tally.service),
            slip: Times::new(&tally.slip),
        }
    }
}

impl Times {
    fn new(distribution: &Distribution) -> Times {
        let mut percentiles = BTreeMap::new();
        if distribution.count() > 0 {
            let rare = RARE_PERCENTILES.into_iter().filter(|(_, percent)| distribution.supports(*percent));
            percentiles.extend(
                PERCENTILES.into_iter().chain(rare).map(|(name, percent)| (name, distribution.percentile_ns(percent))),
            );
        }
        Times {
            mean_ns: distribution.mean_ns(),
            std_ns: distribution.std_ns(),
            min_ns: distribution.min_ns(),
            max_ns: distribution.max_ns(),
            percentiles,
            histogram: encode(distribution),
        }
    }
}

fn encode(distribution: &Distribution) -> String {
    let mut bytes = Vec::new();
    // Writing to memory cannot fail; an empty text would be noticed by every reader.
    let _ = V2DeflateSerializer::new().serialize(&distribution.histogram, &mut bytes);
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

impl Cpu {
    fn new(measured: &Measured, thread_seconds: f64) -> Cpu {
        let user_s = (measured.cpu_to.user_s - measured.cpu_from.user_s).max(0.0);
        let system_s = (measured.cpu_to.system_s - measured.cpu_from.system_s).max(0.0);
        let share = if thread_seconds > 0.0 { (user_s + system_s) / thread_seconds } else { 0.0 };
        Cpu { user_s, system_s, share }
    }
}

impl Verification {
    fn new(verified: Verified, keys_uncertain: u64) -> Verification {
        let Verified { checked, wrong, torn, stale, unexpected_reply } = verified;
        Verification { checked, wrong, torn, stale, unexpected_reply, keys_uncertain }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seconds::{SecondTally, SecondsCollector};
    use crate::tally::{Ended, Operation};

    fn measured() -> Measured {
        Measured {
            started_unix_ns: 7,
            start: Nanos(1_000_000_000),
            from: Nanos(1_500_000_000),
            to: Nanos(3_500_000_000),
            cpu_from: CpuTime::default(),
            cpu_to: CpuTime { user_s: 0.5, system_s: 0.5 },
            keys_uncertain: 3,
            broken: None,
        }
    }

    fn get(tally: &mut Tally, response_ns: u64) {
        let ended = Ended {
            operation: Operation::Get,
            intended: Nanos(10),
            sent: Nanos(10),
            completed: Nanos(10 + response_ns),
            keys: 1,
            hits: 1,
            request_bytes: 10,
            reply_bytes: 20,
            failed: false,
        };
        tally.record(&ended, true);
    }

    #[test]
    fn nothing_measured_is_not_valid() {
        let summary = Summary::new(&Config::default(), &measured(), &Tally::new(), Vec::new());
        assert!(!summary.valid && summary.reasons[0].contains("nothing was measured"), "{:?}", summary.reasons);
        assert_eq!(summary.operations.all.response.min_ns, 0);
        assert!(summary.operations.all.response.percentiles.is_empty());
    }

    #[test]
    fn errors_alone_do_not_spoil_a_run_but_verification_does() {
        let mut tally = Tally::new();
        get(&mut tally, 100);
        tally.error("SERVER_ERROR out of memory");
        assert!(Summary::new(&Config::default(), &measured(), &tally, Vec::new()).valid);
        (tally.verified.checked, tally.verified.stale) = (9, 2);
        tally.verified.unexpected_reply = 1;
        let summary = Summary::new(&Config::default(), &measured(), &tally, Vec::new());
        assert_eq!((summary.valid, summary.reasons.len()), (false, 2));
        assert!(summary.reasons[0].starts_with("2 of 9 values are stale"), "{:?}", summary.reasons);
    }

    #[test]
    fn a_second_is_measured_when_all_of_it_is() {
        let mut seconds = SecondsCollector::new(1);
        seconds.take(crate::seconds::Handover { thread: 0, now_in: 4, past: SecondTally::new(0) });
        let summary = Summary::new(&Config::default(), &measured(), &Tally::new(), seconds.close(Vec::new()));
        assert_eq!(
            summary.seconds.iter().map(|second| second.measured).collect::<Vec<_>>(),
            [false, true, false, false]
        );
        assert_eq!((summary.measured_s, summary.cpu.share), (2.0, 0.5));
    }

    #[test]
    fn the_histogram_can_be_read_back() {
        let mut tally = Tally::new();
        (1..=1000).for_each(|time| get(&mut tally, time * 1000));
        let summary = Summary::new(&Config::default(), &measured(), &tally, Vec::new());
        let bytes =
            base64::engine::general_purpose::STANDARD.decode(&summary.operations.get.response.histogram).unwrap();
        let read: hdrhistogram::Histogram<u64> =
            hdrhistogram::serialization::Deserializer::new().deserialize(&mut bytes.as_slice()).unwrap();
        assert_eq!(read.len(), 1000);
        assert_eq!(summary.operations.get.response.percentiles["50"], read.value_at_quantile(0.5));
        assert!(!summary.operations.get.response.percentiles.contains_key("99.9"));
        let json: serde_json::Value = serde_json::from_str(&summary.to_json().unwrap()).unwrap();
        assert_eq!(json["format"], FORMAT);
        assert_eq!(json["operations"]["all"]["count"], 1000);
        assert_eq!(json["settings"]["test_time_s"], 10.0);
    }
}
