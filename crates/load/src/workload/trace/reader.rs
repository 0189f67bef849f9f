//! The thread that reads a trace. It collects lines into pieces, and puts these into one bounded queue for each
//! replaying thread. It reads ahead until the queues are full, and then sleeps. Knows no clock.

use super::TraceError;
use super::config::TraceConfig;
use super::lines::{Line, Lines};
use super::parse::{Broken, is_heading, parse};
use super::pieces::{Pieces, SECOND_ROWS_MAX};
use super::rows::{Piece, TraceOperation, TraceRows};
use super::source::{self, Source};
use std::collections::BTreeMap;
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// Pieces that wait in the queue of each thread. With the piece in replay and the piece being read there are three.
const QUEUE_PIECES: usize = 1;
/// Skipped lines that are reported.
const BROKEN_REPORTED_MAX: usize = 5;

/// The counts of what has been read so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceCounts {
    /// Lines, malformed ones included.
    pub lines: u64,
    /// Rows that were handed out.
    pub rows: u64,
    /// Rows by operation.
    pub operations: BTreeMap<&'static str, u64>,
    /// When the last of these rows is due, in nanoseconds from the start of the replay.
    pub last_at_ns: u64,
    /// Malformed lines that were skipped.
    pub broken: u64,
    /// The first of them, each with file, line and reason.
    pub first_broken: Vec<String>,
    /// Rows whose key does not have the length given in the trace. The key is sent unchanged.
    pub key_sizes_differ: u64,
}

/// A trace that is being read. The reading thread ends with the file, or when all [`TraceRows`] have been dropped.
#[derive(Debug)]
pub struct TraceReader {
    shared: Arc<ReaderState>,
}

/// The state that the reading thread shares.
#[derive(Debug, Default)]
struct ReaderState {
    counts: Mutex<TraceCounts>,
    error: Mutex<Option<TraceError>>,
}

/// The queues of all threads.
struct RowQueues {
    /// None after a thread has ended.
    full: Vec<Option<SyncSender<Piece>>>,
    empty: Receiver<Piece>,
}

impl TraceReader {
    /// Opens a trace, reads its first piece, and continues reading on a separate thread.
    /// Returns one queue for each of `threads` threads. All rows of a key are in one of them, in the order of the file.
    ///
    /// # Errors
    /// There is no such file, it has no rows, or its first second cannot be read. [`TraceReader::error`] returns later
    /// errors.
    pub fn start(config: &TraceConfig, threads: usize) -> Result<(TraceReader, Vec<TraceRows>), TraceError> {
        config.check()?;
        let source = source::open(config)?;
        let (mut queues, rows) = queues(threads);
        let shared = Arc::new(ReaderState::default());
        let reader = TraceReader { shared: shared.clone() };
        let (ready_in, ready) = mpsc::channel();
        let config = config.clone();
        let body = move || {
            let mut ready = Some(ready_in);
            let mut hand_out = |pieces: &mut [Piece], counts: &TraceCounts| {
                shared.publish(counts);
                let goes_on = queues.hand_out(pieces);
                // `start` waits for this.
                drop(ready.take().map(|ready| ready.send(Ok(()))));
                goes_on
            };
            let ended = read(&config, source, threads, &mut hand_out);
            match (ended, ready) {
                (Ok(counts), None) => shared.publish(&counts),
                (Err(error), None) => *shared.error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error),
                (ended, Some(ready)) => {
                    let empty = TraceError::Empty { path: config.name() };
                    drop(ready.send(Err(ended.err().unwrap_or(empty))));
                }
            }
        };
        thread::Builder::new().name("trace".into()).spawn(body).map_err(TraceError::Thread)?;
        // A panicked thread has already printed its message.
        ready.recv().unwrap_or(Ok(())).map(|()| (reader, rows))
    }

    /// What has been read so far, which is ahead of the replay.
    pub fn counts(&self) -> TraceCounts {
        self.shared.counts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Why reading ended before the end of the file, if it did, in one line.
    pub fn error(&self) -> Option<String> {
        self.shared.error.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(TraceError::to_string)
    }
}

/// Reads a trace as a replay would, and counts its content without replaying it.
///
/// # Errors
/// The errors of a replay, anywhere in the file.
pub fn scan(config: &TraceConfig) -> Result<TraceCounts, TraceError> {
    config.check()?;
    let mut drop_all = |pieces: &mut [Piece], _: &TraceCounts| {
        pieces.iter_mut().for_each(Piece::clear);
        true
    };
    let counts = read(config, source::open(config)?, 1, &mut drop_all)?;
    if counts.rows == 0 { Err(TraceError::Empty { path: config.name() }) } else { Ok(counts) }
}

