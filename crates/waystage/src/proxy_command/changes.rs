//! What differs between two configurations, for the line about a reload.

use proxy::ProxyFile;
use std::collections::BTreeMap;
use toml::{Table, Value};

/// One line for each key that was added, removed or changed.
pub(crate) fn changes(before: &ProxyFile, after: &ProxyFile) -> Vec<String> {
    let (before, after) = (flat(before), flat(after));
    let changed = before.iter().filter_map(|(key, old)| match after.get(key) {
        Some(new) if new == old => None,
        Some(new) => Some((key, format!("{key} was {old} and is {new}"))),
        None => Some((key, format!("{key} = {old} was removed"))),
    });
    let added = after.iter().filter(|(key, _)| !before.contains_key(*key));
    let mut lines: Vec<_> = changed.chain(added.map(|(key, new)| (key, format!("{key} = {new} was added")))).collect();
    lines.sort();
    lines.into_iter().map(|(_, line)| line).collect()
}

/// Each value with its place, as errors name it: `pools.0.replicas`.
fn flat(settings: &ProxyFile) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    if let Ok(table) = Table::try_from(settings) {
        collect(&Value::Table(table), "", &mut found);
    }
    found
}

fn collect(value: &Value, place: &str, found: &mut BTreeMap<String, String>) {
    let below = |name: &str| if place.is_empty() { name.to_string() } else { format!("{place}.{name}") };
    match value {
        Value::Table(table) => table.iter().for_each(|(name, value)| collect(value, &below(name), found)),
        Value::Array(list) => {
            list.iter().enumerate().for_each(|(index, value)| collect(value, &below(&index.to_string()), found));
        }
        value => {
            found.insert(place.to_string(), value.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proxy::{PoolFile, ServerConfig};

    fn settings(loops: Option<usize>, servers: &[&str]) -> ProxyFile {
        let servers = Some(servers.iter().map(|server| ServerConfig::new(server)).collect());
        let pools = vec![PoolFile { servers, ..PoolFile::default() }];
        ProxyFile { loops, pools, ..ProxyFile::default() }
    }

    #[test]
    fn every_changed_key_is_named_with_both_values() {
        let before = settings(Some(2), &["a:1", "b:1"]);
        assert_eq!(changes(&before, &before), Vec::<String>::new());
        let expected = ["loops was 2 and is 3", "pools.0.servers.1.address was \"b:1\" and is \"c:1\""];
        assert_eq!(changes(&before, &settings(Some(3), &["a:1", "c:1"])), expected);
        let expected = [
            "loops = 2 was removed",
            "pools.0.servers.2.address = \"c:1\" was added",
            "pools.0.servers.2.weight = 1 was added",
        ];
        assert_eq!(changes(&before, &settings(None, &["a:1", "b:1", "c:1"])), expected);
    }
}
