//! `OperationSelectorRoute`: the choice of a handle by operation. mcrouter replicates a pool with it, or sends reads and deletes to
//! other pools than writes.

use crate::error::ConvertError;
use crate::mcrouter::failover::{children, sets};
use crate::mcrouter::handle::{Handles, note_others};
use crate::mcrouter::json::{below, object};
use crate::mcrouter::replicated::set_reads;
use crate::output::{Item, Pool, Server, quoted};
use serde_json::{Map, Value};

/// Operations that store or change a value, in the order in which their policy counts.
const WRITES: [&str; 10] = ["set", "add", "replace", "delete", "touch", "cas", "incr", "decr", "append", "prepend"];
/// Operations that read a value.
const READS: [&str; 2] = ["get", "gets"];
/// Operations that read a value, and return a cas token or change the expiry time. They go where writes go.
const READS_OF_WRITES: [&str; 3] = ["gets", "gat", "gats"];

/// The policies of one handle.
struct Policies {
    /// Each with its operation, its handle and its place.
    named: Vec<(String, Value, String)>,
    default: Option<(Value, String)>,
}

impl Policies {
    /// The handle of an operation, with its place.
    fn of(&self, operation: &str) -> Option<(&Value, &str)> {
        let own = self.named.iter().find(|(name, _, _)| name == operation).map(|(_, handle, place)| (handle, place));
        let found = own.or(self.default.as_ref().map(|(handle, place)| (handle, place)));
        found.map(|(handle, place)| (handle, place.as_str()))
    }

    /// All handles with their places.
    fn all(&self) -> impl Iterator<Item = (&Value, &str)> {
        let default = self.default.iter().map(|(handle, place)| (handle, place.as_str()));
        self.named.iter().map(|(_, handle, place)| (handle, place.as_str())).chain(default)
    }
}

