//! The metrics as a strict reader of both formats sees them: heads, names, labels, histograms, and numbers that add up.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod common;

use common::{Proxy, disciplines, servers, until};
use proxy::{Discipline, PoolConfig, RouteConfig, Timeouts};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;
use testkit::Scripted;

/// One metric: its type and its samples, each with name, labels and number.
#[derive(Debug, Default)]
struct Family {
    kind: String,
    samples: Vec<(String, BTreeMap<String, String>, f64)>,
}

/// Parses the labels between braces; only `\\`, `\"` and `\n` may be escaped.
fn labels(text: &str) -> BTreeMap<String, String> {
    let (mut labels, mut rest) = (BTreeMap::new(), text);
    while !rest.is_empty() {
        let (name, behind) = rest.split_once("=\"").expect("a name, and a value in quotes");
        assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{text}");
        let (mut value, mut characters) = (String::new(), behind.char_indices());
        let end = loop {
            match characters.next().expect("the quotes end") {
                (at, '"') => break at,
                (_, '\\') => match characters.next().unwrap().1 {
                    'n' => value.push('\n'),
                    other @ ('\\' | '"') => value.push(other),
                    other => panic!("\\{other} in {text}"),
                },
                (_, other) => value.push(other),
            }
        };
        assert!(labels.insert(name.to_string(), value).is_none(), "{name} twice in {text}");
        rest = behind[end + 1..].strip_prefix(',').unwrap_or(&behind[end + 1..]);
    }
    labels
}

/// Parses a page. All samples of a metric must follow its header, and no series may occur twice.
fn parse(body: &str, is_open_metrics: bool) -> HashMap<String, Family> {
    let (mut families, mut current, mut seen) = (HashMap::<String, Family>::new(), String::new(), HashSet::new());
    let mut lines = body.lines();
    if is_open_metrics {
        assert_eq!(lines.next_back(), Some("# EOF"));
    }
    assert!(body.ends_with('\n'));
    for line in lines {
        if let Some(head) = line.strip_prefix("# ") {
            let words: Vec<&str> = head.splitn(3, ' ').collect();
            match words[0] {
                "HELP" => {
                    assert!(words[2].len() > 5, "{line}");
                    current = words[1].to_string();
                    assert!(
                        families.insert(current.clone(), Family::default()).is_none(),
                        "{current} is in two pieces"
                    );
                }
                "TYPE" => {
                    assert_eq!(words[1], current);
                    families.get_mut(&current).unwrap().kind = words[2].to_string();
                }
                "UNIT" => assert!(is_open_metrics && words[1].ends_with(&format!("_{}", words[2])), "{line}"),
                _ => panic!("{line}"),
            }
            continue;
        }
        let (series, number) = line.rsplit_once(' ').expect("a number after a space");
        let (name, inside) = series.split_once('{').map_or((series, ""), |(name, rest)| (name, rest));
        let inside = inside.strip_suffix('}').unwrap_or(inside);
        let family = families.get_mut(&current).unwrap();
        let suffixes: &[&str] = match (family.kind.as_str(), is_open_metrics) {
            ("counter", true) => &["_total"],
            ("histogram", _) => &["_bucket", "_sum", "_count"],
            _ => &[""],
        };
        assert!(suffixes.iter().any(|suffix| format!("{current}{suffix}") == name), "{line} under {current}");
        assert!(family.kind != "counter" || name.ends_with("_total"), "{line}");
        assert!(seen.insert(series.to_string()), "{series} twice");
        let number: f64 = number.parse().expect("a number");
        assert!(number.is_finite() && (family.kind == "gauge" || number >= 0.0), "{line}");
        family.samples.push((name.to_string(), labels(inside), number));
    }
    families
}

/// Buckets rise up to the count, in bounds that rise up to infinity.
fn check_histogram(name: &str, family: &Family) {
    let mut series: BTreeMap<BTreeMap<String, String>, Vec<(f64, f64)>> = BTreeMap::new();
    let mut ends: HashMap<(String, BTreeMap<String, String>), f64> = HashMap::new();
    for (sample, labels, number) in &family.samples {
        let mut labels = labels.clone();
        match labels.remove("le") {
            Some(bound) => series.entry(labels).or_default().push((bound.parse().unwrap(), *number)),
            None => _ = ends.insert((sample.clone(), labels), *number),
        }
    }
    for (labels, buckets) in &series {
        assert!(buckets.is_sorted_by(|left, right| left.0 < right.0 && left.1 <= right.1), "{labels:?}: {buckets:?}");
        let count = ends[&(format!("{name}_count"), labels.clone())];
        assert_eq!(buckets.last(), Some(&(f64::INFINITY, count)));
        assert!(ends.contains_key(&(format!("{name}_sum"), labels.clone())));
    }
    assert_eq!(ends.len(), 2 * series.len());
}

