//! Kills two `waystage messages` over one PostgreSQL, and PostgreSQL itself, while messages are sent with keys, received with leases and
//! acknowledged: each acknowledged send is one message, each is acknowledged in the end, none is redelivered after that, and the tables are
//! empty at the end. `WAYSTAGE_MESSAGE_KILLS=100` sets the number of kills; the default is 2.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod message_service;

use message_service::{Heard, Patient, Service, ids};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use testkit::Http;

const SENDERS: usize = 3;
const RECEIVERS: usize = 3;
/// One in this many receives is not acknowledged; every other one of these is nacked.
const FORGETS_EVERY: usize = 9;
const PAUSE: Duration = Duration::from_millis(400);

/// Numbers events over all threads.
static EVENT: AtomicU64 = AtomicU64::new(0);

/// The outcomes that a client knows.
#[derive(Debug, Default)]
struct Account {
    /// Body and id of sent messages.
    sent: Vec<(String, i64)>,
    /// Id, body, and the event before which it was requested.
    received: Vec<(i64, String, u64)>,
    /// Id, and the event at which the acknowledgement was confirmed.
    acknowledged: Vec<(i64, u64)>,
    /// Ids whose acknowledgement has an unknown outcome.
    doubtful: Vec<i64>,
    forgotten: usize,
}

fn event() -> u64 {
    EVENT.fetch_add(1, Ordering::SeqCst)
}

/// Sends each message until the send is confirmed; the key makes it one message.
fn send(address: SocketAddr, sender: usize, is_over: &AtomicBool) -> Account {
    let mut client = Patient { address, http: None };
    let name = format!("waystage-sender: s{sender}");
    let mut account = Account::default();
    let mut number = 0;
    while !is_over.load(Ordering::Relaxed) {
        let body = format!("s{sender} {number}");
        let key = format!("idempotency-key: {number}");
        if let Heard::Reply(reply) = client.ask("/v1/queues/jobs/messages", &[&name, &key], &body)
            && reply.status == 201
        {
            let text = reply.text();
            let id = text.trim_start_matches("{\"id\":").trim_end_matches('}').parse().unwrap();
            account.sent.push((body, id));
            number += 1;
        }
    }
    account
}

fn receive(address: SocketAddr, _: usize, is_over: &AtomicBool) -> Account {
    let mut client = Patient { address, http: None };
    let mut account = Account::default();
    while !is_over.load(Ordering::Relaxed) {
        let asked = event();
        let reply = match client.ask("/v1/queues/jobs/messages:receive?lease=1s&wait=50ms", &[], "") {
            Heard::Reply(reply) if reply.status == 200 => reply,
            Heard::Reply(reply) => {
                assert!(matches!(reply.status, 204 | 503), "{}: {}", reply.status, reply.text());
                continue;
            }
            Heard::NotAsked | Heard::Doubt => continue,
        };
        let id = reply.header("waystage-message").unwrap().parse().unwrap();
        let lease = reply.header("waystage-lease-token").unwrap();
        account.received.push((id, reply.text(), asked));
        if account.received.len().is_multiple_of(FORGETS_EVERY) {
            account.forgotten += 1;
            if account.forgotten.is_multiple_of(2) {
                client.ask(&format!("/v1/leases/{lease}/nack"), &[], "");
            }
            continue;
        }
        acknowledge(&mut client, lease, id, &mut account);
    }
    account
}

/// Repeats until the outcome is known.
fn acknowledge(client: &mut Patient, lease: &str, id: i64, account: &mut Account) {
    let path = format!("/v1/leases/{lease}/acknowledge");
    let mut is_doubtful = false;
    loop {
        match client.ask(&path, &[], "") {
            Heard::Reply(reply) if reply.status == 204 => return account.acknowledged.push((id, event())),
            Heard::Reply(reply) if reply.status == 410 => {
                // The lease has expired, or an earlier attempt in doubt was successful.
                return account.doubtful.extend(is_doubtful.then_some(id));
            }
            Heard::Reply(reply) => assert_eq!(reply.status, 503, "{}", reply.text()),
            Heard::Doubt => is_doubtful = true,
            Heard::NotAsked => {}
        }
    }
}

fn kills() -> usize {
    std::env::var("WAYSTAGE_MESSAGE_KILLS").map_or(2, |text| text.parse().unwrap())
}

