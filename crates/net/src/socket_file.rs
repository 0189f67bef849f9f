//! The file of a listening unix socket: left behind by a killed process, replaced by the next, removed at the end.

use socket2::{Domain, SockAddr, Socket, Type};
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The file, removed when this is dropped unless it has become another's.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    /// Device and inode: the file may have been replaced by somebody else's. None when it is to stay.
    identity: Option<(u64, u64)>,
}

impl SocketFile {
    /// The file that is there.
    pub(crate) fn at(path: &Path) -> io::Result<SocketFile> {
        Ok(SocketFile { path: path.into(), identity: Some(identity(path)?) })
    }

    /// Leaves it where it is.
    pub(crate) fn stay(&mut self) {
        self.identity = None;
    }

    /// Gives it another path, in place of what is there.
    pub(crate) fn rename(&mut self, path: &Path) -> io::Result<()> {
        fs::rename(&self.path, path)?;
        self.path = path.into();
        Ok(())
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.identity.is_some() && identity(&self.path).ok() == self.identity {
            // Whoever starts next replaces a file on which nobody listens.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = fs::metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

/// Binds a socket to a path, after the removal of a file on which nobody listens.
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

/// Removes a socket file on which nobody listens.
fn remove_stale(path: &Path, kind: Type) -> io::Result<()> {
    if !fs::symlink_metadata(path)?.file_type().is_socket() {
        return Err(io::Error::other("it is a file, and no socket: give another path"));
    }
    let probe = Socket::new(Domain::UNIX, kind, None)?;
    // A socket whose queue is full would let the probe wait.
    probe.set_nonblocking(true)?;
    match probe.connect(&SockAddr::unix(path)?) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        Ok(()) => Err(io::Error::other("another process listens on it: stop that, or give another path")),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            Err(io::Error::other("another process listens on it, and is busy: stop that, or give another path"))
        }
        Err(error) => Err(error),
    }
}
