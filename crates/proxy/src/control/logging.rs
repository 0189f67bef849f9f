//! The thread of the log, and its orderly end.

use crate::config::{Config, LogLevel};
use crate::control::threads::Worker;
use crate::observe::log::event::Event;
use crate::observe::log::queue::{Entry, LogCounters, LogQueue};
use crate::observe::log::watch::{Sources, Watch};
use crate::observe::log::writer::LogWriter;
use crate::observe::stats::Stats;
use clock::Clock;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// How long an output that blocks can delay the exit of the proxy.
const END_WAIT: Duration = Duration::from_secs(1);
/// The interval at which the end of the thread is looked for.
const END_POLL: Duration = Duration::from_millis(2);

/// The log of one configuration.
#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) queue: LogQueue,
    thread: Worker<()>,
}

impl Log {
    /// The log, whose thread has not begun. None if nothing is logged.
    pub(crate) fn prepare(
        config: &Config,
        stats: &Stats,
        counters: &Arc<LogCounters>,
        clock: &Clock,
    ) -> io::Result<Option<Log>> {
        if config.log.level == LogLevel::Off {
            return Ok(None);
        }
        let (queue, entries) = LogQueue::new(counters.clone());
        let sources = Sources { loops: stats.loops.clone(), accept: stats.accept.clone(), log: counters.clone() };
        let writer = LogWriter {
            config: config.log.clone(),
            backends: stats.servers.clone(),
            entries,
            watch: Watch::new(config, sources),
            counters: counters.clone(),
            clock: clock.clone(),
        };
        let thread = Worker::prepare("log", move || {
            writer.run();
            Ok(())
        })?;
        Ok(Some(Log { queue, thread }))
    }

    /// Lets the thread begin.
    pub(crate) fn begin(&mut self) {
        self.thread.begin();
    }

    /// Adds an event.
    pub(crate) fn event(&self, event: Event) {
        self.queue.add(Entry::Event(event));
    }

    /// Ends the thread when it has written all lines. The loops must have ended. An output that blocks is given up.
    pub(crate) fn end(self, clock: &Clock) {
        let Log { queue, thread } = self;
        drop(queue);
        let until = clock.now() + END_WAIT;
        while !thread.is_finished() && clock.now() < until {
            std::thread::sleep(END_POLL);
        }
    }
}
