//! Whole configurations: what they become, and what is refused.

use super::*;

const POOLS: &str = r#""pools": {
    "A": { "servers": ["10.0.0.1:11211", "10.0.0.2:11211"] },
    "B": { "servers": ["10.0.1.1:11211", "10.0.1.2:11211"], "server_timeout": 250, "connect_timeout": 100 },
    "one": { "servers": ["10.0.2.1:11211"] },
    "two": { "servers": ["10.0.2.2:11211"] }
}"#;

fn text_of(route: &str) -> String {
    format!("{{ {POOLS}, \"route\": {route} }}")
}

fn converted(route: &str) -> String {
    let text = text_of(route);
    convert(&text, None).unwrap_or_else(|error| panic!("{text}: {error}")).toml("mcrouter.json")
}

fn refused(text: &str) -> String {
    let line = convert(text, None).map(|output| output.toml("x")).unwrap_err().to_string();
    assert!(!line.contains('\n'), "{line}");
    line
}

/// The names of the pools, in their order.
fn names(text: &str) -> Vec<&str> {
    text.lines().filter_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"')).collect()
}

#[test]
fn a_pool_is_distributed_as_in_mcrouter() {
    for route in [r#""PoolRoute|A""#, r#"{"type": "PoolRoute", "pool": "A", "hash": "Ch3"}"#, r#""HashRoute|Pool|A""#] {
        let text = converted(route);
        assert!(text.contains("distribution = \"ch3\"") && names(&text) == ["A"], "{text}");
        assert!(text.contains("    \"10.0.0.1:11211\",\n    \"10.0.0.2:11211\",\n"), "{text}");
    }
    let text = converted(r#"{"type": "PoolRoute", "pool": "one", "hash": {"hash_func": "Crc32"}, "rates": {}}"#);
    assert!(!text.contains("distribution") && text.contains("# rates of PoolRoute has no counterpart."), "{text}");
    let text = converted(r#""PoolRoute|B""#);
    assert!(text.contains("timeouts = { connect = \"100ms\", read = \"250ms\", write = \"250ms\" }"), "{text}");
}

#[test]
fn prefixes_become_routes() {
    let text = converted(
        r#"{"type": "PrefixSelectorRoute", "policies": {"a:": "PoolRoute|A", "b:": "PoolRoute|one", "c:": "PoolRoute|A"},
            "wildcard": "PoolRoute|B"}"#,
    );
    assert_eq!(names(&text), ["B", "A", "one"], "{text}");
    for (prefix, pool) in [("a:", "A"), ("b:", "one"), ("c:", "A")] {
        assert!(text.contains(&format!("[[routes]]\nprefix = \"{prefix}\"\npool = \"{pool}\"\n")), "{text}");
    }
}

#[test]
fn failover_is_a_chain_of_pools() {
    let text = converted(r#"{"type": "FailoverRoute", "children": ["PoolRoute|A", "PoolRoute|B", "PoolRoute|one"]}"#);
    assert_eq!(names(&text), ["A", "one", "B"], "{text}");
    assert!(text.contains("failover-pool = { pool = \"B\", expiry = \"60s\" }"), "{text}");
    assert!(text.contains("failover-pool = { pool = \"one\", expiry = \"60s\" }"), "{text}");
    let text = converted(
        r#"{"type": "FailoverWithExptimeRoute", "normal": "PoolRoute|A", "failover": "PoolRoute|B", "failover_exptime": 7,
            "failover_errors": ["tko"]}"#,
    );
    assert!(text.contains("failover-pool = { pool = \"B\", expiry = \"7s\" }"), "{text}");
    assert!(text.contains("# failover_errors of FailoverWithExptimeRoute has no counterpart."), "{text}");
    assert!(!text.contains("keeps values"), "{text}");
    let text = converted(
        r#"{"type": "FailoverWithExptimeRoute", "normal": "PoolRoute|A", "failover": "PoolRoute|B", "failover_exptime": 0}"#,
    );
    assert!(
        text.contains("expiry = \"60s\"") && text.contains("# failover_exptime: 0 keeps values in the other pool"),
        "{text}"
    );
    let usual = r#"{"type": "FailoverWithExptimeRoute", "normal": "PoolRoute|A", "failover": "PoolRoute|B"}"#;
    assert!(converted(usual).contains("expiry = \"60s\"") && !converted(usual).contains("keeps values"));
}

#[test]
fn a_pool_with_two_roles_becomes_two_pools() {
    let text = converted(
        r#"{"type": "PrefixSelectorRoute", "policies": {"a:": {"type": "FailoverRoute", "children": ["PoolRoute|A", "PoolRoute|one"]}},
            "wildcard": "PoolRoute|A"}"#,
    );
    assert_eq!(names(&text), ["A", "one", "A-2"], "{text}");
    assert!(text.contains("prefix = \"a:\"\npool = \"A-2\""), "{text}");
}

