//! The transports over real sockets: unix sockets, names, hand-over and TLS.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../common/mod.rs"]
mod common;

mod hand_over;
mod names;
mod overlap;
mod proxy_protocol;
mod speak;
mod tls;
mod unix;
