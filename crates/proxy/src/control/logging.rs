//! The thread of the log, and its orderly end.

use crate::config::{Config, LogLevel};
use crate::control::threads::Worker;
use crate::observe::log::event::LogEvent;
use crate::observe::log::queue::{LogQueue, What};
use crate::observe::log::watch::{DownBackends, Sources, Watch};
use crate::observe::log::writer::LogWriter;
use crate::observe::stats::Stats;
use crate::observe::tally::Tally;
use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long an output that blocks can delay the exit of the proxy.
const END_WAIT: Duration = Duration::from_secs(1);

/// The log of one configuration.
#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) queue: LogQueue,
    /// For the log of the configuration that replaces this one.
    pub(crate) down: DownBackends,
    thread: Worker<()>,
    /// Disconnected when the thread has written all lines.
    ended: Mutex<Receiver<()>>,
}

impl Log {
    /// The log, whose thread has not begun. None if nothing is logged.
    pub(crate) fn prepare(
        config: &Config,
        stats: &Stats,
        is_stopping: &Arc<AtomicBool>,
        before: Option<&Log>,
    ) -> io::Result<Option<Log>> {
        if config.log.level == LogLevel::Off {
            return Ok(None);
        }
        let Tally { loops, accept, log: counters, traces, .. } = &*stats.tally;
        let (queue, entries) = LogQueue::new(counters.clone());
        let sources =
            Sources { loops: loops.clone(), accept: accept.clone(), log: counters.clone(), traces: traces.clone() };
        let down = before.map(|log| log.down.clone()).unwrap_or_default();
        let writer = LogWriter {
            config: config.log.clone(),
            backends: stats.servers.clone(),
            entries,
            watch: Watch::new(config, sources, down.clone()),
            counters: counters.clone(),
            is_stopping: is_stopping.clone(),
            is_broken_off: false,
            clock: stats.clock.clone(),
        };
        let (sender, ended) = sync_channel(1);
        let thread = Worker::prepare("log", move || {
            writer.run();
            drop(sender);
            Ok(())
        })?;
        Ok(Some(Log { queue, down, thread, ended: Mutex::new(ended) }))
    }

    /// Lets the thread begin.
    pub(crate) fn begin(&mut self) {
        self.thread.begin();
    }

    /// Adds an event.
    pub(crate) fn event(&self, event: LogEvent) {
        self.queue.add(What::Event(event));
    }

    /// Ends the thread when it has written all lines. The loops must have ended. An output that blocks is given up.
    pub(crate) fn end(self) {
        let Log { queue, thread, ended, .. } = self;
        drop(queue);
        let ended = ended.into_inner().unwrap_or_else(PoisonError::into_inner);
        if ended.recv_timeout(END_WAIT) == Err(RecvTimeoutError::Disconnected) {
            // A panic of the log does not fail the proxy's orderly end.
            let _ = thread.join();
        }
    }
}
