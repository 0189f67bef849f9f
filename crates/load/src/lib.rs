//! A load generator for memcached, open or closed loop, that tells the truth about latency and verifies every value.
//!
//! ```text
//! prefill -> connect -> threads: [ arrivals, schedule -> client -> lane (window) -> tally ] -> conduct (seconds, CPU) -> summary
//! ```
//!
//! It speaks to any server of the protocol and knows none of them.

mod config;
mod config_check;
mod connect;
mod prefill;

mod arrivals;
mod keys;
mod pace;
mod plan;
mod replay;
mod schedule;
mod sizes;
mod think_time;
mod value;
mod versions;

mod messages;

mod client;
mod encoder;
mod event_loop;
mod lane;
mod window;
mod worker;

mod distribution;
mod part;
mod seconds;
mod tally;

pub mod saturate;
pub mod trace;

mod conduct;
mod metrics;

mod merge;

mod agents;
mod settings;
mod summary;
mod times;
mod verdict;

mod interval_log;
mod memtier;
mod percentile_text;
mod print;

pub use agents::{Agent, AgentReport, Coordination, PROTOCOL, Share, Shares, Task, Tasks, coordinate, split};
pub use conduct::{Prepared, Progress, prepare, run};
pub use config::{Arrivals, Config, Distribution, Protocol, fixed_bytes};
pub use interval_log::interval_log;
pub use memtier::memtier_json;
pub use merge::{MergeError, merge, merge_named};
pub use messages::{MessageOperation, MessagesConfig, MessagesSummary, Mix, VERIFIED_BYTES_MIN};
pub use metrics::Metrics;
pub use part::Part;
pub use percentile_text::percentile_text;
pub use print::{render, render_second};
pub use seconds::{Second, SecondHistograms};
pub use settings::{MessageSettings, Settings};
pub use summary::{Cpu, FORMAT, MergedPart, OperationSummary, Operations, Summary, Totals, Verification};
pub use think_time::ThinkTime;
pub use times::{PERCENTILES, Times};

use std::io;

/// Why there is no summary.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the message of each variant says what it is")]
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
    #[error("the kernel refuses to wait for connections: {0}")]
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
