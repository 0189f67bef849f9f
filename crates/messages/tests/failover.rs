//! Tests two PostgreSQL servers with streaming replication: the primary is killed or silent during sends, and the standby is promoted.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use clock::Clock;
use common::relay::Relay;
use common::standby::Pair;
use common::{Client, Database, serve};
use messages::{Config, DispatchConfig, RunningService};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::Duration;

const SENDERS: usize = 4;
const SENDS: &str = "/v1/queues/q/messages";
/// Longer than necessary, because the machine may be busy.
const RECOVERY: Duration = Duration::from_secs(40);
/// Counts the service's processes whose commit waits for the standby.
const WAITING: &str =
    "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND application_name = 'waystage'";

/// Clients that send numbered messages until they are stopped.
struct Senders {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Vec<(u16, String)>>>,
}

impl Senders {
    fn start(address: SocketAddr) -> Senders {
        let is_over = Arc::new(AtomicBool::new(false));
        let send_all = move |sender: usize, is_over: Arc<AtomicBool>| {
            let mut client = Client::connect(address, &format!("s{sender}"));
            let mut sent = Vec::new();
            while !is_over.load(Ordering::SeqCst) {
                let body = format!("{sender}-{}", sent.len());
                let status = client.ask("POST", SENDS, &body).status;
                sent.push((status, body));
                if status != 201 {
                    sleep(Duration::from_millis(10));
                }
            }
            sent
        };
        let threads = (0..SENDERS).map(|sender| {
            let is_over = is_over.clone();
            spawn(move || send_all(sender, is_over))
        });
        Senders { threads: threads.collect(), is_over }
    }

    /// The bodies of all acknowledged sends.
    fn stop(self) -> BTreeSet<String> {
        self.is_over.store(true, Ordering::SeqCst);
        let all = self.threads.into_iter().flat_map(|thread| thread.join().unwrap());
        all.filter(|(status, _)| *status == 201).map(|(_, body)| body).collect()
    }
}

/// A service with the queue `q`, and a client of it.
fn serve_a_queue(config: &Config) -> (RunningService, Client) {
    let service = serve(config);
    let mut client = Client::connect(service.address(), "alice");
    assert_eq!(client.short("PUT", "/v1/queues/q").0, 201);
    (service, client)
}

fn send(client: &mut Client, body: &str) -> u16 {
    client.ask("POST", SENDS, body).status
}

fn send_with_key(client: &mut Client) -> (u16, String) {
    let reply = client.ask_with("POST", SENDS, "idempotency-key: k", "x");
    (reply.status, reply.text())
}

/// Pops everything. No message may occur twice.
fn pop_all(client: &mut Client) -> BTreeSet<String> {
    let mut popped = BTreeSet::new();
    loop {
        let (status, body) = client.short("POST", &format!("{SENDS}:pop"));
        if status != 200 {
            assert_eq!(status, 204, "{body}");
            return popped;
        }
        assert!(popped.insert(body.clone()), "{body} was popped twice");
    }
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) -> Duration {
    let clock = Clock::monotonic();
    let began = clock.now();
    while !is_so() {
        assert!(clock.now().after(began) < RECOVERY, "not in time: {what}");
        sleep(Duration::from_millis(20));
    }
    clock.now().after(began)
}

/// Sends until a send is acknowledged. Each has a body of its own, because sends that are in doubt may be stored as well.
fn sends_again(client: &mut Client) -> Duration {
    let mut bodies = (0..).map(|number| format!("after-{number}"));
    until("sends are acknowledged again", || bodies.next().is_some_and(|body| send(client, &body) == 201))
}

#[test]
fn no_acknowledged_message_is_lost_in_a_failover_with_synchronous_replication() {
    let Some(pair) = Pair::start() else { return };
    let mut pair = pair.synchronous();
    let (service, mut client) = serve_a_queue(&Config { database: pair.url(), ..pair.primary.config() });
    let senders = Senders::start(service.address());
    pair.primary.becomes_zero("SELECT (count(*) < 200)::int::bigint FROM message");
    pair.primary.server.kill();
    pair.promote();
    let pause = sends_again(&mut client);
    let ready = until("the service is ready", || client.short("GET", "/readyz").0 == 204);
    let acknowledged = senders.stop();
    let found = pop_all(&mut client);
    let lost = acknowledged.difference(&found).count();
    eprintln!(
        "synchronous: acknowledged {}, lost {lost}, sends {pause:?} after the promotion, ready {ready:?} later",
        acknowledged.len()
    );
    assert_eq!(lost, 0);
    service.stop().unwrap();
}

