//! Loads of messages against a tiny service: the requests that it receives, and how every fault of a service is found.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "support/service.rs"]
mod service;

use clock::Clock;
use load::{Config, LoadError, MessagesConfig, MessagesSummary, Summary};
use service::{Fault, Seen, TinyService};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// The requests of a short run.
const REQUESTS: u64 = 400;

fn config(service: &TinyService, operations: &str) -> Config {
    let messages = MessagesConfig { mix: operations.parse().unwrap(), queues: 2, ..MessagesConfig::default() };
    Config {
        servers: vec![service.address.to_string()],
        messages: Some(messages),
        data_size: load::fixed_bytes(100),
        clients: 4,
        warm_up: Duration::ZERO,
        requests: Some(REQUESTS),
        reply_timeout: Duration::from_secs(5),
        ..Config::default()
    }
}

fn try_run(config: &Config) -> Result<Summary, LoadError> {
    load::run(config, &Clock::monotonic(), &AtomicBool::new(false), &mut |_| ())
}

/// Runs against a service with this script. Returns the summary and its part about messages.
fn run(operations: &str, script: impl Fn(&Seen) -> Fault + Send + Sync + 'static) -> (Summary, MessagesSummary) {
    let service = TinyService::start(script);
    let summary = try_run(&Config { failed_max: 1.0, ..config(&service, operations) }).unwrap();
    let messages = summary.messages.clone().unwrap();
    (summary, messages)
}

/// A fault for one request only.
fn once(fault: Fault, is_it: fn(&Seen) -> bool) -> impl Fn(&Seen) -> Fault + Send + Sync {
    move |seen| if is_it(seen) { fault } else { Fault::None }
}

fn tenth_send(seen: &Seen) -> bool {
    seen.is_send() && seen.sends == 10
}

/// A pop in the middle of the run that finds a message.
fn some_pop(seen: &Seen) -> bool {
    seen.is_pop() && !seen.is_drain() && seen.pops % 8 == 7
}

#[test]
fn a_healthy_service_is_valid_and_everything_is_counted() {
    let all = "create,delete,send:4,send-to:2,peek,peek-from,pop:6,pop-from,waiting";
    let service = TinyService::healthy();
    let summary = try_run(&config(&service, all)).unwrap();
    assert!(summary.valid, "{:?}", summary.reasons);
    let messages = summary.messages.unwrap();
    assert_eq!((messages.lost, messages.doubled, messages.out_of_order), (0, 0, 0));
    assert_eq!((messages.torn, messages.unknown, messages.misdelivered), (0, 0, 0));
    // Pops by sender skip what other pops have locked.
    assert!(!messages.order_promised && messages.verified);
    let operations = &summary.operations.messages;
    assert_eq!(operations.keys().count(), 9, "{:?}", operations.keys());
    assert_eq!(operations.values().map(|operation| operation.count).sum::<u64>(), REQUESTS);
    assert_eq!(messages.acknowledged, operations["send"].count + operations["send-to"].count);
    assert_eq!(messages.received, messages.acknowledged, "each once, those after the run included");
    assert_eq!(messages.received, operations["pop"].hits + operations["pop-from"].hits + messages.drained);
    assert_eq!(operations["pop"].count, operations["pop"].hits + operations["pop"].misses);
    assert_eq!((operations["send"].hits, operations["send"].misses), (0, 0));
    assert_eq!(summary.operations.get.count + summary.operations.set.count, REQUESTS);
    assert_eq!(service.queues(), Vec::<String>::new(), "the queues are deleted");
    assert_eq!(service.connections(), 4 + 1 + 4 + 1, "one for each client, one before, four for the drain, one after");
}

#[test]
fn the_queues_are_read_at_once_after_the_run() {
    // Each of the first two requests of the drain is answered as soon as the other one is there.
    let (drains, both) = (Arc::new((Mutex::new(0), Condvar::new())), Arc::new(AtomicBool::new(false)));
    let (arrived, together) = (Arc::clone(&drains), Arc::clone(&both));
    let service = TinyService::start(move |seen| {
        if seen.is_drain() && !together.load(Ordering::Relaxed) {
            let (count, another) = &*arrived;
            let mut count = count.lock().unwrap();
            *count += 1;
            another.notify_all();
            let count = another.wait_timeout_while(count, Duration::from_secs(5), |count| *count < 2).unwrap().0;
            together.fetch_or(*count >= 2, Ordering::Relaxed);
            drop(count);
            // If the other one never comes, the next request must not wait for it once more.
            *arrived.0.lock().unwrap() -= u32::from(!together.load(Ordering::Relaxed));
        }
        Fault::None
    });
    let messages = try_run(&config(&service, "send:2,pop")).unwrap().messages.unwrap();
    assert!(both.load(Ordering::Relaxed), "the second queue is not read before the first is empty");
    assert_eq!((messages.lost, messages.received, messages.out_of_order), (0, messages.acknowledged, 0));
    assert!(messages.drained > 0);
}

