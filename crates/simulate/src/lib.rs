//! A discrete-event simulator of queueing networks: from a description in JSON to means with confidence intervals.
//! Knows nothing of the programs that the network may be a model of. docs/model-format.md is its contract.

mod checks;
mod compile;
mod description;
mod error;
mod json;
mod model;
mod reach;
mod read;
mod read_time;
mod routing;
mod stability;
mod stamps;
mod times_file;
mod variate;

mod batch;
mod calendar;
mod engine;
mod forking;
mod histogram;
mod jobs;
mod movement;
mod pool;
mod preemptive;
mod queue;
mod servers;
mod sharing;
mod single;
mod station;
mod tally;
mod watch;
mod world;

mod print;
mod recorder;
mod replication;
mod report;
mod run;
mod spread;
mod totals;
mod warm_up;

pub use error::{ModelError, SimulateError, Stop};
pub use model::Model;
pub use print::render;
pub use recorder::RecordsWritten;
pub use report::{
    ClassResult, FORMAT, ForkClassResult, ForkResult, PoolClassResult, PoolResult, Quantiles, Simulation,
    StationResult, VisitResult, WarmUpUsed,
};
pub use run::{Progress, Settings, run};
pub use spread::Estimate;
