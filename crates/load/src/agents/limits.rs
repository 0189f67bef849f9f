//! The limits of an agent: which controllers it accepts, and how much memory a run may use.

use crate::agents::secret::Secret;

/// The limits of an agent.
#[derive(Clone, Debug)]
pub struct AgentLimits {
    /// The secret. A controller must prove that it has the same one.
    pub secret: Option<Secret>,
    /// Whether an agent without a secret may listen beyond the loopback interface.
    pub insecure: bool,
    /// The agent refuses a run that may need more memory than this.
    pub memory_bytes: u64,
}