/// The page in one of the formats, checked.
fn page(proxy: &Proxy, is_open_metrics: bool) -> HashMap<String, Family> {
    let accept =
        if is_open_metrics { "application/openmetrics-text;version=1.0.0,text/plain;q=0.5" } else { "text/plain" };
    let answer = proxy.get_as("/metrics", accept);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let kind =
        if is_open_metrics { "application/openmetrics-text; version=1.0.0" } else { "text/plain; version=0.0.4" };
    assert!(head.starts_with("HTTP/1.1 200") && head.contains(kind), "{head}");
    let families = parse(body, is_open_metrics);
    families.iter().filter(|(_, family)| family.kind == "histogram").for_each(|(name, one)| check_histogram(name, one));
    families
}

/// The sum of a metric's samples that have these labels.
fn sum(families: &HashMap<String, Family>, name: &str, wanted: &[(&str, &str)]) -> f64 {
    let family = families.get(name).unwrap_or_else(|| panic!("{name} is missing"));
    let fits = |labels: &BTreeMap<String, String>| {
        wanted.iter().all(|(label, value)| labels.get(*label).map(String::as_str) == Some(*value))
    };
    family.samples.iter().filter(|sample| fits(&sample.1)).map(|sample| sample.2).sum()
}

fn with_metrics(discipline: Discipline, backends: usize) -> Proxy {
    Proxy::before(servers(backends), |config| {
        (config.loops, config.discipline) = (2, discipline);
        config.metrics = Some("127.0.0.1:0".into());
        config.operations.hot_keys_metrics = true;
    })
}

#[test]
fn both_formats_are_valid_and_equal_in_every_discipline() {
    for discipline in disciplines(4, false) {
        let proxy = with_metrics(discipline, 3);
        let mut client = proxy.client();
        client.ask(
            "flush_all\r\nset a 0 0 1\r\n1\r\nget a b c d e\r\nbogus\r\n",
            "OK\r\nSTORED\r\nVALUE a 0 1\r\n1\r\nEND\r\nERROR\r\n",
        );
        let (open, classic) = (page(&proxy, true), page(&proxy, false));
        assert_eq!(open.len(), classic.len());
        for (name, family) in &open {
            let name = if family.kind == "counter" { format!("{name}_total") } else { name.clone() };
            assert_eq!(classic[&name].kind, family.kind, "{name}");
        }
        let total = [("stage", "total"), ("operation", "get"), ("le", "+Inf")];
        assert_eq!(sum(&classic, "waystage_stage_seconds", &total), 1.0);
        assert_eq!(sum(&classic, "waystage_scrapes_total", &[]), 2.0);
        assert_eq!(sum(&classic, "waystage_build_info", &[("dispatch", discipline.name())]), 1.0);
        assert!(sum(&classic, "process_open_fds", &[]) < sum(&classic, "process_max_fds", &[]));
    }
}

#[test]
fn requests_hits_misses_and_bytes_are_counted_with_the_right_labels() {
    let proxy = with_metrics(Discipline::Pipelined, 2);
    let mut client = proxy.client();
    let send = concat!(
        "set n 0 0 1\r\n1\r\nget n\r\nget n x y\r\nmg n v\r\nmg x q\r\nincr n 1\r\nincr x 1\r\ntouch n 100\r\ntouch x 1\r\n",
        "gat 100 n\r\ncas n 0 0 1 999999\r\n2\r\ncas x 0 0 1 1\r\n2\r\nma n q\r\nmd n q\r\nmd n\r\ndelete n\r\n",
        "set n 0 0 1 noreply\r\n1\r\ndelete n noreply\r\nmn\r\n"
    );
    let expected = concat!(
        "STORED\r\nVALUE n 0 1\r\n1\r\nEND\r\nVALUE n 0 1\r\n1\r\nEND\r\nVA 1\r\n1\r\n2\r\nNOT_FOUND\r\nTOUCHED\r\nNOT_FOUND\r\n",
        "VALUE n 0 1\r\n2\r\nEND\r\nEXISTS\r\nNOT_FOUND\r\nNF\r\nNOT_FOUND\r\nMN\r\n"
    );
    client.ask(send, expected);
    let metrics = page(&proxy, false);
    let found = |operation| {
        let of = |name| sum(&metrics, name, &[("operation", operation)]);
        (of("waystage_hits_total"), of("waystage_misses_total"))
    };
    for (operation, hits, misses) in [
        ("get", 2.0, 2.0),
        ("mg", 1.0, 1.0),
        ("incr", 1.0, 1.0),
        ("touch", 1.0, 1.0),
        ("gat", 1.0, 0.0),
        ("cas", 0.0, 1.0),
        ("ma", 1.0, 0.0),
        ("md", 1.0, 1.0),
        ("delete", 1.0, 1.0),
    ] {
        assert_eq!(found(operation), (hits, misses), "{operation}");
    }
    assert_eq!(sum(&metrics, "waystage_cas_conflicts_total", &[]), 1.0);
    assert_eq!(sum(&metrics, "waystage_requests_total", &[("outcome", "answered")]), 19.0);
    assert_eq!(sum(&metrics, "waystage_received_bytes_total", &[]), send.len() as f64);
    assert_eq!(sum(&metrics, "waystage_replied_bytes_total", &[]), expected.len() as f64);
    let (requests, replies) = ("waystage_backend_requests_total", "waystage_backend_replies_total");
    assert!(sum(&metrics, requests, &[]) >= 18.0 && sum(&metrics, requests, &[]) == sum(&metrics, replies, &[]));
    assert!(sum(&metrics, "waystage_backend_sent_bytes_total", &[]) >= 18.0 * 6.0);
    assert!(sum(&metrics, "waystage_backend_received_bytes_total", &[]) >= 18.0 * 4.0);
    assert_eq!(sum(&metrics, "waystage_backend_errors_total", &[]), 0.0);
    assert_eq!(sum(&metrics, "waystage_backend_up", &[]), 2.0);
    assert_eq!(sum(&metrics, "waystage_clients", &[]), 1.0);
}