#[test]
fn the_operation_of_five_requests_is_also_counted_as_one() {
    let service = TinyService::healthy();
    let summary = try_run(&config(&service, "d15")).unwrap();
    assert!(summary.valid, "{:?}", summary.reasons);
    let operations = &summary.operations.messages;
    let count = |name: &str| operations.get(name).map_or(0, |operation| operation.count);
    assert!(count("d15") >= REQUESTS / 5 - 4 && count("d15") <= REQUESTS / 5, "{}", count("d15"));
    assert_eq!(summary.totals.requests, REQUESTS);
    for step in ["waiting", "peek", "peek-from", "pop"] {
        assert!(count(step).abs_diff(count("send") + count("send-to")) <= 4, "{step}: {}", count(step));
    }
    assert!(operations["d15"].response.mean_ns > 4.0 * operations["waiting"].response.min_ns as f64);
    assert!(operations["waiting"].hits > 0 && operations["send-to"].count > 0);
}

#[test]
fn an_open_loop_and_a_prefill_work_as_well() {
    let service = TinyService::healthy();
    let mut config = config(&service, "pop");
    config.arrivals = load::Arrivals::Constant { per_s: 500.0 };
    (config.requests, config.test_time) = (None, Duration::from_millis(600));
    config.messages.as_mut().unwrap().prefill = 1_001;
    config.messages.as_mut().unwrap().keep = true;
    let summary = try_run(&config).unwrap();
    assert_eq!(summary.reasons, Vec::<String>::new());
    let messages = summary.messages.unwrap();
    assert_eq!((messages.acknowledged, messages.received, summary.totals.misses), (1_001, 1_001, 0));
    assert_eq!((summary.totals.intended, summary.lateness.is_some()), (Some(300), true));
    assert_eq!(service.queues().len(), 2, "they are kept");
}

#[test]
fn a_lost_message_is_found() {
    let (summary, messages) = run("send,pop", once(Fault::Lose, tenth_send));
    assert_eq!((messages.lost, messages.doubled), (1, 0));
    assert!(!summary.valid && summary.reasons[0].contains("were acknowledged and lost"), "{:?}", summary.reasons);
}

#[test]
fn a_duplicate_message_is_found() {
    let (summary, messages) = run("send,pop", once(Fault::Double, tenth_send));
    assert_eq!((messages.lost, messages.doubled), (0, 1));
    assert!(!summary.valid && summary.reasons[0].contains("more than once"), "{:?}", summary.reasons);
}

#[test]
fn a_duplicate_for_one_receiver_is_found_without_being_expected() {
    let (summary, messages) = run("send-to", once(Fault::Double, tenth_send));
    assert_eq!((messages.lost, messages.doubled), (0, 1));
    assert!(!summary.valid, "{:?}", summary.reasons);
}

#[test]
fn a_torn_body_is_found() {
    let (summary, messages) = run("send:2,pop", once(Fault::Tear, some_pop));
    assert!(messages.torn > 0 && messages.torn == messages.lost, "{messages:?}");
    assert!(!summary.valid, "{:?}", summary.reasons);
}

#[test]
fn a_message_that_was_never_sent_is_found() {
    let (summary, messages) = run("send:2,pop", once(Fault::Invent, some_pop));
    assert!(messages.torn > 0 && messages.lost == 0 && !summary.valid, "{messages:?}");
}

#[test]
fn wrong_order_is_found_and_is_a_fault_of_a_single_service_only() {
    let service = TinyService::start(once(Fault::Overtake, some_pop));
    let mut config = config(&service, "send:2,pop");
    // The receiver must get the overtaken message later.
    (config.clients, config.messages.as_mut().unwrap().queues) = (1, 1);
    let summary = try_run(&config).unwrap();
    let messages = summary.messages.unwrap();
    assert!(messages.out_of_order > 0 && messages.lost == 0 && messages.doubled == 0, "{messages:?}");
    assert!(!summary.valid && summary.reasons[0].contains("after a later message"), "{:?}", summary.reasons);
    config.servers.push(service.address.to_string());
    let summary = try_run(&config).unwrap();
    assert!(
        summary.valid && summary.notes.iter().any(|note| note.contains("no order is promised")),
        "{:?}",
        summary.notes
    );
    assert!(summary.messages.is_some_and(|messages| messages.out_of_order > 0 && !messages.order_promised));
}

