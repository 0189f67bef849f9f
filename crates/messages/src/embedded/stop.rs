//! Stops a private server within bounded time, also if it hangs.

use super::{Embedded, PAUSE};
use clock::Clock;
use records::report;
use rustix::process::Signal;
use std::process::Child;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// A "fast shutdown" writes everything, which takes this long at most. With the default `shutdown-timeout` and the immediate shutdown, the
/// service ends within 30 s, after which Kubernetes kills a container by default.
const FAST: Duration = Duration::from_secs(10);
/// An "immediate shutdown": PostgreSQL itself kills processes that have not ended after five seconds.
const IMMEDIATE: Duration = Duration::from_secs(8);
/// A stop that takes longer than this is logged.
const SILENT: Duration = Duration::from_secs(1);

impl Embedded {
    /// Stops the server if this program started it. Each further stop signal goes on to the next step: the fast shutdown becomes an immediate
    /// one, and then the server is left alone. It is never killed, because its children would go on without it for a moment.
    pub(super) fn stop(&mut self, further_signals: &AtomicUsize) {
        let Some(mut child) = self.child.take() else { return };
        let process = child.id();
        Embedded::send(&child, Signal::INT);
        if ends(&mut child, SILENT, further_signals, 0) {
            return;
        }
        if further_signals.load(Ordering::Relaxed) == 0 {
            report(format_args!(
                "waystage: messages: waiting for its PostgreSQL (process {process}) to stop; after {} s, or another SIGTERM or SIGINT, \
                 it must stop immediately",
                FAST.as_secs()
            ));
        }
        if ends(&mut child, FAST.saturating_sub(SILENT), further_signals, 0) {
            return;
        }
        let signals = further_signals.load(Ordering::Relaxed);
        let why = match signals {
            0 => format!("its PostgreSQL did not stop within {} s: it", FAST.as_secs()),
            _ => "another signal arrived: its PostgreSQL".into(),
        };
        report(format_args!("waystage: messages: {why} must stop immediately, and recovers at its next start"));
        Embedded::send(&child, Signal::QUIT);
        if !ends(&mut child, IMMEDIATE, further_signals, signals) {
            report(format_args!(
                "waystage: messages: its PostgreSQL (process {process}) has not stopped and is left alone; the next service in this \
                 directory stops it"
            ));
        }
    }
}

/// Whether the process ends within this time, and before there are more signals than this.
fn ends(child: &mut Child, limit: Duration, further_signals: &AtomicUsize, signals: usize) -> bool {
    let clock = Clock::monotonic();
    let began = clock.now();
    loop {
        // Waiting fails only for a process that is not our child.
        if child.try_wait().map_or(true, |status| status.is_some()) {
            return true;
        }
        if clock.now().after(began) >= limit || further_signals.load(Ordering::Relaxed) > signals {
            return false;
        }
        std::thread::sleep(PAUSE);
    }
}
