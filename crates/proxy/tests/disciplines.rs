//! The disciplines as servers see them: slots, queues, their order and their limits.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod common;

use clock::Clock;
use common::{Proxy, disciplines};
use proxy::{Config, Discipline, MultiGet, PoolConfig, Router, Shadow, Timeouts};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use testkit::{Client, GatedServer, Scripted, Server};

fn per_backend(readers: usize) -> Discipline {
    Discipline::PerBackend { readers, writers: 1, fault_write_poll: None }
}

fn shared(workers: usize) -> Discipline {
    Discipline::Shared { workers, multi_get: MultiGet::ByKey, fault_write_hold: None }
}

/// A proxy with one loop, in front of servers whose replies the test sends.
fn proxy(servers: &[&GatedServer], discipline: Discipline, change: impl FnOnce(&mut Config)) -> Proxy {
    let addresses: Vec<_> = servers.iter().map(|server| server.address()).collect();
    Proxy::at(&addresses, |config| {
        (config.loops, config.discipline) = (1, discipline);
        config.pools[0].timeouts = Timeouts::all(Duration::from_secs(5));
        change(config);
    })
}

#[test]
fn a_polling_writer_sends_one_write_and_the_next_one_after_a_reply() {
    let server = GatedServer::start();
    // So long that only replies can end a poll.
    let hour = Some(Duration::from_secs(3600));
    let discipline = Discipline::PerBackend { readers: 1, writers: 1, fault_write_poll: hour };
    let proxy = proxy(&[&server], discipline, |_| ());
    let mut clients: Vec<Client> = (0..3).map(|_| proxy.client()).collect();
    clients[0].send("set a 0 0 1\r\nx\r\n");
    assert_eq!(lines(server.received(1)), ["set a 0 0 1"], "the first poll begins with the first write");
    clients[1].send("set b 0 0 1\r\nx\r\n");
    // A read overtakes the write that waits, so the write has arrived at the proxy and was not sent.
    clients[2].send("get c\r\n");
    assert_eq!(lines(server.received(2))[1], "get c");
    server.answer("get c", "END\r\n");
    clients[2].expect("END\r\n");
    server.answer("set a 0 0 1", "STORED\r\n");
    clients[0].expect("STORED\r\n");
    assert_eq!(lines(server.received(3))[2], "set b 0 0 1");
    server.answer("set b 0 0 1", "STORED\r\n");
    clients[1].expect("STORED\r\n");
}

#[test]
fn a_polling_writer_sends_to_all_replicas_when_its_poll_is_over() {
    let servers = [Server::start(), Server::start()];
    let addresses: Vec<_> = servers.iter().map(Server::address).collect();
    let proxy = Proxy::at(&addresses, |config| {
        let interval = Some(Duration::from_millis(5));
        (config.loops, config.discipline) =
            (1, Discipline::PerBackend { readers: 2, writers: 1, fault_write_poll: interval });
        config.pools[0].replicas = 2;
    });
    let mut client = proxy.client();
    for key in 0..20 {
        client.send(format!("set k{key} 0 0 1\r\nx\r\n"));
        client.expect("STORED\r\n");
        client.send(format!("get k{key}\r\n"));
        client.expect(format!("VALUE k{key} 0 1\r\nx\r\nEND\r\n"));
    }
    client.send((0..20).map(|key| format!("delete k{key}\r\n")).collect::<String>());
    client.expect("DELETED\r\n".repeat(20));
}

#[test]
fn a_write_holds_its_worker_after_its_reply_and_a_read_does_not() {
    let server = GatedServer::start();
    let hold = Duration::from_millis(300);
    let discipline = Discipline::Shared { workers: 1, multi_get: MultiGet::ByKey, fault_write_hold: Some(hold) };
    let proxy = proxy(&[&server], discipline, |_| ());
    let mut client = proxy.client();
    let mut received = 0;
    for round in 0..2 {
        for key in ["a", "b"] {
            client.send(format!("get {key}{round}\r\n"));
            received += 1;
            server.received(received);
            server.answer(&format!("get {key}{round}"), "END\r\n");
            client.expect("END\r\n");
        }
        let clock = Clock::monotonic();
        let start = clock.now();
        client.send(format!("set c{round} 0 0 1\r\nx\r\n"));
        received += 1;
        server.received(received);
        server.answer(&format!("set c{round} 0 0 1"), "STORED\r\n");
        client.expect("STORED\r\n");
        client.send(format!("get d{round}\r\n"));
        received += 1;
        server.received(received);
        assert!(clock.now().after(start) >= hold, "the worker was held");
        server.answer(&format!("get d{round}"), "END\r\n");
        client.expect("END\r\n");
    }
}

