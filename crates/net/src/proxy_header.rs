//! The header of the PROXY protocol, in which a load balancer reports the address of its client before all other bytes. Reads
//! exactly the header, so that what follows it, such as a TLS handshake, stays in the socket. This is not about the proxy itself.
//!
//! Specification: <https://www.haproxy.org/download/3.2/doc/proxy-protocol.txt>

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;

/// How every header of version 2 begins.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// How every header of version 1 begins.
const WORD: &[u8; 6] = b"PROXY ";
/// The longest header of version 1, with its line end.
const LINE_BYTES_MAX: usize = 107;
/// The fixed part of a header of version 2.
const FIXED_BYTES: usize = 16;
/// The longest addresses of version 2: two paths of unix sockets.
const ADDRESSES_BYTES_MAX: usize = 216;
/// So many bytes behind the addresses are dropped at once.
const DROPPED_AT_ONCE: usize = 1024;

/// The address of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientAddress {
    /// That of the peer of the connection: there is no header, or it reports no other client.
    #[default]
    OfPeer,
    /// This one, as a header reports.
    Reported(SocketAddr),
    /// A header reports that the client has used a unix socket.
    Unnamed,
}

/// What a header is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Parsed {
    /// More must arrive.
    Incomplete,
    /// It is not a header.
    Invalid,
    /// Its address, its length as far as it was parsed, and how many bytes follow.
    Header { address: ClientAddress, length: usize, rest: usize },
}

/// Reads one header.
#[derive(Debug)]
pub struct HeaderReader {
    bytes: [u8; FIXED_BYTES + ADDRESSES_BYTES_MAX],
    filled: usize,
    /// The address, and how many bytes are still to be dropped, if the addresses have arrived.
    found: Option<(ClientAddress, usize)>,
}

impl HeaderReader {
    /// A reader of the header that comes next.
    #[allow(clippy::new_without_default, reason = "it is not a value that a default would be meant for")]
    pub fn new() -> HeaderReader {
        HeaderReader { bytes: [0; FIXED_BYTES + ADDRESSES_BYTES_MAX], filled: 0, found: None }
    }

    /// Whether a byte has arrived.
    pub fn has_begun(&self) -> bool {
        self.filled > 0
    }

