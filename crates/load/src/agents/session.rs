//! An agent's side of one run: hello, prepare, start, seconds, result. A second thread reads, so that time requests, a
//! stop and the loss of the controller are handled while the first prepares and runs.

use crate::LoadError;
use crate::agents::limits::AgentLimits;
use crate::agents::message::{
    AgentHello, FromAgent, LineError, LineReader, PROTOCOL, TO_AGENT_BYTES_MAX, ToAgent, parse, write,
};
use crate::agents::secret::{Side, nonce};
use crate::config::Config;
use crate::progress::Progress;
use crate::run::prepare;
use clock::{Clock, Nanos, duration_ns};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// A controller that has sent nothing for this long is gone, because it requests the time every second.
pub(crate) const SILENCE_TIMEOUT: Duration = Duration::from_secs(30);
/// A controller must say hello and prove its secret within this time, so that strangers cannot occupy the agent.
const ADMISSION_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a controller may take to close the connection after the last message.
const LINGER: Duration = Duration::from_secs(2);
/// A controller that reads nothing for this long is gone.
pub(crate) const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// The read timeout, after which the reading thread checks the flags.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Messages that may be queued. A controller waits for the reply to each.
const MESSAGES_MAX: usize = 4;

/// Why a session ends early.
enum End {
    /// The controller is gone.
    Gone,
    /// The agent refused; this line is sent to the controller.
    Refused(String),
}

/// The state that the sessions of an agent share.
pub(crate) struct AgentContext<'a> {
    pub(crate) clock: &'a Clock,
    /// Ends the agent and its current run.
    pub(crate) stop: &'a AtomicBool,
    pub(crate) limits: AgentLimits,
    /// Parses a controller's arguments into a configuration, or returns an error in one line.
    pub(crate) parse: &'a (dyn Fn(&[String]) -> Result<Config, String> + Sync),
    /// Receives one line for each step of a run.
    pub(crate) log: &'a (dyn Fn(&str) + Sync),
    /// The controller whose run is in progress.
    busy_with: Mutex<Option<SocketAddr>>,
}

/// The exclusive right of one controller to run.
pub(crate) struct Claim<'a>(&'a Mutex<Option<SocketAddr>>);

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl<'a> AgentContext<'a> {
    /// An agent without a run.
    pub(crate) fn new(
        clock: &'a Clock,
        stop: &'a AtomicBool,
        limits: AgentLimits,
        parse: &'a (dyn Fn(&[String]) -> Result<Config, String> + Sync),
        log: &'a (dyn Fn(&str) + Sync),
    ) -> AgentContext<'a> {
        AgentContext { clock, stop, limits, parse, log, busy_with: Mutex::new(None) }
    }

    /// Claims the agent for a controller, unless another one has it.
    pub(crate) fn claim(&self, peer: SocketAddr) -> Result<Claim<'_>, String> {
        let mut busy_with = self.busy_with.lock().unwrap_or_else(PoisonError::into_inner);
        match *busy_with {
            Some(other) => Err(format!("busy with a run for {other}; wait until it has ended, or use another agent")),
            None => {
                *busy_with = Some(peer);
                Ok(Claim(&self.busy_with))
            }
        }
    }
}

/// The state that the two threads of a session share.
struct Session<'a> {
    agent: &'a AgentContext<'a>,
    peer: SocketAddr,
    out: Mutex<TcpStream>,
    /// Ends the run of this session.
    stop: AtomicBool,
    /// The controller has said hello, and has proved that it has the secret.
    is_admitted: AtomicBool,
    /// The last message has been sent.
    is_over: AtomicBool,
}

/// Serves one controller.
pub(crate) fn serve_controller(agent: &AgentContext<'_>, stream: TcpStream, peer: SocketAddr) {
    let _ = stream.set_nodelay(true);
    let can_wait = stream.set_read_timeout(Some(POLL_INTERVAL)).and(stream.set_write_timeout(Some(WRITE_TIMEOUT)));
    let (Ok(()), Ok(out)) = (can_wait, stream.try_clone()) else { return };
    let session = Session {
        agent,
        peer,
        out: Mutex::new(out),
        stop: AtomicBool::new(false),
        is_admitted: AtomicBool::new(false),
        is_over: AtomicBool::new(false),
    };
    thread::scope(|scope| {
        let (sender, receiver) = sync_channel(MESSAGES_MAX);
        let reading = &session;
        let spawned = thread::Builder::new().name("agent-reader".into()).spawn_scoped(scope, move || {
            reading.read(LineReader::new(&stream, TO_AGENT_BYTES_MAX), &sender);
        });
        if spawned.is_err() {
            return;
        }
        if let Err(End::Refused(line)) = session.run_session(&receiver) {
            session.log(&line);
            let _ = session.send_message(&FromAgent::Error { line });
        }
        session.is_over.store(true, Ordering::Relaxed);
        // The last message must arrive, so the controller gets the chance to close first.
        let _ = session.out.lock().unwrap_or_else(PoisonError::into_inner).shutdown(Shutdown::Write);
    });
}