#[test]
fn held_workers_send_to_all_replicas_in_order() {
    let servers = [Server::start(), Server::start()];
    let addresses: Vec<_> = servers.iter().map(Server::address).collect();
    let proxy = Proxy::at(&addresses, |config| {
        let fault_write_hold = Some(Duration::from_millis(5));
        (config.loops, config.discipline) =
            (1, Discipline::Shared { workers: 2, multi_get: MultiGet::ByKey, fault_write_hold });
        config.pools[0].replicas = 2;
    });
    let mut client = proxy.client();
    for key in 0..20 {
        client.send(format!("set k{key} 0 0 1\r\nx\r\n"));
        client.expect("STORED\r\n");
        client.send(format!("get k{key}\r\n"));
        client.expect(format!("VALUE k{key} 0 1\r\nx\r\nEND\r\n"));
    }
    client.send((0..20).map(|key| format!("delete k{key}\r\n")).collect::<String>());
    client.expect("DELETED\r\n".repeat(20));
}

/// A `get` for each of these keys, in one burst.
fn gets(keys: std::ops::Range<usize>) -> String {
    keys.map(|key| format!("get k{key}\r\n")).collect()
}

fn lines(received: Vec<(usize, String)>) -> Vec<String> {
    received.into_iter().map(|(_, line)| line).collect()
}

#[test]
fn at_most_one_read_per_slot_is_in_flight_and_the_others_follow_in_order() {
    for discipline in [per_backend(2), shared(2)] {
        let server = GatedServer::start();
        let proxy = proxy(&[&server], discipline, |_| ());
        let mut client = proxy.client();
        client.send(gets(0..6));
        let received = server.received(2);
        assert_ne!(received[0].0, received[1].0, "each slot has its own connection");
        let mut first = lines(received);
        first.sort();
        assert_eq!(first, ["get k0", "get k1"]);
        // The slot that becomes free first serves the oldest request.
        for (answered, next) in [(1, 2), (2, 3), (0, 4), (3, 5)] {
            server.answer(&format!("get k{answered}"), "END\r\n");
            assert_eq!(lines(server.received(next + 1))[next], format!("get k{next}"));
        }
        (4..6).for_each(|key| server.answer(&format!("get k{key}"), "END\r\n"));
        client.expect("END\r\n".repeat(6));
    }
}

#[test]
fn writes_of_per_backend_wait_for_no_slot_and_are_many_in_flight_on_one_connection() {
    let server = GatedServer::start();
    let proxy = proxy(&[&server], per_backend(1), |_| ());
    let mut reader = proxy.client();
    reader.send("get a\r\n");
    server.received(1);
    let mut writer = proxy.client();
    writer.send("set a 0 0 1\r\nx\r\nset b 0 0 1\r\nx\r\n");
    proxy.client().send("set c 0 0 1\r\nx\r\n");
    let received = server.received(4);
    assert!(received[1..].iter().all(|(connection, line)| *connection == received[1].0 && line.starts_with("set")));
    ["set a 0 0 1", "set b 0 0 1", "set c 0 0 1"].iter().for_each(|line| server.answer(line, "STORED\r\n"));
    writer.expect("STORED\r\nSTORED\r\n");
    server.answer("get a", "END\r\n");
    reader.expect("END\r\n");
}

#[test]
fn a_replica_that_receives_a_delete_after_waiting_may_answer_only_that() {
    for (command, reply, primary_receives, replica_receives) in
        [("ma k v", "VA 1\r\n2\r\n", "ma k v", "md k"), ("incr k 1", "2\r\n", "incr k 1", "delete k")]
    {
        for is_right in [true, false] {
            let (first, second) = (GatedServer::start(), GatedServer::start());
            let proxy = proxy(&[&first, &second], shared(1), |config| config.pools[0].replicas = 2);
            let names = [&first, &second].map(|server| server.address().to_string());
            let primary = Router::new(&Config::new("", &names)).primary(b"k");
            let [primary, replica] = if primary == 0 { [&first, &second] } else { [&second, &first] };
            let (mut other, mut client) = (proxy.client(), proxy.client());
            other.send("get k\r\n");
            primary.received(1);
            client.send(format!("{command}\r\n"));
            replica.received(0);
            primary.answer("get k", "END\r\n");
            assert_eq!(primary.received(2)[1].1, primary_receives);
            replica.received(0);
            primary.answer(primary_receives, reply);
            assert_eq!(replica.received(1)[0].1, replica_receives);
            let deleted = if replica_receives == "md k" { "HD\r\n" } else { "DELETED\r\n" };
            replica.answer(replica_receives, if is_right { deleted } else { reply });
            let lost = format!("SERVER_ERROR backend {} lost the connection\r\n", replica.address());
            client.expect(if is_right { reply } else { &lost });
            other.expect("END\r\n");
        }
    }
}

