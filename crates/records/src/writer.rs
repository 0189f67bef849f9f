//! Receives rows from the event loops over a bounded channel and writes them in its own thread.
//! If the channel is full, rows are dropped and counted, so that recording never blocks a request.

use crate::header::{FOOTER_MAGIC, Header, Program};
use crate::row::Row;
use crate::standard_error::report;
use clock::{Clock, unix_now};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

/// Rows in one batch.
const BATCH_ROWS: usize = 256;
/// Batches that the channel can buffer.
const QUEUE_BATCHES: usize = 256;

/// One record file being written. Close it to get the footer.
#[derive(Debug)]
pub struct Writer {
    path: PathBuf,
    sample: u32,
    row_bytes: usize,
    sender: SyncSender<Batch>,
    dropped: Arc<AtomicU64>,
    thread: JoinHandle<io::Result<(u64, File)>>,
}

/// An event loop's end of the channel.
#[derive(Debug)]
pub struct RowSender {
    sample: u32,
    row_bytes: usize,
    batch: Batch,
    sender: SyncSender<Batch>,
    /// Whether to block on a full channel instead of dropping rows.
    is_patient: bool,
    dropped_here: u64,
    dropped: Arc<AtomicU64>,
}

/// The counts of all sampled rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriterTotals {
    /// Rows in the file.
    pub written: u64,
    /// Rows dropped because the channel was full or the file could not be written.
    pub dropped: u64,
}

/// A batch of encoded rows.
#[derive(Debug, Default)]
struct Batch {
    bytes: Vec<u8>,
    rows: u64,
}

impl Writer {
    /// Creates `directory/<program>-<pid>.way`, and the directory if it is missing. In a container an earlier process may have
    /// had the same process id: then the start time is added to the name, so that its file is kept.
    ///
    /// # Errors
    /// If the directory or the file cannot be created; the message names the path.
    pub fn create(directory: &Path, program: Program, sample: u32, clock: &Clock) -> io::Result<Writer> {
        let header = Header::new(program, sample, clock.now(), unix_now());
        fs::create_dir_all(directory).map_err(|error| named(directory, &error))?;
        let stem = format!("{}-{}", program.name(), std::process::id());
        let path = directory.join(format!("{stem}.way"));
        // A new file is never opened through a link.
        match options().create_new(true).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let path = directory.join(format!("{stem}-{}.way", header.started_unix_ns));
                Writer::write(options().create_new(true).open(&path), path, &header)
            }
            opened => Writer::write(opened, path, &header),
        }
    }

    /// Starts a file with exactly this header. An existing file is replaced.
    ///
    /// # Errors
    /// If the file cannot be created, or the path is a link.
    pub fn begin(path: PathBuf, header: &Header) -> io::Result<Writer> {
        let is_link = fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_symlink());
        let opened = if is_link {
            Err(io::Error::other("it is a link; give the file itself"))
        } else {
            options().create(true).truncate(true).open(&path)
        };
        Writer::write(opened, path, header)
    }

    fn write(opened: io::Result<File>, path: PathBuf, header: &Header) -> io::Result<Writer> {
        let mut file = BufWriter::new(opened.map_err(|error| named(&path, &error))?);
        file.write_all(&header.encode())?;
        let (sender, receiver) = sync_channel(QUEUE_BATCHES);
        let dropped = Arc::new(AtomicU64::new(0));
        let shown = path.display().to_string();
        let write = move || {
            let outcome = write_batches(&receiver, file);
            if let Err(error) = &outcome {
                // `close` returns the error too, but possibly weeks later. It must not wait if nobody reads the message.
                let line =
                    format!("waystage: {shown}: {error}; no further records are written, dropped records are counted");
                let _ = std::thread::Builder::new().spawn(move || report(format_args!("{line}")));
            }
            outcome
        };
        let thread = std::thread::Builder::new().name("records".into()).spawn(write)?;
        Ok(Writer { path, sample: header.sample, row_bytes: header.row_bytes, sender, dropped, thread })
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The number of rows dropped so far by all senders.
    pub fn dropped(&self) -> Arc<AtomicU64> {
        self.dropped.clone()
    }

    /// A sender for one event loop.
    pub fn sender(&self) -> RowSender {
        self.new_sender(false)
    }

    /// A sender for a program with virtual time, which stands still while it writes: it blocks on a full channel and drops nothing.
    pub fn patient_sender(&self) -> RowSender {
        self.new_sender(true)
    }

    fn new_sender(&self, is_patient: bool) -> RowSender {
        RowSender {
            is_patient,
            sample: self.sample,
            row_bytes: self.row_bytes,
            batch: Batch::default(),
            sender: self.sender.clone(),
            dropped_here: 0,
            dropped: self.dropped.clone(),
        }
    }

    /// Removes the file, in which nothing was written. Waits until every sender is dropped.
    pub fn discard(self) {
        drop(self.sender);
        // A failure to write does not matter, because the file is removed.
        let _ = self.thread.join();
        let _ = fs::remove_file(&self.path);
    }

    /// Waits until every sender is dropped and all rows are written, then writes the footer.
    /// `lost` is the number of jobs that ended without a row.
    ///
    /// # Errors
    /// If writing failed; the message names the path.
    pub fn close(self, lost: u64) -> io::Result<WriterTotals> {
        drop(self.sender);
        let outcome = self.thread.join().unwrap_or_else(|_| Err(io::Error::other("the record thread panicked")));
        let (written, mut file) = outcome.map_err(|error| named(&self.path, &error))?;
        let totals = WriterTotals { written, dropped: self.dropped.load(Ordering::Relaxed) };
        file.write_all(&footer(totals, lost)).map_err(|error| named(&self.path, &error))?;
        Ok(totals)
    }
}

