//! The log's thread: it writes what is in the queue, and what the watch finds. If the output blocks, only this thread waits.

use crate::config::{LogConfig, LogLevel};
use crate::observe::log::event::Event;
use crate::observe::log::line::Line;
use crate::observe::log::queue::{Entry, LogCounters, LogEntries};
use crate::observe::log::watch::Watch;
use clock::{Clock, Nanos, unix_now};
use std::sync::Arc;
use std::sync::atomic::Ordering;
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
    pub(crate) clock: Clock,
}

impl LogWriter {
    /// Writes until all other ends of the queue are gone.
    pub(crate) fn run(mut self) {
        let mut next_look = self.clock.now() + INTERVAL;
        loop {
            match self.entries.receiver.recv_timeout(next_look.after(self.clock.now())) {
                Ok(Entry::Event(event)) => self.write(&event.line()),
                Ok(Entry::Slow(request)) => self.write(&request.line(self.config.keys, &self.backends)),
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
        let mut found = Vec::new();
        self.watch.look(now, is_end, |event| found.push(event));
        // At the end, backends go down because the proxy closes its connections.
        let is_wanted = |event: &Event| !is_end || matches!(event, Event::Counted { .. });
        found.iter().filter(|event| is_wanted(event)).for_each(|event| self.write(&event.line()));
    }

    fn write(&self, line: &Line) {
        if line.level > self.config.level || self.config.level == LogLevel::Off {
            return;
        }
        let bytes = line.render(self.config.format, unix_now());
        let counter = match self.config.output.write(&bytes) {
            Ok(()) => &self.counters.written,
            // A full disk or a closed pipe. The proxy serves on.
            Err(_) => &self.counters.lost,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}
