//! The transports over real sockets: unix sockets, names, hand-over and TLS.

#[path = "../common/mod.rs"]
mod common;

mod speak;
mod unix;
