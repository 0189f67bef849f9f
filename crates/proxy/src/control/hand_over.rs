//! One process replaces another without a gap in listening. The successor receives the listening sockets themselves and reports
//! when it serves. Only then does its predecessor stop accepting. This file contains the messages and the successor's side.
//!
//! ```text
//!   successor: take-over ------> predecessor        (both have the sockets, the predecessor accepts)
//!              <------ sockets, a line each
//!              serving ------>                      (both accept)
//!              <------ stopped                      (the successor accepts, the predecessor serves its clients)
//! ```

use net::{Channel, Inherited};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The first message. The number is the version of these messages.
pub(super) const TAKE_OVER: &str = "take-over 1";
pub(super) const SERVING: &str = "serving";
pub(super) const STOPPED: &str = "stopped";
/// Precedes the address of a unix socket whose file changes owner.
pub(super) const WITH_FILE: &str = "with file ";
/// The name of the metrics' socket.
pub(super) const METRICS: &str = "metrics";
/// How long the other process may take to send its next message.
pub(super) const MESSAGE_WAIT: Duration = Duration::from_secs(5);

/// The number of times that the successor repeats its request after the predecessor has disconnected, and the pause between
/// two requests.
const ATTEMPTS: usize = 50;
const PAUSE: Duration = Duration::from_millis(20);

/// A hand-over as the successor sees it, after it has received the sockets.
#[derive(Debug)]
pub(crate) struct TakeOver {
    channel: Channel,
    path: PathBuf,
}

impl TakeOver {
    /// Requests the sockets of the process that listens on `path`. A predecessor that is being reloaded disconnects, and soon
    /// listens again.
    pub(crate) fn begin(path: &Path) -> io::Result<(TakeOver, Vec<Inherited>)> {
        let mut outcome = TakeOver::request(path);
        for _ in 0..ATTEMPTS {
            match &outcome {
                Err(error) if is_reloaded(error) => std::thread::sleep(PAUSE),
                _ => break,
            }
            outcome = TakeOver::request(path);
        }
        outcome
    }

    fn request(path: &Path) -> io::Result<(TakeOver, Vec<Inherited>)> {
        let channel = Channel::connect(path)?;
        channel.send(TAKE_OVER, &[])?;
        let (text, sockets) = channel.receive(MESSAGE_WAIT)?;
        let names: Vec<&str> = text.lines().collect();
        if names.len() != sockets.len() {
            return Err(io::Error::other(format!("received {} names with {} sockets", names.len(), sockets.len())));
        }
        let inherited = names.into_iter().zip(sockets).map(|(line, socket)| {
            let file = line.strip_prefix(WITH_FILE);
            let name = file.unwrap_or(line).into();
            Inherited { name, owns_file: file.is_some(), is_activated: false, socket }
        });
        Ok((TakeOver { channel, path: path.into() }, inherited.collect()))
    }

    /// Reports that this process serves. Returns when the predecessor has stopped accepting. A predecessor that was reloaded after
    /// it had sent its sockets has disconnected. The successor then sends its request again.
    pub(crate) fn finish(self) -> io::Result<()> {
        let mut outcome = self.report();
        for _ in 0..ATTEMPTS {
            if outcome.is_ok() {
                break;
            }
            match TakeOver::request(&self.path) {
                Ok((again, _)) => outcome = again.report(),
                Err(error) if is_reloaded(&error) => std::thread::sleep(PAUSE),
                Err(_) => break,
            }
        }
        outcome
    }

    fn report(&self) -> io::Result<()> {
        self.channel.send(SERVING, &[])?;
        match self.channel.receive(MESSAGE_WAIT)? {
            (text, _) if text == STOPPED => Ok(()),
            (text, _) => Err(io::Error::other(format!("{text:?} instead of {STOPPED:?}"))),
        }
    }
}

/// Whether the request may have failed because the predecessor is being reloaded.
pub(super) fn is_reloaded(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionRefused | ConnectionReset | UnexpectedEof)
}

/// Removes the metrics' socket from the inherited ones.
pub(crate) fn take_metrics(handed: &mut Vec<Inherited>) -> Option<OwnedFd> {
    let at = handed.iter().position(|inherited| inherited.name == METRICS)?;
    Some(handed.remove(at).socket)
}
