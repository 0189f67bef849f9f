//! The progress of reading a trace, on a terminal and not in the first two seconds.

use clock::{Clock, Nanos};
use std::io::{self, IsTerminal, Write};

const QUIET_NS: u64 = 2_000_000_000;
const SHOW_EVERY_NS: u64 = 500_000_000;
/// Rows between two readings of the clock.
const ROWS_BETWEEN: u64 = 4096;

/// A line on the terminal, overwritten by the next.
pub(super) struct TraceProgress {
    clock: Clock,
    begun: Nanos,
    shown_ns: u64,
    is_open: bool,
    shows: bool,
    rows: u64,
    /// All rows, once the first pass has counted them.
    rows_of_trace: Option<u64>,
}

impl TraceProgress {
    pub(super) fn new(clock: Clock) -> TraceProgress {
        let shows = io::stderr().is_terminal();
        TraceProgress { begun: clock.now(), clock, shown_ns: 0, is_open: false, shows, rows: 0, rows_of_trace: None }
    }

    /// Begins the second pass over a trace with this many rows.
    pub(super) fn begin_simulation(&mut self, rows_of_trace: u64) {
        (self.rows, self.rows_of_trace) = (0, Some(rows_of_trace));
    }

    /// Counts a row of a pass.
    pub(super) fn row(&mut self) {
        self.rows += 1;
        if !self.shows || !self.rows.is_multiple_of(ROWS_BETWEEN) {
            return;
        }
        let elapsed_ns = self.clock.now().since(self.begun);
        if elapsed_ns < QUIET_NS || (self.is_open && elapsed_ns < self.shown_ns + SHOW_EVERY_NS) {
            return;
        }
        (self.shown_ns, self.is_open) = (elapsed_ns, true);
        // A closed terminal does not stop the run.
        let _ = write!(io::stderr(), "\r\x1b[K{}", text(self.rows, self.rows_of_trace));
    }

    /// Removes the line.
    pub(super) fn close(&mut self) {
        if std::mem::take(&mut self.is_open) {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

fn text(rows: u64, rows_of_trace: Option<u64>) -> String {
    let millions = |rows: u64| rows as f64 * 1e-6;
    match rows_of_trace {
        None => format!("counting: {:.1} million rows", millions(rows)),
        Some(all) => format!("simulating: {:.1} of {:.1} million rows", millions(rows), millions(all)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_shows_its_rows() {
        assert_eq!(text(1_250_000, None), "counting: 1.2 million rows");
        assert_eq!(text(2_000_000, Some(8_000_000)), "simulating: 2.0 of 8.0 million rows");
    }
}
