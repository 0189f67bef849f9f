//! What the proxy is told. Checked once, before anything starts; every queue and wait has its limit here.

use std::path::PathBuf;
use std::time::Duration;

/// For which requests the clock is read at every stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stamps {
    /// For none: only counted.
    Off,
    /// For those whose record is kept.
    Sampled,
    /// For all.
    All,
}

/// What becomes of a multi-get when the backend of some of its keys fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartFailure {
    /// Its keys are misses; counted.
    Miss,
    /// The values of the others, then the error in place of END.
    Partial,
    /// The error alone.
    Error,
}

/// Where records go and how many are kept.
#[derive(Clone, Debug)]
pub struct RecordsConfig {
    /// The directory.
    pub directory: PathBuf,
    /// One request in so many.
    pub sample: u32,
}

/// The whole configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where clients connect, `host:port`.
    pub listen: String,
    /// The backends, `host:port` each; their order is the order of replicas.
    pub servers: Vec<String>,
    /// Copies of each value.
    pub replicas: usize,
    /// Event loops.
    pub loops: usize,
    /// Two characters between which the hashed part of a key stands.
    pub hash_tag: Option<[u8; 2]>,
    /// For which requests the clock is read.
    pub stamps: Stamps,
    /// Which records are kept, if any.
    pub records: Option<RecordsConfig>,
    /// Where metrics are served, if anywhere.
    pub metrics: Option<String>,
    /// What a failed part does to a multi-get.
    pub part_failure: PartFailure,
    /// Time that a backend has to connect, and to answer.
    pub backend_timeout: Duration,
    /// Requests that may wait for the answer of one backend, per loop.
    pub backend_window: usize,
    /// Requests of one client that may be in flight before no more are read from it.
    pub client_window: usize,
    /// Bytes that may wait for one client before no more are read from it.
    pub client_buffer_bytes: u64,
    /// Bytes that may wait for one backend before requests are refused.
    pub backend_buffer_bytes: u64,
    /// The largest value that is passed on to a backend.
    pub value_bytes: usize,
    /// The largest reply of a backend that is passed on to a client.
    pub reply_bytes: usize,
    /// Clients at one time.
    pub clients_max: usize,
}

/// A configuration that cannot work: what is wrong and what to do.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the message of each variant says what it is")]
pub enum ConfigError {
    #[error("no backend: give at least one --server HOST:PORT")]
    NoServer,
    #[error("{0} backends: at most 250 are supported")]
    TooManyServers(usize),
    #[error("--server {0} is given twice")]
    ServerTwice(String),
    #[error("--replicas {replicas}, but there are {servers} backends: give a number from 1 to {servers}")]
    Replicas { replicas: usize, servers: usize },
    #[error("--loops {0}: give a number from 1 to 250")]
    Loops(usize),
    #[error("--records needs stamps: give --stamps sampled or --stamps all")]
    RecordsWithoutStamps,
    #[error("--stamps sampled needs --records: without records no request is sampled")]
    SampledWithoutRecords,
    #[error("--sample 0: give 1 to keep every record, or leave out --records to keep none")]
    SampleZero,
    #[error("{0} must not be zero")]
    Zero(&'static str),
}

impl Config {
    /// A configuration with the defaults for everything but the backends.
    pub fn new(listen: &str, servers: &[String]) -> Config {
        Config {
            listen: listen.into(),
            servers: servers.to_vec(),
            replicas: 1,
            loops: std::thread::available_parallelism().map_or(1, usize::from),
            hash_tag: None,
            stamps: Stamps::All,
            records: None,
            metrics: None,
            part_failure: PartFailure::Miss,
            backend_timeout: Duration::from_secs(1),
            backend_window: 64 * 1024,
            client_window: 1024,
            client_buffer_bytes: 1 << 20,
            backend_buffer_bytes: 64 << 20,
            value_bytes: 8 << 20,
            reply_bytes: 64 << 20,
            clients_max: 16 * 1024,
        }
    }

    /// Finds the first thing that cannot work.
    ///
    /// # Errors
    /// What it is, in one line.
    pub fn check(&self) -> Result<(), ConfigError> {
        let servers = self.servers.len();
        if servers == 0 {
            return Err(ConfigError::NoServer);
        }
        if servers > 250 {
            return Err(ConfigError::TooManyServers(servers));
        }
        if let Some(index) = (1..servers).find(|&index| self.servers[..index].contains(&self.servers[index])) {
            return Err(ConfigError::ServerTwice(self.servers[index].clone()));
        }
        if !(1..=servers).contains(&self.replicas) {
            return Err(ConfigError::Replicas { replicas: self.replicas, servers });
        }
        if !(1..=250).contains(&self.loops) {
            return Err(ConfigError::Loops(self.loops));
        }
        match (&self.records, self.stamps) {
            (Some(_), Stamps::Off) => return Err(ConfigError::RecordsWithoutStamps),
            (None, Stamps::Sampled) => return Err(ConfigError::SampledWithoutRecords),
            (Some(records), _) if records.sample == 0 => return Err(ConfigError::SampleZero),
            _ => {}
        }
        self.check_limits()
    }

    fn check_limits(&self) -> Result<(), ConfigError> {
        let limits = [
            ("--backend-timeout", self.backend_timeout.is_zero()),
            ("--backend-window", self.backend_window == 0),
            ("--client-window", self.client_window == 0),
            ("--client-buffer", self.client_buffer_bytes == 0),
            ("--backend-buffer", self.backend_buffer_bytes == 0),
            ("--value-max", self.value_bytes == 0),
            ("--reply-max", self.reply_bytes == 0),
            ("--clients-max", self.clients_max == 0),
        ];
        limits.into_iter().find(|(_, is_zero)| *is_zero).map_or(Ok(()), |(name, _)| Err(ConfigError::Zero(name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_work_is_one_clear_line() {
        let good = Config::new("127.0.0.1:0", &["a:1".into(), "b:2".into()]);
        assert_eq!(good.check(), Ok(()));
        let records = Some(RecordsConfig { directory: "x".into(), sample: 0 });
        let bad: [(Config, &str); 8] = [
            (Config { servers: vec![], ..good.clone() }, "no backend"),
            (Config { servers: vec!["a:1".into(), "a:1".into()], ..good.clone() }, "given twice"),
            (Config { replicas: 3, ..good.clone() }, "give a number from 1 to 2"),
            (Config { loops: 0, ..good.clone() }, "--loops 0"),
            (Config { records: records.clone(), stamps: Stamps::Off, ..good.clone() }, "--records needs stamps"),
            (Config { records, ..good.clone() }, "--sample 0"),
            (Config { stamps: Stamps::Sampled, ..good.clone() }, "needs --records"),
            (Config { client_window: 0, ..good.clone() }, "--client-window must not be zero"),
        ];
        for (config, expected) in bad {
            let line = config.check().unwrap_err().to_string();
            assert!(line.contains(expected) && !line.contains('\n'), "{line}");
        }
    }
}
