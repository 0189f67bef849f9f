//! Every reason and every note: when it is given, and when it is not.

use super::*;
use crate::config::{Arrivals, Config};
use crate::measure::part::Counts;
use crate::measure::request::{EndedRequest, Operation};
use crate::measure::seconds::SecondsCollector;
use crate::measure::tally::Tally;
use crate::report::summarise::{MeasuredRun, summarise};
use crate::workload::think_time::ThinkTime;
use clock::{CpuTime, Nanos};
use std::time::Duration;

const MS: u64 = 1_000_000;

/// A run of ten seconds with 2000 gets of 2 ms each, all hits.
fn run(config: &Config, tally: &Tally) -> Summary {
    let mut window = Counts::new();
    for _ in 0..2_000 {
        window.record(&EndedRequest {
            operation: Operation::Get,
            intended: Nanos(MS),
            sent: Nanos(MS),
            completed: Nanos(3 * MS),
            keys: 1,
            hits: 1,
            request_bytes: 10,
            reply_bytes: 20,
            failed: false,
            message: None,
        });
    }
    let measured = MeasuredRun {
        started_unix_ns: 7,
        start: Nanos(0),
        from: Nanos(0),
        to: Nanos(10_000 * MS),
        cpu_from: CpuTime::default(),
        cpu_to: CpuTime { user_s: 1.0, system_s: 1.0 },
        keys_uncertain: 0,
        stopped: false,
        broken: None,
        messages: None,
    };
    let mut seconds = SecondsCollector::new(1).close(None, 10).1;
    seconds.iter_mut().for_each(|second| second.requests = 200);
    summarise(config, &measured, tally, &window, seconds)
}

/// A closed loop whose one client has 2000 requests of 2 ms in ten seconds and thinks for the other six.
fn closed() -> Summary {
    let think_time = ThinkTime::fixed(Duration::from_millis(3));
    let mut tally = Tally::new();
    tally.completed = 2_000;
    run(&Config { think_time, ..Config::default() }, &tally)
}

/// An open loop that offers 200 requests per second and is never late.
fn open() -> Summary {
    let mut tally = Tally::new();
    (0..2_000).for_each(|request| tally.count_arrival(request / 200, true, 1_000));
    tally.completed = 2_000;
    let arrivals = Arrivals::Constant { per_s: 200.0 };
    run(&Config { arrivals, clients: 4, ..Config::default() }, &tally)
}

fn times(delay_ns: u64, count: u64) -> Times {
    let mut recorded = TimeHistogram::new();
    (0..count).for_each(|_| recorded.record(delay_ns));
    Times::new(&recorded, &[99.0])
}

/// The reasons and notes of a run, one of which is empty.
fn judged(summary: &Summary) -> (Vec<String>, Vec<String>) {
    (reasons(summary, None), notes(summary))
}

fn nothing() -> (Vec<String>, Vec<String>) {
    Default::default()
}

#[test]
fn runs_without_fault_have_no_reasons_or_notes() {
    for summary in [closed(), open()] {
        assert_eq!(judged(&summary), nothing());
        assert!(summary.valid);
    }
}

#[test]
fn wrong_values_and_lost_servers_invalidate_a_run() {
    let mut summary = closed();
    (summary.verification.checked, summary.verification.stale, summary.verification.unexpected_reply) = (9, 2, 1);
    let reasons = reasons(&summary, Some("every connection was lost"));
    assert_eq!(reasons.len(), 3);
    assert!(reasons[0].starts_with("2 of 9 values are stale"), "{reasons:?}");
    assert!(reasons[2].starts_with("every connection was lost; look at"), "{reasons:?}");
}

#[test]
fn a_run_that_measured_nothing_is_invalid() {
    let mut summary = closed();
    summary.totals.requests = 0;
    assert!(judged(&summary).0[0].starts_with("nothing was measured"));
}

