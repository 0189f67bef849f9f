//! A non-blocking connection: a stream with an inbox and an outbox.

use crate::address::Address;
use crate::inbox::{Buffers, Filled, Inbox};
use crate::outbox::Outbox;
use crate::proxy_header::{ClientAddress, HeaderReader};
use crate::stream::{Endpoint, Stream};
use mio::event::Source;
use mio::net::TcpStream;
use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use rustix::net::sockopt::set_tcp_keepcnt;
use rustix::net::{RecvFlags, recv};
use socket2::{SockRef, TcpKeepalive};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

/// The number of unanswered checks after which a connection is broken.
const KEEPALIVE_CHECKS: u32 = 3;

/// One connection, to a client or to a backend.
#[derive(Debug)]
pub struct Connection {
    stream: Stream,
    /// Received bytes that have not been consumed.
    pub inbox: Inbox,
    /// Bytes that have not been written.
    pub outbox: Outbox,
    /// Whether the last write was refused (EAGAIN), so that the next one must wait for readiness.
    blocked: bool,
    /// Whether a read may find bytes. Readiness is edge-triggered, so it must be remembered.
    readable: bool,
    /// Whether readiness reported that the peer will send no more.
    closing: bool,
}

/// The result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flushed {
    /// The outbox is empty.
    All,
    /// The kernel accepts no more; readiness will report when it does.
    Blocked,
}

impl Connection {
    /// Wraps a TCP stream that is connected or connecting.
    pub fn new(stream: TcpStream) -> Connection {
        Connection::over(stream.into())
    }

    /// Wraps a stream of any kind.
    pub(crate) fn over(stream: Stream) -> Connection {
        Connection {
            stream,
            inbox: Inbox::default(),
            outbox: Outbox::default(),
            blocked: false,
            readable: false,
            closing: false,
        }
    }

    /// Starts to connect. Readiness to write reports success or failure.
    ///
    /// # Errors
    /// If it has failed immediately.
    pub fn connect(address: SocketAddr) -> io::Result<Connection> {
        Connection::open(&Endpoint::Tcp(address))
    }

    /// Starts to connect to an endpoint of any kind.
    ///
    /// # Errors
    /// If it has failed immediately.
    pub fn open(endpoint: &Endpoint) -> io::Result<Connection> {
        let mut connection = Connection::over(Stream::connect(endpoint)?);
        connection.blocked = true;
        Ok(connection)
    }

    /// Records readiness.
    pub fn on_ready(&mut self, readable: bool, writable: bool, closing: bool) {
        self.readable |= readable || closing;
        self.closing |= closing;
        if writable {
            self.blocked = false;
            if let Stream::Tls(stream) = &mut self.stream {
                self.readable |= stream.on_writable();
            }
        }
    }

    /// Whether a read may find bytes.
    pub fn is_readable(&self) -> bool {
        self.readable
    }

    /// Reads until the socket is empty or `budget_bytes` have been read.
    ///
    /// # Errors
    /// If the connection is broken.
    pub fn fill(&mut self, buffers: &mut Buffers, budget_bytes: usize) -> io::Result<Filled> {
        // The kind of stream is matched once instead of for each read.
        let Connection { stream, inbox, readable, closing, .. } = self;
        match stream {
            Stream::Tcp(stream) => fill(stream, inbox, readable, *closing, buffers, budget_bytes),
            Stream::Unix(stream) => fill(stream, inbox, readable, *closing, buffers, budget_bytes),
            Stream::Tls(stream) => stream.fill(inbox, readable, *closing, buffers, budget_bytes),
        }
    }

    /// Reads the header of the PROXY protocol, which precedes all other bytes, also those of TLS. Returns the address in it when it
    /// is complete.
    ///
    /// # Errors
    /// `InvalidData` if it is not a header, `UnexpectedEof` if the peer has closed its side, others if the connection is broken.
    pub fn receive_header(&mut self, reader: &mut HeaderReader) -> io::Result<Option<ClientAddress>> {
        let received = match &self.stream {
            Stream::Tcp(stream) => reader.receive(stream),
            Stream::Unix(stream) => reader.receive(stream),
            Stream::Tls(stream) => reader.receive(&stream.socket),
        };
        // The socket is empty only if the header has not arrived completely.
        self.readable &= !matches!(received, Ok(None));
        received
    }