impl Handles<'_> {
    /// `OperationSelectorRoute`.
    pub(super) fn operations(&mut self, handle: &Map<String, Value>, path: &str) -> Result<Pool, ConvertError> {
        let policies = self.policies(handle, path)?;
        let Some((first, place)) = policies.all().next() else {
            return Err(ConvertError::at_path(path, "OperationSelectorRoute has no policies"));
        };
        let is_same = policies.all().all(|(other, _)| other == first);
        let mut pool = match is_same {
            true => self.pool_of(first, place)?,
            false => match self.replicas_by_operation(&policies)? {
                Some(pool) => pool,
                None => self.pools_by_operation(&policies, path)?,
            },
        };
        note_others(&mut pool, "OperationSelectorRoute", handle, &["default_policy", "operation_policies"]);
        Ok(pool)
    }

    fn policies(&self, handle: &Map<String, Value>, path: &str) -> Result<Policies, ConvertError> {
        let above = below(path, "operation_policies");
        let mut policies = Policies { named: Vec::new(), default: None };
        if let Some(named) = handle.get("operation_policies") {
            for (operation, policy) in object(named, &above)? {
                let place = below(&above, operation);
                policies.named.push((operation.clone(), self.resolve(policy, &place)?, place));
            }
        }
        if let Some(policy) = handle.get("default_policy") {
            let place = below(path, "default_policy");
            policies.default = Some((self.resolve(policy, &place)?, place));
        }
        Ok(policies)
    }

    /// A pool that is replicated, if writes go to all its servers, and reads to one or several of them.
    fn replicas_by_operation(&mut self, policies: &Policies) -> Result<Option<Pool>, ConvertError> {
        let first_of = |operations: &[&str]| {
            let is_named = |operation: &&&str| policies.named.iter().any(|(name, _, _)| name == **operation);
            policies.of(operations.iter().find(is_named).unwrap_or(&operations[0]))
        };
        let (Some((write, write_place)), Some((read, read_place))) = (first_of(&WRITES), first_of(&READS)) else {
            return Ok(None);
        };
        // A value that another operation stored on one server would be looked for on another one here.
        let kind = |operation: &&str| policies.of(operation).and_then(|(policy, _)| policy["type"].as_str());
        if !WRITES.iter().all(|operation| kind(operation).is_some_and(|kind| kind.starts_with("All"))) {
            return Ok(None);
        }
        let mut pool = self.pool_of(write, write_place)?;
        let servers = self.destinations(object(write, write_place)?, write_place)?;
        if !is_same(&servers, &self.destinations(object(read, read_place)?, read_place)?) {
            return Ok(None);
        }
        for (other, place) in policies.all() {
            let others = self.destinations(object(other, place)?, place)?;
            if others.iter().any(|server| !servers.contains(server)) {
                return Ok(None);
            }
        }
        for (operation, other, _) in &policies.named {
            if WRITES.contains(&operation.as_str()) && other["type"] != write["type"] {
                pool.note(format!("The policy of {operation} was another one. Here, all writes have the same."));
            }
        }
        if servers.len() > 1 {
            set_reads(&mut pool, read["type"].as_str().unwrap_or_default());
        }
        Ok(Some(pool))
    }

    /// The pool of all writes, with another pool for plain reads and others for deletes.
    fn pools_by_operation(&mut self, policies: &Policies, path: &str) -> Result<Pool, ConvertError> {
        let unlike = |what: &str| {
            let problem = format!(
                "{what}, which has no counterpart: all writes must go to one pool, get to one pool, and delete to the pool of writes or \
                 to several pools with AllSyncRoute"
            );
            ConvertError::at_path(path, problem)
        };
        let Some((write, write_place)) = policies.of("set") else {
            return Err(unlike("set has no policy"));
        };
        let others = WRITES.iter().filter(|operation| **operation != "delete");
        if let Some(other) = others.copied().find(|other| policies.of(other).map(|(policy, _)| policy) != Some(write)) {
            return Err(unlike(&format!("{other} and set go to different servers")));
        }
        let base = self.pool_of(write, write_place)?;
        let mut pool = base.clone();
        if let Some((read, read_place)) = policies.of("get").filter(|(read, _)| *read != write) {
            if let Some(key) = ["reads", "failover", "hedge"].into_iter().find(|key| sets(&pool, key)) {
                return Err(unlike(&format!("set goes to a pool with {key}")));
            }
            let read = self.pool_of(read, read_place)?;
            if !is_alike(&read, &base) {
                let name = self.output.add(read)?;
                pool.set_text("read-pool", &name);
                pool.note("gets, gat and gats go to this pool, where their values can be changed. A delete is also sent to the read pool.");
            }
        }
        let goes_elsewhere = |operation: &&str| {
            let policy = policies.of(operation).map(|(policy, _)| policy);
            policy != Some(write) && policy != policies.of("get").map(|(get, _)| get)
        };
        if let Some(operation) = READS_OF_WRITES.into_iter().find(goes_elsewhere) {
            return Err(unlike(&format!("{operation} and set go to different servers")));
        }
        if let Some((delete, delete_place)) = policies.of("delete").filter(|(delete, _)| *delete != write) {
            let names = self.pools_of_deletes(delete, delete_place, &base)?;
            let Some(names) = names else { return Err(unlike("delete does not go to all servers that set goes to")) };
            if !names.is_empty() {
                let list: Vec<String> = names.iter().map(|name| quoted(name)).collect();
                pool.set("delete-pools", format!("[{}]", list.join(", ")));
                pool.note(
                    "The reply to a delete waits for all pools, and is DELETED if one of them had the key. A delete that fails in another \
                     pool than this one is repeated.",
                );
            }
        }
        let is_known = |name: &str| WRITES.contains(&name) || READS.contains(&name) || READS_OF_WRITES.contains(&name);
        for (operation, _, _) in policies.named.iter().filter(|(name, _, _)| !is_known(name)) {
            pool.note(format!("The policy of {operation} has no counterpart."));
        }
        Ok(pool)
    }

    /// The names of the pools besides `base` that a handle for deletes sends to. None if it leaves `base` out, or is another kind of
    /// handle.
    fn pools_of_deletes(
        &mut self,
        handle: &Value,
        path: &str,
        base: &Pool,
    ) -> Result<Option<Vec<String>>, ConvertError> {
        let handle = object(handle, path)?;
        let sends_to_all = handle.get("type").and_then(Value::as_str).is_some_and(|kind| kind.starts_with("All"));
        if !sends_to_all || handle.get("children").is_none_or(Value::is_string) {
            return Ok(None);
        }
        let mut names = Vec::new();
        let mut has_base = false;
        for (child, place) in children(handle, "children", path)? {
            let pool = self.pool_of_child(&child, &place)?;
            if is_alike(&pool, base) {
                has_base = true;
                continue;
            }
            let name = self.output.add(pool)?;
            if !names.contains(&name) {
                names.push(name);
            }
        }
        Ok(has_base.then_some(names))
    }
}

/// Whether two pools are the same apart from their comments.
fn is_alike(pool: &Pool, other: &Pool) -> bool {
    let keys =
        |pool: &Pool| pool.items.iter().filter(|item| matches!(item, Item::Key(..))).cloned().collect::<Vec<_>>();
    pool.name == other.name && keys(pool) == keys(other)
}

fn is_same(servers: &[Server], others: &[Server]) -> bool {
    servers.len() == others.len() && servers.iter().all(|server| others.contains(server))
}
