//! Commands that a listener does not allow: each has one error, its value is dropped, and nothing reaches a server.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod common;

use clock::Clock;
use common::{Proxy, servers, until};
use proxy::{CommandGroup, Config, ListenerConfig, LogFormat, LogOutput, PoolConfig, Running, Timeouts, start};
use serde_json::Value;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use testkit::{Client, GatedServer, Server};

/// A listener on a free port that allows these groups, or all but these.
fn only(host: &str, groups: &[CommandGroup]) -> ListenerConfig {
    ListenerConfig { allow: Some(groups.to_vec()), ..ListenerConfig::new(&format!("{host}:0")) }
}

fn all_but(host: &str, groups: &[CommandGroup]) -> ListenerConfig {
    ListenerConfig { deny: Some(groups.to_vec()), ..ListenerConfig::new(&format!("{host}:0")) }
}

fn address(running: &Running, index: usize) -> SocketAddr {
    running.listening[index].host_port().unwrap().number().unwrap()
}

fn refused(what: &str) -> String {
    format!("CLIENT_ERROR {what} is not allowed on this listener\r\n")
}

/// A proxy of one server with a listener for everything, and one for reads.
fn reading(servers: Vec<Server>, change: impl FnOnce(&mut Config)) -> Proxy {
    Proxy::before(servers, |config| {
        config.loops = 1;
        config.listen.push(only("127.0.0.2", &[CommandGroup::Read]));
        change(config);
    })
}

#[test]
fn a_listener_for_reads_refuses_everything_else_with_one_error() {
    let proxy = reading(servers(1), |_| ());
    let mut writer = proxy.client();
    writer.ask("set k 7 0 1\r\nx\r\nset n 0 0 1\r\n5\r\n", "STORED\r\nSTORED\r\n");
    let mut reader = Client::connect(address(proxy.running.as_ref().unwrap(), 1));
    reader.ask("get k\r\nmg k v q\r\nmn\r\n", "VALUE k 7 1\r\nx\r\nEND\r\nVA 1\r\nx\r\nMN\r\n");
    for (requests, what) in [
        ("set k 0 0 3\r\nnew\r\n", "set"),
        ("add other 0 0 3\r\nnew\r\n", "add"),
        ("cas k 0 0 3 9\r\nnew\r\n", "cas"),
        ("append k 0 0 0\r\n\r\n", "append"),
        ("ms k 3 q\r\nnew\r\n", "ms"),
        ("incr n 1\r\n", "incr"),
        ("ma n q\r\n", "ma"),
        ("delete k\r\n", "delete"),
        ("md k q\r\n", "md"),
        ("touch k 1\r\n", "touch"),
        ("gat 1 k\r\n", "gat"),
        ("mg k T1 v\r\n", "mg with these flags"),
        ("mg fresh N1 v q\r\n", "mg with these flags"),
        ("flush_all\r\n", "flush_all"),
        ("stats\r\n", "stats"),
    ] {
        reader.ask(format!("{requests}mn\r\n"), refused(what) + "MN\r\n");
    }
    // Every client may use what concerns no key.
    reader.ask("verbosity 1\r\n", "OK\r\n");
    reader.send("version\r\n");
    assert!(reader.line().starts_with("VERSION "));
    writer.ask("get k n\r\nmg fresh v\r\n", "VALUE k 7 1\r\nx\r\nVALUE n 0 1\r\n5\r\nEND\r\nEN\r\n");
    reader.ask("quit\r\n", "");
    reader.expect_closed();
}