#[test]
fn beyond_its_bound_a_queue_refuses_at_once_and_counts_it() {
    for (discipline, subject) in [(per_backend(1), "backend"), (shared(1), "the proxy")] {
        let server = GatedServer::start();
        let proxy = proxy(&[&server], discipline, |config| {
            (config.queue, config.metrics) = (3, Some("127.0.0.1:0".into()));
        });
        let mut client = proxy.client();
        client.send(gets(0..4));
        server.received(1);
        // Another client, whose reply does not wait for that of the first.
        let mut late = proxy.client();
        late.send("get late\r\nget later\r\n");
        for _ in 0..2 {
            let line = late.line();
            assert!(
                line.starts_with(&format!("SERVER_ERROR {subject} ")) && line.ends_with("too much waiting\r\n"),
                "{line}"
            );
        }
        let metrics = proxy.metrics();
        for line in ["waystage_queue_length{", "waystage_slots_busy{", "waystage_queue_full_total{"] {
            let value = metrics.lines().find(|other| other.starts_with(line)).and_then(|line| line.split(' ').nth(1));
            let expected = if line.contains("length") {
                "3"
            } else if line.contains("busy") {
                "1"
            } else {
                "2"
            };
            assert_eq!(value, Some(expected), "{metrics}");
        }
        (0..4).for_each(|key| server.answer(&format!("get k{key}"), "END\r\n"));
        client.expect("END\r\n".repeat(4));
        assert_eq!(server.received(4).len(), 4, "what was refused was never sent");
    }
}

#[test]
fn a_shared_slot_is_busy_until_the_last_replica_has_answered() {
    let servers = [GatedServer::start(), GatedServer::start(), GatedServer::start()];
    let proxy = proxy(&servers.each_ref(), shared(1), |config| config.pools[0].replicas = 3);
    let mut writer = proxy.client();
    writer.send("set a 0 0 1\r\nx\r\n");
    servers.iter().for_each(|server| _ = server.received(1));
    let mut other = proxy.client();
    other.send("set b 0 0 1\r\nx\r\n");
    for server in &servers[..2] {
        server.answer("set a 0 0 1", "STORED\r\n");
        assert_eq!(lines(server.received(1)), ["set a 0 0 1"], "the slot is not free yet");
    }
    servers[2].answer("set a 0 0 1", "STORED\r\n");
    writer.expect("STORED\r\n");
    for server in &servers {
        assert_eq!(lines(server.received(2))[1], "set b 0 0 1");
        server.answer("set b 0 0 1", "STORED\r\n");
    }
    other.expect("STORED\r\n");
}

#[test]
fn a_sharded_multi_get_is_split_into_even_contiguous_parts_and_joined_in_key_order() {
    let servers = [GatedServer::start(), GatedServer::start(), GatedServer::start()];
    let sharded = Discipline::Shared { workers: 1, multi_get: MultiGet::Sharded, fault_write_hold: None };
    let proxy = proxy(&servers.each_ref(), sharded, |config| config.pools[0].replicas = 3);
    let mut client = proxy.client();
    client.send("get k0 k1 k2 k3 k4 k5 k6\r\n");
    let mut parts: Vec<(String, usize)> =
        servers.iter().enumerate().map(|(index, server)| (lines(server.received(1)).remove(0), index)).collect();
    parts.sort();
    assert_eq!(parts.iter().map(|(line, _)| line).collect::<Vec<_>>(), ["get k0 k1 k2", "get k3 k4", "get k5 k6"]);
    // The last part is answered first. k1 and k4 are misses.
    let value = |key: usize| format!("VALUE k{key} 0 1\r\n{key}\r\n");
    let replies = [vec![0, 2], vec![3], vec![5, 6]];
    for ((line, server), keys) in parts.iter().zip(&replies).rev() {
        servers[*server].answer(line, &(keys.iter().copied().map(value).collect::<String>() + "END\r\n"));
    }
    client.expect([0, 2, 3, 5, 6].map(value).concat() + "END\r\n");
}

