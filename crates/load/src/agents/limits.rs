//! Whom an agent serves, and how much memory a run may take.

use crate::agents::secret::Secret;

/// What an agent demands of controllers, and allows them.
#[derive(Clone, Debug)]
pub struct AgentLimits {
    /// Controllers must prove that they have it.
    pub secret: Option<Secret>,
    /// Whether an agent without a secret may listen beyond the loopback interface.
    pub insecure: bool,
    /// A run that may need more memory is refused.
    pub memory_bytes: u64,
}