#[test]
fn the_value_of_a_refused_command_is_dropped_however_it_arrives() {
    let proxy = reading(servers(1), |config| config.value_bytes = 300_000);
    let mut writer = proxy.client();
    writer.ask("set k 0 0 1\r\nx\r\nset v 0 0 1\r\nx\r\n", "STORED\r\nSTORED\r\n");
    let mut reader = Client::connect(address(proxy.running.as_ref().unwrap(), 1));
    let trap = "delete k\r\nflush_all\r\nset k 0 0 1\r\ny\r\n";
    for bytes in [trap.len(), 3000, 100_000, 300_000, 300_001, 5_000_000] {
        let value = trap.repeat(bytes / trap.len() + 1)[..bytes].to_string();
        // A value that is too large would be deleted if the listener allowed the command.
        for (line, name) in [(format!("set k 0 0 {bytes}"), "set"), (format!("ms k {bytes} q"), "ms")] {
            reader.ask(format!("{line}\r\n{value}\r\nget k\r\n"), refused(name) + "VALUE k 0 1\r\nx\r\nEND\r\n");
        }
        reader.ask(format!("set k 0 0 {bytes} noreply\r\n{value}\r\nget k\r\n"), "VALUE k 0 1\r\nx\r\nEND\r\n");
    }
    reader.trickle(format!("set k 0 0 {}\r\n{trap}\r\nget v\r\n", trap.len()));
    reader.expect(refused("set") + "VALUE v 0 1\r\nx\r\nEND\r\n");
    // The error arrives before the value, which the proxy does not hold.
    reader.send("set k 0 0 200000\r\n");
    reader.send("y".repeat(4000));
    reader.expect(refused("set"));
    reader.send("y".repeat(196_000) + "\r\nget v\r\n");
    reader.expect("VALUE v 0 1\r\nx\r\nEND\r\n");
    writer.ask("get k v\r\n", "VALUE k 0 1\r\nx\r\nVALUE v 0 1\r\nx\r\nEND\r\n");
}

#[test]
fn refused_commands_without_a_reply_have_none_and_errors_of_others_stay() {
    let proxy = reading(servers(1), |_| ());
    let mut reader = Client::connect(address(proxy.running.as_ref().unwrap(), 1));
    reader.ask(
        "set k 0 0 1 noreply\r\nx\r\ndelete k noreply\r\nincr k 1 noreply\r\nflush_all noreply\r\nmn\r\n",
        "MN\r\n",
    );
    // An invalid request has the usual error, and its value is dropped, too.
    let bad = "CLIENT_ERROR bad command line format\r\n";
    reader.ask(format!("set {} 0 0 1\r\nx\r\nmn\r\n", "k".repeat(251)), format!("{bad}MN\r\n"));
    reader.ask("bogus\r\nget\r\n", "ERROR\r\nERROR\r\n");
    // Errors are in the order of the requests.
    let server = GatedServer::start();
    let slow = Proxy::at(&[server.address()], |config| {
        config.loops = 1;
        config.listen = vec![only("127.0.0.1", &[CommandGroup::Read])];
    });
    let mut client = slow.client();
    client.send("get a\r\ndelete a\r\nget b\r\n");
    server.answer("get a", "END\r\n");
    server.answer("get b", "END\r\n");
    client.expect(format!("END\r\n{}END\r\n", refused("delete")));
    assert_eq!(server.received(2).into_iter().map(|(_, line)| line).collect::<Vec<_>>(), ["get a", "get b"]);
}

/// A long line is taken in parts, none of which must be sent.
#[test]
fn a_long_line_of_a_refused_command_is_dropped_as_a_whole() {
    let proxy = Proxy::before(servers(1), |config| {
        config.loops = 1;
        config.listen.push(all_but("127.0.0.2", &[CommandGroup::Read]));
        config.listen.push(all_but("127.0.0.3", &[CommandGroup::Touch]));
        config.metrics = Some("127.0.0.1:0".into());
    });
    let running = proxy.running.as_ref().unwrap();
    let (mut blind, mut reader) = (Client::connect(address(running, 1)), Client::connect(address(running, 2)));
    proxy.client().ask("set k 0 0 1\r\nx\r\n", "STORED\r\n");
    for keys in [1, 2, 200, 3000] {
        let line = " k".repeat(keys);
        blind.ask(format!("get{line}\r\nmn\r\n"), refused("get") + "MN\r\n");
        reader.ask(format!("get{line}\r\nmn\r\n"), "VALUE k 0 1\r\nx\r\n".repeat(keys) + "END\r\nMN\r\n");
    }
    blind.trickle(format!("gets{}\r\n", " k".repeat(1500)));
    blind.ask("mn\r\n", refused("gets") + "MN\r\n");
    let line = " k".repeat(500);
    reader.ask(format!("gat 5{line}\r\ngats 5{line}\r\nmn\r\n"), refused("gat") + &refused("gats") + "MN\r\n");
    // It may write, but not read and touch in one request.
    blind.ask("gat 5 k\r\ntouch k 0\r\nmg k v\r\nset k 0 0 1\r\ny\r\n", {
        refused("gat") + "TOUCHED\r\n" + &refused("mg") + "STORED\r\n"
    });
    let metrics = proxy.metrics();
    assert!(metrics.contains("\nwaystage_commands_refused_total 9\n"), "{metrics}");
    assert!(metrics.contains("waystage_requests_total{operation=\"get\",outcome=\"client_error\"} 4\n"), "{metrics}");
    assert!(proxy.stats().contains("STAT waystage_commands_refused 9\r\n"));
}

