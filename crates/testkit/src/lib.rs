//! Development only: servers behind a proxy, clients in front of it, and scripts for both.
//! A test that cannot continue panics with the reason.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod certificates;
mod client;
mod dns;
mod gated_server;
mod http;
mod scripted;
mod server;
mod traces;

pub use certificates::{Authority, TlsClient, tcp};
pub use client::Client;
pub use dns::{DnsReply, DnsServer};
pub use gated_server::GatedServer;
pub use http::{Http, HttpReply};
pub use scripted::{Peer, Scripted};
pub use server::{Server, memcached_is_here, skip_without};
pub use traces::{SyntheticRow, SyntheticTrace};

/// Resident memory of this process, including servers and proxies that run in it.
pub fn memory_bytes() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * rustix::param::page_size()
}
