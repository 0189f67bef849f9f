//! The queue of lines that wait for the log's thread. It has a limit: a line that finds no room is lost, and counted.

use crate::observe::ended_request::EndedRequest;
use crate::observe::log::event::LogEvent;
use clock::unix_now;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// The most lines that wait.
const QUEUE_MAX: usize = 1024;

/// What becomes a line, with its time.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) what: What,
    pub(crate) unix_ns: u64,
}

/// What a line is about.
#[derive(Debug)]
pub(crate) enum What {
    Event(LogEvent),
    Slow(Box<EndedRequest>),
}

/// What is known about the log itself.
#[derive(Debug, Default)]
pub(crate) struct LogCounters {
    /// Lines written.
    pub(crate) written: AtomicU64,
    /// Lines that found no room in the queue, or that could not be written.
    pub(crate) lost: AtomicU64,
}

/// The way to the log's thread. It ends when all of them are gone.
#[derive(Clone, Debug)]
pub(crate) struct LogQueue {
    sender: SyncSender<Entry>,
    counters: Arc<LogCounters>,
    /// Another configuration serves now, whose log reports what all of them share.
    is_replaced: Arc<AtomicBool>,
}

/// The other end.
#[derive(Debug)]
pub(crate) struct LogEntries {
    pub(crate) receiver: Receiver<Entry>,
    pub(crate) is_replaced: Arc<AtomicBool>,
}

impl LogQueue {
    /// A queue with both its ends.
    pub(crate) fn new(counters: Arc<LogCounters>) -> (LogQueue, LogEntries) {
        let (sender, receiver) = sync_channel(QUEUE_MAX);
        let is_replaced = Arc::new(AtomicBool::new(false));
        (LogQueue { sender, counters, is_replaced: is_replaced.clone() }, LogEntries { receiver, is_replaced })
    }

    /// Adds an entry, or loses it. Never waits.
    pub(crate) fn add(&self, what: What) {
        if self.sender.try_send(Entry { what, unix_ns: unix_now() }).is_err() {
            self.counters.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// From now on the log of another configuration reports the state of backends and clients.
    pub(crate) fn replaced(&self) {
        self.is_replaced.store(true, Ordering::Relaxed);
    }
}
