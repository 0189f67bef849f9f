//! One run by several generators. Agents wait for work; a controller gives each its share and merges the results.
//! docs/load-agents.md describes their protocol. Knows no flags: an agent's share travels as command-line arguments,
//! which the caller parses.

mod limits;
mod message;
mod offset;
mod secret;
pub(crate) mod shares;

mod agent;
mod session;

mod agent_connection;
mod controller;
mod gather;

pub use agent::Agent;
pub use controller::coordinate;
pub use limits::AgentLimits;
pub use message::PROTOCOL;
pub use secret::Secret;
pub use shares::{AgentTask, DistributedRun, Share, Shares, split};
