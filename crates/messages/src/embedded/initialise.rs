//! Creates the data directory. `initdb` writes it under another name, so a directory with the name `data` is complete. If the service is
//! killed meanwhile, only the other directory is left. The next start removes it.

use super::{DATA, Embedded, EmbeddedError, USER};
use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};

/// The beginning of the names of directories that `initdb` is writing.
const UNFINISHED: &str = "data.initdb-";

/// Whether the directory contains data, or nothing but what an interrupted `initdb` has left. Another waystage can be creating the data, so
/// the directory is read once only.
pub(super) fn is_usable(directory: &Path) -> io::Result<bool> {
    let entries = all_entries(directory)?;
    let is_data = |path: &PathBuf| path.ends_with(DATA) && !path.is_file();
    Ok(entries.iter().any(is_data) || entries.iter().all(|path| is_unfinished(path)))
}

impl Embedded {
    /// Creates the data unless they exist, and removes what an interrupted `initdb` has left.
    pub(super) fn initialise(&self) -> Result<(), EmbeddedError> {
        self.remove_unfinished();
        if self.data().join("PG_VERSION").exists() {
            return Ok(());
        }
        let failed = |text: String| EmbeddedError::Program("initdb", text);
        if all_entries(&self.data()).is_ok_and(|entries| !entries.is_empty()) {
            let why = "it contains files, but no PostgreSQL data; remove it, or use another directory".into();
            return Err(EmbeddedError::Directory { path: self.data().display().to_string(), why });
        }
        // The initdb of a killed service can still be running, so each has a name of its own.
        let number = RandomState::new().build_hasher().finish();
        let place = self.directory.join(format!("{UNFINISHED}{number:016x}"));
        let mut command = self.command("initdb");
        command.args(["--auth=trust", "--encoding=UTF8", "--locale=C", "--no-instructions", "--username", USER, "-D"]);
        let output = command.arg(&place).output().map_err(|error| failed(error.to_string()))?;
        if !output.status.success() {
            self.remove_unfinished();
            let text = String::from_utf8_lossy(&output.stderr);
            return Err(failed(text.lines().next().unwrap_or("failed").to_string()));
        }
        // initdb has written its files to the disk.
        fs::rename(&place, self.data()).and_then(|()| self.handle.sync_all()).map_err(|error| failed(error.to_string()))
    }

    /// A running initdb of a killed service can create files meanwhile. Then a later start removes the rest.
    fn remove_unfinished(&self) {
        for place in unfinished(&self.directory).unwrap_or_default() {
            let _ = fs::remove_dir_all(place);
        }
    }
}

/// The directories that an initdb is writing, or has left.
fn unfinished(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut entries = all_entries(directory)?;
    entries.retain(|path| is_unfinished(path));
    Ok(entries)
}

fn is_unfinished(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(UNFINISHED))
}

fn all_entries(directory: &Path) -> io::Result<Vec<PathBuf>> {
    fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn a_directory_is_usable_at_every_moment_while_another_waystage_creates_the_data() {
        let folder = tempfile::tempdir().unwrap();
        let (directory, outside) = (folder.path().join("postgres"), folder.path().join("outside"));
        let (place, data) = (directory.join("data.initdb-1"), directory.join(DATA));
        fs::create_dir(&directory).unwrap();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    fs::create_dir(&place).unwrap();
                    fs::rename(&place, &data).unwrap();
                    fs::rename(&data, &outside).unwrap();
                    fs::remove_dir(&outside).unwrap();
                }
            });
            let refusals = (0..5000).filter(|_| !is_usable(&directory).unwrap()).count();
            is_over.store(true, Ordering::Relaxed);
            assert_eq!(refusals, 0);
        });
    }
}
