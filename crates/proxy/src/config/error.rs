//! What is wrong with a configuration that cannot work, and what to do.

use crate::config::{MultiGet, SLOTS_MAX};
use net::AddressError;

/// A configuration that cannot work: what is wrong and what to do.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the message of each variant says what it is")]
pub enum ConfigError {
    #[error("no backend: give at least one --server HOST:PORT")]
    NoServer,
    #[error("{flag} {source}")]
    Address { flag: &'static str, source: AddressError },
    #[error("no address to listen on: give at least one --listen HOST:PORT")]
    NoListen,
    #[error("--server {0}: nobody listens on port 0")]
    ServerPort(String),
    #[error("--listen {0} is given twice")]
    ListenTwice(String),
    #[error("{0} backends: at most 250 are supported")]
    TooManyServers(usize),
    #[error("--server {0} is given twice")]
    ServerTwice(String),
    #[error("--replicas {replicas}, but there are {servers} backends: give a number from 1 to {servers}")]
    Replicas { replicas: usize, servers: usize },
    #[error("--loops {0}: give a number from 1 to 250")]
    Loops(usize),
    #[error("{flag} {slots} for {loops} loops: each loop needs one; give a number from {loops} to {SLOTS_MAX}")]
    Slots { flag: &'static str, slots: usize, loops: usize },
    #[error(
        "--multi-get {multi_get} asks any server for any key, but only --replicas {servers} puts every key on every server"
    )]
    MultiGet { multi_get: MultiGet, servers: usize },
    #[error("pool {0:?} is given twice: give each pool a name of its own")]
    PoolTwice(String),
    #[error("{what} names the pool {pool:?}, which is not given: give it, or name one of: {known}")]
    NoPool { what: String, pool: String, known: String },
    #[error("--records needs stamps: give --stamps sampled or --stamps all")]
    RecordsWithoutStamps,
    #[error("--stamps sampled needs --records: without records no request is sampled")]
    SampledWithoutRecords,
    #[error("--sample 0: give 1 to keep every record, or leave out --records to keep none")]
    SampleZero,
    #[error("{0} must not be zero")]
    Zero(&'static str),
}
