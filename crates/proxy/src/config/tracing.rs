//! The configuration of tracing: which requests have spans, and where these are sent.

use crate::config::ConfigError;
use crate::config::logging::LoggedKeys;
use net::{Address, HostPort};
use std::str::FromStr;

/// The operator's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracesConfig {
    /// The URL to which spans are sent. [`Collector`] parses it.
    pub url: String,
    /// One request in this many is traced.
    pub sample: u32,
    /// The most requests that wait for the collector.
    pub queue: usize,
    /// How keys appear in spans.
    pub keys: LoggedKeys,
    /// The name of this service in spans.
    pub service: String,
}

/// The settings that have no effect without a URL.
#[derive(Debug)]
pub(crate) struct TracesFile {
    pub(crate) url: Option<String>,
    pub(crate) sample: Option<u32>,
    pub(crate) queue: Option<usize>,
    pub(crate) keys: Option<LoggedKeys>,
    pub(crate) service: Option<String>,
}

/// The address and the path of a collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collector {
    /// The host and the port.
    pub host_port: HostPort,
    /// The path, with a query if there is one.
    pub path: String,
}

/// The most requests that may wait.
const QUEUE_MAX: usize = 100_000;
/// The longest URL and the longest name of the service, in bytes.
const TEXT_MAX: usize = 1024;

impl TracesConfig {
    /// Traces to this URL, with defaults for everything else.
    pub fn new(url: &str) -> TracesConfig {
        TracesConfig {
            url: url.into(),
            sample: 1000,
            queue: 2048,
            keys: LoggedKeys::Hashed,
            service: "waystage-proxy".into(),
        }
    }

    /// Checks the settings. `has_stamps` is whether any requests are stamped.
    pub(crate) fn check(&self, has_stamps: bool) -> Result<(), ConfigError> {
        let url = format!("{:?}", self.url);
        if let Err(problem) = self.url.parse::<Collector>() {
            // A password in it must not be printed.
            let is_secret = self.url.contains('@');
            return Err(if is_secret {
                ConfigError::at("traces", problem)
            } else {
                ConfigError::value("traces", url, problem)
            });
        }
        if !cfg!(feature = "otlp") {
            let problem = "this program cannot send spans; build it with the feature otlp";
            return Err(ConfigError::value("traces", url, problem));
        }
        if !has_stamps {
            let problem = "spans need stamps, and stamps is \"off\"; give stamps all or sampled";
            return Err(ConfigError::value("traces", url, problem));
        }
        if self.sample == 0 {
            let problem = "give 1 to trace every request, or no traces to trace none";
            return Err(ConfigError::value("traces-sample", 0, problem));
        }
        if !(1..=QUEUE_MAX).contains(&self.queue) {
            let problem = format!("give a number from 1 to {QUEUE_MAX}");
            return Err(ConfigError::value("traces-queue", self.queue, problem));
        }
        if self.service.is_empty() || self.service.len() > TEXT_MAX || self.service.chars().any(char::is_control) {
            let problem = format!("give a name of at most {TEXT_MAX} bytes without control characters");
            return Err(ConfigError::value("traces-service", format!("{:?}", self.service), problem));
        }
        Ok(())
    }
}

impl TracesFile {
    /// The settings with defaults, if there is a URL.
    pub(crate) fn config(self) -> Result<Option<TracesConfig>, ConfigError> {
        let Some(url) = self.url else {
            let given = [
                ("traces-sample", self.sample.map(|sample| sample.to_string())),
                ("traces-queue", self.queue.map(|queue| queue.to_string())),
                ("traces-keys", self.keys.map(|keys| format!("{:?}", keys.name()))),
                ("traces-service", self.service.map(|service| format!("{service:?}"))),
            ];
            return match given.into_iter().find_map(|(key, value)| Some((key, value?))) {
                Some((key, value)) => Err(ConfigError::value(
                    key,
                    value,
                    "has no effect without traces; give traces, the URL of a collector",
                )),
                None => Ok(None),
            };
        };
        let defaults = TracesConfig::new(&url);
        Ok(Some(TracesConfig {
            sample: self.sample.unwrap_or(defaults.sample),
            queue: self.queue.unwrap_or(defaults.queue),
            keys: self.keys.unwrap_or(defaults.keys),
            service: self.service.unwrap_or(defaults.service),
            url,
        }))
    }
}

impl FromStr for Collector {
    type Err = String;

