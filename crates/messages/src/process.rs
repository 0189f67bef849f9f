//! What the kernel says of this process, under the names that all exporters use.

use std::fs;

/// What could be read; on systems without /proc, nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Process {
    pub(crate) cpu_s: f64,
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) open_files: Option<u64>,
    pub(crate) open_files_max: Option<u64>,
}

impl Process {
    /// As it is now.
    pub(crate) fn now() -> Process {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
        let cpu = clock::process_cpu();
        Process {
            cpu_s: cpu.user_s + cpu.system_s,
            memory_bytes: number_after(&status, "VmRSS:").map(|kilobytes| kilobytes * 1024),
            // The listing itself holds one open.
            open_files: fs::read_dir("/proc/self/fd").ok().map(|files| files.count().saturating_sub(1) as u64),
            open_files_max: number_after(&limits, "Max open files"),
        }
    }
}

/// The first number in the line that begins with this.
fn number_after(text: &str, head: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(head))?;
    rest.split_whitespace().next()?.parse().ok()
}