#[test]
fn backend_failures_are_counted_by_kind() {
    let server = Scripted::start(|peer, _| {
        while let Some(line) = peer.line() {
            match line.as_str() {
                "get late\r\n" => return peer.hang(),
                "get gone\r\n" => return,
                "get bad\r\n" => peer.send("SERVER_ERROR out of memory\r\n"),
                _ => peer.send("END\r\n"),
            }
        }
    });
    let proxy = Proxy::at(&[server.address()], |config| {
        (config.loops, config.pools[0].timeouts) = (1, Timeouts::all(Duration::from_secs(2)));
        (config.metrics, config.pools[0].failures) = (Some("127.0.0.1:0".into()), 1);
    });
    let mut client = proxy.client();
    let mut until_up = || {
        let mut asked = 0.0;
        until("the backend comes back", || {
            asked += 1.0;
            client.send("get fine\r\n");
            client.line() == "END\r\n"
        });
        asked - 1.0
    };
    let mut down = until_up();
    for (key, reply) in
        [("bad", "SERVER_ERROR out of"), ("gone", "SERVER_ERROR backend"), ("late", "SERVER_ERROR backend")]
    {
        let mut client = proxy.client();
        client.send(format!("get {key}\r\n"));
        assert!(client.line().starts_with(reply), "{key}");
        down += until_up();
    }
    let metrics = page(&proxy, true);
    let error = |kind| sum(&metrics, "waystage_backend_errors", &[("kind", kind)]);
    assert_eq!((error("server_error"), error("backend_lost"), error("timeout")), (1.0, 1.0, 1.0));
    assert_eq!((error("backend_down"), error("client_error"), error("overloaded")), (down, 0.0, 0.0));
    let lost = |reason| sum(&metrics, "waystage_backend_connections_lost", &[("reason", reason)]);
    assert_eq!((lost("timeout"), lost("lost")), (1.0, 1.0));
    assert_eq!(sum(&metrics, "waystage_backend_connections_opened", &[]), 3.0);
    assert_eq!(sum(&metrics, "waystage_backend_ejections", &[]), 2.0, "lost, then late");
    assert_eq!(sum(&metrics, "waystage_backend_ejected", &[]), 0.0);
    assert_eq!(sum(&metrics, "waystage_requests", &[("operation", "get"), ("outcome", "timeout")]), 1.0);
}

#[test]
fn one_server_in_two_pools_is_two_backends() {
    let server = &servers(1)[0];
    for discipline in disciplines(2, false) {
        let proxy = Proxy::at(&[server.address()], |config| {
            (config.loops, config.discipline, config.metrics) = (1, discipline, Some("127.0.0.1:0".into()));
            config.pools.push(PoolConfig::new("second", &[server.address().to_string()]));
            config.routes = vec![RouteConfig::new("2", "second")];
        });
        let mut client = proxy.client();
        client.ask("delete 1\r\ndelete 2\r\n", "NOT_FOUND\r\nNOT_FOUND\r\n");
        client.ask("get 1 2\r\nget 2\r\nmg 2\r\n", "END\r\nEND\r\nEN\r\n");
        let metrics = page(&proxy, true);
        for (pool, reads, requests) in [("default", 1.0, 2.0), ("second", 3.0, 4.0)] {
            let of = |kind| sum(&metrics, "waystage_pool_requests", &[("pool", pool), ("kind", kind)]);
            assert_eq!((of("read"), of("write")), (reads, 1.0), "{pool}");
            assert_eq!(sum(&metrics, "waystage_backend_requests", &[("pool", pool)]), requests);
            client.send("stats backends\r\n");
            let name = format!("STAT {pool}/{}:requests {requests}\r\n", server.address());
            let lines: Vec<String> =
                std::iter::from_fn(|| Some(client.line()).filter(|line| line != "END\r\n")).collect();
            assert!(lines.contains(&name), "{lines:?}");
        }
    }
}