    fn from_str(url: &str) -> Result<Collector, String> {
        const EXAMPLE: &str = "give a URL such as http://127.0.0.1:4318/v1/traces";
        if url.len() > TEXT_MAX || !url.bytes().all(|byte| byte.is_ascii_graphic()) || url.contains('#') {
            return Err(format!(
                "not printable ASCII without spaces and without #, or longer than {TEXT_MAX} bytes; {EXAMPLE}"
            ));
        }
        if url.starts_with("https://") {
            return Err(
                "TLS to a collector is not supported; send to one on this host, which can forward with TLS".into()
            );
        }
        let Some(rest) = url.strip_prefix("http://") else {
            return Err(format!("it does not begin with http://; {EXAMPLE}"));
        };
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        if authority.contains('@') {
            return Err("users and passwords are not supported; leave out everything up to @".into());
        }
        if !path.starts_with('/') || path == "/" {
            return Err(format!("it has no path, which most collectors need; {EXAMPLE}"));
        }
        // The scheme of an address is no part of a URL.
        let parsed = if authority.starts_with("tls:") { None } else { authority.parse::<Address>().ok() };
        let host_port = parsed.as_ref().and_then(Address::host_port).filter(|host_port| host_port.port() != 0);
        let Some(host_port) = host_port else {
            return Err(format!("{authority:?} is not a host with a port; {EXAMPLE}"));
        };
        Ok(Collector { host_port: host_port.clone(), path: path.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_a_host_a_port_and_a_path() {
        for (url, host, path) in [
            ("http://127.0.0.1:4318/v1/traces", "127.0.0.1:4318", "/v1/traces"),
            ("http://[::1]:4318/v1/traces", "[::1]:4318", "/v1/traces"),
            ("http://collector.example:80/a?b=/c", "collector.example:80", "/a?b=/c"),
        ] {
            let collector: Collector = url.parse().unwrap();
            assert_eq!((collector.host_port.to_string().as_str(), collector.path.as_str()), (host, path));
        }
        for (url, problem) in [
            ("", "does not begin with http://"),
            ("127.0.0.1:4318", "does not begin with http://"),
            ("HTTP://a:1/b", "does not begin with http://"),
            ("https://a:1/b", "TLS to a collector is not supported"),
            ("http://", "no path"),
            ("http://a:4318", "no path"),
            ("http://a:4318/", "no path"),
            ("http://a:4318?b", "no path"),
            ("http:///v1/traces", "\"\" is not a host with a port"),
            ("http://a/v1/traces", "\"a\" is not a host with a port"),
            ("http://a:0/v1/traces", "\"a:0\" is not a host with a port"),
            ("http://a:99999/v1/traces", "is not a host with a port"),
            ("http://unix:/v1/traces", "\"unix:\" is not a host with a port"),
            ("http://tls:a:1/v1/traces", "is not a host with a port"),
            ("http://user:word@a:1/v1/traces", "users and passwords"),
            ("http://a:1/v1 traces", "not printable ASCII"),
            ("http://a:1/v1\r\nHost: b", "not printable ASCII"),
            ("http://a:1/v1#b", "without #"),
            ("http://ä:1/v1", "not printable ASCII"),
        ] {
            let error = url.parse::<Collector>().unwrap_err();
            assert!(error.contains(problem), "{url}: {error}");
        }
        assert!(format!("http://a:1/{}", "x".repeat(TEXT_MAX)).parse::<Collector>().is_err());
    }

    #[test]
    #[cfg(feature = "otlp")]
    fn each_problem_is_reported_in_one_line() {
        let good = TracesConfig::new("http://127.0.0.1:4318/v1/traces");
        assert_eq!(good.check(true), Ok(()));
        let line = |config: TracesConfig, has_stamps| config.check(has_stamps).unwrap_err().to_string();
        assert!(line(good.clone(), false).contains("stamps is \"off\""));
        assert!(line(TracesConfig { sample: 0, ..good.clone() }, true).starts_with("traces-sample = 0: give 1"));
        assert!(line(TracesConfig { queue: 0, ..good.clone() }, true).contains("from 1 to 100000"));
        assert!(line(TracesConfig { queue: 100_001, ..good.clone() }, true).contains("from 1 to 100000"));
        assert!(line(TracesConfig { service: String::new(), ..good.clone() }, true).contains("give a name"));
        assert!(line(TracesConfig { service: "a\n".into(), ..good }, true).contains("without control characters"));
    }

    #[test]
    #[cfg(not(feature = "otlp"))]
    fn a_program_that_cannot_send_spans_refuses_traces() {
        let error = TracesConfig::new("http://127.0.0.1:4318/v1/traces").check(true).unwrap_err().to_string();
        assert!(error.ends_with("this program cannot send spans; build it with the feature otlp"), "{error}");
    }
}
