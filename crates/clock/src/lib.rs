//! Clocks, and the stages of a request with the time at which each was reached.
//! The only crate that reads a clock. All other code receives one, so that a test can pass a manual clock.
//! Knows no more of requests than the names of their stages. The kernel's counts for this process are here as well, because
//! CPU time is one of its clocks.

mod nanos;
mod process;
mod source;
mod stage;

pub use nanos::{Nanos, duration_ns};
pub use process::Process;
pub use source::{Clock, CpuTime, ManualClock, process_cpu, thread_cpu_ns, unix_now};
pub use stage::{INTERVALS, Interval, STAGES, Stage, StageClock};
