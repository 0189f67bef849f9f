//! Counters continue after a reload, while clients move and when the earlier configuration has ended.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod common;

use clock::Clock;
use common::{Proxy, disciplines, servers, until};
use proxy::{Config, Discipline, PoolConfig, RouteConfig, Running, ServerConfig, Timeouts, start};
use std::collections::BTreeMap;
use std::time::Duration;
use testkit::{Client, GatedServer};

/// Two pools. Keys that begin with `o` belong to the second.
fn config(first: &[String], second: &[String], loops: usize) -> Config {
    let mut config = Config::new("127.0.0.1:0", first);
    config.pools.push(PoolConfig::new("other", second));
    config.routes = vec![RouteConfig::new("o", "other")];
    (config.loops, config.metrics) = (loops, Some("127.0.0.1:0".into()));
    config.pools.iter_mut().for_each(|pool| pool.timeouts = Timeouts::all(Duration::from_secs(20)));
    config
}

fn reload(proxy: &mut Proxy, config: Config) -> Running {
    let running = proxy.running.as_mut().unwrap();
    let new = running.reload(config).expect("a valid configuration");
    std::mem::replace(running, new)
}

/// All series, with their numbers.
fn series(proxy: &Proxy) -> BTreeMap<String, f64> {
    let page = proxy.metrics();
    let lines = page.split_once("\r\n\r\n").unwrap().1.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| line.rsplit_once(' ').unwrap())
        .map(|(name, value)| (name.into(), value.parse().unwrap()))
        .collect()
}

/// Those that must never decrease.
fn counters(proxy: &Proxy) -> BTreeMap<String, f64> {
    let is_counter = |name: &str| {
        let name = name.split('{').next().unwrap_or_default();
        ["_total", "_bucket", "_count", "_sum"].iter().any(|end| name.ends_with(end))
    };
    let of_process = |name: &str| name.starts_with("process_");
    series(proxy).into_iter().filter(|(name, _)| is_counter(name) && !of_process(name)).collect()
}

/// The sum over the series of a metric whose labels contain this text.
fn sum(series: &BTreeMap<String, f64>, name: &str, labels: &str) -> f64 {
    let is_wanted = |series: &str| series.split('{').next() == Some(name) && series.contains(labels);
    series.iter().filter(|(series, _)| is_wanted(series)).map(|(_, value)| value).sum()
}

/// Checks that no series of a counter has decreased or disappeared, apart from those whose labels contain one of these texts.
fn expect_continued(before: &BTreeMap<String, f64>, after: &BTreeMap<String, f64>, gone: &[&str]) {
    for (name, count) in before {
        match after.get(name) {
            Some(now) => assert!(now >= count, "{name} was {count} and is {now}"),
            None => assert!(gone.iter().any(|gone| name.contains(gone)), "{name} is missing"),
        }
    }
}

fn ask_for_all(proxy: &Proxy) {
    let mut client = proxy.client();
    for index in 0..40 {
        let key = format!("{}{index}", if index % 2 == 0 { "k" } else { "o" });
        client.ask(
            format!("set {key} 0 0 1\r\n1\r\nget {key}\r\n"),
            format!("STORED\r\nVALUE {key} 0 1\r\n1\r\nEND\r\n"),
        );
    }
}

#[test]
fn counters_of_what_stays_continue_in_every_discipline() {
    for discipline in disciplines(4, false) {
        let servers = servers(4);
        let names: Vec<String> = servers.iter().map(|server| server.address().to_string()).collect();
        let with = |first: &[&str], second: &[&str], loops| {
            let owned = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
            Config { discipline, ..config(&owned(first), &owned(second), loops) }
        };
        let [a, b, c, d] = [0, 1, 2, 3].map(|index: usize| names[index].as_str());
        let mut proxy = Proxy::of(start(with(&[a, b], &[c], 2), Clock::monotonic()).unwrap());
        let mut moving = proxy.client();
        moving.ask("get nothing\r\n", "END\r\n");
        ask_for_all(&proxy);
        let first = counters(&proxy);
        let started = sum(&series(&proxy), "process_start_time_seconds", "");
        assert_eq!(sum(&first, "waystage_requests_total", ""), 81.0);
        // `a` has gone and `d` has come; `b` is still there, in another place.
        let mut old = reload(&mut proxy, with(&[d, b], &[c], 1));
        moving.ask("get nothing\r\n", "END\r\n");
        let gone = [a, "loop=\"1\""];
        expect_continued(&first, &counters(&proxy), &gone);
        old.wait_for_clients(|| false);
        assert_eq!(old.stop().unwrap().lost, 0);
        let second = counters(&proxy);
        expect_continued(&first, &second, &gone);
        ask_for_all(&proxy);
        let last = counters(&proxy);
        expect_continued(&second, &last, &[]);
        assert_eq!(sum(&last, "waystage_requests_total", ""), 162.0);
        assert_eq!(sum(&last, "waystage_stage_seconds_count", "stage=\"total\""), 162.0);
        assert_eq!(sum(&last, "waystage_pool_requests_total", "pool=\"other\""), 80.0);
        assert_eq!(sum(&last, "waystage_backend_requests_total", &format!("backend=\"{c}\"")), 80.0);
        // A client that moves is not accepted again, and closing the old connections ejects no server.
        assert_eq!(sum(&last, "waystage_clients_accepted_total", ""), 3.0);
        assert_eq!(sum(&last, "waystage_backend_ejections_total", ""), 0.0);
        assert_eq!(sum(&last, "waystage_scrapes_total", ""), 5.0);
        let all = series(&proxy);
        assert_eq!(sum(&all, "process_start_time_seconds", ""), started);
        assert_eq!((sum(&all, "waystage_backend_up", ""), sum(&all, "waystage_loops", "")), (3.0, 1.0));
        let stats = proxy.stats();
        for line in ["STAT cmd_set 80\r\n", "STAT waystage_requests 162\r\n", "STAT total_connections 4\r\n"] {
            assert!(stats.contains(line), "{line:?} is not in {stats}");
        }
    }
}

