//! Changes of a server that an operator requests over the control socket: the messages, and the side of the command.
//!
//! ```text
//!   waystage proxy drain: server 1, pool, server, change ------> proxy      (reloads its configuration with the change)
//!                         <------ done or refused, and a sentence
//! ```

use net::Channel;
use std::fmt;
use std::io;
use std::path::Path;
use std::time::Duration;

/// The first word of the request. The number is the version of these messages.
const REQUEST: &str = "server 1";
const DONE: &str = "done";
const REFUSED: &str = "refused";
/// How long the proxy may take to reload its configuration.
const REPLY_WAIT: Duration = Duration::from_secs(60);
/// The number of times that a request is repeated after the proxy has disconnected, because it is being reloaded, and the pause
/// between two requests.
const ATTEMPTS: usize = 50;
const PAUSE: Duration = Duration::from_millis(20);

/// What is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerChange {
    /// It receives no more requests, or does again.
    Drain(bool),
    /// Its share of the keys.
    Weight(u32),
}

/// The server that is changed, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedServer {
    /// The pool. By default, all pools with this server.
    pub pool: Option<String>,
    /// The address or the name of the server, as in the configuration.
    pub server: String,
    /// The change.
    pub change: ServerChange,
}

/// A request that waits for its reply.
#[derive(Debug)]
pub struct ChangeRequest {
    /// What is requested.
    pub changed: ChangedServer,
    channel: Channel,
}

impl fmt::Display for ServerChange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerChange::Drain(true) => formatter.write_str("drain"),
            ServerChange::Drain(false) => formatter.write_str("undrain"),
            ServerChange::Weight(weight) => write!(formatter, "weight {weight}"),
        }
    }
}

impl ChangedServer {
    fn message(&self) -> String {
        let pool = self.pool.as_deref().unwrap_or_default();
        format!("{REQUEST}\n{pool}\n{}\n{}", self.server, self.change)
    }

    /// Reads a message. None if it is another one.
    fn parse(message: &str) -> Option<ChangedServer> {
        let lines: Vec<&str> = message.split('\n').collect();
        let [REQUEST, pool, server, change] = lines[..] else { return None };
        let change = match change {
            "drain" => ServerChange::Drain(true),
            "undrain" => ServerChange::Drain(false),
            other => ServerChange::Weight(other.strip_prefix("weight ")?.parse().ok()?),
        };
        let pool = Some(pool.to_string()).filter(|pool| !pool.is_empty());
        Some(ChangedServer { pool, server: server.into(), change })
    }
}

impl ChangeRequest {
    /// A request that has arrived on this connection; none if the message is another one.
    pub(super) fn new(message: &str, channel: Channel) -> Option<ChangeRequest> {
        Some(ChangeRequest { changed: ChangedServer::parse(message)?, channel })
    }

    /// Whether this message may be such a request.
    pub(super) fn is_one(message: &str) -> bool {
        ChangedServer::parse(message).is_some()
    }

    /// Replies with a sentence for the operator. A client that waits no longer gets no reply, which is not an error.
    pub fn reply(self, outcome: Result<String, String>) {
        let text = match outcome {
            Ok(text) => format!("{DONE}\n{text}"),
            Err(text) => format!("{REFUSED}\n{text}"),
        };
        let _ = self.channel.send(&text, &[]);
    }
}

/// Requests a change from the proxy with this control socket. Returns its sentence: `Err` if it has refused.
///
/// # Errors
/// If the proxy cannot be reached, or does not reply in time.
pub fn change_server(path: &Path, changed: &ChangedServer) -> io::Result<Result<String, String>> {
    let refuse = |line| Err(io::Error::new(io::ErrorKind::InvalidInput, line));
    if changed.pool.as_deref() == Some("") {
        // In the message, this means all pools.
        return refuse("--pool is empty; leave it out to change the server in each pool");
    }
    if [changed.pool.as_deref().unwrap_or_default(), &changed.server].iter().any(|name| name.contains('\n')) {
        return refuse("a name has no line ends");
    }
    let mut outcome = request(path, changed);
    for _ in 0..ATTEMPTS {
        match &outcome {
            // A change that was applied already changes nothing when it is requested again.
            Err(error) if super::hand_over::is_reloaded(error) => std::thread::sleep(PAUSE),
            _ => break,
        }
        outcome = request(path, changed);
    }
    outcome
}

fn request(path: &Path, changed: &ChangedServer) -> io::Result<Result<String, String>> {
    let channel = Channel::connect(path)?;
    channel.send(&changed.message(), &[])?;
    let (reply, _) = channel.receive(REPLY_WAIT)?;
    match reply.split_once('\n') {
        Some((DONE, text)) => Ok(Ok(text.into())),
        Some((REFUSED, text)) => Ok(Err(text.into())),
        _ => Err(io::Error::other(format!("{reply:?} instead of {DONE} or {REFUSED}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_as_it_was_written_and_no_other_is() {
        for change in [ServerChange::Drain(true), ServerChange::Drain(false), ServerChange::Weight(7)] {
            for pool in [None, Some("main".to_string())] {
                let changed = ChangedServer { pool, server: "10.0.0.1:11211".into(), change };
                assert_eq!(ChangedServer::parse(&changed.message()), Some(changed));
            }
        }
        for message in
            ["", "take-over 1", "server 1", "server 1\n\na:1", "server 1\n\na:1\nweight x", "server 2\n\na\ndrain"]
        {
            assert_eq!(ChangedServer::parse(message), None, "{message}");
        }
    }
}