impl RowSender {
    /// The sampling interval, for [`crate::is_sampled`].
    pub fn sample(&self) -> u32 {
        self.sample
    }

    /// Adds one row with its stamps to the batch.
    ///
    /// # Panics
    /// If the stamps decrease or their number differs from the header, which only a bug can cause.
    pub fn push(&mut self, row: &Row, stamps: &[u64]) {
        assert!(stamps.is_sorted(), "the stamps of a record never decrease");
        let before = self.batch.bytes.len();
        row.encode(stamps, &mut self.batch.bytes);
        assert_eq!(self.batch.bytes.len() - before, self.row_bytes, "a row has the stamps that its header names");
        self.batch.rows += 1;
        if self.batch.rows >= BATCH_ROWS as u64 {
            self.flush();
        }
    }

    /// Whether the batch has rows that were not sent yet.
    pub fn has_rows(&self) -> bool {
        self.batch.rows > 0
    }

    /// Sends the batch; called when an event loop has nothing else to do.
    pub fn flush(&mut self) {
        if self.batch.rows == 0 {
            return;
        }
        let batch = std::mem::take(&mut self.batch);
        let rows = batch.rows;
        let is_sent =
            if self.is_patient { self.sender.send(batch).is_ok() } else { self.sender.try_send(batch).is_ok() };
        if !is_sent {
            self.dropped_here += rows;
            self.dropped.fetch_add(rows, Ordering::Relaxed);
        }
    }

    /// Rows dropped so far by this sender.
    pub fn dropped(&self) -> u64 {
        self.dropped_here
    }
}

impl Drop for RowSender {
    // A finished loop has nothing else to do, so its last batch waits for room in the channel.
    fn drop(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        let rows = batch.rows;
        if rows > 0 && self.sender.send(batch).is_err() {
            self.dropped.fetch_add(rows, Ordering::Relaxed);
        }
    }
}

/// How record files are opened. They describe the traffic of all clients, so other users cannot read them.
fn options() -> OpenOptions {
    let mut options = File::options();
    options.write(true).mode(0o640);
    options
}

/// The writing thread; it ends when the last sender is dropped.
fn write_batches(receiver: &Receiver<Batch>, mut file: BufWriter<File>) -> io::Result<(u64, File)> {
    let mut written = 0;
    while let Ok(batch) = receiver.recv() {
        file.write_all(&batch.bytes)?;
        written += batch.rows;
    }
    Ok((written, file.into_inner().map_err(io::IntoInnerError::into_error)?))
}

/// The footer.
fn footer(totals: WriterTotals, lost: u64) -> Vec<u8> {
    [FOOTER_MAGIC.as_slice(), &totals.written.to_le_bytes(), &totals.dropped.to_le_bytes(), &lost.to_le_bytes()]
        .concat()
}

/// Adds the path of the file to an error.
fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