#[test]
fn a_cold_pool_is_warmed_up() {
    let text = converted(r#"{"type": "WarmUpRoute", "cold": "PoolRoute|A", "warm": "PoolRoute|B", "exptime": 20}"#);
    assert!(text.contains("warm-up = { from = \"B\", expiry = \"20s\" }") && names(&text) == ["A", "B"], "{text}");
    let text = converted(r#"{"type": "MissFailoverRoute", "children": ["PoolRoute|A", "PoolRoute|B"]}"#);
    assert!(text.contains("warm-up = { from = \"B\", expiry = \"3600s\" }"), "{text}");
    assert!(text.contains("# MissFailoverRoute stores nothing in this pool."), "{text}");
}

#[test]
fn a_request_to_all_servers_is_replication() {
    for (kind, writes) in [
        ("AllSyncRoute", "all"),
        ("AllMajorityRoute", "majority"),
        ("AllFastestRoute", "first"),
        ("AllInitialRoute", "first"),
        ("AllAsyncRoute", "first"),
    ] {
        for children in [r#""Pool|A""#, r#"["PoolRoute|one", "PoolRoute|two"]"#] {
            let text = converted(&format!("{{\"type\": \"{kind}\", \"children\": {children}}}"));
            assert!(text.contains("replicas = 2\n") && text.contains(&format!("writes = \"{writes}\"")), "{text}");
        }
        assert!(converted(&format!("\"{kind}|Pool|A\"")).contains("replicas = 2\n"));
    }
    for (read, expected) in [
        ("PoolRoute|A", "writes = \"all\""),
        ("LatestRoute|Pool|A", "failover = \"on-error\""),
        ("FailoverRoute|Pool|A", "failover = \"on-error\""),
        ("MissFailoverRoute|Pool|A", "failover = \"on-miss\""),
        ("RandomRoute|Pool|A", "reads = \"any\""),
        ("LoadBalancerRoute|Pool|A", "reads = \"least-outstanding\""),
        ("AllFastestRoute|Pool|A", "# AllFastestRoute reads several servers."),
    ] {
        let text = converted(&format!(
            r#"{{"type": "OperationSelectorRoute", "default_policy": "AllSyncRoute|Pool|A", "operation_policies":
                {{"set": "AllSyncRoute|Pool|A", "delete": "AllSyncRoute|Pool|A", "add": "AllFastestRoute|Pool|A", "get": "{read}"}}}}"#
        ));
        assert!(text.contains(expected) && text.contains("replicas = 2\n"), "{read}: {text}");
        assert!(text.contains("# The policy of add was another one."), "{text}");
    }
    let same = r#"{"type": "OperationSelectorRoute", "default_policy": "PoolRoute|A", "operation_policies": {"get": "PoolRoute|A"}}"#;
    assert!(converted(same).contains("distribution = \"ch3\""));
}

