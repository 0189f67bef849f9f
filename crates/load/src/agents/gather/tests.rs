//! Results of agents with very different clocks merge into one run, and a lost agent is reported.

use super::*;
use crate::agents::shares::{AgentTask, Share};
use crate::config::Config;
use crate::measure::part::Part;
use crate::measure::request::{EndedRequest, Operation};
use crate::measure::seconds::SecondsCollector;
use crate::measure::tally::Tally;
use crate::report::summarise::{MeasuredRun, summarise};
use clock::CpuTime;
use std::sync::mpsc::channel;
use std::time::Duration;

const SECOND: u64 = 1_000_000_000;
const START: Start = Start { clock: Nanos(50 * SECOND), unix_ns: 1_700_000_000 * SECOND };
const AHEAD_NS: [i64; 2] = [7 * SECOND as i64, -(9 * SECOND as i64)];

/// A run of an agent whose clock is ahead of the controller's, with a wrong wall clock.
fn summary(seed: u64, ahead_ns: i64) -> Summary {
    let config = Config { seed, warm_up: Duration::from_secs(1), ..Config::default() };
    let start = Nanos(START.clock.0.saturating_add_signed(ahead_ns));
    let from = start + Duration::from_secs(1);
    let measured = MeasuredRun {
        started_unix_ns: 12345 + seed * 1000 * SECOND,
        start,
        from,
        to: from + Duration::from_secs(2),
        cpu_from: CpuTime::default(),
        cpu_to: CpuTime::default(),
        keys_uncertain: 0,
        stopped: false,
        broken: None,
        messages: None,
    };
    let mut part = Box::new(Part::new(channel().0));
    part.second = 1;
    part.inside.record(&EndedRequest {
        operation: Operation::Get,
        intended: from,
        sent: from,
        completed: from + Duration::from_millis(1),
        keys: 1,
        hits: 1,
        request_bytes: 10,
        reply_bytes: 20,
        failed: false,
        message: None,
    });
    let mut tally = Tally::new();
    tally.completed = 1;
    let (window, seconds) = SecondsCollector::new(1).close([part], 3);
    summarise(&config, &measured, &tally, &window, seconds)
}

fn distributed() -> DistributedRun {
    let share =
        Share { clients: 1, rate_per_s: None, requests: None, seed: 1, key_minimum: 0, key_maximum: 9, prefill: true };
    let task = |agent: &str| AgentTask { agent: agent.into(), share: share.clone(), arguments: Vec::new() };
    let agents = vec![task("one:1"), task("two:2")];
    DistributedRun {
        agents,
        measuring: None,
        percentiles: vec![50.0],
        arguments: vec!["waystage".into()],
        secret: None,
    }
}

fn outcome(seed: u64, error_ns: u64, late_ns: u64) -> AgentOutcome {
    let ahead_ns = AHEAD_NS[seed as usize];
    AgentOutcome {
        hello: AgentHello { protocol: 1, version: "1".into(), host: format!("host{seed}"), cores: 4, proof: None },
        offset: Offset { ns: ahead_ns, error_ns },
        result: Some((late_ns, summary(seed, ahead_ns))),
        lost: None,
    }
}

#[test]
fn agents_with_different_clocks_are_one_run() {
    let merged = gather(&distributed(), START, vec![outcome(0, 300, 0), outcome(1, 20, 0)], None).unwrap();
    assert_eq!((merged.valid, merged.totals.requests, merged.measured_s), (true, 2, 2.0));
    assert_eq!((merged.started_unix_ns, merged.started_clock_ns), (START.unix_ns, START.clock.0));
    assert_eq!(merged.measure_from_clock_ns, START.clock.0 + SECOND);
    assert_eq!(merged.seconds.iter().map(|second| second.requests).collect::<Vec<_>>(), [0, 2, 0]);
    assert_eq!((merged.settings.percentiles, merged.arguments), (vec![50.0], vec!["waystage".to_owned()]));
    let coordination = merged.coordination.unwrap();
    assert_eq!(coordination.start_spread_ns, 320);
    let second = &coordination.agents[1];
    assert_eq!((second.agent.as_str(), second.host.as_str()), ("two:2", "host1"));
    assert_eq!((second.clock_offset_ns, second.clock_error_ns), (AHEAD_NS[1], 20));
    assert_eq!(second.measure_to_clock_ns, Some(START.clock.0 + 3 * SECOND));
}

