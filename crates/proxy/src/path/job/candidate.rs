//! Which backend a read goes to, and the keys of a multi-get with theirs.

/// Which of the backends that may serve a read a leg goes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Candidate {
    #[default]
    Primary,
    /// The replica `step` servers behind the primary, chosen after `tried` other replicas.
    Replica { step: u8, tried: u8 },
    /// A backend of the failover pool.
    FailoverPool,
    /// A backend of the warm-up pool.
    WarmUp,
}

impl Candidate {
    /// Its distance from the primary, and the number of replicas tried before it; none for a backend of another pool.
    pub(crate) fn place(self) -> Option<(u8, u8)> {
        match self {
            Candidate::Primary => Some((0, 0)),
            Candidate::Replica { step, tried } => Some((step, tried)),
            Candidate::FailoverPool | Candidate::WarmUp => None,
        }
    }
}

/// A key of a multi-get: its place in `key_bytes`, the pool that serves it, the leg that fetches it, which candidate that leg's backend
/// is, the leg that has replied with a miss, and the bytes of its value in the reply of `leg`, 0 without one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WantedKey {
    pub(crate) start: u32,
    pub(crate) length: u16,
    pub(crate) pool: u8,
    pub(crate) leg: u16,
    pub(crate) candidate: Candidate,
    pub(crate) missed: Option<u16>,
    pub(crate) value_bytes: u32,
}
