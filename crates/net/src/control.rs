//! A unix socket over which one process passes descriptors to another, in whole messages of text and descriptors. Both ends trust only
//! processes of their own user and of root. It blocks, with timeouts, unless blocking is switched off. It is never used on an event loop,
//! and does not interpret the messages.

use crate::socket_file::{SocketFile, bind_over_stale};
use rustix::io::{ioctl_fionbio, retry_on_intr};
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen,
    recvmsg, sendmsg, socket_with,
};
use rustix::process::{Uid, geteuid};
use std::fs::{Permissions, set_permissions};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Maximum descriptors in one message, which the kernel allows.
const DESCRIPTORS_MAX: usize = 253;
/// Maximum bytes of text in one message.
const TEXT_BYTES_MAX: usize = 64 * 1024;
/// Timeout of sending a message.
const SEND_WAIT: Duration = Duration::from_secs(5);
/// Processes that may wait to be accepted.
const BACKLOG: i32 = 8;

/// The listening end. Only the owner of the file may connect to it.
#[derive(Debug)]
pub struct ControlSocket {
    socket: OwnedFd,
    file: SocketFile,
    path: PathBuf,
}

/// One connection between two processes.
#[derive(Debug)]
pub struct Channel {
    socket: OwnedFd,
}

fn socket(flags: SocketFlags) -> io::Result<OwnedFd> {
    // Packets keep each message together with its descriptors.
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags | SocketFlags::CLOEXEC, None)?)
}

impl ControlSocket {
    /// Listens. With `is_successor`, another process still listens on the path, and [`ControlSocket::succeed`] will replace it.
    ///
    /// # Errors
    /// If another program owns the path, or it cannot be used.
    pub fn bind(path: &Path, is_successor: bool) -> io::Result<ControlSocket> {
        let socket = socket(SocketFlags::NONBLOCK)?;
        let mut own = path.as_os_str().to_os_string();
        if is_successor {
            own.push(format!(".{}", std::process::id()));
        }
        let address = SocketAddrUnix::new(Path::new(&own))?;
        bind_over_stale(Path::new(&own), SocketType::SEQPACKET.as_raw().cast_signed().into(), || {
            bind(&socket, &address)
        })?;
        let file = SocketFile::at(Path::new(&own))?;
        // No process can connect before `listen`, so the file is protected before the first one does.
        set_permissions(&own, Permissions::from_mode(0o600))?;
        listen(&socket, BACKLOG)?;
        Ok(ControlSocket { socket, file, path: path.into() })
    }

    /// Takes the path over from the process that listened on it before.
    ///
    /// # Errors
    /// If the file cannot be renamed.
    pub fn succeed(&mut self) -> io::Result<()> {
        self.file.rename(&self.path)
    }

    /// Leaves the file in place for the process that takes the path over. Removing it after a check that it is still the same
    /// file would sometimes remove the successor's.
    pub fn keep_file(&mut self) {
        self.file.stay();
    }

    /// Accepts the next waiting process. Closes the connections of processes that are not trusted.
    ///
    /// # Errors
    /// If none is waiting.
    pub fn accept(&self) -> io::Result<Channel> {
        loop {
            let channel = Channel::new(accept_with(&self.socket, SocketFlags::CLOEXEC)?)?;
            if channel.check_peer().is_ok() {
                return Ok(channel);
            }
        }
    }

    pub(crate) fn raw(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl Channel {
    fn new(socket: OwnedFd) -> io::Result<Channel> {
        set_socket_timeout(&socket, Timeout::Send, Some(SEND_WAIT))?;
        Ok(Channel { socket })
    }

    /// Connects to the process that listens on this path.
    ///
    /// # Errors
    /// If no process does, or one that is not trusted. Anybody who may write to the folder can bind the path first.
    pub fn connect(path: &Path) -> io::Result<Channel> {
        let channel = Channel::new(socket(SocketFlags::empty())?)?;
        let address = SocketAddrUnix::new(path)?;
        // The kernel does not restart a call with a timeout that a signal has interrupted. Another attempt does no harm: a unix
        // socket is either connected or not.
        retry_on_intr(|| connect(&channel.socket, &address))?;
        channel.check_peer()?;
        Ok(channel)
    }

    /// Checks the user of the other process.
    fn check_peer(&self) -> io::Result<()> {
        let (peer, own) = (socket_peercred(&self.socket)?.uid, geteuid());
        if is_trusted(peer, own) {
            return Ok(());
        }
        let own = if own.is_root() { String::new() } else { format!(" or user {}", own.as_raw()) };
        let line = format!("the process there runs as user {}, not as root{own}", peer.as_raw());
        Err(io::Error::new(io::ErrorKind::PermissionDenied, line))
    }

    /// From now on neither sending nor receiving waits.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn stop_blocking(&self) -> io::Result<()> {
        Ok(ioctl_fionbio(&self.socket, true)?)
    }

    pub(crate) fn raw(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Sends a message.
    ///
    /// # Errors
    /// If the other process is gone or does not read, or the message is too large.
    pub fn send(&self, text: &str, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        if descriptors.len() > DESCRIPTORS_MAX {
            return Err(io::Error::other(format!("more than {DESCRIPTORS_MAX} sockets cannot be handed over")));
        }
        if text.len() > TEXT_BYTES_MAX {
            let line = format!("more than {TEXT_BYTES_MAX} bytes cannot be sent; give a shorter name");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, line));
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
        }
        let text = [IoSlice::new(text.as_bytes())];
        retry_on_intr(|| sendmsg(&self.socket, &text, &mut ancillary, SendFlags::NOSIGNAL))?;
        Ok(())
    }

