//! One run by several generators. Agents wait for work; a controller gives each its share and merges the results.
//! docs/load-agents.md describes their protocol. Knows no flags: an agent's share travels as command-line arguments,
//! which the caller parses.

mod message;
mod offset;
pub(crate) mod shares;

mod agent;
mod session;

mod agent_connection;
mod controller;
mod gather;

pub use agent::Agent;
pub use controller::coordinate;
pub use message::PROTOCOL;
pub use shares::{AgentTask, DistributedRun, Share, Shares, split};
