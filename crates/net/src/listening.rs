//! A listening socket of any kind: bound here, or inherited from a process that listened before.

use crate::address::Address;
use crate::connection::Connection;
use crate::inherited::Inherited;
use crate::listener::{BACKLOG, BindError, listen, resolve};
use crate::socket_file::{SocketFile, bind_over_stale};
use crate::stream::Stream;
use crate::tls::ServerTls;
use mio::event::Source;
use mio::net::{TcpListener, UnixListener};
use socket2::{Domain, SockAddr, Socket, Type};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// A listening socket.
#[derive(Debug)]
pub struct Listening {
    socket: ListeningSocket,
    /// The address as the user wrote it.
    configured: Address,
    /// The address with the port that was chosen.
    address: Address,
    file: Option<SocketFile>,
    /// The last process that listens removes the file. False for sockets of the service manager.
    may_own_file: bool,
    is_activated: bool,
    tls: Option<ServerTls>,
}

#[derive(Debug)]
enum ListeningSocket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listening {
    /// Binds an address. Port 0 takes a free port. A unix socket file on which no process listens is replaced.
    ///
    /// # Errors
    /// If the name does not resolve, or the address is in use or belongs to another host.
    pub fn bind(address: &Address) -> Result<Listening, BindError> {
        let failed = |source| BindError::Address { address: address.clone(), source };
        match address {
            Address::Tcp(host_port) | Address::Tls(host_port) => {
                let socket = host_port.number().map_or_else(|| resolve(&host_port.to_string()), Ok)?;
                let listener = listen(socket).map_err(failed)?;
                let bound = listener.local_addr().map_err(failed)?;
                let socket = ListeningSocket::Tcp(listener);
                Ok(Listening {
                    socket,
                    configured: address.clone(),
                    address: address.at(bound),
                    file: None,
                    may_own_file: false,
                    is_activated: false,
                    tls: None,
                })
            }
            Address::Unix(path) => {
                let listener = listen_at(path).map_err(failed)?;
                let file = Some(SocketFile::at(path).map_err(failed)?);
                let socket = ListeningSocket::Unix(listener);
                Ok(Listening {
                    socket,
                    configured: address.clone(),
                    address: address.clone(),
                    file,
                    may_own_file: true,
                    is_activated: false,
                    tls: None,
                })
            }
        }
    }

    /// Uses a socket that another process opened, as if it had been bound here to this address. The file of a unix socket
    /// belongs to that process until [`Listening::own_file`] is called.
    ///
    /// # Errors
    /// If the socket does not listen for streams, or listens on another address.
    pub fn adopt(address: &Address, inherited: Inherited) -> io::Result<Listening> {
        let Inherited { socket, owns_file, is_activated, .. } = inherited;
        rustix::io::ioctl_fionbio(&socket, true)?;
        let configured = address.clone();
        if let Address::Unix(_) = address {
            let (file, may_own_file) = (None, owns_file);
            let socket = ListeningSocket::Unix(UnixListener::from_std(socket.into()));
            let address = address.clone();
            return Ok(Listening { socket, configured, address, file, may_own_file, is_activated, tls: None });
        }
        let listener = TcpListener::from_std(socket.into());
        let address = address.at(listener.local_addr()?);
        let socket = ListeningSocket::Tcp(listener);
        Ok(Listening { socket, configured, address, file: None, may_own_file: false, is_activated, tls: None })
    }

    /// Duplicates the socket for another process, or for another configuration of this one.
    ///
    /// # Errors
    /// If the process has too many open files.
    pub fn lend(&self) -> io::Result<Inherited> {
        let socket = match &self.socket {
            ListeningSocket::Tcp(listener) => listener.as_fd().try_clone_to_owned()?,
            ListeningSocket::Unix(listener) => listener.as_fd().try_clone_to_owned()?,
        };
        let (name, owns_file) = (self.configured.to_string(), self.file.is_some());
        Ok(Inherited { name, owns_file, is_activated: self.is_activated, socket })
    }