#[test]
fn a_failover_without_synchronous_replication_loses_only_what_the_standby_did_not_have() {
    let Some(mut pair) = Pair::start() else { return };
    let (service, mut client) = serve_a_queue(&Config { database: pair.url(), ..pair.primary.config() });
    let senders = Senders::start(service.address());
    pair.primary.becomes_zero("SELECT (count(*) < 200)::int::bigint FROM message");
    let replicated = senders.stop();
    pair.primary.becomes_zero("SELECT count(*) FROM pg_stat_replication WHERE replay_lsn < pg_current_wal_lsn()");
    // From here on, the standby receives nothing.
    pair.relay.silence();
    let lagging: BTreeSet<String> = (0..50).map(|number| format!("late-{number}")).collect();
    lagging.iter().for_each(|body| assert_eq!(send(&mut client, body), 201));
    // This makes the service read a low-water mark that is above all ids which the standby knows.
    for _ in 0..20 {
        assert_eq!(client.short("POST", &format!("{SENDS}:pop")).0, 200);
    }
    pair.primary.server.kill();
    pair.promote();
    sends_again(&mut client);
    let found = pop_all(&mut client);
    let lost = lagging.difference(&found).count();
    eprintln!("asynchronous: acknowledged {}, lost {lost}", replicated.len() + lagging.len());
    assert_eq!(replicated.difference(&found).count(), 0, "these were on the standby");
    assert_eq!(lost, lagging.len(), "these were not");
    assert!(found.iter().any(|body| body.starts_with("after")));
    service.stop().unwrap();
}

#[test]
fn a_primary_that_falls_silent_is_left_for_the_promoted_standby() {
    for dispatch in [DispatchConfig::Fused { lanes: 2 }, DispatchConfig::Pool { connections: 3 }] {
        let Some(pair) = Pair::start() else { return };
        let network = Relay::start(pair.primary.directory());
        let (host, port) = network.host_and_port();
        let standby = pair.standby.directory().display();
        let database = format!(
            "host='{host},{standby}' port={port},5432 user=waystage dbname=postgres target_session_attrs=read-write"
        );
        let (service, mut client) = serve_a_queue(&Config { database, dispatch, ..pair.primary.config() });
        assert_eq!(send(&mut client, "before"), 201);
        pair.primary.becomes_zero("SELECT count(*) FROM pg_stat_replication WHERE replay_lsn < pg_current_wal_lsn()");
        network.silence();
        pair.relay.silence();
        pair.promote();
        let pause = sends_again(&mut client);
        let ready = until("the service is ready", || client.short("GET", "/readyz").0 == 204);
        eprintln!("{dispatch:?}: silent primary: sends {pause:?} after the promotion, ready {ready:?} later");
        let found = pop_all(&mut client);
        assert!(found.contains("before") && found.iter().any(|body| body.starts_with("after")));
        service.stop().unwrap();
    }
}

#[test]
fn a_send_that_waits_for_the_standby_is_given_up_in_doubt_and_leaves_no_process() {
    let Some(pair) = Pair::start() else { return };
    let pair = pair.synchronous();
    let (service, mut client) = serve_a_queue(&Config { database: pair.url(), ..pair.primary.config() });
    pair.relay.silence();
    let clock = Clock::monotonic();
    let began = clock.now();
    let (status, text) = send_with_key(&mut client);
    eprintln!("a commit that waits for the standby: {status} after {:?}", clock.now().after(began));
    assert!(status == 503 && text.contains("in-doubt"), "{status} {text}");
    assert!(clock.now().after(began) < RECOVERY, "it took too long");
    let began = clock.now();
    pair.primary.becomes_zero(WAITING);
    assert!(clock.now().after(began) < RECOVERY, "the process is still there");
    let page = client.short("GET", "/metrics").1;
    assert!(page.contains("waystage_messages_replication_timeouts_total 1"), "{page}");
    pair.reconnect();
    until("sends are acknowledged again", || send_with_key(&mut client).0 == 201);
    assert_eq!(pop_all(&mut client).len(), 1, "the repeated send with its key is the same message");
    service.stop().unwrap();
}

