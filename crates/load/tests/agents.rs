//! An agent and its controller in one process: whom they trust, and how much memory a run may take.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use clock::Clock;
use load::{Agent, AgentLimits, AgentTask, Config, DistributedRun, Secret, Summary, coordinate, split};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use support::{TinyServer, config};

const REQUESTS: u64 = 40;

fn limits(secret: Option<&str>) -> AgentLimits {
    AgentLimits { secret: secret.map(|text| Secret::new(text).unwrap()), insecure: false, memory_bytes: 2 << 30 }
}

/// One run by an agent with these limits, for a controller with this secret. Returns the result, and what the agent has
/// logged.
fn run(limits: AgentLimits, secret: Option<&str>) -> (Result<Summary, String>, Vec<String>) {
    let server = TinyServer::healthy();
    let config = Config { requests: Some(REQUESTS), ..config(&server) };
    let (clock, stop, lines) = (Clock::monotonic(), AtomicBool::new(false), Mutex::new(Vec::new()));
    let parse = |_: &[String]| Ok(config.clone());
    let log = |line: &str| lines.lock().unwrap().push(line.to_owned());
    let agent = Agent::bind("127.0.0.1:0", limits, &clock, &stop, &parse, &log).unwrap();
    let share = split(&config, 1, None).unwrap().agents.remove(0);
    let task = AgentTask { agent: agent.address().unwrap().to_string(), share, arguments: Vec::new() };
    let distributed = DistributedRun {
        agents: vec![task],
        measuring: None,
        percentiles: Vec::new(),
        arguments: Vec::new(),
        secret: secret.map(|text| Secret::new(text).unwrap()),
    };
    let result = thread::scope(|scope| {
        scope.spawn(|| agent.serve());
        let result = coordinate(&distributed, &clock, &AtomicBool::new(false), &mut |_| ());
        stop.store(true, Ordering::Relaxed);
        result
    });
    (result.map_err(|error| error.to_string()), lines.into_inner().unwrap())
}

#[test]
fn both_sides_prove_that_they_have_the_secret() {
    const SECRET: &str = "correct horse battery staple";
    for (agent, controller) in [(None, None), (Some(SECRET), Some(SECRET))] {
        let summary = run(limits(agent), controller).0.unwrap();
        assert_eq!(summary.totals.requests, REQUESTS);
    }
    let refusals = [
        (Some(SECRET), None, "it needs the secret"),
        (Some(SECRET), Some("correct horse battery stable"), "the controller does not have the agent's secret"),
        (None, Some(SECRET), "it did not prove that it has the controller's secret"),
    ];
    for (agent, controller, expected) in refusals {
        let (result, log) = run(limits(agent), controller);
        let line = result.unwrap_err();
        assert!(line.contains(expected) && !line.contains("horse"), "{line}");
        assert!(!log.iter().any(|line| line.contains("prepares") || line.contains("horse")), "{log:?}");
    }
}

#[test]
fn an_agent_beyond_the_loopback_interface_needs_a_secret() {
    let (clock, stop) = (Clock::monotonic(), AtomicBool::new(false));
    let (parse, log) = (|_: &[String]| Err("unused".to_owned()), |_: &str| ());
    let bind = |limits| Agent::bind("0.0.0.0:0", limits, &clock, &stop, &parse, &log).map(|_| ());
    let line = bind(limits(None)).unwrap_err().to_string();
    assert!(line.contains("--listen 0.0.0.0:0") && line.contains("--secret-file"), "{line}");
    bind(limits(Some("0123456789abcdef"))).unwrap();
    bind(AgentLimits { insecure: true, ..limits(None) }).unwrap();
}

#[test]
fn a_run_that_may_need_more_memory_than_the_agent_has_is_refused() {
    let (result, log) = run(AgentLimits { memory_bytes: 1 << 20, ..limits(None) }, None);
    let line = result.unwrap_err();
    assert!(line.contains("MiB of memory, and the agent allows 1 MiB (--memory)") && !line.contains('\n'), "{line}");
    assert!(log.iter().any(|line| line.contains("--memory")), "{log:?}");
}
