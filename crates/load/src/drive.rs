//! Sending requests and receiving replies: each thread runs one event loop over its clients and their connections.

pub(crate) mod connect;
pub(crate) mod prefill;

pub(crate) mod plan;

pub(crate) mod client;
pub(crate) mod connection;
pub(crate) mod encoder;
pub(crate) mod event_loop;
pub(crate) mod issue;
pub(crate) mod lane;
pub(crate) mod pace;
pub(crate) mod pending;
pub(crate) mod window;
pub(crate) mod worker;
