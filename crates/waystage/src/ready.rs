//! What every server does once it runs: prints one line, and waits for SIGTERM or SIGINT.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::Write;

/// How long a line waits for a reader of a full pipe. After that, the server goes on without it.
const PRINT_WAIT: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// Prints a line and flushes it, because the reader of a pipe waits for it. A reader that has exited, or that does not read, does
/// not stop a server.
pub(crate) fn announce(line: &str) {
    let mut out = std::io::stdout().lock();
    // A pipe is writable if it has room for a page, and no line is as long.
    let is_writable = poll(&mut [PollFd::new(&out, PollFlags::OUT)], Some(&PRINT_WAIT)).is_ok_and(|ready| ready > 0);
    if is_writable {
        let _ = writeln!(out, "{line}").and_then(|()| out.flush());
    }
}

/// SIGTERM and SIGINT, from now on handled here.
#[cfg(any(feature = "cache", feature = "messages"))]
pub(crate) struct StopSignals(signal_hook::iterator::Signals);

#[cfg(any(feature = "cache", feature = "messages"))]
impl StopSignals {
    /// Takes over both signals. Called before anything else starts, so that no signal is missed.
    pub(crate) fn take_over() -> Result<StopSignals, String> {
        use signal_hook::consts::{SIGINT, SIGTERM};
        let signals = signal_hook::iterator::Signals::new([SIGTERM, SIGINT]);
        signals.map(StopSignals).map_err(|error| format!("cannot take over signals: {error}"))
    }

    /// Like `take_over`, and adds SIGHUP, which requests a reload.
    #[cfg(feature = "messages")]
    pub(crate) fn take_over_with_reload() -> Result<StopSignals, String> {
        let signals = StopSignals::take_over()?;
        let added = signals.0.handle().add_signal(signal_hook::consts::SIGHUP);
        added.map(|()| signals).map_err(|error| format!("cannot take over signals: {error}"))
    }

    /// Waits for a signal. Returns whether it is SIGHUP.
    #[cfg(feature = "messages")]
    pub(crate) fn wait_for_reload(&mut self) -> bool {
        self.0.forever().next() == Some(signal_hook::consts::SIGHUP)
    }

    /// Returns when one of them has arrived.
    #[cfg(feature = "cache")]
    pub(crate) fn wait(&mut self) {
        self.0.forever().next();
    }
}
