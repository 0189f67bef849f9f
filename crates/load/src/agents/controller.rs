//! The controller: gives each agent its share, starts all at the same instant, collects their messages, and stops all
//! if one is lost. Reads no socket itself, and merges nothing.

use crate::LoadError;
use crate::agents::agent_connection::{AgentConnection, Event};
use crate::agents::gather::{AgentOutcome, LiveSeconds, Start, gather};
use crate::agents::message::{AgentHello, FromAgent, PROTOCOL, ToAgent};
use crate::agents::offset::{Offset, Sample};
use crate::agents::secret::{Side, nonce};
use crate::agents::shares::DistributedRun;
use crate::config::Config;
use crate::progress::Progress;
use crate::report::summary::Summary;
use crate::run::prepare;
use clock::{Clock, Nanos, duration_ns, unix_now};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, Scope};
use std::time::Duration;

/// Requests for an agent's time. The one with the shortest round trip counts.
const CLOCK_SAMPLES: usize = 20;
/// The time from the start message to the start: the message must reach every agent, and all threads must be ready.
const LEAD: Duration = Duration::from_secs(1);
/// The timeout for replies that need no work.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The interval at which each agent's time is requested, so that both sides know that the other is alive.
const HEARTBEAT: Duration = Duration::from_secs(1);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The state of one agent.
#[derive(Debug)]
struct AgentState {
    link: AgentConnection,
    hello: Option<AgentHello>,
    /// The nonces of the agent and of the controller, if the agent has asked for a proof.
    nonces: Option<(String, String)>,
    /// The time request in flight: its number and when it was sent.
    sent: Option<(u64, Nanos)>,
    samples: Vec<Sample>,
    /// The keys set so far, and all keys.
    prefill: (u64, u64),
    prepared: bool,
    result: Option<(u64, Summary)>,
    lost: Option<String>,
}

struct Controller<'a> {
    run: &'a DistributedRun,
    clock: &'a Clock,
    stop: &'a AtomicBool,
    members: Vec<AgentState>,
    events: Receiver<Event>,
    live: LiveSeconds,
    last_heartbeat: Nanos,
    time_requests: u64,
    measuring_prepared: bool,
    measuring: Option<Result<Box<Summary>, String>>,
}