    /// Reads as much of the header as has arrived. Returns the address when it is complete.
    pub(crate) fn receive(&mut self, socket: impl AsFd) -> io::Result<Option<ClientAddress>> {
        loop {
            let received = match self.found {
                Some((address, 0)) => return Ok(Some(address)),
                Some((address, rest)) => self.drop_some(&socket, address, rest),
                None => self.read_some(&socket),
            };
            match received {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Drops bytes behind the addresses.
    fn drop_some(&mut self, socket: &impl AsFd, address: ClientAddress, rest: usize) -> io::Result<()> {
        let mut dropped = [0; DROPPED_AT_ONCE];
        let count = receive(socket, &mut dropped[..rest.min(DROPPED_AT_ONCE)], RecvFlags::empty())?;
        self.found = Some((address, rest - count));
        Ok(())
    }

    /// Looks at what has arrived, and reads what belongs to the header.
    fn read_some(&mut self, socket: &impl AsFd) -> io::Result<()> {
        let arrived = receive(socket, &mut self.bytes[self.filled..], RecvFlags::PEEK)?;
        let seen = self.filled + arrived;
        let end = match parse(&self.bytes[..seen]) {
            Parsed::Incomplete => seen,
            Parsed::Invalid => {
                self.filled = seen;
                return Err(io::Error::new(io::ErrorKind::InvalidData, "no header of the PROXY protocol"));
            }
            Parsed::Header { address, length, rest } => {
                self.found = Some((address, rest));
                length
            }
        };
        while self.filled < end {
            self.filled += receive(socket, &mut self.bytes[self.filled..end], RecvFlags::empty())?;
        }
        Ok(())
    }
}

/// Receives at least one byte.
fn receive(socket: &impl AsFd, bytes: &mut [u8], flags: RecvFlags) -> io::Result<usize> {
    match recv(socket, bytes, flags) {
        Ok((0, _)) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok((count, _)) => Ok(count),
        Err(Errno::AGAIN) => Err(io::ErrorKind::WouldBlock.into()),
        Err(error) => Err(error.into()),
    }
}

fn parse(bytes: &[u8]) -> Parsed {
    if begins_like(bytes, SIGNATURE) {
        parse_version_2(bytes)
    } else if begins_like(bytes, WORD) {
        parse_version_1(bytes)
    } else {
        Parsed::Invalid
    }
}

/// Whether bytes, of which all may not have arrived, begin with these.
fn begins_like(bytes: &[u8], start: &[u8]) -> bool {
    let both = bytes.len().min(start.len());
    bytes[..both] == start[..both]
}

/// Version 1: `PROXY TCP4 192.0.2.1 192.0.2.2 4000 11211` or `PROXY UNKNOWN`, as a line.
fn parse_version_1(bytes: &[u8]) -> Parsed {
    let searched = &bytes[..bytes.len().min(LINE_BYTES_MAX)];
    let Some(end) = searched.windows(2).position(|pair| pair == b"\r\n") else {
        return if searched.len() < LINE_BYTES_MAX { Parsed::Incomplete } else { Parsed::Invalid };
    };
    let line = std::str::from_utf8(&searched[WORD.len().min(end)..end]).ok();
    match line.and_then(address_in_line) {
        Some(address) => Parsed::Header { address, length: end + 2, rest: 0 },
        None => Parsed::Invalid,
    }
}

/// The address of the client in a line of version 1, without its first word.
fn address_in_line(line: &str) -> Option<ClientAddress> {
    let mut words = line.split(' ');
    let family = words.next()?;
    if family == "UNKNOWN" {
        // Whatever follows is ignored.
        return Some(ClientAddress::OfPeer);
    }
    let mut address = || {
        let word = words.next()?;
        match family {
            "TCP4" => word.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
            "TCP6" => word.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
            _ => None,
        }
    };
    let (source, _) = (address()?, address()?);
    let mut port = || {
        let word = words.next()?;
        word.parse::<u16>().ok().filter(|port| port.to_string() == word)
    };
    let (port, _) = (port()?, port()?);
    words.next().is_none().then_some(ClientAddress::Reported(SocketAddr::new(source, port)))
}

/// Version 2: the signature, version and command, family and protocol, the length of the rest (2), the addresses, and other fields.
fn parse_version_2(bytes: &[u8]) -> Parsed {
    let Some(fixed) = bytes.first_chunk::<FIXED_BYTES>() else {
        let is_wrong = bytes.get(12).is_some_and(|byte| !matches!(byte, 0x20 | 0x21));
        return if is_wrong { Parsed::Invalid } else { Parsed::Incomplete };
    };
    let length = usize::from(u16::from_be_bytes([fixed[14], fixed[15]]));
    let addresses_bytes = match (fixed[12], fixed[13]) {
        // LOCAL: the load balancer itself has connected, for example to check whether the port is open. PROXY with an unspecified
        // family: it does not know the address.
        (0x20, _) | (0x21, 0x00) => {
            return Parsed::Header { address: ClientAddress::OfPeer, length: FIXED_BYTES, rest: length };
        }
        (0x21, 0x11) => 12,
        (0x21, 0x21) => 36,
        (0x21, 0x31) => ADDRESSES_BYTES_MAX,
        _ => return Parsed::Invalid,
    };
    if length < addresses_bytes {
        return Parsed::Invalid;
    }
    let Some(addresses) = bytes.get(FIXED_BYTES..FIXED_BYTES + addresses_bytes) else { return Parsed::Incomplete };
    let port = |at: usize| u16::from_be_bytes([addresses[at], addresses[at + 1]]);
    let address = match addresses_bytes {
        12 => addresses.first_chunk::<4>().map(|source| (IpAddr::from(*source), port(8))),
        36 => addresses.first_chunk::<16>().map(|source| (IpAddr::from(*source), port(32))),
        _ => None,
    };
    let address = address.map_or(ClientAddress::Unnamed, |source| ClientAddress::Reported(source.into()));
    Parsed::Header { address, length: FIXED_BYTES + addresses_bytes, rest: length - addresses_bytes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    fn reported(text: &str) -> ClientAddress {
        ClientAddress::Reported(text.parse().unwrap())
    }

    /// A header of version 2.
    fn version_2(command: u8, family: u8, addresses: &[u8], others: &[u8]) -> Vec<u8> {
        let length = (addresses.len() + others.len()) as u16;
        [&SIGNATURE[..], &[command, family], &length.to_be_bytes()[..], addresses, others].concat()
    }

    fn tcp4() -> Vec<u8> {
        vec![192, 0, 2, 1, 192, 0, 2, 2, 0x0f, 0xa0, 0x2b, 0xcb]
    }

    fn tcp6() -> Vec<u8> {
        let address = |text: &str| text.parse::<Ipv6Addr>().unwrap().octets();
        [&address("2001:db8::1")[..], &address("2001:db8::2"), &[0xff, 0xff, 0x2b, 0xcb]].concat()
    }

    fn valid() -> Vec<(Vec<u8>, ClientAddress)> {
        let line = |text: &str| text.as_bytes().to_vec();
        let longest = format!("PROXY UNKNOWN {}\r\n", "f".repeat(LINE_BYTES_MAX - 16));
        assert_eq!(longest.len(), LINE_BYTES_MAX);
        vec![
            (line("PROXY TCP4 192.0.2.1 192.0.2.2 4000 11211\r\n"), reported("192.0.2.1:4000")),
            (line("PROXY TCP6 2001:db8::1 ::1 65535 0\r\n"), reported("[2001:db8::1]:65535")),
            (line("PROXY UNKNOWN\r\n"), ClientAddress::OfPeer),
            (line("PROXY UNKNOWN anything at all\r\n"), ClientAddress::OfPeer),
            (line(&longest), ClientAddress::OfPeer),
            (version_2(0x21, 0x11, &tcp4(), b""), reported("192.0.2.1:4000")),
            (version_2(0x21, 0x11, &tcp4(), b"\x04\0\x01\0"), reported("192.0.2.1:4000")),
            (version_2(0x21, 0x21, &tcp6(), &[7; 65_499]), reported("[2001:db8::1]:65535")),
            (version_2(0x21, 0x31, &[b'/'; 216], b"more"), ClientAddress::Unnamed),
            (version_2(0x21, 0x00, b"", b""), ClientAddress::OfPeer),
            (version_2(0x21, 0x00, b"", &[7; 2000]), ClientAddress::OfPeer),
            (version_2(0x20, 0x00, b"", b""), ClientAddress::OfPeer),
            (version_2(0x20, 0x11, &tcp4(), b"more"), ClientAddress::OfPeer),
            (version_2(0x20, 0xff, b"", b""), ClientAddress::OfPeer),
        ]
    }

    /// A connection whose one side sends, and whose other side does not block.
    fn pair() -> (UnixStream, UnixStream) {
        let (sender, receiver) = UnixStream::pair().unwrap();
        receiver.set_nonblocking(true).unwrap();
        (sender, receiver)
    }

    #[test]
    fn a_header_is_read_in_any_pieces_and_nothing_behind_it() {
        for (header, address) in valid() {
            let name = String::from_utf8_lossy(&header[..header.len().min(60)]).into_owned();
            // In one piece with what follows, byte by byte, and in two pieces.
            let cuts = [header.len(), 1].into_iter().chain(2..header.len().min(40));
            for cut in cuts {
                let (mut sender, mut receiver) = pair();
                let mut reader = HeaderReader::new();
                let pieces: Vec<&[u8]> = match cut {
                    1 if header.len() < 300 => header.chunks(1).collect(),
                    _ => vec![&header[..cut], &header[cut..]],
                };
                let mut found = None;
                for (index, piece) in pieces.iter().enumerate() {
                    sender.write_all(piece).unwrap();
                    if index + 1 == pieces.len() || cut == header.len() {
                        sender.write_all(b"get k\r\n").unwrap();
                    }
                    found = reader.receive(&receiver).unwrap();
                    if cut == header.len() {
                        break;
                    }
                    assert!(found.is_none() || index + 1 == pieces.len(), "{name} {cut}");
                }
                assert_eq!(found, Some(address), "{name} {cut}");
                let mut rest = [0; 100];
                assert_eq!(receiver.read(&mut rest).unwrap(), 7, "{name} {cut}");
                assert_eq!(&rest[..7], b"get k\r\n");
            }
        }
    }

    #[test]
    fn anything_else_is_invalid_as_soon_as_that_is_certain() {
        let too_long = format!("PROXY UNKNOWN {}", "f".repeat(LINE_BYTES_MAX));
        let lines = [
            "get k\r\n",
            "PROXX",
            "\n",
            "PROXY\r\n",
            "PROXY \r\n",
            "PROXY TCP4\r\n",
            "PROXY tcp4 192.0.2.1 192.0.2.2 4000 11211\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 4000\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 4000 11211 more\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 4000 11211 \r\n",
            "PROXY TCP4  192.0.2.1 192.0.2.2 4000 11211\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 65536 11211\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 04000 11211\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 +4000 11211\r\n",
            "PROXY TCP4 192.0.2.01 192.0.2.2 4000 11211\r\n",
            "PROXY TCP4 ::1 ::2 4000 11211\r\n",
            "PROXY TCP6 192.0.2.1 192.0.2.2 4000 11211\r\n",
            "PROXY TCP4 cache.test 192.0.2.2 4000 11211\r\n",
            "PROXY UDP4 192.0.2.1 192.0.2.2 4000 11211\r\n",
            &too_long,
        ];
        let mut all: Vec<Vec<u8>> = lines.map(|line| line.as_bytes().to_vec()).to_vec();
        all.extend([
            b"PROXY TCP4 \xff\xff\r\n".to_vec(),
            b"\r\n\r\n\0\r\nQUIX".to_vec(),
            // Version 1 and 3, an unknown command, unknown families, and UDP.
            [&SIGNATURE[..], &[0x11]].concat(),
            [&SIGNATURE[..], &[0x31]].concat(),
            [&SIGNATURE[..], &[0x22]].concat(),
            version_2(0x21, 0x12, &tcp4(), b""),
            version_2(0x21, 0x41, &tcp4(), b""),
            version_2(0x21, 0x10, &tcp4(), b""),
            // Too short for its addresses.
            version_2(0x21, 0x11, &tcp4()[..11], b""),
            version_2(0x21, 0x21, &tcp4(), b""),
            version_2(0x21, 0x31, &[0; 215], b""),
        ]);
        for bytes in all {
            let (mut sender, receiver) = pair();
            sender.write_all(&bytes).unwrap();
            let error = HeaderReader::new().receive(&receiver).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{:?}", String::from_utf8_lossy(&bytes));
        }
    }

    #[test]
    fn a_connection_that_ends_within_the_header_is_an_error() {
        for (header, _) in valid() {
            for end in [0, 1, header.len() / 2, header.len() - 1] {
                let (mut sender, receiver) = pair();
                let mut reader = HeaderReader::new();
                sender.write_all(&header[..end]).unwrap();
                drop(sender);
                assert_eq!(reader.receive(&receiver).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
                assert_eq!(reader.has_begun(), end > 0);
            }
        }
    }
}
