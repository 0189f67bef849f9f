//! Limits the bytes that wait in the kernel to be sent.

use socket2::SockRef;
use std::io;
use std::os::fd::AsFd;

/// Lets the kernel take further bytes only while fewer than this many have not been sent. Without this limit, it takes megabytes at once, and
/// a program does not see for a long time whether the peer reads. Bytes that were sent and not acknowledged do not count, so a fast peer
/// costs nothing.
///
/// # Errors
///
/// When the kernel refuses the option. Other systems than Linux ignore the limit.
pub fn limit_unsent_bytes(stream: &impl AsFd, bytes: u32) -> io::Result<()> {
    let stream = SockRef::from(stream);
    if cfg!(target_os = "linux") { stream.set_tcp_notsent_lowat(bytes) } else { Ok(()) }
}
