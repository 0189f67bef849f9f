//! From a routed request to connections: the three disciplines, with the queue of two of them.

pub(crate) mod discipline;
pub(crate) mod dispatcher;
mod per_backend;
mod pipelined;
mod queue;
mod shared;
mod write_hold;
mod write_poll;