/// The old event loops still count what their last clients do.
#[test]
fn requests_of_clients_that_have_not_moved_are_counted_at_once() {
    let backend = GatedServer::start();
    let name = backend.address().to_string();
    let new = || config(std::slice::from_ref(&name), std::slice::from_ref(&name), 1);
    let mut proxy = Proxy::of(start(new(), Clock::monotonic()).unwrap());
    let mut client: Client = proxy.client();
    client.send("get k\r\n");
    backend.received(1);
    let mut first = reload(&mut proxy, new());
    let mut second = reload(&mut proxy, new());
    second.wait_for_clients(|| false);
    second.stop().unwrap();
    let answered = "waystage_requests_total{operation=\"get\",outcome=\"answered\"}";
    let before = counters(&proxy);
    assert_eq!(
        (before[answered], sum(&before, "waystage_backend_requests_total", "default")),
        (0.0, 1.0),
        "{before:?}"
    );
    backend.answer("get k", "END\r\n");
    client.expect("END\r\n");
    until("the request is counted", || counters(&proxy)[answered] == 1.0);
    first.wait_for_clients(|| false);
    first.stop().unwrap();
    let after = counters(&proxy);
    expect_continued(&before, &after, &[]);
    assert_eq!((after[answered], sum(&after, "waystage_stage_seconds_count", "stage=\"total\"")), (1.0, 1.0));
}

/// A pool or a server that was away starts again at zero, and a configuration that is refused changes nothing.
#[test]
fn counters_of_a_removed_server_start_again_and_a_failed_reload_changes_none() {
    let servers = servers(2);
    let names: Vec<String> = servers.iter().map(|server| server.address().to_string()).collect();
    let new = |first: &[String]| config(first, &names[1..], 1);
    let mut proxy = Proxy::of(start(new(&names), Clock::monotonic()).unwrap());
    ask_for_all(&proxy);
    let before = counters(&proxy);
    let mut bad = new(&names);
    bad.pools[0].servers.push(ServerConfig::new("no address"));
    assert!(proxy.running.as_mut().unwrap().reload(bad).is_err());
    expect_continued(&before, &counters(&proxy), &[]);
    for first in [&names[..1], &names[..]] {
        let mut old = reload(&mut proxy, new(first));
        old.wait_for_clients(|| false);
        old.stop().unwrap();
    }
    let after = counters(&proxy);
    let of = |series: &BTreeMap<String, f64>, pool: &str, server: &String| {
        sum(series, "waystage_backend_requests_total", &format!("pool=\"{pool}\",backend=\"{server}\""))
    };
    let pool = &proxy.running.as_ref().unwrap().config().pools[0].name;
    assert!(of(&before, pool, &names[1]) > 0.0 && of(&after, pool, &names[1]) == 0.0);
    assert_eq!(of(&after, pool, &names[0]), of(&before, pool, &names[0]));
    assert_eq!(of(&after, "other", &names[1]), 40.0);
}

/// The queues of an event loop keep their counters as long as the loop exists.
#[test]
fn a_queue_that_was_full_stays_counted() {
    let backend = GatedServer::start();
    let name = backend.address().to_string();
    let new = || {
        let mut config = config(std::slice::from_ref(&name), std::slice::from_ref(&name), 1);
        config.discipline = Discipline::PerBackend { readers: 1, writers: 1, fault_write_poll: None };
        config.queue = 1;
        config
    };
    let mut proxy = Proxy::of(start(new(), Clock::monotonic()).unwrap());
    let mut client = proxy.client();
    client.send("get a\r\n");
    backend.received(1);
    client.send("get b\r\nget c\r\n");
    until("a request is refused", || sum(&counters(&proxy), "waystage_queue_full_total", "") == 1.0);
    let mut old = reload(&mut proxy, new());
    assert_eq!(sum(&counters(&proxy), "waystage_queue_full_total", "loop=\"0\""), 1.0);
    for key in ["a", "b"] {
        backend.answer(&format!("get {key}"), "END\r\n");
    }
    client.expect("END\r\nEND\r\n");
    old.wait_for_clients(|| false);
    old.stop().unwrap();
    assert_eq!(sum(&counters(&proxy), "waystage_queue_full_total", "loop=\"0\""), 1.0);
}