/// No send can succeed, so a load balancer has to use another service, or an operator has to act.
#[test]
fn a_service_whose_commits_wait_for_the_standby_is_not_ready() {
    let Some(pair) = Pair::start() else { return };
    let pair = pair.synchronous();
    let replication_timeout = Duration::from_secs(1);
    let (service, mut client) =
        serve_a_queue(&Config { database: pair.url(), replication_timeout, ..pair.primary.config() });
    until("the service is ready", || client.short("GET", "/readyz").0 == 204);
    pair.relay.silence();
    assert_eq!(send(&mut client, "x"), 503);
    // The client can have the reply a moment before the lane is marked.
    until("the service is not ready", || {
        let (status, text) = client.short("GET", "/readyz");
        status == 503 && text.contains("a commit waited for a synchronous standby")
    });
    pair.reconnect();
    sends_again(&mut client);
    // Sooner than without the send, but a busy machine may be slow.
    until("the service is ready again", || client.short("GET", "/readyz").0 == 204);
    service.stop().unwrap();
}

/// The statement itself takes longer than the timeout. Only the wait of its commit counts.
#[test]
fn the_replication_timeout_begins_with_the_wait_of_the_commit() {
    const STATEMENT: Duration = Duration::from_secs(5);
    let Some(pair) = Pair::start() else { return };
    let pair = pair.synchronous();
    let replication_timeout = Duration::from_secs(3);
    let (service, mut client) =
        serve_a_queue(&Config { database: pair.url(), replication_timeout, ..pair.primary.config() });
    pair.primary.run(&format!(
        "CREATE FUNCTION pause() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN PERFORM pg_sleep({}); RETURN NEW; END$$;
         CREATE TRIGGER pause BEFORE INSERT ON message FOR EACH ROW EXECUTE FUNCTION pause()",
        STATEMENT.as_secs()
    ));
    pair.relay.silence();
    let clock = Clock::monotonic();
    let began = clock.now();
    assert_eq!(send(&mut client, "x"), 503);
    let waited = clock.now().after(began).saturating_sub(STATEMENT);
    eprintln!("replication-timeout {replication_timeout:?}: the commit was given up after {waited:?}");
    assert!((replication_timeout..RECOVERY).contains(&waited), "{waited:?}");
    let page = client.short("GET", "/metrics").1;
    assert!(page.contains("waystage_messages_replication_timeouts_total 1"), "{page}");
    service.stop().unwrap();
}

#[test]
fn a_send_whose_wait_for_the_standby_is_cancelled_is_not_acknowledged() {
    let Some(pair) = Pair::start() else { return };
    let pair = pair.synchronous();
    // The settings of a role do not matter.
    pair.primary.run("ALTER ROLE waystage SET client_min_messages = error");
    let (service, mut client) = serve_a_queue(&Config { database: pair.url(), ..pair.primary.config() });
    pair.relay.silence();
    let sending = spawn(move || client.short("POST", SENDS));
    until("the commit waits", || pair.primary.number(WAITING) > 0);
    pair.primary.run(&WAITING.replace("count(*)", "pg_cancel_backend(pid)"));
    let (status, text) = sending.join().unwrap();
    assert!(status == 503 && text.contains("in-doubt"), "{status} {text}");
    pair.reconnect();
    service.stop().unwrap();
}

#[test]
fn a_repeated_acknowledgement_waits_for_the_standby_as_well() {
    let Some(pair) = Pair::start() else { return };
    let pair = pair.synchronous();
    let replication_timeout = Duration::from_secs(3);
    let (service, mut client) =
        serve_a_queue(&Config { database: pair.url(), replication_timeout, ..pair.primary.config() });
    assert_eq!(send(&mut client, "x"), 201);
    let received = client.ask("POST", &format!("{SENDS}:receive"), "");
    let token = received.header("waystage-lease-token").unwrap().to_string();
    let acknowledge = format!("/v1/leases/{token}/acknowledge");
    pair.relay.silence();
    assert_eq!(client.short("POST", &acknowledge).0, 503, "the standby does not have it");
    pair.primary.becomes_zero("SELECT count(*) FROM invisible_message");
    assert_eq!(client.short("POST", &acknowledge).0, 503, "a failover would undo it");
    pair.reconnect();
    until("the acknowledgement is repeated", || client.short("POST", &acknowledge).0 == 204);
    service.stop().unwrap();
}

