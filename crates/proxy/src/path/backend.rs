//! The connections of one event loop to its backends.

mod carried;
pub(crate) mod connection;
pub(crate) mod connections;
mod draining;
mod in_flight;
pub(crate) mod match_reply;
mod requested;
mod retry;
pub(crate) mod server;