#[test]
fn a_lost_agent_invalidates_the_run_and_the_other_results_are_kept() {
    let lost = |outcome| AgentOutcome { result: None, lost: Some("it closed the connection".into()), ..outcome };
    let merged = gather(&distributed(), START, vec![lost(outcome(0, 1, 0)), outcome(1, 1, 0)], None).unwrap();
    assert_eq!((merged.valid, merged.partial, merged.totals.requests), (false, true, 1));
    assert!(merged.reasons.iter().any(|line| line.contains("one:1 was lost: it closed")), "{:?}", merged.reasons);
    let none = gather(&distributed(), START, vec![lost(outcome(0, 1, 0)), lost(outcome(1, 1, 0))], None).unwrap_err();
    assert_eq!(none.to_string(), "agent one:1: it closed the connection");
}

#[test]
fn a_late_start_is_reported_and_invalidates_the_run_if_longer_than_the_warm_up() {
    let gathered =
        |late_ns| gather(&distributed(), START, vec![outcome(0, 1, late_ns), outcome(1, 1, 0)], None).unwrap();
    let within = gathered(SECOND / 2);
    assert!(within.valid && within.notes.iter().any(|line| line.contains("one:1 started 0.500 s late")));
    let beyond = gathered(SECOND * 3 / 2);
    assert!(!beyond.valid && beyond.reasons.iter().any(|line| line.contains("--warm-up")), "{:?}", beyond.reasons);
}

#[test]
fn the_measuring_client_is_reported_apart_and_counts_for_the_verdict() {
    let both = || vec![outcome(0, 1, 0), outcome(1, 1, 0)];
    let merged = gather(&distributed(), START, both(), Some(Ok(Box::new(summary(5, 0))))).unwrap();
    let measuring = merged.coordination.as_ref().unwrap().measuring.as_ref().unwrap();
    assert_eq!((merged.totals.requests, measuring.totals.requests, merged.valid), (2, 1, true));
    assert_eq!(measuring.started_unix_ns, START.unix_ns);
    assert!(crate::report::print::render(&merged).contains("\nmeasuring "));
    let spoilt = Summary { reasons: vec!["torn".into()], valid: false, ..summary(5, 0) };
    for measuring in [Ok(Box::new(spoilt)), Err("no such server".into())] {
        let merged = gather(&distributed(), START, both(), Some(measuring)).unwrap();
        assert!(!merged.valid && merged.reasons[0].starts_with("measuring client: "), "{:?}", merged.reasons);
    }
}

#[test]
fn a_coordinated_summary_can_be_parsed_again() {
    let merged = gather(&distributed(), START, vec![outcome(0, 1, 0), outcome(1, 1, 0)], None).unwrap();
    assert_eq!(Summary::from_json(&merged.to_json().unwrap()).unwrap(), merged);
}

#[test]
fn a_second_is_shown_when_every_running_agent_has_passed_it() {
    let second = |number| Second { second: number, ..summary(0, 0).seconds.remove(1) };
    let mut live = LiveSeconds::new(2);
    assert!(live.take(0, second(0)).is_empty() && live.take(0, second(1)).is_empty());
    let shown = live.take(1, second(0));
    assert_eq!(shown.iter().map(|second| (second.second, second.requests)).collect::<Vec<_>>(), [(0, 2)]);
    // No more seconds come from the other agent.
    assert_eq!(live.end(1).iter().map(|second| (second.second, second.requests)).collect::<Vec<_>>(), [(1, 1)]);
    assert_eq!(live.take(0, second(2)).len(), 1);
}
