//! The lines that a simulated proxy logs, and what must be true of them.

use proxy::{Config, LogFormat, LogOutput, LoggedKeys};
use serde_json::Value;
use std::sync::{Arc, Mutex};

/// The lines of all configurations of one proxy.
#[derive(Clone, Debug, Default)]
pub(crate) struct SimulatedLog(Arc<Mutex<Vec<String>>>);

impl SimulatedLog {
    /// Lets this configuration log here.
    pub(crate) fn listen_to(&self, mut config: Config) -> Config {
        let (lines, format, keys) = (self.0.clone(), config.log.format, config.log.keys);
        let slow_us = config.log.slow_requests.map(|time| time.as_secs_f64() * 1e6);
        config.log.output = LogOutput::new(move |line| {
            let problem = complaint(line, format, keys, slow_us).map(|what| format!("{what}: {line:?}"));
            lines.lock().unwrap().extend(problem);
            Ok(())
        });
        config
    }

    /// A line that must not be there.
    pub(crate) fn complaint(&self) -> Option<String> {
        self.0.lock().unwrap().first().cloned()
    }
}

/// What is wrong with a line.
fn complaint(line: &[u8], format: LogFormat, keys: LoggedKeys, slow_us: Option<f64>) -> Option<&'static str> {
    let Ok(text) = std::str::from_utf8(line) else { return Some("not UTF-8") };
    if text.matches(|char: char| char.is_control()).count() != 1 || !text.ends_with('\n') {
        return Some("not one line");
    }
    if format == LogFormat::Text {
        return None;
    }
    let Ok(value) = serde_json::from_str::<Value>(text) else { return Some("not JSON") };
    if value["event"] != "slow_request" {
        return None;
    }
    let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    let total = number(&value["total_us"]);
    let stages: f64 = value["stages_us"].as_object().into_iter().flatten().map(|(_, time)| number(time)).sum();
    let shows_key = value["key"].as_str().is_some_and(|key| !key.starts_with("xxh3:"));
    match slow_us {
        None => Some("slow requests are not logged"),
        Some(slow) if total < slow => Some("it was not slow"),
        _ if (stages - total).abs() > 0.01 => Some("its stages are not its time"),
        _ if shows_key && keys != LoggedKeys::Plain => Some("it shows the key"),
        _ => None,
    }
}
