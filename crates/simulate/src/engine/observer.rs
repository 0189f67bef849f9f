//! The observer of a replication: none, the search for the warm-up, or the writer of records. No observer costs nothing.

use crate::engine::jobs::Job;

/// Called for what happens to requests and legs; by default it does nothing.
pub(crate) trait Observer {
    /// A request has left the client.
    fn began(&mut self, _number: u32, _request: &Job) {}
    /// A request or leg has arrived at a node, where `present` are with it.
    fn arrived(&mut self, _number: u32, _job: &Job, _present: u32) {}
    /// A request or leg has left its node.
    fn left(&mut self, _number: u32, _job: &Job, _now_s: f64) {}
    /// A request or leg has acquired a slot of a pool.
    fn acquired(&mut self, _number: u32, _job: &Job, _pool: u32, _now_s: f64) {}
    /// It has released the slot.
    fn released(&mut self, _number: u32, _job: &Job, _pool: u32, _now_s: f64) {}
    /// A request has returned to the client, or was lost.
    fn ended(&mut self, _number: u32, _request: &Job, _now_s: f64, _is_lost: bool) {}
}

/// Ignores everything.
#[derive(Debug)]
pub(crate) struct NoObserver;

impl Observer for NoObserver {}
