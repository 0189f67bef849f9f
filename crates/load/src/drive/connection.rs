//! The state of one connection: up, being established, or down until the next attempt. Knows no requests.

use clock::Nanos;
use net::Connection;
use std::time::Duration;

/// The pause before the first attempt to reconnect. Each consecutive failure doubles it ...
pub(crate) const RETRY_FIRST: Duration = Duration::from_millis(10);
/// ... up to this many times.
pub(crate) const RETRY_DOUBLINGS_MAX: u32 = 7;
/// The timeout of an attempt to connect.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Identifies the connection of a request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ConnectionId {
    /// The number of the client within its thread.
    pub(crate) client: usize,
    /// The number of the connection within the run.
    pub(crate) number: u32,
    /// The local port.
    pub(crate) port: u16,
    /// The number of the server, in the order of the `--server` flags.
    pub(crate) server: u16,
}

/// The state of a connection.
#[derive(Debug)]
pub(crate) enum LaneState {
    /// Connected.
    Up(Connection),
    /// Being established, until this timeout.
    Connecting(Connection, Nanos),
    /// Lost. The next attempt is due at this time.
    Down(Nanos),
}

/// Why a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disconnect {
    /// The peer closed it, or it failed.
    Closed,
    /// A reply timed out.
    Timeout,
    /// A reply matched no request, or the bytes were not a reply.
    OutOfStep,
}

impl Disconnect {
    /// The line under which the oldest request in flight is counted.
    pub(crate) fn error_line(self) -> &'static str {
        match self {
            Disconnect::Closed => "connection lost",
            Disconnect::Timeout => "reply timed out",
            Disconnect::OutOfStep => "connection out of step",
        }
    }
}
