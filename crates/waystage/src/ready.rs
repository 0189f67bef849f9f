//! What every server does once it runs: prints one line, and waits for SIGTERM or SIGINT.

use std::io::Write;
use std::sync::mpsc::sync_channel;
use std::thread::Builder;
use std::time::Duration;

/// How long a line may take to be printed. After that, the server goes on without it.
const PRINT_WAIT: Duration = Duration::from_secs(1);

/// Prints a line and flushes it, because the reader of a pipe waits for it. A reader that has exited, or that does not read, does
/// not stop a server.
pub(crate) fn announce(line: &str) {
    let (line, (sender, printed)) = (line.to_string(), sync_channel::<()>(1));
    let print = move || {
        let mut out = std::io::stdout().lock();
        let _ = writeln!(out, "{line}").and_then(|()| out.flush());
        drop(sender);
    };
    if Builder::new().name("announce".into()).spawn(print).is_ok() {
        let _ = printed.recv_timeout(PRINT_WAIT);
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
