//! A listening socket that another process opened: the service manager, or the process that is being replaced.

use crate::address::{Address, HostPort};
use crate::socket_file::remove_stale;
use rustix::net::{SocketType, sockopt};
use socket2::{SockAddr, Type};
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;

/// A socket that was passed to this process.
#[derive(Debug)]
pub struct Inherited {
    /// The name that the other process gave it; a socket of ours has the address as its user wrote it.
    pub name: String,
    /// Whether the last process that listens removes the file of a unix socket.
    pub owns_file: bool,
    /// Whether the service manager opened it.
    pub is_activated: bool,
    /// The socket.
    pub socket: OwnedFd,
}

impl Inherited {
    /// The address on which it listens. Only the name shows whether it is for TLS: such a name starts with `tls`.
    ///
    /// # Errors
    /// If it is not a socket that listens for TCP or unix streams.
    pub fn address(&self) -> io::Result<Address> {
        let refuse = |what| Err(io::Error::other(format!("the socket named {:?} {what}", self.name)));
        let is_stream = sockopt::socket_type(&self.socket)? == SocketType::STREAM;
        if !is_stream || !sockopt::socket_acceptconn(&self.socket)? {
            return refuse("does not listen for streams");
        }
        let local: SockAddr = socket2::SockRef::from(&self.socket).local_addr()?;
        match (local.as_socket(), local.as_pathname()) {
            (Some(socket), _) if self.name.starts_with("tls") => Ok(Address::Tls(socket.into())),
            (Some(socket), _) => Ok(Address::Tcp(socket.into())),
            (None, Some(path)) => Ok(Address::Unix(path.into())),
            (None, None) => refuse("has neither a port nor a path"),
        }
    }

    /// Whether this is another descriptor of the same socket.
    pub fn is_same_socket(&self, other: &Inherited) -> bool {
        let identity = |one: &Inherited| rustix::fs::fstat(&one.socket).ok().map(|stat| (stat.st_dev, stat.st_ino));
        identity(self).is_some_and(|own| identity(other) == Some(own))
    }

    /// Closes the socket. Removes the file of a unix socket that the former process owned, unless a process listens on it.
    pub fn retire(self) {
        let address = self.address();
        let Inherited { owns_file, socket, .. } = self;
        drop(socket);
        if let (Ok(Address::Unix(path)), true) = (address, owns_file) {
            // If the file has gone or is another's, nothing is to be done.
            let _ = remove_stale(&path, Type::STREAM);
        }
    }

    /// Whether it listens on this address, by the address that the kernel reports: the name is only what the other process says.
    /// Port 0 stands for any port if the name has port 0, too. Whether it is for TLS is taken from the address.
    pub fn is_at(&self, address: &Address) -> bool {
        match (self.address(), address) {
            (Ok(Address::Unix(own)), Address::Unix(path)) => own == *path,
            (Ok(own), Address::Tcp(host_port) | Address::Tls(host_port)) => {
                let is_named = self.name == address.to_string();
                let is_port = |port: u16| port == host_port.port() || (host_port.port() == 0 && is_named);
                let own = own.host_port().and_then(HostPort::number);
                own.is_some_and(|own| is_port(own.port()) && is_of(host_port, own.ip()))
            }
            _ => false,
        }
    }
}

/// Whether this is an IP address of the host.
fn is_of(host_port: &HostPort, ip: IpAddr) -> bool {
    match host_port.number() {
        Some(socket) => socket.ip() == ip,
        None => {
            let resolved = (host_port.host(), host_port.port()).to_socket_addrs();
            resolved.is_ok_and(|mut sockets| sockets.any(|socket| socket.ip() == ip))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn inherited(name: &str, listener: &TcpListener) -> Inherited {
        let socket = listener.try_clone().unwrap().into();
        Inherited { name: name.into(), owns_file: false, is_activated: false, socket }
    }

    #[test]
    fn two_descriptors_of_one_socket_are_recognised() {
        let (one, other) = (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
        assert!(inherited("a", &one).is_same_socket(&inherited("b", &one)));
        assert!(!inherited("a", &one).is_same_socket(&inherited("a", &other)));
    }

    #[test]
    fn the_kernel_says_where_a_socket_listens_and_the_name_does_not() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let is_at = |name: &str, address: &str| inherited(name, &listener).is_at(&address.parse().unwrap());
        for address in ["127.0.0.1", "localhost", "tls:127.0.0.1"].map(|host| format!("{host}:{port}")) {
            assert!(is_at("any", &address), "{address}");
        }
        for address in ["127.0.0.1:0", "localhost:0", "tls:127.0.0.1:0"] {
            assert!(is_at(address, address) && !is_at("any", address), "{address}");
        }
        for address in ["127.0.0.2:0", "127.0.0.1:1", "unix:/tmp/socket", "unknown.invalid:1"] {
            assert!(!is_at(address, address), "{address}");
        }
    }
}