/// Runs all shares from the same instant and merges the results. When `stop` is set, the run ends early and the summary
/// contains what was measured so far.
///
/// # Errors
/// Before the start, an agent cannot be reached or cannot do its share. Later, no agent has a result.
pub fn coordinate(
    run: &DistributedRun,
    clock: &Clock,
    stop: &AtomicBool,
    watch: &mut dyn FnMut(Progress<'_>),
) -> Result<Summary, LoadError> {
    let measuring_stop = &AtomicBool::new(false);
    thread::scope(|scope| {
        let (sender, events) = mpsc::channel();
        let mut members = Vec::new();
        for (number, task) in run.agents.iter().enumerate() {
            members.push(AgentState::new(AgentConnection::connect(number, &task.agent, clock, sender.clone(), scope)?));
        }
        let mut controller = Controller {
            run,
            clock,
            stop,
            live: LiveSeconds::new(members.len()),
            members,
            events,
            last_heartbeat: clock.now(),
            time_requests: 0,
            measuring_prepared: run.measuring.is_none(),
            measuring: None,
        };
        let outcome = controller.run(scope, &sender, measuring_stop, watch);
        measuring_stop.store(true, Ordering::Relaxed);
        outcome
    })
}

impl AgentState {
    fn new(link: AgentConnection) -> AgentState {
        AgentState {
            link,
            hello: None,
            nonces: None,
            sent: None,
            samples: Vec::new(),
            prefill: (0, 0),
            prepared: false,
            result: None,
            lost: None,
        }
    }

    fn is_done(&self) -> bool {
        self.result.is_some() || self.lost.is_some()
    }
}

impl<'a> Controller<'a> {
    /// All phases, one after the other.
    fn run<'scope>(
        &mut self,
        scope: &'scope Scope<'scope, '_>,
        events: &Sender<Event>,
        measuring_stop: &'scope AtomicBool,
        watch: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Summary, LoadError>
    where
        'a: 'scope,
    {
        let hello = ToAgent::Hello { protocol: PROTOCOL, version: env!("CARGO_PKG_VERSION").into() };
        self.send_to_all(&hello);
        self.until(Some(ANSWER_TIMEOUT), watch, |controller| controller.first(|member| member.hello.is_none()))?;
        let (start_measuring, started) = mpsc::channel();
        if let Some(config) = &self.run.measuring {
            let (clock, events) = (self.clock, events.clone());
            thread::Builder::new()
                .name("measuring".into())
                .spawn_scoped(scope, move || measure(config, clock, measuring_stop, &started, &events))
                .map_err(LoadError::Thread)?;
        }
        for (member, task) in self.members.iter().zip(&self.run.agents) {
            let _ = member.link.send_message(&ToAgent::Prepare { arguments: task.arguments.clone() });
        }
        self.until(None, watch, |controller| {
            controller.first(|member| !member.prepared).or((!controller.measuring_prepared).then_some(0))
        })?;
        let offsets = self.offsets(watch)?;
        let error_ns = offsets.iter().map(|offset| offset.error_ns).max().unwrap_or(0);
        let now = self.clock.now();
        let lead_ns = duration_ns(LEAD) + 8 * error_ns;
        let start = Start { clock: Nanos(now.0 + lead_ns), unix_ns: unix_now() + lead_ns };
        for (member, offset) in self.members.iter().zip(&offsets) {
            let _ = member.link.send_message(&ToAgent::Start { at_clock_ns: offset.to_agent(start.clock).0 });
        }
        let _ = start_measuring.send(start.clock);
        self.until_done(measuring_stop, watch);
        gather(self.run, start, self.outcomes(&offsets), self.measuring.take())
    }

    /// The first agent that satisfies a condition.
    fn first(&self, is_so: impl Fn(&AgentState) -> bool) -> Option<usize> {
        self.members.iter().position(is_so)
    }

    fn agent_error(&self, agent: usize, line: String) -> LoadError {
        LoadError::Agent { agent: self.run.agents[agent].agent.clone(), line }
    }

    fn send_to_all(&self, message: &ToAgent) {
        // If an agent cannot be reached, its reading thread reports that it is lost.
        self.members
            .iter()
            .filter(|member| !member.is_done())
            .for_each(|member| drop(member.link.send_message(message)));
    }

    /// Waits until `blocked_on` returns none. An agent that is lost before the start ends the run for all.
    fn until(
        &mut self,
        timeout: Option<Duration>,
        watch: &mut dyn FnMut(Progress<'_>),
        blocked_on: impl Fn(&Controller<'_>) -> Option<usize>,
    ) -> Result<(), LoadError> {
        let since = self.clock.now();
        while let Some(agent) = blocked_on(self) {
            if self.stop.load(Ordering::Relaxed) {
                return Err(LoadError::Stopped);
            }
            if timeout.is_some_and(|timeout| self.clock.now() >= since + timeout) {
                return Err(self.agent_error(agent, "no reply; is it `waystage load agent`?".into()));
            }
            self.take_next(watch);
            if let Some(agent) = self.first(|member| member.lost.is_some()) {
                let line = self.members[agent].lost.clone().unwrap_or_default();
                return Err(self.agent_error(agent, line));
            }
            if let Some(Err(line)) = &self.measuring {
                return Err(LoadError::Config(format!("measuring client: {line}")));
            }
        }
        Ok(())
    }

    /// The offset of each agent's clock from the controller's.
    fn offsets(&mut self, watch: &mut dyn FnMut(Progress<'_>)) -> Result<Vec<Offset>, LoadError> {
        let mut offsets = Vec::new();
        for agent in 0..self.members.len() {
            self.members[agent].samples.clear();
            for count in 0..CLOCK_SAMPLES {
                self.request_time(agent);
                let blocked_on =
                    |controller: &Controller<'_>| (controller.members[agent].samples.len() <= count).then_some(agent);
                self.until(Some(ANSWER_TIMEOUT), watch, blocked_on)?;
            }
            let offset = Offset::estimate(&self.members[agent].samples);
            offsets.push(
                offset.ok_or_else(|| {
                    self.agent_error(agent, "its clock cannot be compared with the controller's".into())
                })?,
            );
        }
        Ok(offsets)
    }

    /// Requests one agent's time.
    fn request_time(&mut self, agent: usize) {
        self.time_requests += 1;
        let request = ToAgent::Clock { number: self.time_requests };
        let member = &mut self.members[agent];
        member.sent = Some((self.time_requests, self.clock.now()));
        let _ = member.link.send_message(&request);
    }

    /// Waits until every agent has a result or is lost. If an agent or the measuring client fails, all are stopped.
    fn until_done(&mut self, measuring_stop: &AtomicBool, watch: &mut dyn FnMut(Progress<'_>)) {
        let mut stopping = false;
        let measures = self.run.measuring.is_some();
        while self.first(|member| !member.is_done()).is_some() || (measures && self.measuring.is_none()) {
            self.take_next(watch);
            let failed =
                self.first(|member| member.lost.is_some()).is_some() || matches!(&self.measuring, Some(Err(_)));
            if !stopping && (failed || self.stop.load(Ordering::Relaxed)) {
                stopping = true;
                self.send_to_all(&ToAgent::Stop {});
                measuring_stop.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Handles the next event, if there is one within the poll interval.
    fn take_next(&mut self, watch: &mut dyn FnMut(Progress<'_>)) {
        let now = self.clock.now();
        if now.since(self.last_heartbeat) >= duration_ns(HEARTBEAT) {
            self.last_heartbeat = now;
            for agent in 0..self.members.len() {
                // A request in flight is not replaced, because its reply would then be ignored.
                if !self.members[agent].is_done() && self.members[agent].sent.is_none() {
                    self.request_time(agent);
                }
            }
        }
        match self.events.recv_timeout(POLL_INTERVAL) {
            Ok(Event::Received { agent, at, message }) => self.handle(agent, at, message, watch),
            Ok(Event::Lost { agent, why }) => self.lose(agent, why, watch),
            Ok(Event::MeasuringPrepared) => self.measuring_prepared = true,
            Ok(Event::MeasuringDone(result)) => self.measuring = Some(result),
            // The controller keeps a sender, so this can only be a timeout.
            Err(_) => {}
        }
    }

    fn handle(&mut self, agent: usize, at: Nanos, message: FromAgent, watch: &mut dyn FnMut(Progress<'_>)) {
        let member = &mut self.members[agent];
        match message {
            FromAgent::Challenge { nonce } => {
                if let Err(why) = self.prove(agent, nonce) {
                    self.lose(agent, why, watch);
                }
            }
            FromAgent::Hello(hello) => match self.check_hello(agent, &hello) {
                Ok(()) => self.members[agent].hello = Some(hello),
                Err(why) => self.lose(agent, why, watch),
            },
            FromAgent::Clock { number, clock_ns } => {
                if let Some((_, sent)) = member.sent.take_if(|(open, _)| *open == number) {
                    member.samples.push(Sample { sent, agent_clock: Nanos(clock_ns), answered: at });
                }
            }
            FromAgent::Prefill { keys, of } => {
                member.prefill = (keys, of);
                let sum = |part: fn(&AgentState) -> u64| self.members.iter().map(part).sum();
                watch(Progress::Prefill { keys: sum(|member| member.prefill.0), of: sum(|member| member.prefill.1) });
            }
            FromAgent::Prepared {} => member.prepared = true,
            FromAgent::Second(second) => {
                let past = self.live.take(agent, *second);
                past.iter().for_each(|second| watch(Progress::Second(second)));
            }
            FromAgent::Result { late_ns, summary } => {
                member.result = Some((late_ns, *summary));
                let past = self.live.end(agent);
                past.iter().for_each(|second| watch(Progress::Second(second)));
            }
            FromAgent::Error { line } => self.lose(agent, line, watch),
        }
    }

    /// Answers an agent's challenge, once.
    fn prove(&mut self, agent: usize, challenge: String) -> Result<(), String> {
        let Some(secret) = &self.run.secret else {
            return Err("it needs the secret that it shares with its controllers; give --secret-file".into());
        };
        let member = &mut self.members[agent];
        if member.nonces.is_some() || member.hello.is_some() {
            return Err("it asked twice for a proof of the secret".into());
        }
        let own = nonce()?;
        let proof = secret.proof(Side::Controller, &challenge, &own);
        let _ = member.link.send_message(&ToAgent::Proof { nonce: own.clone(), proof });
        member.nonces = Some((challenge, own));
        Ok(())
    }

    /// Checks the version of an agent and, if the controller has a secret, whether the agent has it, too.
    fn check_hello(&self, agent: usize, hello: &AgentHello) -> Result<(), String> {
        if hello.protocol != PROTOCOL {
            return Err(format!(
                "its protocol is {}, and the controller's is {PROTOCOL}; use the same version of waystage",
                hello.protocol
            ));
        }
        let Some(secret) = &self.run.secret else { return Ok(()) };
        let is_proved = |(theirs, ours): &(String, String)| {
            hello.proof.as_ref().is_some_and(|proof| secret.is_proof(proof, Side::Agent, theirs, ours))
        };
        if self.members[agent].nonces.as_ref().is_some_and(is_proved) {
            return Ok(());
        }
        Err("it did not prove that it has the controller's secret; start it with the same --secret-file".into())
    }

    /// An agent is lost. The first reason counts, because an agent's own error message arrives before the end of its
    /// connection.
    fn lose(&mut self, agent: usize, why: String, watch: &mut dyn FnMut(Progress<'_>)) {
        if !self.members[agent].is_done() {
            self.members[agent].lost = Some(why);
            let past = self.live.end(agent);
            past.iter().for_each(|second| watch(Progress::Second(second)));
        }
    }

    fn outcomes(&mut self, offsets: &[Offset]) -> Vec<AgentOutcome> {
        let unknown =
            || AgentHello { protocol: PROTOCOL, version: String::new(), host: "unknown".into(), cores: 0, proof: None };
        let outcome = |(member, offset): (&mut AgentState, &Offset)| AgentOutcome {
            hello: member.hello.take().unwrap_or_else(unknown),
            offset: *offset,
            result: member.result.take(),
            lost: member.lost.take(),
        };
        self.members.iter_mut().zip(offsets).map(outcome).collect()
    }
}

/// Runs the local measuring client, which prepares and starts together with the agents.
fn measure(config: &Config, clock: &Clock, stop: &AtomicBool, start: &Receiver<Nanos>, events: &Sender<Event>) {
    let mut ignore = |_: Progress<'_>| ();
    let result = prepare(config, clock, stop, &mut ignore).and_then(|prepared| {
        let _ = events.send(Event::MeasuringPrepared);
        // The channel closes without a start if the agents cannot be prepared.
        let start = start.recv().map_err(|_| LoadError::Stopped)?;
        prepared.run_from(start, stop, &mut ignore)
    });
    let _ = events.send(Event::MeasuringDone(result.map(Box::new).map_err(|error| error.to_string())));
}