#[test]
fn a_message_for_another_receiver_is_found() {
    let (summary, messages) = run("send-to:2,pop", once(Fault::Misdeliver, some_pop));
    assert!(messages.misdelivered > 0 && messages.lost == 0 && !summary.valid, "{messages:?}");
}

#[test]
fn a_wrong_status_is_not_a_reply_and_leaves_the_send_in_doubt() {
    let (summary, messages) = run("send,pop", once(Fault::DoneAndStatus(202), tenth_send));
    assert!(!summary.valid && summary.reasons[0].contains("matched no request"), "{:?}", summary.reasons);
    assert_eq!((messages.sends_in_doubt, messages.sends_in_doubt_arrived, messages.lost), (1, 1, 0));
    assert!(summary.errors.keys().any(|line| line.contains("202")), "{:?}", summary.errors);
}

#[test]
fn rejected_fields_are_named() {
    let (summary, _) = run("send,pop", once(Fault::Chunked, tenth_send));
    assert!(!summary.valid && summary.errors.keys().any(|line| line.contains("chunked")), "{:?}", summary.errors);
}

#[test]
fn a_truncated_reply_leaves_sends_and_pops_in_doubt() {
    let (summary, messages) = run("send,pop", once(Fault::Cut, tenth_send));
    assert!(summary.valid, "{:?}", summary.reasons);
    assert_eq!((messages.sends_in_doubt, messages.sends_in_doubt_arrived, messages.lost), (1, 1, 0));
    let (summary, messages) = run("send:2,pop", once(Fault::Cut, some_pop));
    assert!(summary.valid && messages.pops_in_doubt > 0, "{:?} {messages:?}", summary.reasons);
    assert!(messages.taken_in_doubt > 0 && messages.taken_in_doubt <= messages.pops_in_doubt, "{messages:?}");
}

#[test]
fn doubt_does_not_mask_a_loss() {
    let script = |seen: &Seen| match seen {
        seen if seen.is_send() && seen.sends >= 10 && seen.sends < 40 => Fault::Lose,
        seen if seen.is_pop() && !seen.is_drain() && seen.pops == 20 => Fault::Cut,
        _ => Fault::None,
    };
    let (_, messages) = run("send,pop", script);
    // The truncated pop may have removed a message, and explains one missing message.
    assert_eq!((messages.pops_in_doubt, messages.taken_in_doubt), (1, 1));
    assert!((29..=30).contains(&messages.lost), "{messages:?}");
}

#[test]
fn doubt_reported_by_the_service_is_trusted() {
    let (summary, messages) = run("send,pop", once(Fault::DoneAndProblem(503, "in-doubt"), tenth_send));
    assert_eq!((messages.sends_in_doubt, messages.sends_in_doubt_arrived, messages.refused), (1, 1, 0));
    assert!(summary.valid && summary.errors["503 in-doubt"] == 1, "{:?}", summary.errors);
    // The service reports that nothing was done, although it stored the message.
    let (summary, messages) = run("send,pop", once(Fault::DoneAndProblem(503, "database-down"), tenth_send));
    assert!(!summary.valid && messages.unknown + messages.doubled + messages.refused_and_done > 0, "{messages:?}");
}

#[test]
fn a_refusal_is_counted_and_backed_off_from() {
    let service = TinyService::start(once(Fault::Problem(503, "overloaded"), tenth_send));
    let mut config = config(&service, "send");
    config.clients = 1;
    let clock = Clock::monotonic();
    let begun = clock.now();
    let summary = try_run(&config).unwrap();
    assert!(clock.now().since(begun) >= 1_000_000_000, "Retry-After is a second");
    let messages = summary.messages.unwrap();
    assert_eq!((messages.refused, messages.sends_in_doubt, messages.lost), (1, 0, 0));
    assert_eq!((messages.acknowledged, summary.totals.errors), (REQUESTS - 1, 1));
    assert!(summary.valid && summary.errors["503 overloaded"] == 1, "{:?}", summary.errors);
}