#[test]
fn a_whole_multi_get_goes_to_the_first_keys_server() {
    let servers = [GatedServer::start(), GatedServer::start(), GatedServer::start()];
    let whole = Discipline::Shared { workers: 1, multi_get: MultiGet::Whole, fault_write_hold: None };
    let proxy = proxy(&servers.each_ref(), whole, |config| config.pools[0].replicas = 3);
    let names: Vec<String> = servers.iter().map(|server| server.address().to_string()).collect();
    let router = Router::new(&Config::new("", &names));
    let mut client = proxy.client();
    for key in 0..5 {
        let line = format!("get k{key} a b c d e");
        client.send(format!("{line}\r\n"));
        let server = &servers[usize::from(router.primary(format!("k{key}").as_bytes()))];
        server.answer(&line, "VALUE c 0 1\r\nx\r\nEND\r\n");
        client.expect("VALUE c 0 1\r\nx\r\nEND\r\n");
    }
}

#[test]
fn a_stalled_server_occupies_shared_slots_and_other_requests_use_the_rest() {
    let (stalled, other) = (GatedServer::start(), Server::start());
    let names = [stalled.address().to_string(), other.address().to_string()];
    let router = Router::new(&Config::new("", &names));
    let keys =
        |server: u16| (0..).map(|key| format!("k{key}")).filter(move |key| router.primary(key.as_bytes()) == server);
    let (slow, quick): (Vec<String>, Vec<String>) = (keys.clone()(0).take(3).collect(), keys(1).take(3).collect());
    let proxy = Proxy::at(&[stalled.address(), other.address()], |config| {
        (config.loops, config.discipline) = (1, shared(3));
        config.pools[0].timeouts = Timeouts::all(Duration::from_secs(5));
    });
    let ask = |key: &String| {
        let mut client = proxy.client();
        client.send(format!("get {key}\r\n"));
        client
    };
    let mut waiting: Vec<Client> = slow[..2].iter().map(ask).collect();
    stalled.received(2);
    for key in &quick {
        ask(key).expect("END\r\n");
    }
    waiting.push(ask(&slow[2]));
    stalled.received(3);
    let mut blocked = ask(&quick[0]);
    assert_eq!(blocked.drain(Duration::from_millis(100)), 0, "every slot is busy");
    stalled.answer(&format!("get {}", slow[1]), "END\r\n");
    blocked.expect("END\r\n");
    for key in [&slow[0], &slow[2]] {
        stalled.answer(&format!("get {key}"), "END\r\n");
    }
    waiting.iter_mut().for_each(|client| client.expect("END\r\n"));
}

#[test]
fn a_disconnected_slot_takes_no_request_that_another_slot_can_serve() {
    for discipline in [per_backend(2), shared(2)] {
        let server = GatedServer::start();
        let proxy =
            proxy(&[&server], discipline, |config| config.pools[0].timeouts = Timeouts::all(Duration::from_secs(4)));
        let [mut lost, mut other, mut next] = [proxy.client(), proxy.client(), proxy.client()];
        lost.send("get lost\r\n");
        server.received(1);
        // The others time out so much later that a busy machine answers them before.
        std::thread::sleep(Duration::from_secs(2));
        other.send("get other\r\n");
        next.send("get next\r\n");
        // The first slot is free again, but its connection is down. The second one is busy.
        assert!(lost.line().ends_with("timed out\r\n"));
        let mut third = proxy.client();
        third.send("get third\r\n");
        ["other", "next", "third"].iter().for_each(|key| server.answer(&format!("get {key}"), "END\r\n"));
        for client in [&mut other, &mut next, &mut third] {
            client.expect("END\r\n");
        }
    }
}

#[test]
fn requests_queued_for_a_server_that_dies_fail_at_once() {
    // Each connection reads one request and closes a little later. There is only one connection.
    for discipline in [per_backend(1), shared(1)] {
        let server = Scripted::start(|peer, number| {
            if number == 0 {
                peer.line();
                std::thread::sleep(Duration::from_millis(100));
            } else {
                peer.hang();
            }
        });
        let proxy = Proxy::at(&[server.address()], |config| (config.loops, config.discipline) = (1, discipline));
        let mut client = proxy.client();
        client.send(gets(0..3));
        let name = server.address();
        client.expect(format!("SERVER_ERROR backend {name} lost the connection\r\n"));
        client.expect(format!("SERVER_ERROR backend {name} is down\r\n").repeat(2));
    }
}

