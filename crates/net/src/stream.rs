//! The stream below a connection, and the endpoints to which one can be opened.

use crate::tls::TlsTo;
use crate::tls_stream::TlsStream;
use mio::event::Source;
use mio::net::{TcpStream, UnixStream};
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::path::Path;
use std::sync::Arc;

/// The socket below a connection.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<TlsStream>),
}

/// An endpoint: an address whose name has been resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// Plain bytes over TCP.
    Tcp(SocketAddr),
    /// Plain bytes over a unix socket.
    Unix(Arc<Path>),
    /// TLS over TCP.
    Tls(SocketAddr, TlsTo),
}

impl Stream {
    /// Starts to connect.
    pub(crate) fn connect(endpoint: &Endpoint) -> io::Result<Stream> {
        match endpoint {
            Endpoint::Tcp(socket) => TcpStream::connect(*socket).map(Stream::from),
            Endpoint::Unix(path) => UnixStream::connect(path).map(Stream::from),
            Endpoint::Tls(socket, tls) => Ok(Stream::tls(TcpStream::connect(*socket)?, tls.connect()?, true)),
        }
    }

    /// TLS over a socket that is connected or connecting.
    pub(crate) fn tls(socket: TcpStream, session: rustls::Connection, is_blocked: bool) -> Stream {
        // No delay, as for plain TCP.
        let _ = socket.set_nodelay(true);
        Stream::Tls(Box::new(TlsStream::new(socket, session, is_blocked)))
    }

    /// The source to register for readiness.
    pub(crate) fn source(&mut self) -> &mut dyn Source {
        match self {
            Stream::Tcp(stream) => stream,
            Stream::Unix(stream) => stream,
            Stream::Tls(stream) => &mut stream.socket,
        }
    }

    /// Shuts down the sending side.
    pub(crate) fn end_writing(&mut self) {
        // Shutting down a broken connection fails, which does not matter.
        let _ = match self {
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Stream::Unix(stream) => stream.shutdown(Shutdown::Write),
            Stream::Tls(stream) => return stream.end_writing(),
        };
    }

    /// The pending error of the socket, if any.
    pub(crate) fn take_error(&self) -> io::Result<Option<io::Error>> {
        match self {
            Stream::Tcp(stream) => stream.take_error(),
            Stream::Unix(stream) => stream.take_error(),
            Stream::Tls(stream) => stream.socket.take_error(),
        }
    }

    /// The unix socket; `None` for TCP.
    pub(crate) fn unix(&self) -> Option<&UnixStream> {
        match self {
            Stream::Unix(stream) => Some(stream),
            Stream::Tcp(_) | Stream::Tls(_) => None,
        }
    }

    /// The TCP socket; `None` for a unix socket.
    pub(crate) fn tcp(&self) -> Option<&TcpStream> {
        match self {
            Stream::Tcp(stream) => Some(stream),
            Stream::Unix(_) => None,
            Stream::Tls(stream) => Some(&stream.socket),
        }
    }
}

impl From<TcpStream> for Stream {
    fn from(stream: TcpStream) -> Stream {
        // The outbox batches writes, so the kernel must not delay them. If the stream is broken, the first read reports it.
        let _ = stream.set_nodelay(true);
        Stream::Tcp(stream)
    }
}

impl From<UnixStream> for Stream {
    fn from(stream: UnixStream) -> Stream {
        Stream::Unix(stream)
    }
}