/// The first send is stored on the primary. Its repeat stores nothing, because the queue's expiry is now shorter than its delay.
#[test]
fn a_repeated_send_to_a_changed_queue_waits_for_the_standby_as_well() {
    let Some(pair) = Pair::start() else { return };
    let pair = pair.synchronous();
    let replication_timeout = Duration::from_secs(3);
    let (service, mut client) =
        serve_a_queue(&Config { database: pair.url(), replication_timeout, ..pair.primary.config() });
    let mut send_later = || client.ask_with("POST", &format!("{SENDS}?delay=1h"), "idempotency-key: k", "x").status;
    pair.relay.silence();
    assert_eq!(send_later(), 503, "the standby does not have it");
    pair.primary.becomes_zero("SELECT 1 - count(*) FROM idempotency_key");
    pair.primary.run("SET synchronous_commit = local; UPDATE queue SET expiry_ms = 1000");
    assert_eq!(send_later(), 503, "a failover would undo it");
    pair.reconnect();
    until("the send is repeated", || send_later() == 201);
    assert_eq!(pair.primary.number("SELECT count(*) FROM invisible_message"), 1);
    service.stop().unwrap();
}

#[test]
fn a_repeated_creation_of_a_queue_waits_for_the_standby_as_well() {
    let Some(pair) = Pair::start() else { return };
    let pair = pair.synchronous();
    let replication_timeout = Duration::from_secs(3);
    let service = serve(&Config { database: pair.url(), replication_timeout, ..pair.primary.config() });
    let mut client = Client::connect(service.address(), "alice");
    assert_eq!(client.short("GET", "/v1/queues").0, 200);
    pair.relay.silence();
    for settings in ["", "{\"lease\": \"1m\"}"] {
        let queue = format!("/v1/queues/q{}", settings.len());
        assert_eq!(client.ask("PUT", &queue, settings).status, 503, "the standby does not have it");
        pair.primary.becomes_zero(&format!("SELECT 1 - count(*) FROM queue WHERE name = 'q{}'", settings.len()));
        assert_eq!(client.ask("PUT", &queue, settings).status, 503, "a failover would undo it: {settings:?}");
    }
    pair.reconnect();
    until("the creation is repeated", || client.short("PUT", "/v1/queues/q0").0 == 204);
    service.stop().unwrap();
}

#[test]
fn a_repeated_deletion_of_a_queue_waits_for_the_standby_as_well() {
    let Some(pair) = Pair::start() else { return };
    let pair = pair.synchronous();
    let replication_timeout = Duration::from_secs(3);
    let (service, mut client) =
        serve_a_queue(&Config { database: pair.url(), replication_timeout, ..pair.primary.config() });
    pair.relay.silence();
    assert_eq!(client.short("DELETE", "/v1/queues/q").0, 503, "the standby does not have it");
    pair.primary.becomes_zero("SELECT count(*) FROM queue WHERE deleted_at IS NULL");
    assert_eq!(client.short("DELETE", "/v1/queues/q").0, 503, "a failover would undo it");
    pair.reconnect();
    until("the deletion is repeated", || client.short("DELETE", "/v1/queues/q").0 == 404);
    service.stop().unwrap();
}

#[test]
fn hosts_that_do_not_answer_or_are_read_only_are_passed_over() {
    let Some(database) = Database::start() else { return };
    let silent = Relay::start(database.directory());
    silent.silence();
    let (host, port) = silent.host_and_port();
    let good = database.directory().display();
    let hosts = format!("host='{host},{host},{good}' port={port},1,5432 user=waystage dbname=postgres");
    sends_are_acknowledged(&database, hosts);
    // Without target_session_attrs, a standby that comes first is passed over, too.
    let Some(pair) = Pair::start() else { return };
    let [primary, standby] = [&pair.primary, &pair.standby].map(|host| host.directory().display());
    sends_are_acknowledged(&pair.primary, format!("host='{standby},{primary}' user=waystage dbname=postgres"));
}

fn sends_are_acknowledged(database: &Database, hosts: String) {
    let service = serve(&Config { database: hosts, ..database.config() });
    assert!(service.is_database_reachable());
    let mut client = Client::connect(service.address(), "alice");
    until("a send is acknowledged", || {
        client.short("PUT", "/v1/queues/q");
        send(&mut client, "x") == 201
    });
    service.stop().unwrap();
}