#[test]
fn queued_requests_are_answered_while_the_proxy_drains() {
    for discipline in disciplines(1, true) {
        let server = Scripted::start(|peer, _| {
            while let Some(line) = peer.line() {
                std::thread::sleep(Duration::from_millis(1));
                if line.starts_with("set") {
                    peer.line();
                }
                peer.send(if line.starts_with("set") { "STORED\r\n" } else { "END\r\n" });
            }
        });
        let proxy = Proxy::at(&[server.address()], |config| (config.loops, config.discipline) = (1, discipline));
        let mut client = proxy.client();
        // A request that arrived together with an answered one was read, too.
        client.send("version\r\n".to_string() + &(gets(0..9) + "set a 0 0 1\r\nx\r\n").repeat(10));
        assert!(client.line().starts_with("VERSION"));
        let ended = std::thread::spawn(move || proxy.stop());
        client.expect(("END\r\n".repeat(9) + "STORED\r\n").repeat(10));
        client.expect_closed();
        let totals = ended.join().unwrap();
        assert_eq!((totals.requests, totals.lost), (101, 0));
    }
}

#[test]
fn requests_queued_behind_a_silent_server_end_with_the_proxy() {
    for discipline in disciplines(1, true) {
        let server = Scripted::start(|peer, _| peer.hang());
        let proxy = Proxy::at(&[server.address()], |config| {
            (config.loops, config.discipline) = (1, discipline);
            config.pools[0].timeouts = Timeouts::all(Duration::from_millis(200));
        });
        let mut client = proxy.client();
        client.send("version\r\n".to_string() + &gets(0..50));
        assert!(client.line().starts_with("VERSION"));
        let totals = proxy.stop();
        assert_eq!((totals.requests, totals.lost), (51, 0));
        assert!(client.line().starts_with("SERVER_ERROR"));
    }
}

#[test]
fn a_slow_shadow_takes_nothing_from_the_clients() {
    for discipline in disciplines(4, false) {
        let main = Server::embedded();
        let is_over = Arc::new(AtomicBool::new(false));
        let may_answer = is_over.clone();
        // The shadow answers nothing until the clients have finished. A shadow that took slots would block them for ever.
        let slow = Scripted::start(move |peer, _| {
            while let Some(line) = peer.line() {
                while !may_answer.load(Ordering::SeqCst) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                let is_set = line.starts_with("set");
                if is_set {
                    peer.line();
                }
                peer.send(if is_set { "STORED\r\n" } else { "END\r\n" });
            }
        });
        let proxy = Proxy::at(&[main.address()], |config| {
            (config.loops, config.discipline) = (1, discipline);
            config.pools.push(PoolConfig::new("slow", &[slow.address().to_string()]));
            config.pools[0].shadow = Some(Shadow { to: "slow".into(), share: 1.0, reads: true });
            config.pools.iter_mut().for_each(|pool| pool.timeouts = Timeouts::all(Duration::from_secs(120)));
        });
        std::thread::scope(|scope| {
            for number in 0..4 {
                let mut client = proxy.client();
                scope.spawn(move || {
                    for _ in 0..50 {
                        client.ask(format!("set k{number} 0 0 1\r\nx\r\n"), "STORED\r\n");
                        client.ask(format!("get k{number}\r\n"), format!("VALUE k{number} 0 1\r\nx\r\nEND\r\n"));
                    }
                });
            }
        });
        is_over.store(true, Ordering::SeqCst);
    }
}

#[test]
fn background_requests_take_no_slot_of_shared() {
    let (main, silent) = (Server::embedded(), GatedServer::start());
    let proxy = Proxy::at(&[main.address()], |config| {
        (config.loops, config.discipline) = (1, shared(1));
        config.pools.push(PoolConfig::new("silent", &[silent.address().to_string()]));
        config.pools[0].shadow = Some(Shadow { to: "silent".into(), share: 1.0, reads: false });
        config.pools[1].timeouts = Timeouts::all(Duration::from_secs(5));
    });
    let mut client = proxy.client();
    for key in 0..20 {
        client.ask(format!("set k{key} 0 0 1\r\nx\r\n"), "STORED\r\n");
    }
    let received = silent.received(20);
    assert!(received.iter().all(|(connection, _)| *connection == received[0].0), "they share one connection");
    received.iter().for_each(|(_, line)| silent.answer(line, "STORED\r\n"));
}
