//! What a connection reads from and writes to, and where one can be opened to.

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

/// Where a connection can be opened to: an address whose name has been looked up.
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

    /// TLS over a socket that is connected, or being connected.
    pub(crate) fn tls(socket: TcpStream, session: rustls::Connection, is_blocked: bool) -> Stream {
        // As for plain TCP.
        let _ = socket.set_nodelay(true);
        Stream::Tls(Box::new(TlsStream::new(socket, session, is_blocked)))
    }

    /// What readiness is waited for on.
    pub(crate) fn source(&mut self) -> &mut dyn Source {
        match self {
            Stream::Tcp(stream) => stream,
            Stream::Unix(stream) => stream,
            Stream::Tls(stream) => &mut stream.socket,
        }
    }

    /// Sends no more.
    pub(crate) fn end_writing(&mut self) {
        // A connection that is broken already needs no end.
        let _ = match self {
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Stream::Unix(stream) => stream.shutdown(Shutdown::Write),
            Stream::Tls(stream) => return stream.end_writing(),
        };
    }

    /// The error that the kernel keeps for it, if there is one.
    pub(crate) fn take_error(&self) -> io::Result<Option<io::Error>> {
        match self {
            Stream::Tcp(stream) => stream.take_error(),
            Stream::Unix(stream) => stream.take_error(),
            Stream::Tls(stream) => stream.socket.take_error(),
        }
    }

    /// The TCP socket, if there is one.
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
        // Batching is done here, per turn; the kernel must not wait for more. A stream that died already is found by the first read.
        let _ = stream.set_nodelay(true);
        Stream::Tcp(stream)
    }
}

impl From<UnixStream> for Stream {
    fn from(stream: UnixStream) -> Stream {
        Stream::Unix(stream)
    }
}
