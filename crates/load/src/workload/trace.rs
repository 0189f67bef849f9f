//! Reading a cache trace for replay: each row goes to the thread that owns its key, with the time at which it is due.
//! Knows no connection, no clock and no protocol.
//!
//! ```text
//! source (plain or zstd) -> lines -> parse -> pieces (times, split by key) -> one bounded queue for each thread
//! ```
//!
//! The format is that of the traces of Twitter's clusters: J. Yang, Y. Yue, K. V. Rashmi, "A large scale analysis of
//! hundreds of in-memory cache clusters at Twitter", OSDI 2020, and <https://github.com/twitter/cache-trace>.
//! docs/traces.md describes the format and how malformed lines are treated.

mod config;
mod lines;
mod parse;
mod pieces;
mod reader;
mod rows;
mod source;

pub use config::{Timing, TraceConfig, WithinSecond};
pub use reader::{TraceCounts, TraceReader, scan};
pub use rows::{Next, TraceOperation, TraceRow, TraceRows};

use std::io;

/// Why a trace cannot be read, or not to its end.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the message of each variant describes it")]
pub enum TraceError {
    #[error("{0}")]
    Config(String),
    #[error("{path}: {source}")]
    Open { path: String, source: io::Error },
    #[error("{path}: is a directory; give one file of the trace")]
    Directory { path: String },
    #[error("{path}: the file has no rows; is it a trace?")]
    Empty { path: String },
    #[error("{path}: {reason} after line {line}")]
    Read { path: String, line: u64, reason: String },
    #[error("{path}:{line}: {reason}; --trace-errors-max N skips up to N such lines")]
    Broken { path: String, line: u64, reason: String },
    #[error(
        "{path}:{line}: {reason}; more than {tolerated} lines are malformed; raise --trace-errors-max to skip more"
    )]
    TooManyBroken { path: String, line: u64, reason: String, tolerated: u64 },
    #[error(
        "{path}:{line}: more than {rows_max} rows in one second, too many to spread over it; --trace-bunched keeps their recorded times"
    )]
    Crowded { path: String, line: u64, rows_max: usize },
    #[error("cannot start the thread that reads the trace: {0}")]
    Thread(io::Error),
}