#[test]
fn reads_and_deletes_can_go_to_other_pools_than_writes() {
    let text = converted(
        r#"{"type": "OperationSelectorRoute", "default_policy": "PoolRoute|A", "operation_policies": {
            "get": "PoolRoute|B", "gets": "PoolRoute|B", "lease-get": "PoolRoute|B",
            "delete": {"type": "AllSyncRoute", "children": ["PoolRoute|A", "PoolRoute|B", "PoolRoute|one"]}}}"#,
    );
    assert_eq!(names(&text), ["A", "B", "one"], "{text}");
    assert!(text.contains("read-pool = \"B\"\n") && text.contains("delete-pools = [\"B\", \"one\"]\n"), "{text}");
    for note in
        ["# gets, gat and gats go to this pool", "# The reply to a delete waits", "# The policy of lease-get has no"]
    {
        assert!(text.contains(note), "{note}: {text}");
    }
    // Another handle for the same pool, by prefix, and a chain for reads.
    let text = converted(
        r#"{"type": "PrefixSelectorRoute", "wildcard": "PoolRoute|A", "policies": {"a:":
            {"type": "OperationSelectorRoute", "default_policy": "PoolRoute|A", "operation_policies": {
                "get": {"type": "FailoverRoute", "children": ["PoolRoute|B", "PoolRoute|one"]},
                "delete": {"type": "AllFastestRoute", "children": [{"type": "PoolRoute", "pool": "A", "rates": {}}, "PoolRoute|two"]}}}}}"#,
    );
    assert_eq!(names(&text), ["A", "one", "B", "two", "A-2"], "{text}");
    assert!(
        text.contains("prefix = \"a:\"\npool = \"A-2\"") && text.contains("failover-pool = { pool = \"one\""),
        "{text}"
    );
    let text = converted(
        r#"{"type": "OperationSelectorRoute", "default_policy": "PoolRoute|A", "operation_policies": {
            "delete": {"type": "AllSyncRoute", "children": ["PoolRoute|A", "PoolRoute|A"]}}}"#,
    );
    assert!(names(&text) == ["A"] && !text.contains("delete-pools"), "{text}");
}

#[test]
fn handles_can_have_names_and_pools_can_inherit() {
    let text = r#"// The configuration of a test.
        { "pools": { "A": {"servers": ["a:1:ascii:plain", "[::1]:2"], "server_timeout": 300}, "B": {"inherit": "A", "servers": ["b:1"]} },
          "named_handles": [ {"type": "PoolRoute", "name": "main", "pool": "B"} ], "route": "main", "other": 1 }"#;
    let text = convert(text, None).unwrap().toml("x");
    assert!(text.contains("\"b:1\"") && text.contains("read = \"300ms\"") && names(&text) == ["B"], "{text}");
    assert!(text.contains("# other has no counterpart."), "{text}");
}

