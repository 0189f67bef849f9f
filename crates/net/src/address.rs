//! The text form of an address: `HOST:PORT`, `[IPV6]:PORT`, `tls:HOST:PORT` or `unix:PATH`.
//! Parses the text only; other modules resolve names, whose addresses may change.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

/// The longest path that fits into a unix socket address.
const PATH_BYTES_MAX: usize = 107;
/// The longest DNS name.
const NAME_BYTES_MAX: usize = 253;
/// The longest label of a DNS name.
const LABEL_BYTES_MAX: usize = 63;

/// A parsed address. Its `Display` form is the text it was parsed from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// Plain bytes over TCP.
    Tcp(HostPort),
    /// TLS over TCP.
    Tls(HostPort),
    /// Plain bytes over a unix socket.
    Unix(PathBuf),
}

/// A host name or IP address, and a port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPort {
    /// The host, an IPv6 address without brackets.
    host: String,
    port: u16,
}

/// A text that is not an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not an address ({fault}): give HOST:PORT, [IPV6]:PORT, tls:HOST:PORT or unix:PATH")]
pub struct AddressError {
    text: String,
    fault: Fault,
}

/// The part of the address that is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum Fault {
    #[error("it has no port")]
    NoPort,
    #[error("the port is not a number from 0 to 65535")]
    Port,
    #[error("it has no host")]
    NoHost,
    #[error("the host is neither a name nor an IP address")]
    Host,
    #[error("this is a URL")]
    Url,
    #[error("an IPv6 address needs brackets")]
    Brackets,
    #[error("it has no path")]
    NoPath,
    #[error("the path is longer than {PATH_BYTES_MAX} bytes")]
    LongPath,
    #[error("the path has a zero byte")]
    ZeroByte,
}

impl Address {
    /// The host and port; `None` for a path.
    pub fn host_port(&self) -> Option<&HostPort> {
        match self {
            Address::Tcp(host_port) | Address::Tls(host_port) => Some(host_port),
            Address::Unix(_) => None,
        }
    }

    /// Whether its connections use TLS.
    pub fn is_tls(&self) -> bool {
        matches!(self, Address::Tls(_))
    }

    /// The same kind of address with the host and port of this socket; a path stays unchanged.
    #[must_use]
    pub fn at(&self, socket: SocketAddr) -> Address {
        match self {
            Address::Tcp(_) => Address::Tcp(socket.into()),
            Address::Tls(_) => Address::Tls(socket.into()),
            Address::Unix(path) => Address::Unix(path.clone()),
        }
    }
}

impl HostPort {
    /// The host, an IPv6 address without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The socket address if the host is an IP address; a name must be resolved.
    pub fn number(&self) -> Option<SocketAddr> {
        self.host.parse::<IpAddr>().ok().map(|host| SocketAddr::new(host, self.port))
    }
}

impl From<SocketAddr> for HostPort {
    fn from(socket: SocketAddr) -> HostPort {
        HostPort { host: socket.ip().to_string(), port: socket.port() }
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        let outcome = if let Some(path) = text.strip_prefix("unix:") {
            path_of(path).map(Address::Unix)
        } else if let Some(rest) = text.strip_prefix("tls:") {
            host_port(rest).map(Address::Tls)
        } else {
            host_port(text).map(Address::Tcp)
        };
        outcome.map_err(|fault| AddressError { text: text.into(), fault })
    }
}

fn path_of(path: &str) -> Result<PathBuf, Fault> {
    match path {
        "" => Err(Fault::NoPath),
        _ if path.len() > PATH_BYTES_MAX => Err(Fault::LongPath),
        _ if path.contains('\0') => Err(Fault::ZeroByte),
        _ => Ok(path.into()),
    }
}

