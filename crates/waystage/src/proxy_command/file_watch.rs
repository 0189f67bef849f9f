//! Detects changes of files.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Detects changes of the configuration file. Create it before the file is read for the first time: a change that comes between
/// the reading and the creation would be missed.
#[derive(Debug)]
pub(crate) struct FileWatch {
    file: PathBuf,
    reported: Option<FileVersion>,
    last: Option<FileVersion>,
}

/// The inode, length and modification time (seconds, nanoseconds) of a file: one of them differs after a change.
pub(super) type FileVersion = (u64, u64, i64, i64);

/// The version of a file. None if there is none.
pub(super) fn version(file: &Path) -> Option<FileVersion> {
    let metadata = file.metadata().ok()?;
    Some((metadata.ino(), metadata.len(), metadata.mtime(), metadata.mtime_nsec()))
}

impl FileWatch {
    pub(super) fn new(file: PathBuf) -> FileWatch {
        let version = version(&file);
        FileWatch { file, reported: version, last: version }
    }

    /// Returns true once for each change, when two calls in a row have found the same new version: an editor may write the
    /// file in pieces.
    pub(super) fn has_changed(&mut self) -> bool {
        let now = version(&self.file);
        let is_stable = now.is_some() && now == self.last;
        self.last = now;
        let is_new = is_stable && now != self.reported;
        if is_new {
            self.reported = now;
        }
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{remove_file, write};

    #[test]
    fn a_change_is_reported_once_when_the_file_has_stopped_changing() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("proxy.toml");
        write(&file, "a").unwrap();
        let mut watch = FileWatch::new(file.clone());
        assert!(!watch.has_changed());
        write(&file, "ab").unwrap();
        let pieces = watch.has_changed();
        write(&file, "abc").unwrap();
        let next = watch.has_changed();
        assert_eq!((pieces, next, watch.has_changed(), watch.has_changed()), (false, false, true, false));
        remove_file(&file).unwrap();
        assert!(!watch.has_changed() && !watch.has_changed(), "a missing file is not a new configuration");
        write(&file, "abcd").unwrap();
        assert_eq!((watch.has_changed(), watch.has_changed()), (false, true));
    }

    #[test]
    fn a_change_before_the_first_check_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("proxy.toml");
        write(&file, "a").unwrap();
        let mut watch = FileWatch::new(file.clone());
        write(&file, "changed while the proxy started").unwrap();
        assert_eq!((watch.has_changed(), watch.has_changed()), (false, true));
    }
}