/// Takes the pieces, one for each thread, and leaves empty ones. Returns false to end the reading.
type HandOut<'a> = dyn FnMut(&mut [Piece], &TraceCounts) -> bool + 'a;

/// Reads a whole trace.
fn read(
    config: &TraceConfig,
    source: Source,
    threads: usize,
    hand_out: &mut HandOut<'_>,
) -> Result<TraceCounts, TraceError> {
    let mut lines = Lines::new(source);
    let mut pieces = Pieces::new(config, threads);
    let mut counts = TraceCounts::default();
    let mut last_ns = 0;
    loop {
        counts.lines = lines.number();
        let parsed = match lines.next() {
            Ok(Some(Line::Whole(line))) => {
                if counts.lines == 0 && is_heading(line) {
                    continue;
                }
                parse(line, config.value_bytes_max)
            }
            Ok(Some(Line::TooLong)) => Err(Broken::TooLong),
            Ok(None) => break,
            Err(error) => {
                let (path, reason) = (config.name(), error.to_string());
                return Err(TraceError::Read { path, line: counts.lines, reason });
            }
        };
        let row = match parsed {
            Ok(row) if row.timestamp_ns < last_ns => Err(Broken::BackInTime),
            parsed => parsed,
        };
        let row = match row {
            Ok(row) => row,
            Err(broken) => {
                counts.tolerate(config, &broken)?;
                continue;
            }
        };
        last_ns = row.timestamp_ns;
        if pieces.is_whole(row.timestamp_ns) && !finish(&mut pieces, &mut counts, hand_out) {
            return Ok(counts);
        }
        counts.key_sizes_differ += u64::from(row.key_size != row.key.len() as u64);
        pieces.take(&row);
        if pieces.is_crowded() {
            return Err(TraceError::Crowded { path: config.name(), line: counts.lines + 1, rows_max: SECOND_ROWS_MAX });
        }
    }
    finish(&mut pieces, &mut counts, hand_out);
    Ok(counts)
}

/// Hands out the collected rows. Returns false if no more are wanted.
fn finish(pieces: &mut Pieces, counts: &mut TraceCounts, hand_out: &mut HandOut<'_>) -> bool {
    let finished = pieces.finish();
    let mut by_operation = [0; TraceOperation::ALL.len()];
    for row in finished.iter().flat_map(|piece| &piece.rows) {
        by_operation[row.operation as usize] += 1;
        counts.last_at_ns = counts.last_at_ns.max(row.at_ns);
    }
    for ((name, _), rows) in TraceOperation::ALL.iter().zip(by_operation).filter(|(_, rows)| *rows > 0) {
        counts.rows += rows;
        *counts.operations.entry(name).or_default() += rows;
    }
    let has_rows = finished.iter().any(|piece| !piece.rows.is_empty());
    let goes_on = !has_rows || hand_out(finished, counts);
    goes_on && !pieces.is_enough()
}

/// One queue for each thread, and one for the empty pieces on their way back.
fn queues(threads: usize) -> (RowQueues, Vec<TraceRows>) {
    let (empty_in, empty) = mpsc::channel();
    let queue = |empty: Sender<Piece>| {
        let (full_in, full) = mpsc::sync_channel(QUEUE_PIECES);
        (Some(full_in), TraceRows::new(full, empty))
    };
    let (full, rows) = (0..threads).map(|_| queue(empty_in.clone())).unzip();
    (RowQueues { full, empty }, rows)
}

impl RowQueues {
    /// Puts one piece into each queue, and waits for room if necessary. Returns false when all threads have ended.
    fn hand_out(&mut self, pieces: &mut [Piece]) -> bool {
        for (queue, piece) in self.full.iter_mut().zip(pieces) {
            let full = std::mem::replace(piece, self.empty.try_recv().unwrap_or_default());
            if queue.as_ref().is_some_and(|queue| queue.send(full).is_err()) {
                *queue = None;
            }
        }
        self.full.iter().any(Option::is_some)
    }
}

impl ReaderState {
    fn publish(&self, counts: &TraceCounts) {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone_from(counts);
    }
}

impl TraceCounts {
    /// Counts a malformed line, the one after `lines`, unless it is one too many.
    fn tolerate(&mut self, config: &TraceConfig, broken: &Broken) -> Result<(), TraceError> {
        let (path, line, reason) = (config.name(), self.lines + 1, broken.to_string());
        if config.errors_max == 0 {
            return Err(TraceError::Broken { path, line, reason });
        }
        if self.broken == config.errors_max {
            return Err(TraceError::TooManyBroken { path, line, reason, tolerated: config.errors_max });
        }
        self.broken += 1;
        if self.first_broken.len() < BROKEN_REPORTED_MAX {
            self.first_broken.push(format!("{path}:{line}: {reason}"));
        }
        Ok(())
    }
}
