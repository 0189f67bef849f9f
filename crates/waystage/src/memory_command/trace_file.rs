//! The file of a trace that is read twice: both passes must see the same file.

use std::fs::{FileType, Metadata, metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A regular file, as it was at the beginning.
pub(super) struct TraceFile {
    path: PathBuf,
    before: FileState,
}

/// Different if the file was written or replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileState {
    device: u64,
    inode: u64,
    bytes: u64,
    modified_s: i64,
    modified_ns: i64,
}

impl TraceFile {
    /// Looks at the file, without opening it.
    pub(super) fn find(path: &Path) -> Result<TraceFile, String> {
        let found = metadata(path).map_err(|error| format!("{}: {error}", path.display()))?;
        if !found.is_file() {
            let kind = kind(found.file_type());
            return Err(format!(
                "{}: is a {kind}; the program reads the trace twice, so it must be a regular file",
                path.display()
            ));
        }
        Ok(TraceFile { path: path.to_path_buf(), before: FileState::of(&found) })
    }

    /// Fails if the file has changed since.
    pub(super) fn check(&self) -> Result<(), String> {
        let path = self.path.display();
        let now = metadata(&self.path).map_err(|error| format!("{path}: was removed while it was read: {error}"))?;
        let (before, now) = (self.before, FileState::of(&now));
        if before == now {
            return Ok(());
        }
        let sizes = if before.bytes == now.bytes {
            format!("still {} bytes", now.bytes)
        } else {
            format!("from {} to {} bytes", before.bytes, now.bytes)
        };
        Err(format!("{path}: the file changed while it was read ({sizes}); copy it, and give the copy"))
    }

    /// Fails if the second pass had another number of rows than the first.
    pub(super) fn check_rows(&self, first: u64, second: u64) -> Result<(), String> {
        if first == second {
            return Ok(());
        }
        Err(format!(
            "{}: the first pass read {first} rows and the second {second}; copy the file, and give the copy",
            self.path.display()
        ))
    }
}

impl FileState {
    fn of(found: &Metadata) -> FileState {
        FileState {
            device: found.dev(),
            inode: found.ino(),
            bytes: found.size(),
            modified_s: found.mtime(),
            modified_ns: found.mtime_nsec(),
        }
    }
}

fn kind(of: FileType) -> &'static str {
    match of {
        _ if of.is_dir() => "directory",
        _ if of.is_fifo() => "pipe",
        _ if of.is_socket() => "socket",
        _ => "device",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{OpenOptions, create_dir_all, remove_file, write};
    use std::io::Write;

    #[test]
    fn a_file_that_changes_between_the_passes_is_refused() {
        let folder = std::env::temp_dir().join(format!("waystage-memory-{}", std::process::id()));
        create_dir_all(&folder).unwrap();
        let path = folder.join("trace.csv");
        write(&path, "1,k,1,1,0,get,0\n").unwrap();
        let file = TraceFile::find(&path).unwrap();
        assert_eq!((file.check(), file.check_rows(1, 1)), (Ok(()), Ok(())));
        assert!(file.check_rows(2, 1).unwrap_err().contains("the first pass read 2 rows and the second 1"));
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"2,k,1,1,0,get,0\n").unwrap();
        assert!(file.check().unwrap_err().contains("from 16 to 32 bytes"));
        write(&path, "").unwrap();
        assert!(file.check().unwrap_err().contains("from 16 to 0 bytes"));
        remove_file(&path).unwrap();
        assert!(file.check().unwrap_err().contains("was removed"));
        let refused = TraceFile::find(&folder).err().unwrap();
        assert!(refused.contains("is a directory") && refused.contains("must be a regular file"), "{refused}");
        assert!(TraceFile::find(Path::new("/dev/null")).err().unwrap().contains("is a device"));
        std::fs::remove_dir(&folder).unwrap();
    }
}
