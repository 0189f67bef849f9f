//! `ModifyKeyRoute` of mcrouter: every key has the same pool, and is the same for the servers, or the conversion is refused.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use convert::{Options, convert};
use proptest::prelude::*;
use serde_json::{Value, json};
use toml::Table;

/// A configuration with this route of all keys.
fn configuration(route: &Value) -> Value {
    let pools = ["A", "B", "C", "D"].map(|name| (name.to_string(), json!({"servers": [format!("{name}:1")]})));
    json!({"pools": Value::Object(pools.into_iter().collect()), "route": route})
}

fn converted(route: &Value) -> Result<String, String> {
    let options = Options { file: "m.json".into(), ..Options::default() };
    convert(&configuration(route).to_string(), &options).map_err(|error| error.to_string())
}

/// The pool of a key, and the key that its servers receive, as `waystage proxy` does it: the longest matching route counts.
fn of_routes(table: &Table, key: &str) -> (String, String) {
    let routes = table.get("routes").and_then(toml::Value::as_array).into_iter().flatten();
    let matching = routes.filter(|route| key.starts_with(route["prefix"].as_str().unwrap()));
    let Some(route) = matching.max_by_key(|route| route["prefix"].as_str().unwrap().len()) else {
        return (table["pools"][0]["name"].as_str().unwrap().into(), key.into());
    };
    let rest = &key[route["prefix"].as_str().unwrap().len()..];
    let changed = match (route.get("strip-prefix"), route.get("replace-prefix")) {
        (Some(_), _) => rest.into(),
        (None, Some(replacement)) => format!("{}{rest}", replacement.as_str().unwrap()),
        (None, None) => key.into(),
    };
    (route["pool"].as_str().unwrap().into(), changed)
}

/// The same as mcrouter does it: `getModifiedKey` in its routes/ModifyKeyRoute.h, and the longest matching policy.
fn of_mcrouter(root: &Value, key: &str) -> (String, String) {
    let mut handle = root;
    if root["type"] == "PrefixSelectorRoute" {
        let policies = root["policies"].as_object().unwrap().iter();
        let matching = policies.filter(|(prefix, _)| key.starts_with(prefix.as_str()));
        let longest = matching.max_by_key(|(prefix, _)| prefix.len()).map(|(_, policy)| policy);
        handle = longest.unwrap_or(&root["wildcard"]);
    }
    let Some(target) = handle.get("target") else {
        return (handle.as_str().unwrap().trim_start_matches("PoolRoute|").into(), key.into());
    };
    let pool = target.as_str().unwrap().trim_start_matches("PoolRoute|").into();
    let ensured = handle["ensure_key_prefix"].as_str().unwrap_or_default();
    let replaced = handle["replace_key_prefix"].as_str();
    let changed = if let Some(rest) = replaced.and_then(|replaced| key.strip_prefix(replaced)) {
        format!("{ensured}{rest}")
    } else if key.starts_with(ensured) {
        key.into()
    } else if handle["modify_inplace"] == true && key.len() >= ensured.len() {
        format!("{ensured}{}", &key[ensured.len()..])
    } else {
        format!("{ensured}{key}")
    };
    (pool, changed)
}

/// All keys over two letters with up to six of them. Prefixes in this test have up to four.
fn keys() -> Vec<String> {
    let of_length =
        |length: u32| (0..1u32 << length).map(move |bits| (0..length).map(|at| letter(bits >> at)).collect());
    (1..=6).flat_map(of_length).collect()
}

fn letter(bits: u32) -> char {
    if bits & 1 == 0 { 'a' } else { 'b' }
}

fn handle() -> impl Strategy<Value = Value> {
    let change = (
        "PoolRoute\\|[ABCD]",
        proptest::option::of("[ab]{0,4}"),
        proptest::option::of("[ab]{0,4}"),
        proptest::option::of(any::<bool>()),
    );
    let change = change.prop_map(|(target, ensured, replaced, is_in_place)| {
        let mut handle = json!({"type": "ModifyKeyRoute", "target": target});
        if let Some(ensured) = ensured {
            handle["ensure_key_prefix"] = ensured.into();
        }
        if let Some(replaced) = replaced {
            handle["replace_key_prefix"] = replaced.into();
        } else if let Some(is_in_place) = is_in_place {
            handle["modify_inplace"] = is_in_place.into();
        }
        handle
    });
    prop_oneof![1 => "PoolRoute\\|[ABCD]".prop_map(Value::from), 3 => change]
}

fn root() -> impl Strategy<Value = Value> {
    let selector = (proptest::collection::btree_map("[ab]{1,4}", handle(), 0..4), handle());
    let selector = selector.prop_map(
        |(policies, wildcard)| json!({"type": "PrefixSelectorRoute", "policies": policies, "wildcard": wildcard}),
    );
    prop_oneof![1 => handle(), 5 => selector]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_key_is_changed_as_in_mcrouter(root in root()) {
        match converted(&root) {
            Ok(text) => {
                let table: Table = text.parse().unwrap();
                for key in keys() {
                    prop_assert_eq!(of_routes(&table, &key), of_mcrouter(&root, &key), "{}: {}\n{}", key, root, text);
                }
            }
            // Only what needs more than the beginning of a key is refused.
            Err(line) => {
                let wildcard = if root["type"] == "PrefixSelectorRoute" { &root["wildcard"] } else { &root };
                let is_for_all = line.contains("in front of keys of any prefix") && wildcard.get("target").is_some();
                prop_assert!(is_for_all || line.contains("modify_inplace overwrites"), "{}: {}", root, line);
            }
        }
    }
}

