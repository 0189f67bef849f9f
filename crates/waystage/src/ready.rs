//! What every server does once it runs: says so on one line, waits for SIGTERM or SIGINT.

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::Write;

/// Takes over SIGTERM and SIGINT; to be called before anything else starts, so that none is missed.
pub(crate) fn signals() -> Result<Signals, String> {
    Signals::new([SIGTERM, SIGINT]).map_err(|error| format!("cannot take over signals: {error}"))
}

/// Prints a line at once: whoever waits for it reads a pipe. A reader that has gone away is no reason to stop serving.
pub(crate) fn announce(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// Returns when one of the signals has come.
pub(crate) fn wait(signals: &mut Signals) {
    signals.forever().next();
}
