//! A discrete-event simulator of queueing networks: from a description in JSON to means with confidence intervals.
//! `description` reads and checks the file, `model` compiles it to numbers, `engine` runs the events, `replication` runs the
//! engine through warm-up and measurement, `report` adds replications up, and `run` runs as many as are needed.
//! Knows nothing of the programs that a network is a model of. docs/model-format.md defines both formats.

mod error;
mod settings;

mod description;
mod model;

mod engine;

mod replication;
mod report;

mod length;
mod run;
mod watch;

pub use error::{ModelError, SimulateError, Stop};
pub use model::Model;
pub use replication::recorder::RecordsWritten;
pub use report::print::render;
pub use report::spread::Estimate;
pub use report::{
    ClassResult, FORMAT, ForkClassResult, ForkResult, PoolClassResult, PoolResult, Quantiles, Simulation,
    StationResult, VisitResult, WarmUpUsed,
};
pub use run::{Progress, run};
pub use settings::Settings;
