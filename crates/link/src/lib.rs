//! A link between two network devices, emulated in user space for kernels without netem or tbf: delay, rate, queue and
//! loss (docs/scaled-hosts.md).
//!
//! A frame waits for the delay first, then for the rate, as behind netem in tbf. Every frame has a due time, so that a
//! late frame delays no later one. Late frames are counted.

mod counters;
mod way;

pub use counters::Counters;
pub use way::{Direction, Way};

use clock::Clock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::convert::Infallible;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// A timer seldom wakes the program later than this. If frames may not be as late, it sleeps until shortly before the due
/// time and then polls, which costs CPU time.
const WAKE_UP_NS: u64 = 180_000;
/// The time after which the counters are written, also if a frame is always due soon.
const WRITTEN_NS: u64 = 10_000_000;
/// The longest sleep.
const IDLE: Duration = Duration::from_secs(1);

/// Forwards the frames of both directions until one of the devices fails, and keeps the counters of both in the file.
///
/// # Errors
/// The error of the device or of the file.
pub fn forward(ways: &mut [Way<'_>; 2], counters: &File, clock: &Clock) -> io::Result<Infallible> {
    let polled_ns = ways.iter().map(|way| WAKE_UP_NS.saturating_sub(way.late_ns())).max().unwrap_or_default();
    let mut written_ns = 0;
    let mut more = false;
    loop {
        let now_ns = clock.now().0;
        let due_ns = ways.iter().filter_map(Way::next_due_ns).min();
        let wait_ns = due_ns.map_or(u64::MAX, |due_ns| due_ns.saturating_sub(now_ns));
        let sleeps = !more && wait_ns > polled_ns;
        if sleeps || now_ns > written_ns + WRITTEN_NS {
            written_ns = now_ns;
            let [up, down] = ways;
            counters.write_all_at(&Counters::both(up.counters(), down.counters()), 0)?;
        }
        if sleeps {
            sleep(ways, Duration::from_nanos(wait_ns - polled_ns).min(IDLE))?;
        }
        more = false;
        for way in ways.iter_mut() {
            more |= way.receive(clock)?;
            way.send_due(clock);
        }
    }
}

/// Sleeps until a frame arrives, and no longer than this.
fn sleep(ways: &[Way<'_>; 2], longest: Duration) -> io::Result<()> {
    let [up, down] = ways;
    let mut sources =
        [PollFd::from_borrowed_fd(up.source(), PollFlags::IN), PollFd::from_borrowed_fd(down.source(), PollFlags::IN)];
    let longest = Timespec { tv_sec: longest.as_secs() as i64, tv_nsec: i64::from(longest.subsec_nanos()) };
    match poll(&mut sources, Some(&longest)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
