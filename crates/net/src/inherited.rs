//! A listening socket that another process opened: the service manager, or the process that is being replaced.

use crate::address::Address;
use crate::listener::resolve;
use crate::socket_file::remove_stale;
use rustix::net::{SocketType, sockopt};
use socket2::{SockAddr, Type};
use std::io;
use std::os::fd::OwnedFd;

/// A socket that was passed to this process.
#[derive(Debug)]
pub struct Inherited {
    /// The name that the other process gave it; a socket of ours has the address as its user wrote it.
    pub name: String,
    /// Whether the last process that listens removes the file of a unix socket.
    pub owns_file: bool,
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

    /// Whether it listens on this address. Whether it is for TLS is taken from the address, not from the name.
    pub fn is_at(&self, address: &Address) -> bool {
        if self.name == address.to_string() {
            return true;
        }
        match (self.address(), address) {
            (Ok(Address::Unix(own)), Address::Unix(path)) => own == *path,
            (Ok(own), Address::Tcp(host_port) | Address::Tls(host_port)) => {
                let socket = host_port.number().or_else(|| resolve(&host_port.to_string()).ok());
                own.host_port().and_then(|own| own.number()).is_some_and(|own| Some(own) == socket)
            }
            _ => false,
        }
    }
}
