//! `waystage load --messages` against the real service over a private PostgreSQL: everything is counted, and nothing is lost, doubled
//! or out of order.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod message_service;

use message_service::{Service, postgres};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// A load of the services; its exit code and its summary.
fn load(services: &[&Service], directory: &Path, arguments: &str) -> (i32, Value, String) {
    let out = directory.join("summary.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_waystage"));
    command.arg("load");
    for service in services {
        command.args(["--messages", &format!("http://{}", service.address)]);
    }
    command.args(arguments.split(' ')).arg("--json-out-file").arg(&out);
    let output = command.output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    let summary = std::fs::read_to_string(&out).unwrap_or_else(|_| panic!("no summary: {printed}"));
    (output.status.code().unwrap(), serde_json::from_str(&summary).unwrap(), printed)
}

/// Asserts that a run was valid, and that every message was received once, in order if that is promised.
fn assert_whole((code, summary, printed): &(i32, Value, String)) {
    let messages = &summary["messages"];
    for name in ["lost", "doubled", "torn", "unknown", "misdelivered", "sends_in_doubt", "pops_in_doubt"] {
        assert_eq!(messages[name], 0, "{name}: {printed}");
    }
    if messages["order_promised"] == true {
        assert_eq!(messages["out_of_order"], 0, "{printed}");
    }
    assert_eq!(messages["acknowledged"], messages["received"], "{printed}");
    assert_eq!((*code, summary["valid"].as_bool()), (0, Some(true)), "{printed}");
    assert!(printed.contains("VALID"), "{printed}");
}

#[test]
fn a_closed_loop_with_many_clients_finds_nothing_wrong() {
    let (data, directory) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let Some(postgres) = postgres(data.path()) else { return };
    let services =
        ["fused", "pool"].map(|dispatch| Service::start(&postgres.url(), "127.0.0.1:0", &["--dispatch", dispatch]));
    let all = "--operations send:4,send-to:2,pop:5,pop-from,peek,peek-from,waiting,create,delete";
    let run = load(&[&services[0]], directory.path(), &format!("{all} --clients 16 --requests 3000"));
    assert_whole(&run);
    let operations = &run.1["operations"]["messages"];
    assert_eq!(operations.as_object().unwrap().len(), 9);
    assert!(operations["pop"]["hits"].as_u64().unwrap() > 500, "{}", run.2);
    assert_eq!(run.1["totals"]["errors"], 0);
    assert_eq!(run.1["messages"]["order_promised"], false);

    // Without fetches by sender, which skip messages that other fetches have locked, the order is promised.
    let ordered = "--operations send:4,send-to:2,pop:5,peek,peek-from,waiting,create,delete";
    let run = load(&[&services[0]], directory.path(), &format!("{ordered} --clients 16 --requests 3000"));
    assert_whole(&run);
    assert_eq!(run.1["messages"]["order_promised"], true);

    let run = load(&[&services[0]], directory.path(), "--operations d15 --clients 8 --requests 1000 --prefill 300");
    assert_whole(&run);
    assert_eq!(run.1["messages"]["order_promised"], true);
    assert!(run.1["operations"]["messages"]["d15"]["count"].as_u64().unwrap() > 150, "{}", run.2);
    assert!(run.1["messages"]["acknowledged"].as_u64().unwrap() > 300 + 150);

    // A pool guarantees no order, nor do two services. All other guarantees apply.
    let run = load(&[&services[1]], directory.path(), "--clients 16 --requests 1000 --any-order");
    assert_eq!((run.0, &run.1["messages"]["order_promised"]), (0, &Value::Bool(false)), "{}", run.2);
    let both: Vec<&Service> = services.iter().collect();
    let (_, summary, printed) = load(&both, directory.path(), "--clients 16 --requests 2000 --data-size 2000");
    assert_eq!(summary["messages"]["order_promised"], false);
    for name in ["lost", "doubled", "torn", "unknown", "misdelivered"] {
        assert_eq!(summary["messages"][name], 0, "{name}: {printed}");
    }
    assert!(summary["valid"].as_bool().unwrap(), "{printed}");
}

#[test]
fn leases_that_are_nacked_extended_and_abandoned_come_back_and_are_dead_lettered_in_the_end() {
    let (data, directory) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let Some(postgres) = postgres(data.path()) else { return };
    let service = Service::start(&postgres.url(), "127.0.0.1:0", &[]);
    let steps = "--after-receive acknowledge:6,extend:2,nack:2,abandon:2 --lease 300ms";
    let mix = "--operations send:4,send-to:2,receive:9,peek --clients 8 --requests 2000";
    let run = load(&[&service], directory.path(), &format!("{mix} {steps}"));
    assert_whole(&run);
    let messages = &run.1["messages"];
    assert!(messages["redelivered"].as_u64().unwrap() > 0 && messages["dead_lettered"] == 0, "{}", run.2);
    for name in ["delivered_while_leased", "ended_early", "held_too_long"] {
        assert_eq!(messages[name], 0, "{name}: {}", run.2);
    }
    let run = load(&[&service], directory.path(), &format!("{mix} {steps} --attempts 2"));
    assert_whole(&run);
    assert!(run.1["messages"]["dead_lettered"].as_u64().unwrap() > 0, "{}", run.2);
}

#[test]
fn invalid_arguments_are_refused_in_one_line() {
    let refused = |arguments: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_waystage"));
        let output = command.arg("load").args(arguments.split(' ')).output().unwrap();
        (output.status.code().unwrap(), String::from_utf8_lossy(&output.stderr).trim_end().to_owned())
    };
    for (arguments, code, expected) in [
        ("--messages https://127.0.0.1:1", 2, "does not start with http://"),
        ("--messages http://127.0.0.1:1 --server 127.0.0.1:1", 2, "cannot be used with"),
        ("--messages http://127.0.0.1:1 --operations pops", 2, "\"pops\" is not an operation"),
        ("--messages http://127.0.0.1:1 --data-size 20", 2, "--no-verify"),
        ("--messages http://127.0.0.1:1 --operations acknowledge", 2, "\"acknowledge\" is not an operation"),
        ("--messages http://127.0.0.1:1 --after-receive ack", 2, "\"ack\" is not an operation"),
        ("--messages http://127.0.0.1:1 --lease 0s", 2, "--lease must be"),
        ("--messages http://127.0.0.1:1 --operations receive --lease 60s", 2, "--drain-time 60s is shorter"),
        ("--messages http://127.0.0.1:1 --attempts 0", 2, "--attempts must be"),
        ("--messages http://127.0.0.1:1 --redelivery-time 0s", 2, "--redelivery-time must be"),
        ("--lease 3s --server 127.0.0.1:1", 2, "--messages"),
        ("--messages http://127.0.0.1:1 --queue-prefix a/b", 2, "--queue-prefix"),
        ("--messages http://127.0.0.1:1 --token-file /nowhere", 1, "--token-file /nowhere"),
        ("--messages http://127.0.0.1:1", 1, "is it running?"),
        ("--queues 3 --server 127.0.0.1:1", 2, "--messages"),
    ] {
        let (found, line) = refused(arguments);
        assert!(found == code && line.contains(expected), "{arguments}: {found} {line}");
        assert!(!line.contains("panicked"), "{line}");
    }
}
