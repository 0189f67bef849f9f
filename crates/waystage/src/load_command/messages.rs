//! The arguments of a run against a message service.

use clap::Args;
use load::{MessagesConfig, Mix};
use quantity::duration;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// Queues when nobody says how many.
const QUEUES: usize = 10;

/// What is asked of which message service.
#[derive(Clone, Debug, Args)]
pub(crate) struct MessageArguments {
    /// Load a message service (docs/load-messages.md) instead of memcached servers; may be given several times, for
    /// services over one database: the clients are spread over them.
    #[arg(long, value_name = "http://HOST:PORT", value_parser = host,
        conflicts_with_all = ["servers", "distribution", "protocol", "ratio", "key_size", "key_pattern", "key_prefix",
            "multi_key_get", "pipeline", "noreply", "trace", "expect_hit_ratio"])]
    pub(crate) messages: Vec<String>,
    /// What clients do, with weights: create, delete, send, send-to, peek, peek-from, pop, pop-from and waiting; or d15,
    /// an operation of five requests [default: send:1,pop:1].
    #[arg(long, value_name = "NAME:WEIGHT,...|d15", requires = "messages")]
    operations: Option<Mix>,
    /// Queues, which are created before the run and deleted after it [default: 10].
    #[arg(long, value_name = "N", requires = "messages")]
    queues: Option<usize>,
    /// What stands before the number in the name of a queue [default: a name of this run alone].
    #[arg(long, value_name = "TEXT", requires = "messages")]
    queue_prefix: Option<String>,
    /// Send so many messages before the run, to anyone, to each queue in turn.
    #[arg(long, value_name = "N", default_value_t = 0, requires = "messages")]
    prefill: u64,
    /// Do not delete the queues after the run.
    #[arg(long, requires = "messages")]
    keep: bool,
    /// Do not follow every message from its send to its pop, and read nothing after the run.
    #[arg(long, requires = "messages")]
    no_verify: bool,
    /// Do not hold their order against the service: for one with --dispatch pool, which does not promise it. Nor do
    /// several services over one database.
    #[arg(long, requires = "messages")]
    any_order: bool,
    /// After the run, read what is left for so long at most.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration, requires = "messages")]
    drain_time: Duration,
    /// A file with a bearer token in each line; client i has the one with number i, counted around.
    #[arg(long, value_name = "FILE", requires = "messages")]
    token_file: Option<PathBuf>,
}

impl MessageArguments {
    /// What is asked of a message service, if one is to be loaded.
    pub(crate) fn config(&self) -> Option<MessagesConfig> {
        (!self.messages.is_empty()).then(|| MessagesConfig {
            mix: self.operations.clone().unwrap_or_default(),
            queues: self.queues.unwrap_or(QUEUES),
            queue_prefix: self.queue_prefix.clone(),
            prefill: self.prefill,
            keep: self.keep,
            verify: !self.no_verify,
            any_order: self.any_order,
            drain: self.drain_time,
            tokens: Vec::new(),
        })
    }

    /// Refuses what only makes sense with --messages. That the arguments require it is not enough: with --server, which it
    /// excludes, that counts as excused.
    ///
    /// # Errors
    /// The first such argument, in one line.
    pub(crate) fn check(&self) -> Result<(), String> {
        let given = [
            (self.operations.is_some(), "--operations"),
            (self.queues.is_some(), "--queues"),
            (self.queue_prefix.is_some(), "--queue-prefix"),
            (self.prefill > 0, "--prefill"),
            (self.keep, "--keep"),
            (self.no_verify, "--no-verify"),
            (self.any_order, "--any-order"),
            (self.token_file.is_some(), "--token-file"),
        ];
        match given.into_iter().find(|(is_given, _)| *is_given && self.messages.is_empty()) {
            Some((_, flag)) => {
                Err(format!("{flag} is for message services: give --messages http://HOST:PORT, not --server"))
            }
            None => Ok(()),
        }
    }

    /// The tokens of the clients.
    ///
    /// # Errors
    /// Why the file cannot be read, in one line.
    pub(crate) fn tokens(&self) -> Result<Vec<String>, String> {
        let Some(path) = &self.token_file else { return Ok(Vec::new()) };
        let said = |what: &str| format!("--token-file {}: {what}", path.display());
        let text = fs::read_to_string(path).map_err(|error| said(&error.to_string()))?;
        let tokens: Vec<String> =
            text.lines().map(str::trim).filter(|line| !line.is_empty()).map(String::from).collect();
        if tokens.is_empty() {
            return Err(said("there is no token in it"));
        }
        if !tokens.iter().all(|token| token.bytes().all(|byte| byte.is_ascii_graphic())) {
            return Err(said("a token is visible ASCII characters without spaces"));
        }
        Ok(tokens)
    }
}

/// `http://HOST:PORT` as HOST:PORT.
fn host(text: &str) -> Result<String, String> {
    let rest = text.strip_prefix("http://");
    let rest = rest.ok_or_else(|| format!("{text:?} does not begin with http://, which is all that is spoken here"))?;
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let has_port = rest.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    if !has_port || rest.contains(['/', '?', '@']) {
        return Err(format!("{text:?} is not http://HOST:PORT"));
    }
    Ok(rest.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_a_host_with_a_port() {
        assert_eq!((host("http://a:80"), host("http://[::1]:8080/")), (Ok("a:80".into()), Ok("[::1]:8080".into())));
        for text in
            ["", "a:80", "https://a:80", "http://a", "http://a:x", "http://:80", "http://a:80/v1", "http://u@a:80"]
        {
            assert!(host(text).is_err(), "{text}");
        }
    }
}