#[test]
fn a_change_of_keys_becomes_routes() {
    let policy = |change: Value| {
        let mut handle = json!({"type": "ModifyKeyRoute", "target": "PoolRoute|B"});
        handle.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        json!({"type": "PrefixSelectorRoute", "policies": {"a:": handle}, "wildcard": "PoolRoute|A"})
    };
    for (change, routes) in [
        (json!({"replace_key_prefix": "a:"}), "prefix = \"a:\"\npool = \"B\"\nstrip-prefix = true\n"),
        (
            json!({"replace_key_prefix": "a:", "ensure_key_prefix": "b:"}),
            "prefix = \"a:\"\npool = \"B\"\nreplace-prefix = \"b:\"\n",
        ),
        (json!({"ensure_key_prefix": "b:"}), "prefix = \"a:\"\npool = \"B\"\nreplace-prefix = \"b:a:\"\n"),
        (
            json!({"ensure_key_prefix": "b:", "modify_inplace": true}),
            "prefix = \"a:\"\npool = \"B\"\nreplace-prefix = \"b:\"\n",
        ),
        (json!({"ensure_key_prefix": "a"}), "prefix = \"a:\"\npool = \"B\"\n"),
        (
            json!({"ensure_key_prefix": "a:b:"}),
            "prefix = \"a:\"\npool = \"B\"\nreplace-prefix = \"a:b:a:\"\n\n[[routes]]\nprefix = \"a:b:\"\npool = \"B\"\n",
        ),
    ] {
        let text = converted(&policy(change.clone())).unwrap();
        let expected = format!("\n[[routes]]\n{routes}");
        assert_eq!(
            text.split_once("\n[[routes]]").map(|(_, rest)| format!("\n[[routes]]{rest}")),
            Some(expected),
            "{change}"
        );
    }
    // At the top, keys of one prefix are changed, and all others are not.
    let text =
        converted(&json!({"type": "ModifyKeyRoute", "target": "PoolRoute|A", "replace_key_prefix": "a:"})).unwrap();
    assert!(text.ends_with("prefix = \"a:\"\npool = \"A\"\nstrip-prefix = true\n"), "{text}");
}

#[test]
fn a_routing_prefix_is_noted_and_other_keys_too() {
    let route = json!({"type": "ModifyKeyRoute", "target": "PoolRoute|A", "set_routing_prefix": "/a/b/", "x": 1});
    let text = converted(&route).unwrap();
    assert!(
        text.contains(
            "# route.set_routing_prefix has no effect on servers, because mcrouter removes routing prefixes.\n"
        ) && text.contains("# route: x of ModifyKeyRoute has no counterpart.\n")
            && !text.contains("[[routes]]"),
        "{text}"
    );
}

#[test]
fn what_has_no_counterpart_is_one_line() {
    let with = |change: Value| {
        let mut handle = json!({"type": "ModifyKeyRoute", "target": "PoolRoute|A"});
        handle.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        handle
    };
    let kept = json!({"servers": ["A:1"], "keep_routing_prefix": true});
    for (route, expected) in [
        (json!({"type": "ModifyKeyRoute"}), "route: ModifyKeyRoute has no target"),
        (
            with(json!({"ensure_key_prefix": "b:"})),
            "route: puts \"b:\" in front of keys of any prefix, which has no counterpart",
        ),
        (with(json!({"ensure_key_prefix": 3})), "route.ensure_key_prefix: 3 is no text in quotes"),
        (with(json!({"modify_inplace": 3})), "route.modify_inplace: 3 is neither true nor false"),
        (
            with(json!({"modify_inplace": false, "replace_key_prefix": "a"})),
            "route: modify_inplace and replace_key_prefix exclude each other",
        ),
        (
            json!({"type": "PrefixSelectorRoute", "policies": {"a": with(json!({"ensure_key_prefix": "b:", "modify_inplace": true}))},
                "wildcard": "PoolRoute|A"}),
            "route.policies.a: modify_inplace overwrites 2 bytes of a key, of which the route knows only \"a\"",
        ),
        (with(json!({"set_routing_prefix": "a/b"})), "route.set_routing_prefix: \"a/b\" is not /REGION/CLUSTER/"),
        (
            with(json!({"set_routing_prefix": "/a/b/", "target": {"type": "PoolRoute", "pool": kept}})),
            "route.set_routing_prefix: with keep_routing_prefix of a pool, servers receive \"/a/b/\"",
        ),
        (
            json!({"type": "FailoverRoute", "children": ["PoolRoute|A", with(json!({"ensure_key_prefix": "b:"}))]}),
            "route.children.1: ModifyKeyRoute is converted only around all that happens to a key",
        ),
        (
            with(json!({"target": with(json!({}))})),
            "route.target: ModifyKeyRoute is converted only around all that happens to a key",
        ),
        (
            with(json!({"target": {"type": "PrefixSelectorRoute", "wildcard": "PoolRoute|A"}})),
            "route.target: PrefixSelectorRoute works at the top only",
        ),
        (json!({"type": "KeySplitRoute"}), "route: KeySplitRoute stores a key under several names"),
    ] {
        let line = converted(&route).unwrap_err();
        assert!(line.starts_with(&format!("m.json: {expected}")) && !line.contains('\n'), "{route}: {line}");
    }
}
