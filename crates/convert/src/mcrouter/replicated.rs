//! Handles that send a request to several servers, with which mcrouter replicates a pool.

use crate::error::ConvertError;
use crate::mcrouter::handle::{Handles, note_others};
use crate::mcrouter::pools;
use crate::output::Pool;
use serde_json::{Map, Value};

impl Handles<'_> {
    /// A handle that sends to all its children.
    pub(super) fn replicated(
        &mut self,
        kind: &str,
        handle: &Map<String, Value>,
        path: &str,
    ) -> Result<Pool, ConvertError> {
        let of_children = self.pools_of_children(handle, path)?;
        let (first, place) = &of_children[0];
        let (mut pool, _) = pools::convert(self.pools, first, place)?;
        for (other, place) in of_children.iter().filter(|_| of_children.len() > 1) {
            if pools::servers(self.pools, other, place)?.len() > 1 {
                let problem = format!(
                    "{kind} over pools of several servers has no counterpart; list all servers in one pool with replicas, or write \
                     shadow = {{ to = ..., share = 1.0 }} by hand"
                );
                return Err(ConvertError::at_path(place, problem));
            }
        }
        let servers = self.destinations(handle, path)?;
        pool.set_servers(&servers);
        if servers.len() > 1 {
            pool.set("replicas", servers.len().to_string());
            set_writes(&mut pool, kind);
        }
        note_others(&mut pool, kind, handle, &["children"]);
        Ok(pool)
    }
}

/// Sets how many replicas must apply a write.
fn set_writes(pool: &mut Pool, kind: &str) {
    let (writes, note) = match kind {
        "AllMajorityRoute" => ("majority", None),
        "AllSyncRoute" => ("all", None),
        "AllFastestRoute" => ("first", None),
        "AllInitialRoute" => {
            ("first", Some("AllInitialRoute waits for the first server of the list. Here, any server is enough."))
        }
        _ => (
            "first",
            Some("AllAsyncRoute waits for no server. Here, a write is acknowledged when one server has applied it."),
        ),
    };
    pool.set_text("writes", writes);
    pool.note(
        "Writes that depend on the old value (incr, append, cas) run on one server; the others then drop the value.",
    );
    if let Some(note) = note {
        pool.note(note);
    }
}

/// Sets which replica is read.
pub(super) fn set_reads(pool: &mut Pool, kind: &str) {
    match kind {
        "RandomRoute" => pool.set_text("reads", "any"),
        "LoadBalancerRoute" => pool.set_text("reads", "least-outstanding"),
        "LatestRoute" | "FailoverRoute" => pool.set_text("failover", "on-error"),
        "MissFailoverRoute" => pool.set_text("failover", "on-miss"),
        "PoolRoute" | "HashRoute" => {}
        _ => pool.note(format!("{kind} reads several servers. Here, a read goes to one; see hedge and failover.")),
    }
}
