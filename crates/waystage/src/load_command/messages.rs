//! The arguments of a run against a message service.

use clap::Args;
use load::{AfterReceive, MessagesConfig, Mix};
use quantity::duration;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// The default number of queues.
const QUEUES: usize = 10;
/// The default visibility timeout.
const LEASE: Duration = Duration::from_secs(30);
/// docs/messages-database.md promises redelivery within this time after an outage.
const REDELIVERY_TIME: Duration = Duration::from_secs(10);

/// The message service and the operations on it.
#[derive(Clone, Debug, Args)]
pub(crate) struct MessageArguments {
    /// Load a message service (docs/load-messages.md) instead of memcached servers. The flag can be repeated for
    /// services with the same database; the clients are distributed over them.
    #[arg(help_heading = "Message services", long, value_name = "http://HOST:PORT", value_parser = host,
        conflicts_with_all = ["servers", "distribution", "protocol", "ratio", "key_size", "key_pattern", "key_prefix",
            "multi_key_get", "pipeline", "noreply", "trace", "expect_hit_ratio"])]
    pub(crate) messages: Vec<String>,
    /// The operations and their weights: create, delete, send, send-to, peek, peek-from, pop, pop-from, waiting and receive; or
    /// d15, a published load whose operations have five requests each (docs/load-messages.md) [default:
    /// send:1,pop:1].
    #[arg(help_heading = "Message services", long, value_name = "NAME:WEIGHT,...|d15", requires = "messages")]
    operations: Option<Mix>,
    /// Queues, which are created before the run and deleted after it [default: 10].
    #[arg(help_heading = "Message services", long, value_name = "N", requires = "messages")]
    queues: Option<usize>,
    /// The prefix of the queue names, before the number [default: unique for each run].
    #[arg(help_heading = "Message services", long, value_name = "TEXT", requires = "messages")]
    queue_prefix: Option<String>,
    /// Send this number of messages for any receiver before the run, to the queues in turn.
    #[arg(help_heading = "Message services", long, value_name = "N", default_value_t = 0, requires = "messages")]
    prefill: u64,
    /// Do not delete the queues after the run.
    #[arg(help_heading = "Message services", long, requires = "messages")]
    keep: bool,
    /// Do not verify messages between their send and their pop, and do not read the remaining messages after the run.
    #[arg(help_heading = "Message services", long, requires = "messages")]
    no_verify: bool,
    /// Do not check the order of messages. Use it for a service with --dispatch pool, which promises no order. Several
    /// services with one database promise none either.
    #[arg(help_heading = "Message services", long, requires = "messages")]
    any_order: bool,
    /// Read the messages that are left after the run for at most this time.
    #[arg(help_heading = "Message services", long, value_name = "TIME", default_value = "60s", value_parser = duration, requires = "messages")]
    drain_time: Duration,
    /// The visibility timeout of messages that the operation receive returns [default: 30s].
    #[arg(help_heading = "Message services", long, value_name = "TIME", value_parser = duration, requires = "messages")]
    lease: Option<Duration>,
    /// What a client does with a received message, drawn with these weights: acknowledge, extend (and draw again),
    /// nack, or abandon, so that the lease ends [default: acknowledge:1].
    #[arg(help_heading = "Message services", long, value_name = "NAME:WEIGHT,...", requires = "messages")]
    after_receive: Option<AfterReceive>,
    /// How long a message may stay invisible after its lease has ended, or after an outage of the database
    /// [default: 10s].
    #[arg(help_heading = "Message services", long, value_name = "TIME", value_parser = duration, requires = "messages")]
    redelivery_time: Option<Duration>,
    /// Create the queues with a dead-letter queue, to which messages move after this number of attempts.
    #[arg(help_heading = "Message services", long, value_name = "N", requires = "messages")]
    attempts: Option<u32>,
    /// A file with one bearer token per line. Client i uses token i, modulo the number of tokens.
    #[arg(help_heading = "Message services", long, value_name = "FILE", requires = "messages")]
    token_file: Option<PathBuf>,
}

impl MessageArguments {
    /// The settings of a run with messages, if there are any.
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
            lease: self.lease.unwrap_or(LEASE),
            after_receive: self.after_receive.clone().unwrap_or_default(),
            redelivery_time: self.redelivery_time.unwrap_or(REDELIVERY_TIME),
            attempts: self.attempts,
            tokens: Vec::new(),
        })
    }

    /// Rejects arguments that need --messages. `requires` of clap is not enough: it is waived if --server is given,
    /// which excludes --messages.
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
            (self.lease.is_some(), "--lease"),
            (self.after_receive.is_some(), "--after-receive"),
            (self.redelivery_time.is_some(), "--redelivery-time"),
            (self.attempts.is_some(), "--attempts"),
            (self.token_file.is_some(), "--token-file"),
        ];
        match given.into_iter().find(|(is_given, _)| *is_given && self.messages.is_empty()) {
            Some((_, flag)) => Err(format!("{flag} needs --messages http://HOST:PORT instead of --server")),
            None => Ok(()),
        }
    }

    /// The tokens of the clients.
    ///
    /// # Errors
    /// Why the file cannot be read, in one line.
    pub(crate) fn tokens(&self) -> Result<Vec<String>, String> {
        let Some(path) = &self.token_file else { return Ok(Vec::new()) };
        let failure = |what: &str| format!("--token-file {}: {what}", path.display());
        let text = fs::read_to_string(path).map_err(|error| failure(&error.to_string()))?;
        let tokens: Vec<String> =
            text.lines().map(str::trim).filter(|line| !line.is_empty()).map(String::from).collect();
        if tokens.is_empty() {
            return Err(failure("the file has no tokens"));
        }
        if !tokens.iter().all(|token| token.bytes().all(|byte| byte.is_ascii_graphic())) {
            return Err(failure("a token must consist of visible ASCII characters without spaces"));
        }
        Ok(tokens)
    }
}

/// `http://HOST:PORT` as HOST:PORT.
fn host(text: &str) -> Result<String, String> {
    let rest = text.strip_prefix("http://");
    let rest = rest.ok_or_else(|| format!("{text:?} does not start with http://, the only supported protocol"))?;
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
    fn a_service_is_given_as_host_and_port() {
        assert_eq!((host("http://a:80"), host("http://[::1]:8080/")), (Ok("a:80".into()), Ok("[::1]:8080".into())));
        for text in
            ["", "a:80", "https://a:80", "http://a", "http://a:x", "http://:80", "http://a:80/v1", "http://u@a:80"]
        {
            assert!(host(text).is_err(), "{text}");
        }
    }
}