fn host_port(text: &str) -> Result<HostPort, Fault> {
    let (host, port) = text.rsplit_once(':').ok_or(Fault::NoPort)?;
    let is_bracketed = host.starts_with('[');
    if text.starts_with('[') && !host.ends_with(']') {
        return Err(if text.ends_with(']') { Fault::NoPort } else { Fault::Host });
    }
    // Only digits in their usual form, so that the port can be printed as it was given.
    let number = port.parse::<u16>().ok().filter(|number| number.to_string() == port).ok_or(Fault::Port)?;
    if is_bracketed {
        let inner = &host[1..host.len() - 1];
        // A zone, as in fe80::1%eth0, is part of the host.
        let (address, _) = inner.split_once('%').unwrap_or((inner, ""));
        address.parse::<Ipv6Addr>().map_err(|_| Fault::Host)?;
        return Ok(HostPort { host: inner.into(), port: number });
    }
    match host {
        "" => Err(Fault::NoHost),
        _ if host.contains("//") => Err(Fault::Url),
        _ if host.contains(':') => Err(Fault::Brackets),
        _ if is_name(host) => Ok(HostPort { host: host.into(), port: number }),
        _ => Err(Fault::Host),
    }
}

/// Whether the text can be a host name or an IPv4 address.
fn is_name(host: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let is_label = |label: &str| (1..=LABEL_BYTES_MAX).contains(&label.len()) && label.bytes().all(is_letter);
    // A trailing dot marks a fully qualified name.
    let name = host.strip_suffix('.').unwrap_or(host);
    // No top-level domain is a number, so a host that ends in one is meant as an IPv4 address.
    let ends_in_number = name.rsplit('.').next().is_some_and(|label| label.bytes().all(|byte| byte.is_ascii_digit()));
    let is_good = name.len() <= NAME_BYTES_MAX && name.split('.').all(is_label);
    is_good && (!ends_in_number || host.parse::<IpAddr>().is_ok())
}

impl fmt::Display for HostPort {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(formatter, "[{}]:{}", self.host, self.port)
        } else {
            write!(formatter, "{}:{}", self.host, self.port)
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(host_port) => write!(formatter, "{host_port}"),
            Address::Tls(host_port) => write!(formatter, "tls:{host_port}"),
            Address::Unix(path) => write!(formatter, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_valid_address_is_printed_as_it_was_parsed() {
        let texts = [
            "127.0.0.1:11211",
            "localhost:0",
            "cache-1.example.com:65535",
            "cache_1.example.com.:1",
            "[::1]:11211",
            "[fe80::1%eth0]:11211",
            "tls:cache.example.com:11212",
            "tls:[::1]:1",
            "unix:/run/cache.sock",
            "unix:relative path",
            "unix:[::1]:3",
        ];
        for text in texts {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn every_bad_text_is_one_clear_line() {
        let long_path = format!("unix:/{}", "x".repeat(107));
        let long_label = format!("{}.com:1", "x".repeat(64));
        let texts = [
            ("", "it has no port"),
            ("localhost", "it has no port"),
            ("[::1]", "it has no port"),
            ("tls:localhost", "it has no port"),
            ("localhost:", "the port is not a number"),
            ("localhost:65536", "the port is not a number"),
            ("localhost:+80", "the port is not a number"),
            ("localhost:080", "the port is not a number"),
            ("localhost:http", "the port is not a number"),
            (":11211", "it has no host"),
            ("tls::11211", "it has no host"),
            ("::1:11211", "an IPv6 address needs brackets"),
            ("http://localhost:80", "this is a URL"),
            ("[::1:11211", "the host is neither"),
            ("[localhost]:11211", "the host is neither"),
            ("[]:11211", "the host is neither"),
            ("a b:1", "the host is neither"),
            ("a..b:1", "the host is neither"),
            ("256.1.1.1:1", "the host is neither"),
            ("1.2.3:1", "the host is neither"),
            (&long_label, "the host is neither"),
            ("unix:", "it has no path"),
            (&long_path, "the path is longer than 107 bytes"),
            ("unix:a\0b", "the path has a zero byte"),
        ];
        for (text, fault) in texts {
            let line = text.parse::<Address>().unwrap_err().to_string();
            assert!(line.contains(fault) && line.starts_with(&format!("{text:?} is not an address")), "{line}");
            assert!(!line.contains('\n'));
        }
    }

    #[test]
    fn numeric_addresses_need_no_lookup() {
        let number = |text: &str| text.parse::<Address>().unwrap().host_port().and_then(HostPort::number);
        assert_eq!(number("tls:[::1]:5"), Some("[::1]:5".parse().unwrap()));
        assert_eq!(number("10.0.0.1:5"), Some("10.0.0.1:5".parse().unwrap()));
        assert_eq!(number("localhost:5"), None);
        assert_eq!(number("unix:/10.0.0.1:5"), None);
    }
}