#[test]
fn one_routing_prefix_is_chosen() {
    let text = format!(
        r#"{{ {POOLS}, "routes": [ {{"aliases": ["/a/a/", "/a/b/"], "route": "PoolRoute|A"}}, {{"aliases": ["/b/b/"], "route": "PoolRoute|B"}} ] }}"#
    );
    let of = |prefix| convert(&text, Some(prefix)).unwrap().toml("x");
    assert_eq!([names(&of("/a/b/")), names(&of("/b/b/"))], [["A"], ["B"]]);
    assert!(refused(&text).ends_with("give --route-prefix with one of: /a/a/, /a/b/, /b/b/"));
    assert!(convert(&text, Some("/c/")).unwrap_err().to_string().contains("no entry has the routing prefix \"/c/\""));
    let single = format!(r#"{{ {POOLS}, "routes": {{"/a/a/": "PoolRoute|A"}} }}"#);
    assert_eq!(names(&convert(&single, None).unwrap().toml("x")), ["A"]);
}

#[test]
fn what_has_no_counterpart_is_one_line_with_its_place() {
    for (route, expected) in [
        (r#""NullRoute""#, "route: NullRoute answers without a server"),
        (r#""ErrorRoute|x""#, "route: ErrorRoute answers without a server"),
        (r#""LatestRoute|Pool|A""#, "route: LatestRoute sends writes to one of several servers"),
        (
            r#"{"type": "PolRoute", "pool": "A"}"#,
            "route: there is no counterpart of the route handle \"PolRoute\"; did you mean PoolRoute?",
        ),
        (r#""PoolRoute|C""#, "route.pool: there is no pool \"C\""),
        (r#""%macro%""#, "route: \"%macro%\" is a macro"),
        (r#"{"pool": "A"}"#, "route: give a route handle"),
        (r#"[1]"#, "route: give a route handle"),
        (r#"{"type": "PoolRoute"}"#, "route: PoolRoute has no pool"),
        (r#"{"type": "PoolRoute", "pool": 3}"#, "route.pool: give the name of a pool"),
        (r#"{"type": "PoolRoute", "pool": {"servers": []}}"#, "route.pool: the pool has no servers"),
        (r#"{"type": "PoolRoute", "pool": {"servers": ["a"]}}"#, "route.pool.servers.0: \"a\" is not HOST:PORT"),
        (
            r#"{"type": "PoolRoute", "pool": {"servers": ["a:1:caret"]}}"#,
            "route.pool.servers.0: \"a:1:caret\" is not reached",
        ),
        (
            r#"{"type": "PoolRoute", "pool": {"servers": ["a:1"], "protocol": "caret"}}"#,
            "route.pool.protocol: \"caret\" is not spoken",
        ),
        (r#"{"type": "PoolRoute", "pool": {"servers": ["a:1"], "use_ssl": true}}"#, "route.pool.use_ssl: TLS needs"),
        (
            r#"{"type": "PoolRoute", "pool": {"servers": ["a:1"], "server_timeout": "1s"}}"#,
            "route.pool.server_timeout: \"1s\" is no number",
        ),
        (r#"{"type": "PoolRoute", "pool": "A", "hash": "Crc32"}"#, "route.hash: \"Crc32\" does not exist here"),
        (r#"{"type": "PoolRoute", "pool": "A", "hash": {"salt": "x"}}"#, "route.hash: a salt has no counterpart"),
        (r#"{"type": "PoolRoute", "pool": "A", "shadows": []}"#, "route.shadows: shadows are not converted"),
        (r#"{"type": "PrefixSelectorRoute", "policies": {}}"#, "route: has no wildcard"),
        (
            r#"{"type": "PrefixSelectorRoute", "policies": {"": "PoolRoute|A"}, "wildcard": "PoolRoute|A"}"#,
            "route.policies.: the prefix is empty",
        ),
        (
            r#"{"type": "PrefixSelectorRoute", "policies": {"a": {"type": "PrefixSelectorRoute"}}, "wildcard": "PoolRoute|A"}"#,
            "route.policies.a: PrefixSelectorRoute works at the top only",
        ),
        (r#"{"type": "FailoverRoute", "children": "Pool|A"}"#, "route.children: fails over among the servers"),
        (r#"{"type": "FailoverRoute"}"#, "route.children: give a list"),
        (
            r#"{"type": "FailoverWithExptimeRoute", "normal": "PoolRoute|A", "failover": "PoolRoute|B", "failover_exptime": -1}"#,
            "route.failover_exptime: -1 is no number",
        ),
        (
            r#"{"type": "FailoverRoute", "children": [{"type": "FailoverRoute", "children": ["PoolRoute|A", "PoolRoute|B"]}, "PoolRoute|one"]}"#,
            "route.children.0: this route fails over already",
        ),
        (
            r#"{"type": "MissFailoverRoute", "children": ["PoolRoute|A", "PoolRoute|B", "PoolRoute|one"]}"#,
            "route: MissFailoverRoute is converted for two",
        ),
        (r#"{"type": "WarmUpRoute", "cold": "PoolRoute|A"}"#, "route: WarmUpRoute has no warm"),
        (
            r#"{"type": "AllSyncRoute", "children": ["PoolRoute|A", "PoolRoute|B"]}"#,
            "route.children.0: AllSyncRoute over pools of several servers",
        ),
        (
            r#"{"type": "AllSyncRoute", "children": [{"type": "FailoverRoute"}]}"#,
            "route.children.0: only servers can be here",
        ),
        (r#"{"type": "HashRoute", "children": ["PoolRoute|A"]}"#, "route: HashRoute over route handles"),
        (r#"{"type": "OperationSelectorRoute"}"#, "route: OperationSelectorRoute has no policies"),
        (
            r#"{"type": "OperationSelectorRoute", "default_policy": "PoolRoute|A", "operation_policies": {"delete": "AllSyncRoute|Pool|A"}}"#,
            "route: delete does not go to all servers that set goes to, which has no counterpart: all writes must",
        ),
        (
            r#"{"type": "OperationSelectorRoute", "default_policy": "PoolRoute|A", "operation_policies": {"set": "AllSyncRoute|Pool|A", "delete": "AllSyncRoute|Pool|A"}}"#,
            "route: add and set go to different servers, which has no counterpart",
        ),
        (
            r#"{"type": "OperationSelectorRoute", "operation_policies": {"get": "PoolRoute|A", "delete": "PoolRoute|B"}}"#,
            "route: set has no policy, which has no counterpart",
        ),
        (
            r#"{"type": "OperationSelectorRoute", "default_policy": "PoolRoute|A", "operation_policies": {"delete": "PoolRoute|B"}}"#,
            "route: delete does not go to all servers that set goes to",
        ),
        (
            r#"{"type": "OperationSelectorRoute", "default_policy": "PoolRoute|A", "operation_policies": {"delete": {"type": "AllSyncRoute", "children": ["PoolRoute|B", "PoolRoute|one"]}}}"#,
            "route: delete does not go to all servers that set goes to",
        ),
        (
            r#"{"type": "OperationSelectorRoute", "default_policy": "PoolRoute|A", "operation_policies": {"gets": "PoolRoute|B"}}"#,
            "route: gets and set go to different servers",
        ),
        (
            r#"{"type": "OperationSelectorRoute", "default_policy": "PoolRoute|A", "operation_policies": {"get": "PoolRoute|C"}}"#,
            "route.operation_policies.get.pool: there is no pool \"C\"",
        ),
        (
            r#"{"type": "OperationSelectorRoute", "default_policy": "PoolRoute|A", "operation_policies": {"delete": {"type": "AllSyncRoute", "children": ["PoolRoute|A", "NullRoute"]}}}"#,
            "route.operation_policies.delete.children.1: NullRoute answers without a server",
        ),
    ] {
        let line = refused(&text_of(route));
        assert!(line.starts_with(expected), "{route}: {line}");
    }
    for (text, expected) in [
        ("{".to_string(), "1: not JSON: "),
        (
            format!("{{ {POOLS}, \"route\": \"PoolRoute|A\",\n\"route\": \"PoolRoute|B\" }}"),
            "7: \"route\" is given twice",
        ),
        ("{}".into(), "has no pools"),
        (format!("{{ {POOLS} }}"), "has no route; give route or routes"),
        (format!("{{ {POOLS}, \"route\": \"PoolRoute|A\", \"routes\": [] }}"), "has route and routes"),
        (format!("{{ {POOLS}, \"macros\": {{}}, \"route\": \"PoolRoute|A\" }}"), "macros: macros have no counterpart"),
        ("{\"pools\": \"@import(a.json)\", \"route\": \"PoolRoute|A\"}".into(), "pools: macros have no counterpart"),
        (
            "{\"pools\": {\"A\": {\"servers\": [\"a:1\", \"b:1\"], \"hash\": \"crc32\"}}, \"route\": \"PoolRoute|A\"}"
                .into(),
            "route.pool.hash: has no counterpart",
        ),
        ("{\"pools\": [], \"route\": \"PoolRoute|A\"}".into(), "pools: give an object"),
        (
            format!("{{ {POOLS}, \"named_handles\": {{\"a\": \"b\", \"b\": \"a\"}}, \"route\": \"a\" }}"),
            "route: handles with names refer to each other",
        ),
        (
            "{\"pools\": {\"A\": {\"inherit\": \"A\"}}, \"route\": \"PoolRoute|A\"}".into(),
            "route.pool: too many pools inherit",
        ),
    ] {
        let line = refused(&text);
        assert!(line.starts_with(expected), "{text}: {line}");
    }
}
