//! Opens listening sockets and resolves `host:port`; every failure is a one-line error.

use crate::address::Address;
use mio::net::TcpListener;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};

/// Connections that the kernel queues before they are accepted.
pub(crate) const BACKLOG: i32 = 1024;

/// The reason why an address cannot be resolved or listened on.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the message of each variant describes it")]
pub enum BindError {
    #[error("{name:?} is not HOST:PORT that resolves to an address: {source}")]
    Resolve { name: String, source: io::Error },
    #[error("cannot listen on {address}: {source}{}", advice(source))]
    Listen { address: SocketAddr, source: io::Error },
    #[error("cannot listen on {address}: {source}{}", advice(source))]
    Address { address: Address, source: io::Error },
}

/// What to do about an address on which this process cannot listen.
fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => "; stop the program that uses it, or give another port",
        io::ErrorKind::AddrNotAvailable => "; give an address of this machine",
        io::ErrorKind::PermissionDenied => {
            "; a port below 1024 needs root, and a socket file needs a folder that may be written"
        }
        _ => "",
    }
}

/// The first address of `host:port`.
///
/// # Errors
/// If it has no port or the name does not resolve.
pub fn resolve(name: &str) -> Result<SocketAddr, BindError> {
    let failed = |source| BindError::Resolve { name: name.into(), source };
    let none = || io::Error::new(io::ErrorKind::NotFound, "no address");
    name.to_socket_addrs().map_err(failed)?.next().ok_or_else(|| failed(none()))
}

/// Opens a non-blocking listening socket. Port 0 takes a free port.
///
/// # Errors
/// If the name does not resolve, or the address is in use or belongs to another host.
pub fn bind(name: &str) -> Result<TcpListener, BindError> {
    let address = resolve(name)?;
    listen(address).map_err(|source| BindError::Listen { address, source })
}

pub(crate) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    if address.is_ipv6() {
        // Whatever the system's default is: the IPv6 wildcard is for IPv4 as well.
        socket.set_only_v6(false)?;
    }
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(TcpListener::from_std(socket.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_in_use_is_one_clear_line() {
        let first = bind("127.0.0.1:0").unwrap();
        let address = first.local_addr().unwrap().to_string();
        let line = bind(&address).unwrap_err().to_string();
        assert!(line.starts_with(&format!("cannot listen on {address}: ")), "{line}");
    }

    #[test]
    fn a_name_without_a_port_is_one_clear_line() {
        let line = bind("localhost").unwrap_err().to_string();
        assert!(line.contains("\"localhost\" is not HOST:PORT"), "{line}");
    }
}
