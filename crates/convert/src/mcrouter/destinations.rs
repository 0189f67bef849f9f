//! The servers that a handle sends to, if it is a plain one: for handles that send to all or to one of them.

use crate::error::ConvertError;
use crate::mcrouter::handle::Handles;
use crate::mcrouter::json::below;
use crate::mcrouter::pools;
use crate::output::Server;
use serde_json::{Map, Value};

impl Handles<'_> {
    /// The pools of the children: `Pool|A`, or a list of `PoolRoute`s.
    pub(super) fn pools_of_children(
        &self,
        handle: &Map<String, Value>,
        path: &str,
    ) -> Result<Vec<(Value, String)>, ConvertError> {
        let path = below(path, "children");
        let children: Vec<(&Value, String)> = match handle.get("children") {
            Some(Value::Array(list)) => {
                list.iter().enumerate().map(|(index, child)| (child, format!("{path}.{index}"))).collect()
            }
            Some(child) => vec![(child, path.clone())],
            None => Vec::new(),
        };
        if children.is_empty() {
            return Err(ConvertError::at_path(&path, "give \"Pool|NAME\", or a list of PoolRoutes"));
        }
        let pool = |(child, place): (&Value, String)| {
            if let Some(name) = child.as_str().and_then(|text| text.strip_prefix("Pool|")) {
                return Ok((name.into(), place));
            }
            let child = self.resolve(child, &place)?;
            match (child["type"].as_str(), child.get("pool")) {
                (Some("PoolRoute" | "Pool"), Some(pool)) => Ok((pool.clone(), place)),
                _ => {
                    let problem =
                        "only servers can be here: \"Pool|NAME\", or PoolRoutes of pools with one server each";
                    Err(ConvertError::at_path(&place, problem))
                }
            }
        };
        children.into_iter().map(pool).collect()
    }

    /// The servers to which a handle sends a request, or from which it chooses one.
    pub(super) fn destinations(&self, handle: &Map<String, Value>, path: &str) -> Result<Vec<Server>, ConvertError> {
        let pools = match handle.get("pool") {
            Some(pool) => vec![(pool.clone(), below(path, "pool"))],
            None => self.pools_of_children(handle, path)?,
        };
        let mut all: Vec<Server> = Vec::new();
        for (pool, place) in &pools {
            for server in pools::servers(self.pools, pool, place)? {
                if !all.contains(&server) {
                    all.push(server);
                }
            }
        }
        Ok(all)
    }
}