impl Session<'_> {
    /// Reads until the connection ends. A run in progress is stopped then.
    fn read(&self, mut lines: LineReader<&TcpStream>, messages: &SyncSender<Result<ToAgent, String>>) {
        let clock = self.agent.clock;
        let (connected, mut last_heard, mut over_since) = (clock.now(), clock.now(), None);
        loop {
            let line = lines.next();
            let now = clock.now();
            match line {
                Ok(line) => {
                    last_heard = now;
                    if !self.take(parse(&line), now, messages) {
                        break;
                    }
                }
                Err(LineError::TimedOut) => {}
                Err(LineError::Closed) => break,
                Err(LineError::Broken(line)) => {
                    let _ = messages.try_send(Err(line));
                    break;
                }
            }
            if self.is_over.load(Ordering::Relaxed) {
                let since = *over_since.get_or_insert(now);
                if now.since(since) >= duration_ns(LINGER) {
                    break;
                }
            } else if self.agent.stop.load(Ordering::Relaxed) || now.since(last_heard) >= duration_ns(SILENCE_TIMEOUT) {
                break;
            } else if !self.is_admitted.load(Ordering::Relaxed)
                && now.since(connected) >= duration_ns(ADMISSION_TIMEOUT)
            {
                let _ =
                    messages.try_send(Err(format!("no valid hello and proof arrived within {ADMISSION_TIMEOUT:?}")));
                break;
            }
        }
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Handles one message. Returns whether another one may follow.
    fn take(
        &self,
        message: Result<ToAgent, String>,
        now: Nanos,
        messages: &SyncSender<Result<ToAgent, String>>,
    ) -> bool {
        match message {
            Ok(ToAgent::Clock { number }) => self.send_message(&FromAgent::Clock { number, clock_ns: now.0 }).is_ok(),
            Ok(ToAgent::Stop {}) => {
                self.stop.store(true, Ordering::Relaxed);
                true
            }
            message => {
                let is_good = message.is_ok();
                messages.try_send(message).is_ok() && is_good
            }
        }
    }

    fn send_message(&self, message: &FromAgent) -> Result<(), End> {
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        write(&mut *out, message).map_err(|_| {
            // Part of a line may have been sent, so nothing can follow it.
            let _ = out.shutdown(Shutdown::Both);
            End::Gone
        })
    }

    /// One run, from hello to result.
    fn run_session(&self, messages: &Receiver<Result<ToAgent, String>>) -> Result<(), End> {
        let next = || match messages.recv() {
            Ok(Ok(message)) => Ok(message),
            Ok(Err(line)) => Err(End::Refused(line)),
            Err(_) if self.agent.stop.load(Ordering::Relaxed) => Err(self.ended()),
            Err(_) => Err(End::Gone),
        };
        let unexpected = |message| End::Refused(format!("unexpected message {message:?}"));
        let claim = match next()? {
            ToAgent::Hello { protocol, version } => {
                self.check_version(protocol, &version)?;
                let proof = self.authenticate(next)?;
                self.greet(proof)?
            }
            other => return Err(unexpected(other)),
        };
        let arguments = match next()? {
            ToAgent::Prepare { arguments } => arguments,
            other => return Err(unexpected(other)),
        };
        self.log(&format!("prepares: {}", arguments.join(" ")));
        let config = (self.agent.parse)(&arguments).map_err(End::Refused)?;
        self.check_memory(&config)?;
        let prepared = prepare(&config, self.agent.clock, &self.stop, &mut |progress| self.watch(progress));
        let prepared = prepared.map_err(|error| self.failed(&error))?;
        self.send_message(&FromAgent::Prepared {})?;
        let start = match next()? {
            ToAgent::Start { at_clock_ns } => Nanos(at_clock_ns),
            other => return Err(unexpected(other)),
        };
        let late_ns = self.agent.clock.now().since(start);
        let ran = prepared.run_from(start, &self.stop, &mut |progress| self.watch(progress));
        let summary = ran.map_err(|error| self.failed(&error))?;
        if self.agent.stop.load(Ordering::Relaxed) {
            return Err(self.ended());
        }
        // A controller that has the result may start the next run at once.
        drop(claim);
        self.log(&format!("done, {} requests answered", summary.totals.requests_answered));
        self.send_message(&FromAgent::Result { late_ns, summary: Box::new(summary) })
    }

    /// Refuses a controller of another version.
    fn check_version(&self, protocol: u32, version: &str) -> Result<(), End> {
        let own = env!("CARGO_PKG_VERSION");
        if (protocol, version) != (PROTOCOL, own) {
            return Err(End::Refused(format!(
                "this is waystage {own} with protocol {PROTOCOL}, and the controller is waystage {version} with protocol {protocol}; \
                 use the same version on both sides"
            )));
        }
        Ok(())
    }

    /// Lets the controller prove that it has the agent's secret, and returns the proof for the controller.
    fn authenticate(&self, next: impl Fn() -> Result<ToAgent, End>) -> Result<Option<String>, End> {
        let Some(secret) = &self.agent.limits.secret else { return Ok(None) };
        let own = nonce().map_err(End::Refused)?;
        self.send_message(&FromAgent::Challenge { nonce: own.clone() })?;
        match next()? {
            ToAgent::Proof { nonce, proof } if secret.is_proof(&proof, Side::Controller, &own, &nonce) => {
                Ok(Some(secret.proof(Side::Agent, &own, &nonce)))
            }
            _ => Err(End::Refused(
                "the controller does not have the agent's secret; give both the same --secret-file".into(),
            )),
        }
    }

    /// Refuses a run that may need more memory than the agent has for it.
    fn check_memory(&self, config: &Config) -> Result<(), End> {
        let (needed, allowed) = (config.memory_bytes(), self.agent.limits.memory_bytes);
        if needed <= allowed {
            return Ok(());
        }
        let mebibytes = |bytes: u64| bytes.div_ceil(1 << 20);
        Err(End::Refused(format!(
            "the run may need {} MiB of memory, and the agent allows {} MiB (--memory); use smaller values, fewer clients or \
             fewer keys",
            mebibytes(needed),
            mebibytes(allowed)
        )))
    }

    /// Replies to a hello. A controller that connects during another's run is refused.
    fn greet(&self, proof: Option<String>) -> Result<impl Drop + '_, End> {
        self.is_admitted.store(true, Ordering::Relaxed);
        let claim = self.agent.claim(self.peer).map_err(End::Refused)?;
        let (protocol, version) = (PROTOCOL, env!("CARGO_PKG_VERSION").into());
        let hello = AgentHello { protocol, version, host: host(), cores: cores(), proof };
        self.send_message(&FromAgent::Hello(hello))?;
        Ok(claim)
    }

    /// Logs a step of this controller's run.
    fn log(&self, line: &str) {
        (self.agent.log)(&format!("{}: {line}", self.peer));
    }

    /// Sends progress to the controller. If that fails, the controller is gone.
    fn watch(&self, progress: Progress<'_>) {
        let sent = match progress {
            Progress::Prefill { keys, of } => self.send_message(&FromAgent::Prefill { keys, of }),
            Progress::Second(second) => {
                if second.second == 0 {
                    self.log("runs");
                }
                self.send_message(&FromAgent::Second(Box::new(second.clone())))
            }
            Progress::Part(_) | Progress::Note(_) | Progress::Stage { .. } => Ok(()),
        };
        if sent.is_err() {
            self.stop.store(true, Ordering::Relaxed);
        }
    }

    fn failed(&self, error: &LoadError) -> End {
        if self.agent.stop.load(Ordering::Relaxed) { self.ended() } else { End::Refused(error.to_string()) }
    }

    fn ended(&self) -> End {
        End::Refused("the agent was stopped".into())
    }
}

/// The host name of this machine, or "unknown".
pub(crate) fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    if name.trim().is_empty() { "unknown".into() } else { name.trim().into() }
}

/// The number of hardware threads of this machine; 0 if it is not known.
pub(crate) fn cores() -> usize {
    thread::available_parallelism().map_or(0, usize::from)
}