#[test]
fn a_connection_that_the_service_closes_is_restored() {
    let service =
        TinyService::start(|seen| if seen.is_send() && seen.sends % 20 == 5 { Fault::Close } else { Fault::None });
    let summary = try_run(&config(&service, "send,pop")).unwrap();
    assert!(summary.valid && summary.errors.is_empty(), "{:?} {:?}", summary.reasons, summary.errors);
    assert!(service.connections() > 10, "{}", service.connections());
    assert_eq!(summary.messages.map(|messages| messages.sends_in_doubt), Some(0));
}

#[test]
fn a_missing_reply_leaves_doubt() {
    let service = TinyService::start(once(Fault::Silence, tenth_send));
    let mut config = config(&service, "send");
    config.reply_timeout = Duration::from_millis(300);
    let summary = try_run(&config).unwrap();
    let messages = summary.messages.unwrap();
    assert_eq!((messages.sends_in_doubt, messages.sends_in_doubt_arrived, messages.lost), (1, 1, 0));
    assert_eq!(summary.errors["reply timed out"], 1);
}

#[test]
fn messages_not_read_in_time_are_not_lost_and_the_run_is_invalid() {
    let service =
        TinyService::start(|seen| if seen.is_drain() { Fault::Problem(503, "overloaded") } else { Fault::None });
    let mut config = config(&service, "send");
    config.messages.as_mut().unwrap().drain = Duration::from_millis(200);
    let summary = try_run(&config).unwrap();
    let messages = summary.messages.unwrap();
    assert_eq!((messages.unread, messages.lost), (REQUESTS, 0));
    assert!(!summary.valid && summary.reasons[0].contains("--drain-time"), "{:?}", summary.reasons);
}

#[test]
fn a_silent_service_does_not_prolong_the_drain_for_every_client() {
    let asks_what_waits = |path: &str| path.contains("/v1/receivers/");
    let is_silent = move |seen: &Seen| seen.is_drain() || asks_what_waits(&seen.path);
    let service = TinyService::start(move |seen| if is_silent(seen) { Fault::Silence } else { Fault::None });
    let mut config = config(&service, "send-to");
    config.clients = 80;
    config.reply_timeout = Duration::from_millis(300);
    config.messages.as_mut().unwrap().drain = Duration::from_millis(100);
    let messages = try_run(&config).unwrap().messages.unwrap();
    assert_eq!((messages.unread, messages.lost), (REQUESTS, 0));
    // One on each of the 16 connections, and not one for each client.
    let asked = service.requests_seen().iter().filter(|request| asks_what_waits(request)).count();
    assert!((1..=16).contains(&asked), "{asked}");
}

#[test]
fn a_queue_that_cannot_be_created_is_one_line() {
    let service =
        TinyService::start(
            |seen| if seen.method == "PUT" { Fault::Problem(503, "database-down") } else { Fault::None },
        );
    let line = try_run(&config(&service, "send")).unwrap_err().to_string();
    assert!(line.contains("503") && line.contains("database-down") && !line.contains('\n'), "{line}");
    let is_batch = |seen: &Seen| seen.path.ends_with(":batch");
    let service = TinyService::start(once(Fault::Problem(413, "body-too-large"), is_batch));
    let mut with_prefill = config(&service, "send");
    with_prefill.messages.as_mut().unwrap().prefill = 10;
    let line = try_run(&with_prefill).unwrap_err().to_string();
    assert!(line.contains("prefill") && line.contains("body-too-large"), "{line}");
    assert_eq!(service.queues(), Vec::<String>::new(), "what was created is deleted again");
    let gone = Config { servers: vec!["127.0.0.1:1".into()], ..config(&service, "send") };
    let line = try_run(&gone).unwrap_err().to_string();
    assert!(line.contains("127.0.0.1:1") && line.contains("is it running?"), "{line}");
}

#[test]
fn bodies_too_small_to_verify_need_no_verify() {
    let service = TinyService::healthy();
    let mut config = Config { data_size: load::fixed_bytes(31), ..config(&service, "send,pop") };
    assert!(config.check().unwrap_err().contains("--no-verify"));
    config.messages.as_mut().unwrap().verify = false;
    let summary = try_run(&config).unwrap();
    assert!(summary.valid && summary.notes.iter().any(|note| note.contains("not verified")), "{:?}", summary.notes);
    assert_eq!(summary.messages.map(|messages| (messages.verified, messages.drained)), Some((false, 0)));
}