    /// Waits for a message, at most for `patience`, or not at all after [`Channel::stop_blocking`]. A signal starts the wait again.
    ///
    /// # Errors
    /// If none arrives, the other process is gone, or the message is incomplete.
    pub fn receive(&self, patience: Duration) -> io::Result<(String, Vec<OwnedFd>)> {
        // The kernel takes a timeout of zero for none.
        if !patience.is_zero() {
            set_socket_timeout(&self.socket, Timeout::Recv, Some(patience))?;
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut text = vec![0; TEXT_BYTES_MAX];
        let mut into = [IoSliceMut::new(&mut text)];
        let received = retry_on_intr(|| recvmsg(&self.socket, &mut into, &mut ancillary, RecvFlags::CMSG_CLOEXEC))?;
        let mut descriptors = Vec::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                descriptors.extend(rights);
            }
        }
        if received.bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
            return Err(io::Error::other("a message was cut off; open files may have run out"));
        }
        text.truncate(received.bytes);
        let text = String::from_utf8(text).map_err(|_| io::Error::other("a message is not text"))?;
        Ok((text, descriptors))
    }
}

/// Whether a process of this user may take part in a hand-over.
fn is_trusted(peer: Uid, own: Uid) -> bool {
    peer == own || peer.is_root()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::AsFd;

    #[test]
    fn descriptors_arrive_with_their_text() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control");
        let control = ControlSocket::bind(&path, false).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(control.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let asker = Channel::connect(&path).unwrap();
        let asked = control.accept().unwrap();
        asker.send("first", &[]).unwrap();
        asker.send("second", &[]).unwrap();
        let patience = Duration::from_secs(10);
        assert_eq!(asked.receive(patience).unwrap().0, "first");
        let (mut reader, writer) = std::io::pipe().unwrap();
        asked.send("a pipe", &[writer.as_fd()]).unwrap();
        drop(writer);
        let (text, mut descriptors) = asker.receive(patience).unwrap();
        assert_eq!((text.as_str(), descriptors.len()), ("a pipe", 1));
        let mut pipe = std::fs::File::from(descriptors.remove(0));
        io::Write::write_all(&mut pipe, b"through").unwrap();
        drop(pipe);
        let mut through = String::new();
        reader.read_to_string(&mut through).unwrap();
        assert_eq!(through, "through");
        assert_eq!(asked.receive(patience).unwrap().0, "second");
        drop(asker);
        assert_eq!(asked.receive(patience).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn as_many_descriptors_as_the_kernel_allows_arrive() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control");
        let control = ControlSocket::bind(&path, false).unwrap();
        let asker = Channel::connect(&path).unwrap();
        let asked = control.accept().unwrap();
        let (reader, _writer) = std::io::pipe().unwrap();
        asked.send("many", &vec![reader.as_fd(); DESCRIPTORS_MAX]).unwrap();
        assert_eq!(asker.receive(Duration::from_secs(10)).unwrap().1.len(), 253);
        let error = asked.send("too many", &vec![reader.as_fd(); DESCRIPTORS_MAX + 1]).unwrap_err();
        assert_eq!(error.to_string(), "more than 253 sockets cannot be handed over");
    }

    #[test]
    fn only_processes_of_the_same_user_and_of_root_are_trusted() {
        let [root, own, other] = [0, 1000, 1001].map(Uid::from_raw);
        assert!(is_trusted(own, own) && is_trusted(root, own) && is_trusted(root, root));
        assert!(!is_trusted(other, own) && !is_trusted(other, root));
    }

    #[test]
    fn a_silent_peer_times_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control");
        let control = ControlSocket::bind(&path, false).unwrap();
        let _silent = Channel::connect(&path).unwrap();
        let asked = control.accept().unwrap();
        assert_eq!(asked.receive(Duration::from_millis(20)).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn a_successor_takes_the_path_and_the_predecessor_does_not_remove_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control");
        let first = ControlSocket::bind(&path, false).unwrap();
        assert!(ControlSocket::bind(&path, false).unwrap_err().to_string().contains("another process listens"));
        let mut second = ControlSocket::bind(&path, true).unwrap();
        Channel::connect(&path).unwrap();
        first.accept().expect("clients still reach the first one");
        second.succeed().unwrap();
        drop(first);
        Channel::connect(&path).unwrap();
        second.accept().expect("clients now reach the second one");
        drop(second);
        assert!(!path.exists());
    }
}