    /// The address on which it listens, with the port that was chosen.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// The address as the user wrote it.
    pub fn configured(&self) -> &Address {
        &self.configured
    }

    /// Accepts the next waiting client.
    ///
    /// # Errors
    /// If none is waiting, or the kernel has no descriptor for it.
    pub fn accept(&self) -> io::Result<Connection> {
        let stream = match &self.socket {
            ListeningSocket::Tcp(listener) => match (listener.accept()?.0, &self.tls) {
                (stream, None) => Stream::from(stream),
                (stream, Some(tls)) => Stream::tls(stream, tls.accept()?, false),
            },
            ListeningSocket::Unix(listener) => Stream::from(listener.accept()?.0),
        };
        Ok(Connection::over(stream))
    }

    /// Uses TLS for clients that are accepted from now on.
    pub fn speak_tls(&mut self, tls: ServerTls) {
        self.tls = Some(tls);
    }

    /// Makes this process the one that removes the unix socket file, if the process before it was.
    ///
    /// # Errors
    /// If there is no such file.
    pub fn own_file(&mut self) -> io::Result<()> {
        if let (Address::Unix(path), None, true) = (&self.address, &self.file, self.may_own_file) {
            self.file = Some(SocketFile::at(path)?);
        }
        Ok(())
    }

    /// Leaves the unix socket file in place, because another process continues to listen on it.
    pub fn keep_file(&mut self) {
        if let Some(file) = &mut self.file {
            file.stay();
        }
    }

    pub(crate) fn source(&mut self) -> &mut dyn Source {
        match &mut self.socket {
            ListeningSocket::Tcp(listener) => listener,
            ListeningSocket::Unix(listener) => listener,
        }
    }
}

/// Listens on a path, after removing a socket file on which no process listens.
fn listen_at(path: &Path) -> io::Result<UnixListener> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    let address = SockAddr::unix(path)?;
    bind_over_stale(path, Type::STREAM, || socket.bind(&address))?;
    socket.listen(BACKLOG)?;
    Ok(UnixListener::from_std(OwnedFd::from(socket).into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::net::UnixStream;

    fn unix(path: &Path) -> Address {
        Address::Unix(path.into())
    }

    #[test]
    fn a_stale_file_is_replaced_and_a_live_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        // Dropped without being removed, as after a kill of its process.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let listening = Listening::bind(&unix(&path)).unwrap();
        let line = Listening::bind(&unix(&path)).unwrap_err().to_string();
        assert_eq!(
            line,
            format!(
                "cannot listen on unix:{}: another process listens on it: stop that, or give another path",
                path.display()
            )
        );
        UnixStream::connect(&path).expect("the first still listens");
        drop(listening);
        assert!(!path.exists(), "the file is removed with the socket");
    }

    #[test]
    fn a_file_that_is_not_a_socket_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notes");
        fs::write(&path, "precious").unwrap();
        let line = Listening::bind(&unix(&path)).unwrap_err().to_string();
        assert!(line.contains("it is a file, and no socket") && !line.contains('\n'), "{line}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    }

    #[test]
    fn a_file_that_another_process_has_replaced_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let first = Listening::bind(&unix(&path)).unwrap();
        // Kept under another name, so that its inode is not reused for the next file.
        fs::rename(&path, folder.path().join("old")).unwrap();
        let second = Listening::bind(&unix(&path)).unwrap();
        drop(first);
        assert!(path.exists());
        drop(second);
        assert!(!path.exists());
    }

    #[test]
    fn a_missing_folder_is_one_clear_line() {
        let line = Listening::bind(&unix(Path::new("/nowhere/socket"))).unwrap_err().to_string();
        assert!(line.starts_with("cannot listen on unix:/nowhere/socket: No such file"), "{line}");
    }

    #[test]
    fn a_kept_file_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let mut listening = Listening::bind(&unix(&path)).unwrap();
        listening.keep_file();
        drop(listening);
        assert!(path.exists());
    }
}
