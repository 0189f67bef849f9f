//! Pools that have servers in common, however their addresses are written (docs/consistency.md).

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use clock::Clock;
use common::{Proxy, name_servers, servers};
use proxy::{Config, FailoverPool, Lookup, PoolConfig, Router, Shadow, WarmUp, Writes, start};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use testkit::{GatedServer, Server};

/// Resolves every name to the address of this machine.
fn to_loopback(config: &mut Config) {
    config.transport.lookup = Lookup::new(|host_port| Ok(vec![(Ipv4Addr::LOCALHOST, host_port.port()).into()]));
}

#[test]
fn a_server_that_both_pools_use_is_recognised_however_its_address_is_written() {
    let servers = servers(2);
    let addresses: Vec<SocketAddr> = servers.iter().map(Server::address).collect();
    let proxy = Proxy::at(&addresses, |config| {
        to_loopback(config);
        config.pools[0].warm_up = Some(WarmUp { from: "before".into(), expiry: Duration::from_secs(100) });
        config.pools.push(PoolConfig::new("before", &[format!("localhost:{}", addresses[0].port())]));
    });
    let mut client = proxy.client();
    for number in 0..60 {
        client.ask(format!("set k{number} 0 0 1\r\n1\r\n"), "STORED\r\n");
        client.ask(format!("get k{number}\r\n"), format!("VALUE k{number} 0 1\r\n1\r\nEND\r\n"));
    }
}

#[test]
fn a_failover_or_shadow_pool_with_a_server_of_the_pool_is_refused_however_its_address_is_written() {
    let config = |change: &dyn Fn(&mut PoolConfig)| {
        let mut config = Config::new("127.0.0.1:0", &["127.0.0.1:11211".into()]);
        to_loopback(&mut config);
        config.pools.push(PoolConfig::new("other", &["cache.test:11211".into()]));
        change(&mut config.pools[0]);
        config
    };
    let failover = |pool: &mut PoolConfig| {
        pool.failover_pool = Some(FailoverPool { pool: "other".into(), expiry: Duration::from_secs(9) });
    };
    let shadow = |pool: &mut PoolConfig| {
        pool.shadow = Some(Shadow { to: "other".into(), share: 1.0, reads: false });
    };
    let of_both = "cache.test:11211 is a server of both pools; give this one servers of its own";
    for (config, key) in [(config(&failover), "failover-pool.pool"), (config(&shadow), "shadow.to")] {
        config.check().unwrap();
        let error = start(config, Clock::monotonic()).map(|_| ()).unwrap_err().to_string();
        assert_eq!(error, format!("{key} = \"other\": {of_both}"));
    }
}

#[test]
fn a_server_that_is_twice_in_a_pool_is_refused_with_replicas_and_a_warning_without() {
    let backends = servers(1);
    let port = backends[0].address().port();
    let config = |replicas: usize| {
        let mut config = Config::new("127.0.0.1:0", &[format!("127.0.0.1:{port}"), format!("localhost:{port}")]);
        to_loopback(&mut config);
        config.pools[0].replicas = replicas;
        config.check().unwrap();
        config
    };
    let same = format!("the same server as 127.0.0.1:{port}");
    let error = start(config(2), Clock::monotonic()).map(|_| ()).unwrap_err().to_string();
    let expected =
        format!("servers = \"localhost:{port}\": this is {same}, so replicas of a key would be on one server");
    assert!(error.starts_with(&expected), "{error}");
    let mut running = start(config(1), Clock::monotonic()).unwrap();
    assert_eq!(running.warnings, [format!("pool default: localhost:{port} is {same}, and has the keys of both")]);
    // A reload makes the same check, and the proxy then serves as before.
    assert!(running.reload(config(2)).map(|_| ()).unwrap_err().to_string().contains(&same));
    running.stop().unwrap();
}

#[test]
fn a_replica_that_a_late_write_has_not_reached_is_no_warm_up_source() {
    let [first, second] = [GatedServer::start(), GatedServer::start()];
    let proxy = Proxy::at(&[first.address(), second.address()], |config| {
        config.loops = 1;
        name_servers(config);
        (config.pools[0].replicas, config.pools[0].writes) = (2, Writes::First);
        config.pools[0].warm_up = Some(WarmUp { from: "before".into(), expiry: Duration::from_secs(100) });
        config.pools.push(PoolConfig::new("before", &[second.address().to_string()]));
    });
    let mut names = Config::new("", &["server0".into(), "server1".into()]);
    name_servers(&mut names);
    let router = Router::new(&names);
    let key = (0..).map(|number| format!("k{number}")).find(|key| router.primary(key.as_bytes()) == 0).unwrap();
    let mut client = proxy.client();
    let set = format!("set {key} 0 0 1");
    first.answer(&set, "STORED\r\n");
    client.ask(format!("{set}\r\nx\r\n"), "STORED\r\n");
    // The primary evicts the new value, and the write has not reached the other replica. Its connection for the warm-up pool
    // would return the old value.
    let get = format!("get {key}");
    first.answer(&get, "END\r\n");
    second.answer(&get, &format!("VALUE {key} 0 3\r\nold\r\nEND\r\n"));
    client.ask(format!("{get}\r\n"), "END\r\n");
    second.answer(&set, "STORED\r\n");
}
