//! Explains why PostgreSQL refuses a lock file: after a crash of the machine, a process that is no PostgreSQL can have the number in it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The lock file that PostgreSQL refuses with this line of its log: of its data or of its socket.
pub(super) fn refused_in(line: &str, data: &Path) -> Option<PathBuf> {
    line.contains("lock file").then(|| data.join(line.split('"').nth(1).unwrap_or(super::LOCK)))
}

/// The number and the name of the process with the number in the lock file, if it certainly does not use these data. Where `/proc` does not
/// show that, it is unknown.
pub(super) fn stranger(lock: &Path, data: &Path) -> Option<String> {
    let text = fs::read_to_string(lock).ok()?;
    // The number of a PostgreSQL without a server is negative.
    let number: u32 = text.lines().next()?.trim().trim_start_matches('-').parse().ok()?;
    // The processes of a server work in its data directory, before they lock it.
    let [works_in, ours] = [fs::metadata(format!("/proc/{number}/cwd")).ok()?, fs::metadata(data).ok()?];
    let name = fs::read_to_string(format!("/proc/{number}/comm")).unwrap_or_default();
    let is_stranger = (works_in.dev(), works_in.ino()) != (ours.dev(), ours.ino());
    is_stranger.then(|| format!("{number} ({})", name.trim_end().escape_debug()))
}
