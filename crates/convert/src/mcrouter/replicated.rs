//! Handles that send a request to several servers, and the choice of a handle by operation, with which mcrouter replicates a pool.

use crate::error::ConvertError;
use crate::mcrouter::handle::{Handles, note_others};
use crate::mcrouter::json::{below, object};
use crate::mcrouter::pools;
use crate::output::{Pool, Server};
use serde_json::{Map, Value};

/// Operations that store or change a value, in the order in which their policy counts.
const WRITES: [&str; 10] = ["set", "add", "replace", "delete", "touch", "cas", "incr", "decr", "append", "prepend"];
/// Operations that read a value.
const READS: [&str; 2] = ["get", "gets"];

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

    /// `OperationSelectorRoute`: a pool that is replicated, if writes go to all servers and reads to one of them.
    pub(super) fn operations(&mut self, handle: &Map<String, Value>, path: &str) -> Result<Pool, ConvertError> {
        let policies = match handle.get("operation_policies") {
            Some(policies) => object(policies, &below(path, "operation_policies"))?.clone(),
            None => Map::new(),
        };
        let place = |operation: &str| below(&below(path, "operation_policies"), operation);
        let mut all: Vec<(String, Value, String)> = Vec::new();
        for (operation, policy) in &policies {
            all.push((operation.clone(), self.resolve(policy, &place(operation))?, place(operation)));
        }
        if let Some(policy) = handle.get("default_policy") {
            let place = below(path, "default_policy");
            all.push(("default".into(), self.resolve(policy, &place)?, place));
        }
        let Some((_, first, place)) = all.first() else {
            return Err(ConvertError::at_path(path, "OperationSelectorRoute has no policies"));
        };
        if all.iter().all(|(_, other, _)| other == first) {
            let mut pool = self.pool_of(first, place)?;
            note_others(&mut pool, "OperationSelectorRoute", handle, &["default_policy", "operation_policies"]);
            return Ok(pool);
        }
        let policy = |operations: &[&str]| {
            let named = |name: &&str| all.iter().find(|(operation, _, _)| operation == name);
            operations.iter().find_map(named).or_else(|| named(&"default"))
        };
        let unlike = || {
            let problem = "operations go to different servers, which has no counterpart: writes must go to all servers of a pool \
                           (AllSyncRoute|Pool|A), and reads to one or several of the same";
            ConvertError::at_path(path, problem)
        };
        let (Some((_, write, write_place)), Some((_, read, read_place))) = (policy(&WRITES), policy(&READS)) else {
            return Err(unlike());
        };
        // A value that another operation stored on one server would be looked for on another one here.
        let stores = |operation: &&str| policy(&[operation]).and_then(|(_, policy, _)| policy["type"].as_str());
        if !WRITES.iter().all(|operation| stores(operation).is_some_and(|kind| kind.starts_with("All"))) {
            return Err(unlike());
        }
        let mut pool = self.pool_of(write, write_place)?;
        let servers = self.destinations(object(write, write_place)?, write_place)?;
        if !is_same(&servers, &self.destinations(object(read, read_place)?, read_place)?) {
            return Err(unlike());
        }
        for (operation, other, place) in &all {
            let others = self.destinations(object(other, place)?, place)?;
            if others.iter().any(|server| !servers.contains(server)) {
                return Err(unlike());
            }
            if WRITES.contains(&operation.as_str()) && other["type"] != write["type"] {
                pool.note(format!("The policy of {operation} was another one. Here, all writes have the same."));
            }
        }
        if servers.len() > 1 {
            set_reads(&mut pool, read["type"].as_str().unwrap_or_default());
        }
        note_others(&mut pool, "OperationSelectorRoute", handle, &["default_policy", "operation_policies"]);
        Ok(pool)
    }
}

fn is_same(servers: &[Server], others: &[Server]) -> bool {
    servers.len() == others.len() && servers.iter().all(|server| others.contains(server))
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
fn set_reads(pool: &mut Pool, kind: &str) {
    match kind {
        "RandomRoute" => pool.set_text("reads", "any"),
        "LoadBalancerRoute" => pool.set_text("reads", "least-outstanding"),
        "LatestRoute" | "FailoverRoute" => pool.set_text("failover", "on-error"),
        "MissFailoverRoute" => pool.set_text("failover", "on-miss"),
        "PoolRoute" | "HashRoute" => {}
        _ => pool.note(format!("{kind} reads several servers. Here, a read goes to one; see hedge and failover.")),
    }
}
