//! The log's thread: it writes what is in the queue, and what the watch finds. If the output blocks, only this thread waits.

use crate::config::{LogConfig, LogLevel};
use crate::observe::log::line::Line;
use crate::observe::log::queue::{Entry, LogCounters, LogEntries, What};
use crate::observe::log::watch::{LOST, Watch};
use clock::{Clock, Nanos, unix_now};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

/// The interval at which the counters are compared.
const INTERVAL: Duration = Duration::from_millis(200);

/// The work of the thread.
#[derive(Debug)]
pub(crate) struct LogWriter {
    pub(crate) config: LogConfig,
    /// The names of the backends.
    pub(crate) backends: Vec<String>,
    pub(crate) entries: LogEntries,
    pub(crate) watch: Watch,
    pub(crate) counters: Arc<LogCounters>,
    /// The proxy stops, and closes its connections to backends.
    pub(crate) is_stopping: Arc<AtomicBool>,
    /// A part of the last line may have been written without its end.
    pub(crate) is_broken_off: bool,
    pub(crate) clock: Clock,
}

impl LogWriter {
    /// Writes until all other ends of the queue are gone.
    pub(crate) fn run(mut self) {
        let mut next_look = self.clock.now() + INTERVAL;
        loop {
            match self.entries.receiver.recv_timeout(next_look.after(self.clock.now())) {
                Ok(Entry { what: What::Event(event), unix_ns }) => self.write(&event.line(), unix_ns),
                Ok(Entry { what: What::Slow(request), unix_ns }) => {
                    self.write(&request.line(self.config.keys, &self.backends), unix_ns);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return self.look(true),
            }
            let now = self.clock.now();
            if now >= next_look {
                self.look(false);
                next_look = now + INTERVAL;
            }
        }
    }

    fn look(&mut self, is_end: bool) {
        if self.entries.is_replaced.load(Ordering::Relaxed) && !is_end {
            return;
        }
        let now: Nanos = self.clock.now();
        let (is_stopping, mut found) = (&self.is_stopping, Vec::new());
        self.watch.look(now, is_end, || is_stopping.load(Ordering::Relaxed), |event| found.push(event));
        for event in found {
            self.write(&event.line(), unix_now());
        }
    }

    fn write(&mut self, line: &Line, unix_ns: u64) {
        if line.level > self.config.level || self.config.level == LogLevel::Off {
            return;
        }
        let mut bytes = line.render(self.config.format, unix_ns);
        if self.is_broken_off {
            bytes.insert(0, b'\n');
        }
        // A full disk or a closed pipe. The proxy serves on.
        self.is_broken_off = self.config.output.write(&bytes).is_err();
        if !self.is_broken_off {
            self.counters.written.fetch_add(1, Ordering::Relaxed);
        } else if line.event != LOST {
            self.counters.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}