#[test]
fn a_late_generator_invalidates_an_open_loop_and_a_wait_for_clients_does_not() {
    let mut summary = open();
    summary.lateness = Some(times(900_000, 2_000));
    assert_eq!(judged(&summary), nothing());
    summary.lateness = Some(times(2 * MS, 19));
    assert_eq!(judged(&summary), nothing(), "19 values are not enough for a median");
    summary.lateness = Some(times(2 * MS, 20));
    assert!(judged(&summary).0[0].contains("50 % of requests were sent 2.00ms later"), "{:?}", judged(&summary));
    let mut few = TimeHistogram::new();
    (0..999).for_each(|number| few.record(if number < 500 { 900_000 } else { 2 * MS }));
    summary.lateness = Some(Times::new(&few, &[]));
    assert_eq!(judged(&summary), nothing(), "999 values are not enough for a 99th percentile");
    summary.operations.all.slip = times(5 * MS, 2_000);
    let (reasons, notes) = judged(&summary);
    assert!(
        reasons.is_empty() && notes[0].contains("waited 5.00ms or longer for a free client, because all 4"),
        "{notes:?}"
    );
    summary.lateness = Some(times(2 * MS, 2_000));
    let (reasons, notes) = judged(&summary);
    assert!(reasons[0].contains("sent 2.00ms later than possible, or more (1.00ms is tolerated)"), "{reasons:?}");
    assert!(reasons[0].ends_with("other programs kept it from running; give it a core of its own"), "{reasons:?}");
    summary.cpu.share = 0.95;
    assert!(judged(&summary).0[0].ends_with("use more --threads or generators"));
    assert!(notes.is_empty(), "{notes:?}");
    // The tolerated delay is a tenth of the median response.
    summary.operations.all.response = times(21 * MS, 2_000);
    assert!(judged(&summary).0.is_empty());
}

#[test]
fn a_rate_that_is_not_reached_invalidates_an_open_loop() {
    let mut summary = open();
    (summary.totals.completed, summary.throughput_per_s, summary.totals.unsent) = (1_500, 150.0, Some(400));
    let behind_in = |summary: &mut Summary, seconds: usize| {
        summary.seconds.iter_mut().take(seconds).for_each(|second| second.requests = 150);
        judged(summary).0
    };
    // One stall does not mean that the rate cannot be reached, but the unsent requests are still reported.
    summary.totals.completed = 1_900;
    assert!(behind_in(&mut summary, 5)[0].starts_with("400 of 2000 requests that were due"));
    summary.totals.unsent = Some(0);
    assert!(behind_in(&mut summary, 5).is_empty());
    // A stall of more than a twentieth of the window is too long, unless it is tolerated.
    summary.totals.completed = 1_899;
    assert!(behind_in(&mut summary, 5)[0].starts_with("the rate was not reached"));
    (summary.totals.completed, summary.totals.unsent) = (1_500, Some(400));
    summary.settings.achieved_min = Some(0.75);
    assert!(behind_in(&mut summary, 10).is_empty());
    summary.settings.achieved_min = Some(0.76);
    assert!(behind_in(&mut summary, 0)[0].contains("--achieved-min"));
    summary.settings.achieved_min = None;
    summary.seconds.iter_mut().for_each(|second| second.requests = 200);
    let reasons = behind_in(&mut summary, 6);
    assert!(
        reasons[0].contains("150/s of 200/s") && reasons[0].contains("400 of 2000 requests were never"),
        "{reasons:?}"
    );
    // Being behind by more than the window explains why no request due in it was answered.
    summary.totals.requests = 0;
    assert_eq!(judged(&summary).0.len(), 1);
    summary.totals.requests = 2_000;
    // Few seconds are not enough to decide, so the missing requests alone count.
    summary.seconds.truncate(2);
    summary.seconds.iter_mut().for_each(|second| second.requests = 200);
    assert_eq!(judged(&summary).0.len(), 1);
    // Requests in flight at the end are not missing, and failed requests count as ended.
    (summary.totals.completed, summary.totals.errors, summary.totals.unsent) = (1_496, 500, Some(0));
    summary.settings.failed_max = 0.2;
    assert!(judged(&summary).0.is_empty());
}

#[test]
fn misses_are_a_note_unless_a_hit_ratio_is_expected() {
    let mut summary = closed();
    summary.totals.misses = 2;
    assert_eq!(judged(&summary), nothing());
    summary.totals.misses = 20;
    let (reasons, notes) = judged(&summary);
    assert!(reasons.is_empty() && notes[0].starts_with("1.0 % of the keys read were not found"), "{notes:?}");
    summary.settings.prefill = false;
    assert_eq!(judged(&summary), nothing());
    summary.settings.expect_hit_ratio = Some(0.99);
    assert_eq!(judged(&summary), nothing());
    summary.settings.expect_hit_ratio = Some(0.995);
    assert!(judged(&summary).0[0].starts_with("the hit ratio is 0.9901, and 0.995 was expected"));
    (summary.totals.hits, summary.totals.misses) = (0, 0);
    assert!(judged(&summary).0[0].starts_with("no key was read"));
}

