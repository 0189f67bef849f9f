//! Kills `waystage messages` and PostgreSQL under load: acknowledged messages are not lost, no message is returned twice, and the order of
//! each sender in each queue is kept. The database itself records what is removed from it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod message_service;

use message_service::{Heard, Patient, Service, ids};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use testkit::Http;

const QUEUES: usize = 2;
const SENDERS: usize = 3;
const RECEIVERS: usize = 3;
/// Each time first the service, then the database.
const KILLS: usize = 2;
const AUDIT: &str = "CREATE TABLE taken (id bigint);
    CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO taken VALUES (OLD.id); RETURN NULL; END $$;
    CREATE TRIGGER note AFTER DELETE ON message FOR EACH ROW EXECUTE FUNCTION note();";

/// The outcomes that the clients know.
#[derive(Debug, Default)]
struct Account {
    acknowledged: Vec<i64>,
    /// Id, queue and sender, number.
    received: Vec<(i64, String, usize)>,
    /// Pops whose outcome is unknown.
    doubtful_pops: usize,
}

fn send(address: SocketAddr, sender: usize, is_over: &AtomicBool) -> Account {
    let mut client = Patient { address, http: None };
    let header = format!("waystage-sender: s{sender}");
    let mut account = Account::default();
    let mut number = 0;
    while !is_over.load(Ordering::Relaxed) {
        let queue = number % QUEUES;
        let body = format!("q{queue}s{sender} {number}");
        // A send in doubt is not repeated: its message may or may not be stored.
        let reply = client.ask(&format!("/v1/queues/q{queue}/messages"), &[&header], &body);
        if let Heard::Reply(reply) = reply
            && reply.status == 201
        {
            let text = reply.text();
            account.acknowledged.push(text.trim_start_matches("{\"id\":").trim_end_matches('}').parse().unwrap());
        }
        number += 1;
    }
    account
}

fn receive(address: SocketAddr, receiver: usize, is_over: &AtomicBool) -> Account {
    let mut client = Patient { address, http: None };
    let mut account = Account::default();
    let mut empty = 0;
    while empty < QUEUES || !is_over.load(Ordering::Relaxed) {
        let path = format!("/v1/queues/q{}/messages:pop", (receiver + empty) % QUEUES);
        let reply = match client.ask(&path, &[], "") {
            Heard::Reply(reply) => reply,
            Heard::NotAsked => continue,
            Heard::Doubt => {
                account.doubtful_pops += 1;
                empty = 0;
                continue;
            }
        };
        empty = if reply.status == 204 { empty + 1 } else { 0 };
        if reply.status == 200 {
            let id = reply.header("waystage-message").unwrap().parse().unwrap();
            let text = reply.text();
            let (stream, number) = text.split_once(' ').unwrap();
            account.received.push((id, stream.to_string(), number.parse().unwrap()));
        }
    }
    account
}

#[test]
fn nothing_acknowledged_is_lost_when_service_and_database_are_killed() {
    let directory = tempfile::tempdir().unwrap();
    let Some(mut postgres) = message_service::postgres(directory.path()) else { return };
    let database = postgres.url();
    let mut service = Service::start(&database, "127.0.0.1:0", &[]);
    let address = service.address;
    ids(&database, AUDIT);
    let mut http = Http::connect(address).unwrap();
    for queue in 0..QUEUES {
        assert_eq!(http.request("PUT", &format!("/v1/queues/q{queue}"), &[], b"").unwrap().status, 201);
    }
    let (no_more, is_sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let spawn = |number: usize, is_over: &Arc<AtomicBool>, role: fn(SocketAddr, usize, &AtomicBool) -> Account| {
        let is_over = is_over.clone();
        std::thread::spawn(move || role(address, number, &is_over))
    };
    let senders: Vec<_> = (0..SENDERS).map(|number| spawn(number, &no_more, send)).collect();
    let receivers: Vec<_> = (0..RECEIVERS).map(|number| spawn(number, &is_sent, receive)).collect();
    for _ in 0..KILLS {
        std::thread::sleep(Duration::from_millis(400));
        service.kill();
        service = Service::start(&database, &address.to_string(), &[]);
        std::thread::sleep(Duration::from_millis(400));
        postgres.kill();
        postgres.restart().unwrap();
    }
    std::thread::sleep(Duration::from_millis(400));
    no_more.store(true, Ordering::Relaxed);
    let sent: Vec<Account> = senders.into_iter().map(|thread| thread.join().unwrap()).collect();
    is_sent.store(true, Ordering::Relaxed);
    let got: Vec<Account> = receivers.into_iter().map(|thread| thread.join().unwrap()).collect();

    let acknowledged: BTreeSet<i64> = sent.iter().flat_map(|account| account.acknowledged.iter().copied()).collect();
    let received: Vec<i64> = got.iter().flat_map(|account| account.received.iter().map(|message| message.0)).collect();
    let distinct: BTreeSet<i64> = received.iter().copied().collect();
    let doubtful: usize = got.iter().map(|account| account.doubtful_pops).sum();
    assert_eq!(distinct.len(), received.len(), "doubled");
    let taken = ids(&database, "SELECT id FROM taken");
    let left = ids(&database, "SELECT id FROM message");
    assert_eq!(left, BTreeSet::new(), "messages remain in the table");
    assert_eq!(acknowledged.difference(&taken).count(), 0, "lost");
    assert_eq!(distinct.difference(&taken).count(), 0, "received and not removed");
    let undelivered = taken.difference(&distinct).count();
    assert!(undelivered <= doubtful, "{undelivered} taken out and not received, {doubtful} pops in doubt");
    for account in &got {
        let streams: BTreeSet<&str> = account.received.iter().map(|message| message.1.as_str()).collect();
        for stream in streams {
            let numbers: Vec<usize> =
                account.received.iter().filter(|message| message.1 == stream).map(|message| message.2).collect();
            assert!(numbers.is_sorted(), "out of order: {stream} {numbers:?}");
        }
    }
    assert!(acknowledged.len() > SENDERS * 2, "hardly anything was done: {}", acknowledged.len());
    println!(
        "acknowledged {}, received {}, pops in doubt {doubtful}, of which {undelivered} had taken a message",
        acknowledged.len(),
        received.len()
    );
}
