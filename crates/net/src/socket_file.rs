//! The file of a listening unix socket: a killed process leaves it behind, the next one replaces it.

use rustix::io::Errno;
use socket2::{Domain, SockAddr, Socket, Type};
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The file. It is removed on drop, unless it belongs to another process by then.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    /// Device and inode, because another process may have replaced the file. `None` if the file must stay.
    identity: Option<(u64, u64)>,
}

impl SocketFile {
    /// The file at this path.
    pub(crate) fn at(path: &Path) -> io::Result<SocketFile> {
        Ok(SocketFile { path: path.into(), identity: Some(identity(path)?) })
    }

    /// Leaves the file in place on drop.
    pub(crate) fn stay(&mut self) {
        self.identity = None;
    }

    /// Renames it, replacing the file at the new path.
    pub(crate) fn rename(&mut self, path: &Path) -> io::Result<()> {
        fs::rename(&self.path, path)?;
        self.path = path.into();
        Ok(())
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.identity.is_some() && identity(&self.path).ok() == self.identity {
            // The next process replaces a file on which no process listens.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = fs::metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

/// Binds a socket to a path, after removing a file on which no process listens.
pub(crate) fn bind_over_stale<E: Into<io::Error>>(
    path: &Path,
    kind: Type,
    bind: impl Fn() -> Result<(), E>,
) -> io::Result<()> {
    match bind().map_err(Into::into) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            remove_stale(path, kind)?;
            bind().map_err(Into::into)
        }
        bound => bound,
    }
}

/// Removes a socket file on which no process listens.
pub(crate) fn remove_stale(path: &Path, kind: Type) -> io::Result<()> {
    if !fs::symlink_metadata(path)?.file_type().is_socket() {
        return Err(io::Error::other("it is a file, and no socket: give another path"));
    }
    let probe = Socket::new(Domain::UNIX, kind, None)?;
    // Connecting to a socket with a full queue would block.
    probe.set_nonblocking(true)?;
    match probe.connect(&SockAddr::unix(path)?) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        Ok(()) => Err(io::Error::other("another process listens on it: stop that, or give another path")),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            Err(io::Error::other("another process listens on it, and is busy: stop that, or give another path"))
        }
        Err(error) if error.raw_os_error() == Some(Errno::PROTOTYPE.raw_os_error()) => {
            Err(io::Error::other("another process uses it as a socket of another type: give another path"))
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixDatagram;

    #[test]
    fn a_socket_of_another_type_is_left_alone_and_named_in_plain_words() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let used = UnixDatagram::bind(&path).unwrap();
        let line = remove_stale(&path, Type::STREAM).unwrap_err().to_string();
        assert_eq!(line, "another process uses it as a socket of another type: give another path");
        drop(used);
        remove_stale(&path, Type::STREAM).unwrap();
        assert!(!path.exists());
    }
}
