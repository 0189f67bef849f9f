//! What time is it, and where has a request been.
//! The only crate that reads a clock: everything else is handed one, so that a test can hand it any.
//! Knows nothing of requests but the names of their stages. What the kernel counts for this process is here too: its processor time is one
//! of the clocks.

mod nanos;
mod process;
mod source;
mod stage;

pub use nanos::{Nanos, duration_ns};
pub use process::Process;
pub use source::{Clock, CpuTime, ManualClock, process_cpu, unix_now};
pub use stage::{INTERVALS, Interval, STAGES, Stage, StageClock};
