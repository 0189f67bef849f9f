//! The keys of the configuration, from the commented example, which a test compares with the structures that read it.

use std::collections::BTreeSet;
use toml::{Table, Value};

pub(crate) const REFERENCE: &str = include_str!("../../../../examples/proxy/reference.toml");

/// The keys of a table, such as `pools.hedge.delay`; those of lists without indices.
pub(crate) fn keys_of(table: &Table) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    keys(&Value::Table(table.clone()), "", &mut found);
    found
}

fn keys(value: &Value, above: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Table(table) => {
            for (name, inner) in table {
                let key = if above.is_empty() { name.clone() } else { format!("{above}.{name}") };
                keys(inner, &key, found);
                found.insert(key);
            }
        }
        Value::Array(array) => array.iter().for_each(|inner| keys(inner, above, found)),
        _ => {}
    }
}

/// The example with every key from the comments, in place of the line that sets the same key.
pub(crate) fn uncommented() -> String {
    let is_key = |line: &str| line.starts_with('#') && !line.starts_with("# ") && line.len() > 1;
    // Each line with the number of its table, because tables have keys with the same name.
    let mut table = 0;
    let lines = REFERENCE.lines().map(|line| {
        table += usize::from(line.trim_start_matches('#').starts_with('['));
        (table, line)
    });
    let lines: Vec<(usize, &str)> = lines.collect();
    let added: Vec<(usize, &str)> =
        lines.iter().filter(|(_, line)| is_key(line)).map(|&(table, line)| (table, &line[1..])).collect();
    let key = |line: &str| line.split(" =").next().unwrap_or_default().to_string();
    let is_added =
        |table: usize, line: &str| added.iter().any(|(other, added)| *other == table && key(added) == key(line));
    let shown = |line: &str| if is_key(line) { line[1..].to_string() } else { line.to_string() };
    let kept =
        lines.iter().filter(|(table, line)| line.starts_with('#') || !line.contains(" =") || !is_added(*table, line));
    kept.map(|(_, line)| shown(line) + "\n").collect()
}