#[test]
fn every_leased_job_is_done_once_although_everything_is_killed() {
    let directory = tempfile::tempdir().unwrap();
    let Some(mut postgres) = message_service::postgres(directory.path()) else { return };
    let database = postgres.url();
    let mut services = [0, 1].map(|_| Service::start(&database, "127.0.0.1:0", &[]));
    let addresses = [0, 1].map(|index: usize| services[index].address);
    let created = Http::connect(addresses[0]).unwrap().request("PUT", "/v1/queues/jobs", &[], b"").unwrap();
    assert_eq!(created.status, 201);
    let (no_more, is_done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let spawn = |number: usize, is_over: &Arc<AtomicBool>, role: fn(SocketAddr, usize, &AtomicBool) -> Account| {
        let is_over = is_over.clone();
        std::thread::spawn(move || role(addresses[number % 2], number, &is_over))
    };
    let senders: Vec<_> = (0..SENDERS).map(|number| spawn(number, &no_more, send)).collect();
    let receivers: Vec<_> = (0..RECEIVERS).map(|number| spawn(number, &is_done, receive)).collect();
    for _ in 0..kills() {
        for (service, address) in services.iter_mut().zip(addresses) {
            std::thread::sleep(PAUSE);
            service.kill();
            *service = Service::start(&database, &address.to_string(), &[]);
        }
        std::thread::sleep(PAUSE);
        postgres.kill();
        postgres.restart().unwrap();
    }
    std::thread::sleep(PAUSE);
    no_more.store(true, Ordering::Relaxed);
    let sent: Vec<Account> = senders.into_iter().map(|thread| thread.join().unwrap()).collect();
    let left = "SELECT id FROM message UNION ALL SELECT id FROM invisible_message";
    for waited in 0.. {
        if ids(&database, left).is_empty() {
            break;
        }
        assert!(waited < 600, "messages remain");
        std::thread::sleep(Duration::from_millis(100));
    }
    is_done.store(true, Ordering::Relaxed);
    let got: Vec<Account> = receivers.into_iter().map(|thread| thread.join().unwrap()).collect();
    println!("{}", judge(&sent, &got));
}

/// Compares what the clients know, and returns a summary in one line.
fn judge(sent: &[Account], got: &[Account]) -> String {
    let sent: BTreeMap<i64, &str> =
        sent.iter().flat_map(|account| account.sent.iter().map(|(body, id)| (*id, body.as_str()))).collect();
    let bodies: BTreeSet<&str> = sent.values().copied().collect();
    assert_eq!(bodies.len(), sent.len(), "a key was stored twice");
    let mut ids_of: BTreeMap<&str, BTreeSet<i64>> = BTreeMap::new();
    for (id, body, _) in got.iter().flat_map(|account| &account.received) {
        ids_of.entry(body).or_default().insert(*id);
    }
    let doubled: Vec<_> = ids_of.iter().filter(|(_, ids)| ids.len() > 1).collect();
    assert!(doubled.is_empty(), "sent once and stored several times: {doubled:?}");
    let mut acknowledged: BTreeMap<i64, u64> = BTreeMap::new();
    for (id, at) in got.iter().flat_map(|account| &account.acknowledged) {
        assert_eq!(acknowledged.insert(*id, *at), None, "message {id} was done twice");
    }
    let doubtful: BTreeSet<i64> = got.iter().flat_map(|account| account.doubtful.iter().copied()).collect();
    let lost: Vec<i64> =
        sent.keys().copied().filter(|id| !acknowledged.contains_key(id) && !doubtful.contains(id)).collect();
    assert!(lost.is_empty(), "no worker did {lost:?}");
    for (id, _, asked) in got.iter().flat_map(|account| &account.received) {
        let done = acknowledged.get(id).copied().unwrap_or(u64::MAX);
        assert!(*asked < done, "message {id} came back after it was done");
    }
    assert!(sent.len() > SENDERS * 2, "hardly anything was done: {}", sent.len());
    let (received, forgotten) = got.iter().fold((0, 0), |(received, forgotten), account| {
        (received + account.received.len(), forgotten + account.forgotten)
    });
    format!(
        "sent {}, received {received}, of which forgotten {forgotten}, done {}, in doubt {}",
        sent.len(),
        acknowledged.len(),
        doubtful.len()
    )
}
