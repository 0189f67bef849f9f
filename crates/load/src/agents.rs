//! One run by several generators: agents wait for work, a controller gives each its share and puts the results together.
//! docs/load-agents.md describes what they say to each other. Knows no flags: an agent's share travels as words that
//! whoever calls understands.

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
