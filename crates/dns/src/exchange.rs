//! One query to one server: over UDP, and over TCP if the reply is too long for a datagram.

use crate::answer::{Message, query, read};
use clock::{Clock, Nanos};
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

/// The longest reply.
const REPLY_BYTES_MAX: usize = u16::MAX as usize;

/// A query to a server, and until when its reply is awaited.
struct Exchange<'a> {
    server: SocketAddr,
    name: &'a str,
    id: u16,
    query: Vec<u8>,
    clock: &'a Clock,
    deadline: Nanos,
}

/// Sends a query, and waits for the reply until this time. None if the name is not a name.
pub(crate) fn exchange(server: SocketAddr, name: &str, clock: &Clock, deadline: Nanos) -> Option<Message> {
    let id = random_id();
    let exchange = Exchange { server, name, id, query: query(id, name)?, clock, deadline };
    let replied = exchange.over_udp().and_then(|message| match message {
        Message::Truncated => exchange.over_tcp(),
        other => Ok(other),
    });
    Some(replied.unwrap_or_else(|error| Message::Failure(reason(&error))))
}

impl Exchange<'_> {
    /// The socket is connected, so that the operating system drops the datagrams of others. It has a port of its own, and the query a
    /// number that cannot be guessed, so that others cannot reply in the server's name.
    fn over_udp(&self) -> io::Result<Message> {
        let any: IpAddr =
            if self.server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect(self.server)?;
        socket.send(&self.query)?;
        let mut buffer = vec![0; REPLY_BYTES_MAX];
        loop {
            socket.set_read_timeout(Some(self.left()?))?;
            let Some(length) = uninterrupted(socket.recv(&mut buffer))? else { continue };
            // A late reply to an earlier query, for example.
            match read(&buffer[..length], self.id, self.name) {
                Message::Foreign => {}
                other => return Ok(other),
            }
        }
    }

    fn over_tcp(&self) -> io::Result<Message> {
        let mut stream = TcpStream::connect_timeout(&self.server, self.left()?)?;
        stream.set_write_timeout(Some(self.left()?))?;
        let length = (self.query.len() as u16).to_be_bytes();
        stream.write_all(&[&length, &self.query[..]].concat())?;
        let mut length = [0; 2];
        self.fill(&mut stream, &mut length)?;
        let mut reply = vec![0; u16::from_be_bytes(length).into()];
        self.fill(&mut stream, &mut reply)?;
        Ok(match read(&reply, self.id, self.name) {
            // There is no longer form of a reply.
            Message::Truncated | Message::Foreign => {
                Message::Failure("sent a reply over TCP that does not fit the query".into())
            }
            other => other,
        })
    }

    /// Fills a buffer. A server that sends a byte now and then does not extend the time.
    fn fill(&self, stream: &mut TcpStream, buffer: &mut [u8]) -> io::Result<()> {
        let mut filled = 0;
        while filled < buffer.len() {
            stream.set_read_timeout(Some(self.left()?))?;
            match uninterrupted(stream.read(&mut buffer[filled..]))? {
                Some(0) => return Err(ErrorKind::UnexpectedEof.into()),
                count => filled += count.unwrap_or_default(),
            }
        }
        Ok(())
    }

    /// The time that is left.
    fn left(&self) -> io::Result<Duration> {
        match self.deadline.after(self.clock.now()) {
            Duration::ZERO => Err(ErrorKind::TimedOut.into()),
            left => Ok(left),
        }
    }
}

fn reason(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => "no reply in time".into(),
        ErrorKind::ConnectionRefused => "no DNS server listens there".into(),
        ErrorKind::UnexpectedEof => "closed the connection before the end of its reply".into(),
        _ => error.to_string(),
    }
}

/// The result of a call, or none if a signal has interrupted it: SIGHUP can arrive on this thread.
fn uninterrupted(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Err(error) if error.kind() == ErrorKind::Interrupted => Ok(None),
        other => other.map(Some),
    }
}

/// The standard library seeds its hash maps from the operating system, so that nobody else can compute their hashes.
fn random_id() -> u16 {
    RandomState::new().build_hasher().finish() as u16
}
