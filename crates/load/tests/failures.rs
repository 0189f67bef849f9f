//! Servers that refuse, disconnect or never reply: the run continues where possible, counts what happened and never hangs.

mod support;

use clock::{Clock, duration_ns};
use load::{Arrivals, Config, LoadError, Progress};
use records::Outcome;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use support::{Fault, TinyServer, config, run, try_run};

/// The outcomes of all recorded requests.
fn recorded(directory: &Path) -> Vec<u8> {
    support::records(directory).rows().map(|(row, _)| row.outcome).collect()
}

fn count(outcomes: &[u8], outcome: Outcome) -> u64 {
    outcomes.iter().filter(|&&found| found == outcome as u8).count() as u64
}

#[test]
fn refusals_are_counted_and_make_keys_uncertain_and_the_run_invalid() {
    let server = TinyServer::start(|seen| match seen.number % 10 {
        0 if seen.is_load() && seen.is_set => Fault::StoreAndLine("SERVER_ERROR out of memory storing object"),
        5 if seen.is_load() && !seen.is_set => Fault::Line("ERROR"),
        _ => Fault::None,
    });
    // A tenth of the keys ends with a refused write. With many keys, some do in every run.
    let config = Config { key_maximum: 300, ..config(&server) };
    let summary = run(&config);
    let found = |reason: &str| summary.reasons.iter().any(|line| line.contains(reason));
    assert!(!summary.valid && found("requests failed, which is"), "{:?}", summary.reasons);
    // The versions on the server were stored, so nothing read is stale.
    assert_eq!((summary.verification.stale, found("are stale")), (0, false));
    let tolerant = run(&Config { failed_max: 0.5, prefill: false, ..config.clone() });
    assert!(!tolerant.reasons.iter().any(|line| line.contains("requests failed")), "{:?}", tolerant.reasons);
    assert!(summary.errors["SERVER_ERROR out of memory storing object"] > 0 && summary.errors["ERROR"] > 0);
    // Error lines count over the whole run, and the total over the window only. Requests in flight at its end may make
    // them differ.
    let outside = summary.errors.values().sum::<u64>() - summary.totals.errors;
    assert!(outside <= (config.clients * config.pipeline) as u64, "{outside}");
    assert!(summary.verification.keys_uncertain > 0);
    assert_eq!(summary.totals.requests_sent, summary.totals.requests_answered);
    assert!(summary.totals.requests_answered >= summary.totals.requests + summary.totals.errors);
    assert!(load::render(&summary).contains("times: SERVER_ERROR out of memory"));
}

#[test]
fn a_run_with_only_errors_measures_nothing() {
    let server = TinyServer::start(|seen| if seen.is_load() { Fault::Line("SERVER_ERROR busy") } else { Fault::None });
    let summary = run(&config(&server));
    assert!(!summary.valid && summary.reasons[0].contains("nothing was measured"), "{:?}", summary.reasons);
    assert_eq!((summary.totals.requests, summary.operations.all.response.max_ns), (0, 0));
}

#[test]
fn a_connection_closed_within_a_reply_is_restored() {
    let server =
        TinyServer::start(
            |seen| {
                if seen.is_load() && seen.number % 40 == 0 { Fault::CloseInReply } else { Fault::None }
            },
        );
    let directory = tempfile::tempdir().unwrap();
    let config =
        Config { records: Some(directory.path().into()), sample: 1, pipeline: 4, failed_max: 1.0, ..config(&server) };
    let summary = run(&config);
    // Lost sets leave keys uncertain. No other check fails.
    assert!(summary.reasons.iter().all(|line| line.contains("could not be judged")), "{:?}", summary.reasons);
    let lost = summary.errors["connection lost"];
    assert!(lost > 4, "{lost}");
    assert!(summary.totals.requests > 20 * lost / 4, "{} requests, {lost} lost", summary.totals.requests);
    let outcomes = recorded(directory.path());
    assert_eq!(count(&outcomes, Outcome::BackendLost), lost);
    assert_eq!(count(&outcomes, Outcome::Answered), summary.totals.requests_answered);
    assert!(summary.totals.requests_sent - summary.totals.requests_answered <= lost);
}

#[test]
fn a_reply_timeout_is_an_error_and_the_run_ends() {
    let server =
        TinyServer::start(
            |seen| {
                if seen.connection == support::PREFILL_CONNECTIONS { Fault::Silence } else { Fault::None }
            },
        );
    let directory = tempfile::tempdir().unwrap();
    let config = Config {
        records: Some(directory.path().into()),
        sample: 1,
        reply_timeout: Duration::from_secs(1),
        test_time: Duration::from_secs(2),
        ..config(&server)
    };
    let summary = run(&config);
    assert!(summary.valid, "{:?}", summary.reasons);
    assert_eq!(summary.errors["reply timed out"], 1);
    assert_eq!(count(&recorded(directory.path()), Outcome::Timeout), 1);
}