/// The listeners of pools and those of the proxy each have commands of their own, also for clients that move with a reload.
#[test]
fn a_client_that_moves_may_use_what_its_listener_allows_then() {
    let servers = servers(2);
    let names: Vec<String> = servers.iter().map(|server| server.address().to_string()).collect();
    let config = |own: ListenerConfig, of_pool: ListenerConfig| {
        let mut config = Config::new("127.0.0.1:0", &names[..1]);
        config.loops = 1;
        config.listen.push(own);
        config.pools.push(PoolConfig { listen: vec![of_pool], ..PoolConfig::new("other", &names[1..]) });
        config
    };
    let flush = [CommandGroup::Flush];
    let [own, of_pool] = ["127.0.0.2", "127.0.0.3"];
    let open = |host: &str| ListenerConfig::new(&format!("{host}:0"));
    let mut running = start(config(all_but(own, &flush), open(of_pool)), Clock::monotonic()).unwrap();
    let mut clients = [0, 1, 2].map(|index| Client::connect(address(&running, index)));
    let mut check = |expected: [&str; 3]| {
        for (client, expected) in clients.iter_mut().zip(expected) {
            let refused = refused(expected);
            client.ask("flush_all\r\n", if expected.is_empty() { "OK\r\n" } else { refused.as_str() });
        }
    };
    check(["", "flush_all", ""]);
    let mut reload = |own: ListenerConfig, of_pool: ListenerConfig| {
        let mut old = running.reload(config(own, of_pool)).map(|new| std::mem::replace(&mut running, new)).unwrap();
        old.wait_for_clients(|| false);
        assert_eq!(old.stop().unwrap().lost, 0);
    };
    reload(open(own), all_but(of_pool, &flush));
    check(["", "", "flush_all"]);
    reload(only(own, &[CommandGroup::Read]), open(of_pool));
    check(["", "flush_all", ""]);
    // The address is gone, and with it its clients.
    reload(open("127.0.0.4"), open(of_pool));
    let [first, second, third] = &mut clients;
    second.expect_closed();
    [first, third].into_iter().for_each(|client| client.ask("flush_all\r\n", "OK\r\n"));
    assert_eq!(running.stop().unwrap().lost, 0);
}

/// What counts is the address at which the kernel listens, and not how it is written.
#[test]
fn a_client_stays_with_its_address_however_it_is_written() {
    let servers = servers(1);
    let config = |listener: ListenerConfig| {
        let mut config = Config::new("", &[servers[0].address().to_string()]);
        (config.loops, config.listen) = (1, vec![listener]);
        config
    };
    let mut running = start(config("127.0.0.1:0".into()), Clock::monotonic()).unwrap();
    let port = address(&running, 0).port();
    let mut client = Client::connect(address(&running, 0));
    client.ask("flush_all\r\n", "OK\r\n");
    for (host, is_allowed) in [("localhost", false), ("127.0.0.1", true), ("127.0.0.1", false), ("localhost", true)] {
        let listener = ListenerConfig::new(&format!("{host}:{port}"));
        let deny = (!is_allowed).then(|| vec![CommandGroup::Flush]);
        let new = running.reload(config(ListenerConfig { deny, ..listener })).unwrap();
        let mut old = std::mem::replace(&mut running, new);
        old.wait_for_clients(|| false);
        client.ask("flush_all\r\n", if is_allowed { "OK\r\n".into() } else { refused("flush_all") });
        assert_eq!(old.stop().unwrap().lost, 0);
    }
    assert_eq!(running.stop().unwrap().lost, 0);
}