#[test]
fn a_busy_generator_is_a_note_in_a_closed_loop_without_think_time() {
    let mut summary = closed();
    summary.cpu.share = 0.95;
    assert_eq!(judged(&summary), nothing());
    summary.settings.think_mean_s = 0.0;
    summary.throughput_per_s = 500.0;
    let (reasons, notes) = judged(&summary);
    assert!(reasons.is_empty() && notes[0].contains("used 95 % of its 1 thread(s)"), "{notes:?}");
    summary.cpu.share = 0.9;
    assert_eq!(judged(&summary), nothing());
}

#[test]
fn the_interactive_law_is_checked_where_it_applies() {
    let mut summary = closed();
    summary.settings.clients = 2;
    assert!(judged(&summary).1.is_empty(), "2000 thoughts are too few");
    summary.settings.think_mean_s = 0.0;
    summary.throughput_per_s = 900.0;
    assert!(judged(&summary).1[0].starts_with("X (R + Z) is 1.8 and N is 2"), "{:?}", judged(&summary));
    summary.operations.all.response.max_ns = 501 * MS;
    assert_eq!(judged(&summary), nothing());
    summary.operations.all.response.max_ns = 2 * MS;
    summary.errors.insert("ERROR".into(), 1);
    assert_eq!(judged(&summary), nothing());
    summary.errors.clear();
    summary.throughput_per_s = 1_000.0;
    assert_eq!(judged(&summary), nothing());
}

#[test]
fn more_failures_than_tolerated_invalidate_a_run() {
    let mut summary = closed();
    summary.totals.errors = 20;
    assert!(judged(&summary).0.is_empty(), "{:?}", judged(&summary));
    summary.totals.errors = 21;
    let (reasons, notes) = judged(&summary);
    assert!(reasons[0].starts_with("21 of 2021 requests failed, which is 1.04 %, and 1 % is tolerated"), "{reasons:?}");
    assert!(notes.is_empty(), "{notes:?}");
    summary.settings.failed_max = 0.5;
    let (reasons, notes) = judged(&summary);
    assert!(reasons.is_empty() && notes[0].contains("slower than any time"), "{notes:?}");
}

#[test]
fn too_many_values_that_could_not_be_judged_invalidate_a_run() {
    let mut summary = closed();
    (summary.verification.checked, summary.verification.unjudged) = (1_000, 10);
    assert_eq!(judged(&summary), nothing());
    summary.verification.unjudged = 11;
    assert!(judged(&summary).0[0].starts_with("11 of 1000 values could not be judged for staleness"));
    summary.settings.failed_max = 0.02;
    assert_eq!(judged(&summary), nothing(), "more failures leave more keys uncertain");
    summary.settings.failed_max = 0.0;
    summary.settings.noreply = true;
    assert_eq!(judged(&summary), nothing());
}

#[test]
fn seconds_without_an_answer_are_a_note_and_with_failures_a_reason() {
    let mut summary = closed();
    summary.seconds[3].requests = 0;
    assert!(
        judged(&summary).1[0].starts_with("no request was answered in 1 of 10 whole seconds"),
        "{:?}",
        judged(&summary)
    );
    summary.totals.errors = 1;
    assert!(judged(&summary).0[0].contains("in 1 of 10 whole seconds, and 1 failed"), "{:?}", judged(&summary));
    summary.settings.failed_max = 0.1;
    assert!(judged(&summary).0.is_empty(), "{:?}", judged(&summary));
    summary.throughput_per_s = 19.0;
    assert!(!judged(&summary).1.iter().any(|note| note.contains("whole seconds")), "it may be chance");
}

#[test]
fn failures_and_an_early_end_are_notes() {
    let mut summary = closed();
    (summary.totals.errors, summary.partial, summary.measured_s) = (3, true, 4.25);
    let (reasons, notes) = judged(&summary);
    assert!(reasons.is_empty());
    assert!(notes[0].starts_with("ended early, after 4.2 of 10.0 s"), "{notes:?}");
    assert!(notes[1].starts_with("3 of 2003 requests failed"), "{notes:?}");
    summary.measured_s = 10.0;
    assert!(judged(&summary).1[0].starts_with("3 of 2003 requests failed"), "it was not early");
    summary.settings.requests = Some(5_000);
    assert!(judged(&summary).1[0].contains("2000 of 5000 requests"));
    summary.totals.errors = 2;
    assert_eq!(judged(&summary).1.len(), 1);
}