#[test]
fn requests_without_an_answer_are_slower_than_any_percentile_of_the_others() {
    // One get in twenty gets no reply, nor do those behind it on its connection.
    let server =
        TinyServer::start(|seen| if seen.is_load() && seen.number % 20 == 0 { Fault::Silence } else { Fault::None });
    let config = Config {
        ratio_set: 0,
        requests: Some(400),
        arrivals: Arrivals::Constant { per_s: 200.0 },
        clients: 40,
        reply_timeout: Duration::from_millis(250),
        percentiles: vec![50.0, 97.0],
        ..config(&server)
    };
    let summary = run(&config);
    let response = &summary.operations.all.response;
    let (answered, failed) = (summary.totals.requests, summary.totals.errors);
    assert_eq!((answered + failed, response.unanswered), (400, failed));
    assert!(failed >= 20, "{failed}");
    // Fewer than 3 % lie above the 97th percentile, and 5 % have no answer.
    assert_eq!(response.percentiles["97"], None, "{:?}", response.percentiles);
    assert!(response.percentiles["50"].is_some() && summary.operations.get.service.percentiles["97"].is_none());
    assert!(
        !summary.valid && summary.reasons.iter().any(|line| line.contains("--failed-max")),
        "{:?}",
        summary.reasons
    );
    let text = load::render(&summary);
    assert!(text.contains(" > 250ms") || response.max_ns > 250_000_000, "{text}");
    let json: serde_json::Value = serde_json::from_str(&summary.to_json().unwrap()).unwrap();
    assert!(json["operations"]["all"]["response"]["percentiles"]["97"].is_null());
    assert_eq!(json["operations"]["all"]["response"]["unanswered"], failed);
}

#[test]
fn a_server_that_never_answers_ends_with_a_line() {
    let clock = Clock::monotonic();
    let began = clock.now();
    let silent = TinyServer::start(|seen| if seen.is_load() { Fault::Silence } else { Fault::None });
    let summary = run(&Config { reply_timeout: Duration::from_millis(200), ..config(&silent) });
    assert!(!summary.valid && summary.reasons[0].contains("nothing was measured"), "{:?}", summary.reasons);
    let prefill = TinyServer::start(|_| Fault::Silence);
    let config = Config { reply_timeout: Duration::from_millis(200), ..config(&prefill) };
    let line = try_run(&config).unwrap_err().to_string();
    assert!(line.contains("the prefill of") && line.contains("no reply within 200ms"), "{line}");
    assert!(clock.now().since(began) < duration_ns(Duration::from_secs(20)));
}

#[test]
fn a_request_that_is_never_answered_counts_though_it_ends_after_the_window() {
    // The server answers 50 requests and then nothing; the timeout ends after the window.
    let server =
        TinyServer::start(|seen| if seen.is_load() && seen.number > 100 { Fault::Silence } else { Fault::None });
    let config = Config { ratio_set: 0, reply_timeout: Duration::from_millis(800), ..config(&server) };
    let summary = run(&config);
    let totals = &summary.totals;
    assert_eq!(totals.errors, config.clients as u64, "each client waits for one answer: {totals:?}");
    assert_eq!(summary.operations.all.response.unanswered, totals.errors);
    assert!(!summary.valid, "{:?}", summary.reasons);
}

#[test]
fn a_server_that_dies_is_reported_at_the_end() {
    let server = TinyServer::healthy();
    let config = Config { test_time: Duration::from_secs(3), ..config(&server) };
    let mut watch = |progress: Progress<'_>| {
        if matches!(progress, Progress::Second(_)) {
            server.stop();
        }
    };
    let summary = load::run(&config, &Clock::monotonic(), &AtomicBool::new(false), &mut watch).unwrap();
    assert!(!summary.valid && summary.reasons[0].contains("every connection was lost"), "{:?}", summary.reasons);
    // If a reply and the end of the connection arrive together, no request is lost.
    let lost = summary.errors.get("connection lost").copied().unwrap_or(0);
    assert!(lost <= 4 && summary.errors.len() <= 1 && summary.totals.requests > 0, "{:?}", summary.errors);
}

#[test]
fn a_server_that_is_not_there_is_one_line() {
    let address = TinyServer::healthy().address;
    std::thread::sleep(Duration::from_millis(50));
    for prefill in [true, false] {
        let config = Config { servers: vec![address.to_string()], prefill, ..Config::default() };
        let error = try_run(&config).unwrap_err();
        assert!(matches!(error, LoadError::Connect { .. }), "{error}");
        assert!(error.to_string().ends_with("is it running?"), "{error}");
    }
    let config = Config { servers: vec!["nowhere".into()], ..Config::default() };
    assert!(try_run(&config).unwrap_err().to_string().contains("\"nowhere\" is not HOST:PORT"));
}

#[test]
fn a_refused_prefill_is_one_line() {
    let server = TinyServer::start(|_| Fault::Line("SERVER_ERROR out of memory storing object"));
    let line = try_run(&config(&server)).unwrap_err().to_string();
    assert!(line.contains("unexpected reply \"SERVER_ERROR out of memory storing object\""), "{line}");
}

#[test]
fn a_stop_flag_ends_the_run_with_the_results_so_far() {
    let server = TinyServer::healthy();
    let stop = AtomicBool::new(false);
    let config = Config { test_time: Duration::from_secs(60), ..config(&server) };
    let mut seconds = 0;
    let mut watch = |progress: Progress<'_>| {
        seconds += u64::from(matches!(progress, Progress::Second(_)));
        stop.store(seconds == 2, std::sync::atomic::Ordering::Relaxed);
    };
    let summary = load::run(&config, &Clock::monotonic(), &stop, &mut watch).unwrap();
    assert!(summary.valid && summary.measured_s > 0.5 && summary.measured_s < 30.0, "{}", summary.measured_s);
    assert_eq!(summary.totals.requests_sent, summary.totals.requests_answered);
}
