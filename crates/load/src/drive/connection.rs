//! The state of one connection: up, being made, or lost until it is tried again. Knows no requests.

use clock::Nanos;
use net::Connection;
use std::time::Duration;

/// The wait before a lost connection is made again; doubled with every failure in a row ...
pub(crate) const RETRY_FIRST: Duration = Duration::from_millis(10);
/// ... so many times.
pub(crate) const RETRY_DOUBLINGS_MAX: u32 = 7;
/// An attempt to connect may take so long.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Which connection a request was on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ConnectionId {
    /// Number of the client within its thread.
    pub(crate) client: usize,
    /// Number of the connection within the run.
    pub(crate) connection: u32,
    /// Our port.
    pub(crate) port: u16,
    /// Number of the server in the order of the flags.
    pub(crate) server: u16,
}

/// The state of a connection.
#[derive(Debug)]
pub(crate) enum LaneState {
    /// Connected.
    Up(Connection),
    /// Being connected; given up at this time.
    Connecting(Connection, Nanos),
    /// Disconnect; to be made again at this time.
    Down(Nanos),
}

/// Why a connection is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disconnect {
    /// It was closed or broke.
    Closed,
    /// A reply did not come in time.
    Timeout,
    /// A reply that belongs to nothing came, or bytes that are no reply.
    OutOfStep,
}

impl Disconnect {
    /// Under which line the oldest request in flight is counted.
    pub(crate) fn error_line(self) -> &'static str {
        match self {
            Disconnect::Closed => "connection lost",
            Disconnect::Timeout => "no reply in time",
            Disconnect::OutOfStep => "connection out of step",
        }
    }
}
