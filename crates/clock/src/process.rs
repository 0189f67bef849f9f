//! The kernel's counts for this process, under the names that all Prometheus exporters use.

use std::fs;

/// The counts that could be read; all `None` on systems without /proc.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Process {
    /// Resident memory.
    pub memory_bytes: Option<u64>,
    /// Open file descriptors.
    pub open_files: Option<u64>,
    /// The limit of open file descriptors.
    pub open_files_max: Option<u64>,
}

impl Process {
    /// Reads the current values.
    pub fn now() -> Process {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
        Process {
            memory_bytes: number_after(&status, "VmRSS:").map(|kilobytes| kilobytes * 1024),
            // Listing the directory opens one descriptor itself.
            open_files: fs::read_dir("/proc/self/fd").ok().map(|files| files.count().saturating_sub(1) as u64),
            open_files_max: number_after(&limits, "Max open files"),
        }
    }
}

/// The first number in the line that begins with `name`.
fn number_after(text: &str, head: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(head))?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_parsed_from_the_kernels_text() {
        assert_eq!(number_after("VmHWM:\t  9 kB\nVmRSS:\t    1234 kB\n", "VmRSS:"), Some(1234));
        assert_eq!(number_after("Max open files            1024   4096   files\n", "Max open files"), Some(1024));
        assert_eq!(number_after("Max open files            unlimited   unlimited   files\n", "Max open files"), None);
        let process = Process::now();
        assert!(
            process.memory_bytes.is_none_or(|bytes| bytes > 100_000)
                && process.open_files.is_none_or(|count| count > 2)
        );
    }
}
