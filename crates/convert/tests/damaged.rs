//! Any damage to a configuration of another proxy is converted or refused in one line, and never adds a line to the result.

use convert::{Options, Origin, convert};
use proptest::prelude::*;

const NUTCRACKER: &str = "alpha:
  listen: 127.0.0.1:22121
  hash: fnv1a_64
  hash_tag: \"{}\"
  distribution: modula
  timeout: 400
  auto_eject_hosts: true
  server_failure_limit: 3
  servers:
   - 10.0.0.1:11211:1 one
   - '10.0.0.2:11211:1 two'
beta:
  listen: /tmp/beta.sock 0666
  servers:
   - /tmp/m.sock:1
";

const MCROUTER: &str = r#"{ // pools
  "pools": { "A": { "servers": ["10.0.0.1:11211", "[::1]:11211"], "server_timeout": 200 }, "B": { "inherit": "A" } },
  "named_handles": [ { "type": "PoolRoute", "name": "b", "pool": "B" } ],
  "route": { "type": "PrefixSelectorRoute",
    "policies": { "a:": "AllSyncRoute|Pool|A", "b:": { "type": "WarmUpRoute", "cold": "b", "warm": "PoolRoute|A", "exptime": 9 },
      "c:": { "type": "ModifyKeyRoute", "target": "b", "ensure_key_prefix": "c:d:", "replace_key_prefix": "c:e:" } },
    "wildcard": { "type": "FailoverRoute", "children": ["PoolRoute|A", "b"] } /* the rest */ } }
"#;

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_damaged_file_is_converted_or_refused_in_one_line(
        is_json in any::<bool>(),
        at in any::<prop::sample::Index>(),
        removed in 0usize..30,
        inserted in prop_oneof!["[ -~\n]{0,6}", "\\PC{0,3}", "(\"|'|#|\n|\r|: |- |\\[|\\{|\\}|&a|\\*a|!!x|\\|){1,3}"],
    ) {
        let (text, origin) = if is_json { (MCROUTER, Origin::Mcrouter) } else { (NUTCRACKER, Origin::Twemproxy) };
        let places: Vec<usize> = text.char_indices().map(|(place, _)| place).collect();
        let start = at.index(places.len());
        let end = places.get(start + removed).copied().unwrap_or(text.len());
        let damaged = format!("{}{inserted}{}", &text[..places[start]], &text[end..]);
        let options = Options { file: "damaged".into(), origin: Some(origin), route_prefix: None };
        match convert(&damaged, &options) {
            Ok(result) => {
                let table: toml::Table = result.parse().map_err(|error| TestCaseError::fail(format!("{error}: {result}")))?;
                prop_assert!(table.keys().all(|key| key == "pools" || key == "routes"), "{}", result);
            }
            Err(error) => {
                let line = error.to_string();
                prop_assert!(line.starts_with("damaged:") && !line.contains(['\n', '\r']) && line.len() < 4000, "{}", line);
            }
        }
    }
}

#[test]
fn the_files_without_damage_are_converted() {
    for text in [NUTCRACKER, MCROUTER] {
        let options = Options { file: "whole".into(), ..Options::default() };
        assert!(convert(text, &options).is_ok_and(|result| result.starts_with("# Converted from whole")), "{text}");
    }
}
