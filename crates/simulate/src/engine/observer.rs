//! Who watches a replication: nobody, the search for the warm-up, or the writer of records. Costs nothing when nobody does.

use crate::engine::jobs::Job;

/// Told what happens to requests and legs; does nothing unless it says otherwise.
pub(crate) trait Observer {
    /// A request leaves the client.
    fn began(&mut self, _number: u32, _request: &Job) {}
    /// A request or leg comes to a node at which `present` are there with it.
    fn arrived(&mut self, _number: u32, _job: &Job, _present: u32) {}
    /// A request or leg goes from its node.
    fn left(&mut self, _number: u32, _job: &Job, _now_s: f64) {}
    /// A request or leg takes a slot of a pool.
    fn acquired(&mut self, _number: u32, _job: &Job, _pool: u32, _now_s: f64) {}
    /// It gives the slot back.
    fn released(&mut self, _number: u32, _job: &Job, _pool: u32, _now_s: f64) {}
    /// A request is back, or was lost.
    fn ended(&mut self, _number: u32, _request: &Job, _now_s: f64, _is_lost: bool) {}
}

/// Nobody.
#[derive(Debug)]
pub(crate) struct NoObserver;

impl Observer for NoObserver {}