/// Requests that the proxy has read are answered before the client of a listener that is gone is closed.
#[test]
fn a_client_whose_listener_is_removed_receives_its_replies() {
    let gated = GatedServer::start();
    let config = |hosts: &[&str]| {
        let mut config = Config::new("", &[gated.address().to_string()]);
        config.loops = 1;
        config.listen = hosts.iter().map(|host| format!("{host}:0").into()).collect();
        config.pools[0].timeouts = Timeouts::all(Duration::from_secs(20));
        config
    };
    let mut running = start(config(&["127.0.0.1", "127.0.0.2"]), Clock::monotonic()).unwrap();
    let mut client = Client::connect(address(&running, 1));
    let mut idle = Client::connect(address(&running, 1));
    client.send("get k\r\n".repeat(100));
    until("requests are in flight", || gated.received_so_far() >= 32);
    std::thread::sleep(Duration::from_millis(100));
    let mut old = running.reload(config(&["127.0.0.1"])).map(|new| std::mem::replace(&mut running, new)).unwrap();
    idle.expect_closed();
    (0..100).for_each(|_| gated.answer("get k", "END\r\n"));
    client.expect("END\r\n".repeat(100));
    client.expect_closed();
    old.wait_for_clients(|| false);
    assert_eq!((old.stop().unwrap().lost, running.stop().unwrap().lost), (0, 0));
}

/// The client of a listener that may not write sends a value when the configuration is reloaded.
#[test]
fn a_refused_value_is_dropped_to_its_end_after_a_reload() {
    let servers = servers(1);
    let config = || {
        let mut config = Config::new("127.0.0.1:0", &[servers[0].address().to_string()]);
        (config.loops, config.listen) = (1, vec![only("127.0.0.1", &[CommandGroup::Read])]);
        config
    };
    let mut running = start(config(), Clock::monotonic()).unwrap();
    let mut client = Client::connect(address(&running, 0));
    client.send("set k 0 0 500000\r\n".to_string() + &"y".repeat(100_000));
    client.expect(refused("set"));
    let mut old = running.reload(config()).map(|new| std::mem::replace(&mut running, new)).unwrap();
    client.send("y".repeat(400_000) + "\r\nget k\r\n");
    assert_eq!(client.line_within(Duration::from_secs(20)).as_deref(), Some("END\r\n"));
    old.wait_for_clients(|| false);
    client.ask("delete k\r\n", refused("delete"));
    assert_eq!((old.stop().unwrap().lost, running.stop().unwrap().lost), (0, 0));
}

#[test]
fn refused_commands_are_logged_together() {
    let lines = Arc::new(Mutex::new(Vec::<Value>::new()));
    let writer = lines.clone();
    let proxy = reading(servers(1), |config| {
        config.log.format = LogFormat::Json;
        config.log.output = LogOutput::new(move |line| {
            writer.lock().unwrap().push(serde_json::from_slice(line).expect("each line is JSON"));
            Ok(())
        });
    });
    let mut reader = Client::connect(address(proxy.running.as_ref().unwrap(), 1));
    reader.ask("delete k\r\n".repeat(50), refused("delete").repeat(50));
    let of_event = || {
        let lines = lines.lock().unwrap();
        lines.iter().filter(|line| line["event"] == "command_refused").cloned().collect::<Vec<Value>>()
    };
    until("a line is written", || !of_event().is_empty());
    proxy.stop();
    let found = of_event();
    assert_eq!(found.iter().map(|line| line["count"].as_u64().unwrap()).sum::<u64>(), 50, "{found:?}");
    assert!(found.len() <= 2 && found[0]["level"] == "warn", "{found:?}");
}
