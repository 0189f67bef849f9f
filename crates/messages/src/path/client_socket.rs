//! Checks whether the client of a request has closed its connection. A message for such a client would be lost, or in flight until its
//! lease ends. The kernel is asked, because unread bytes hide the end of a connection from the HTTP library.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::future::pending;
use std::sync::Arc;
use tokio::io::Interest;
use tokio::net::TcpStream;

/// The socket of a request's client; none in tests of single steps.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientSocket(Option<Arc<TcpStream>>);

impl ClientSocket {
    pub(crate) fn new(stream: Arc<TcpStream>) -> ClientSocket {
        ClientSocket(Some(stream))
    }

    /// Whether the client has closed or reset its side of the connection.
    pub(crate) fn has_left(&self) -> bool {
        let Some(stream) = &self.0 else { return false };
        // The kernel also reports errors and the end of both sides (POLLERR, POLLHUP).
        let mut sockets = [PollFd::new(stream, PollFlags::RDHUP)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut sockets, Some(&at_once)).is_ok_and(|ready| ready > 0)
    }

    /// Waits until the client has closed or reset its side of the connection.
    pub(crate) async fn left(&self) {
        match &self.0 {
            // `PRIORITY` reports the end of the stream, but not bytes that arrive (`READABLE`).
            Some(stream) if stream.ready(Interest::PRIORITY).await.is_ok() => {}
            _ => pending().await,
        }
    }
}
