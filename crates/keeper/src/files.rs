//! Files of a keeper's host: what the lab reads of them, and the programs that it writes.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The most that one reply contains of a file.
const PART_BYTES: u64 = 1 << 20;
/// The most that is read of a text.
const TEXT_BYTES: u64 = 1 << 20;

/// Reads a small text file; `None` if that is not possible.
pub(crate) fn text(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(TEXT_BYTES).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Reads a part of a file.
pub(crate) fn part(path: &Path, offset: u64) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(offset))?;
    let mut bytes = Vec::new();
    file.take(PART_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns names and lengths of the files in a folder.
pub(crate) fn list(path: &Path) -> io::Result<BTreeMap<String, u64>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        if metadata.is_file() {
            found.insert(entry.file_name().to_string_lossy().into_owned(), metadata.len());
        }
    }
    Ok(found)
}

/// Writes a program from the next bytes of a reader. It reads all of them also if the disk is full, because the next
/// request follows them.
pub(crate) fn write_program(path: &Path, bytes: u64, from: &mut impl Read) -> io::Result<()> {
    let mut from = from.take(bytes);
    let written = OpenOptions::new().write(true).create_new(true).mode(0o700).open(path).and_then(|mut file| {
        let copied = io::copy(&mut from, &mut file)?;
        if copied < bytes { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    });
    io::copy(&mut from, &mut io::sink())?;
    written
}

/// Removes a file, or a folder with its content; nothing if there is none.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}