    /// Writes the outbox, unless the kernel is known to refuse.
    ///
    /// # Errors
    /// If the connection is broken.
    pub fn flush(&mut self) -> io::Result<Flushed> {
        if self.outbox.is_empty() {
            return Ok(Flushed::All);
        }
        if !self.blocked {
            let is_written = match &mut self.stream {
                Stream::Tcp(stream) => self.outbox.flush(stream)?,
                Stream::Unix(stream) => self.outbox.flush(stream)?,
                // The TLS stream tracks itself whether it must wait, and for which direction.
                Stream::Tls(stream) => {
                    return Ok(if stream.flush(&mut self.outbox)? { Flushed::All } else { Flushed::Blocked });
                }
            };
            if is_written {
                return Ok(Flushed::All);
            }
        }
        self.blocked = true;
        Ok(Flushed::Blocked)
    }

    /// Shuts down the sending side after the bytes already written. The connection can still be read.
    pub fn end_writing(&mut self) {
        self.stream.end_writing();
    }

    /// Makes closing the connection a reset: the kernel drops what it has not delivered, instead of sending it for minutes. A unix
    /// socket delivers at once.
    pub fn reset_on_close(&self) {
        if let Some(stream) = self.stream.tcp() {
            // Without it, closing is only slower to give up.
            let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
        }
    }

    /// Reads and discards up to `budget_bytes`; `None` if the peer has closed or the connection is broken.
    pub fn drop_input(&mut self, buffers: &mut Buffers, budget_bytes: usize) -> Option<usize> {
        let filled = self.fill(buffers, budget_bytes);
        let dropped = self.inbox.filled().len();
        self.inbox.consume(dropped);
        self.inbox.release(buffers);
        matches!(filled, Ok(Filled::Drained | Filled::More)).then_some(dropped)
    }

    /// The error of a failed connection attempt, if any. Call it when the connection is first writable.
    pub fn connect_error(&self) -> Option<io::Error> {
        match self.stream.take_error() {
            Ok(error) => error,
            Err(error) => Some(error),
        }
    }

    /// Whether the TLS handshake is in progress.
    pub fn is_handshaking(&self) -> bool {
        matches!(&self.stream, Stream::Tls(stream) if stream.is_handshaking())
    }

    /// Lets the kernel check whether the peer still exists when no byte has passed for this long, and then at a third of that
    /// interval. After several checks without an answer the connection is broken.
    pub fn set_keepalive(&self, idle: Duration) {
        if let Some(stream) = self.stream.tcp() {
            let interval = Duration::from_secs((idle.as_secs() / 3).max(1));
            let keepalive = TcpKeepalive::new().with_time(idle).with_interval(interval);
            // If the stream is broken, the first read reports it.
            let _ = SockRef::from(stream).set_tcp_keepalive(&keepalive);
            let _ = set_tcp_keepcnt(stream, KEEPALIVE_CHECKS);
        }
    }

    /// The local address; `None` if it is not TCP.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.stream.tcp()?.local_addr().ok()
    }

    /// The address of this end, as the kernel reports it: of a client, the address to which it has connected. `None` for a unix
    /// socket without a path.
    pub fn local_end(&self) -> Option<Address> {
        match self.stream.unix() {
            Some(stream) => Some(Address::Unix(stream.local_addr().ok()?.as_pathname()?.into())),
            None => Some(Address::Tcp(self.local_address()?.into())),
        }
    }

    /// The remote address; `None` before it is connected, or if it is not TCP.
    pub fn peer_address(&self) -> Option<SocketAddr> {
        self.stream.tcp()?.peer_addr().ok()
    }

    /// The address of the client, if it has one, where this is reported of it.
    pub fn client_address(&self, reported: ClientAddress) -> Option<SocketAddr> {
        match reported {
            ClientAddress::OfPeer => self.peer_address(),
            ClientAddress::Reported(address) => Some(address),
            ClientAddress::Unnamed => None,
        }
    }

    pub(crate) fn source(&mut self) -> &mut dyn Source {
        self.stream.source()
    }
}

/// Reads plain bytes until the socket is empty or `budget_bytes` have been read.
fn fill(
    stream: &impl AsFd,
    inbox: &mut Inbox,
    readable: &mut bool,
    closing: bool,
    buffers: &mut Buffers,
    budget_bytes: usize,
) -> io::Result<Filled> {
    let mut taken = 0;
    while *readable {
        let room = inbox.room(buffers);
        let wanted = room.capacity() - room.len();
        match recv(stream, spare_capacity(room), RecvFlags::empty()) {
            Ok((0, _)) => {
                *readable = false;
                return Ok(Filled::Closed);
            }
            Ok((count, _)) => {
                taken += count;
                // A short read means that the socket is empty (epoll(7)), except at the end of the stream.
                if count < wanted && !closing {
                    *readable = false;
                } else if taken >= budget_bytes {
                    return Ok(Filled::More);
                }
            }
            Err(Errno::AGAIN) => *readable = false,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Filled::Drained)
}
