//! A load generator for memcached and for message services, with open or closed loops. It measures response times and
//! verifies every value.
//!
//! ```text
//! prefill -> connect -> threads: [ arrivals, schedule -> client -> lane (window) -> tally ] -> run (seconds, CPU) -> summary
//! ```
//!
//! The crate works with any server that speaks the protocol and contains no code for a particular one.
//! docs/life-of-a-load-request.md follows one request through `drive`.

mod config;
mod progress;
mod run;

mod workload;

mod drive;

mod messages;

mod measure;
mod report;

mod agents;
pub mod saturate;

pub use agents::{Agent, AgentLimits, AgentTask, DistributedRun, PROTOCOL, Secret, Share, Shares, coordinate, split};
pub use config::messages::MessagesConfig;
pub use config::{Arrivals, Config, Protocol, ServerChoice, fixed_bytes};
pub use measure::part::Part;
pub use measure::seconds::{Second, SecondHistograms};
pub use measure::times::{PERCENTILES, Times};
pub use messages::{AfterReceive, MessageOperation, MessagesSummary, Mix, VERIFIED_BYTES_MIN};
pub use progress::Progress;
pub use report::hdr_text::{interval_log, percentile_text};
pub use report::memtier::memtier_json;
pub use report::merge::{MergeError, merge, merge_named};
pub use report::metrics::Metrics;
pub use report::print::{render, render_second};
pub use report::printable::printable;
pub use report::second_line::second_line;
pub use report::settings::{MessageSettings, Settings};
pub use report::summary::{
    AgentReport, Coordination, Cpu, FORMAT, MergedPart, OperationSummary, Operations, Summary, Totals, Verification,
};
pub use run::{Prepared, prepare, run};
pub use workload::think_time::ThinkTime;
pub use workload::trace;

use std::io;

/// The reasons why a run produces no summary.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the message of each variant describes it")]
pub enum LoadError {
    #[error("{0}")]
    Config(String),
    #[error("--server: {0}")]
    Server(#[from] net::BindError),
    #[error("cannot connect to {server}: {source}{advice}")]
    Connect { server: String, source: io::Error, advice: &'static str },
    #[error("the prefill of {server} failed: {reason}; --no-prefill runs without it")]
    Prefill { server: String, reason: String },
    #[error("{0}; nothing was measured")]
    Queues(String),
    #[error("stopped before the run began")]
    Stopped,
    #[error("records: {0}")]
    Records(io::Error),
    #[error(transparent)]
    Trace(#[from] trace::TraceError),
    #[error("{0}")]
    BrokenTrace(String),
    #[error("cannot wait for connections: {0}")]
    Poller(io::Error),
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    #[error("--listen {listen}: {reason}")]
    Listen { listen: String, reason: String },
    #[error("agent {agent}: {line}")]
    Agent { agent: String, line: String },
    #[error("the agents' results: {0}")]
    Merge(#[from] MergeError),
    #[error("a thread of the load generator panicked; this is a bug")]
    Panicked,
}
