//! An agent's side of one run: hello, prepare, start, seconds, result. One thread reads, so that a request for the time, a stop
//! and the loss of the controller are noticed while the other prepares and runs.

use crate::LoadError;
use crate::agents::message::{
    AgentHello, FromAgent, LineError, LineReader, PROTOCOL, TO_AGENT_BYTES_MAX, ToAgent, parse, write,
};
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

/// A controller that has said nothing for so long is gone: it asks for the time every second.
pub(crate) const SILENCE_TIMEOUT: Duration = Duration::from_secs(30);
/// After the last word a controller has so long to close.
const LINGER: Duration = Duration::from_secs(2);
/// A controller that reads nothing for so long is gone.
pub(crate) const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// How often the reading thread looks up.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Messages that may wait for their turn; a controller waits for the answer to each.
const MESSAGES_MAX: usize = 4;

/// Why a session ends before its time.
enum End {
    /// There is nobody left to log.
    Gone,
    /// The line that the controller is told.
    Refused(String),
}

/// What the sessions of an agent share.
pub(crate) struct AgentContext<'a> {
    pub(crate) clock: &'a Clock,
    /// Ends the agent, and a run with it.
    pub(crate) stop: &'a AtomicBool,
    /// Makes the configuration of a run out of a controller's words, or says in one line why not.
    pub(crate) parse: &'a (dyn Fn(&[String]) -> Result<Config, String> + Sync),
    /// Is told of each run, one line at a time.
    pub(crate) log: &'a (dyn Fn(&str) + Sync),
    /// The controller whose run is being done.
    busy_with: Mutex<Option<SocketAddr>>,
}

/// The right to run: only one controller has it.
pub(crate) struct Claim<'a>(&'a Mutex<Option<SocketAddr>>);

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl<'a> AgentContext<'a> {
    /// An agent that is not busy.
    pub(crate) fn new(
        clock: &'a Clock,
        stop: &'a AtomicBool,
        parse: &'a (dyn Fn(&[String]) -> Result<Config, String> + Sync),
        log: &'a (dyn Fn(&str) + Sync),
    ) -> AgentContext<'a> {
        AgentContext { clock, stop, parse, log, busy_with: Mutex::new(None) }
    }

    /// The right to run, unless another controller has it.
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

/// What the two threads of a session share.
struct Session<'a> {
    agent: &'a AgentContext<'a>,
    peer: SocketAddr,
    out: Mutex<TcpStream>,
    /// Ends the run of this session.
    stop: AtomicBool,
    /// The last word has been said.
    is_over: AtomicBool,
}

/// Serves one controller.
pub(crate) fn serve_controller(agent: &AgentContext<'_>, stream: TcpStream, peer: SocketAddr) {
    let _ = stream.set_nodelay(true);
    let can_wait = stream.set_read_timeout(Some(POLL_INTERVAL)).and(stream.set_write_timeout(Some(WRITE_TIMEOUT)));
    let (Ok(()), Ok(out)) = (can_wait, stream.try_clone()) else { return };
    let session =
        Session { agent, peer, out: Mutex::new(out), stop: AtomicBool::new(false), is_over: AtomicBool::new(false) };
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
        // What was said must arrive: the other side closes first, if it does so in time.
        let _ = session.out.lock().unwrap_or_else(PoisonError::into_inner).shutdown(Shutdown::Write);
    });
}

impl Session<'_> {
    /// Reads until there is nothing more to read; whatever the reason, a run that goes on is then stopped.
    fn read(&self, mut lines: LineReader<&TcpStream>, messages: &SyncSender<Result<ToAgent, String>>) {
        let clock = self.agent.clock;
        let (mut last_heard, mut over_since) = (clock.now(), None);
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
            }
        }
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Takes one message; says whether another may come.
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
            // Half a line may be out: nothing more can follow it.
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
        let unexpected = |message| End::Refused(format!("{message:?} is not what comes next"));
        let claim = match next()? {
            ToAgent::Hello { protocol, version } => self.greet(protocol, &version)?,
            other => return Err(unexpected(other)),
        };
        let arguments = match next()? {
            ToAgent::Prepare { arguments } => arguments,
            other => return Err(unexpected(other)),
        };
        self.log(&format!("prepares: {}", arguments.join(" ")));
        let config = (self.agent.parse)(&arguments).map_err(End::Refused)?;
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
        // Whoever has the result may send another controller at once.
        drop(claim);
        self.log(&format!("done, {} requests answered", summary.totals.requests_answered));
        self.send_message(&FromAgent::Result { late_ns, summary: Box::new(summary) })
    }

    /// Answers a hello; nothing else is done for a controller that is not like us, or not the only one.
    fn greet(&self, protocol: u32, version: &str) -> Result<impl Drop + '_, End> {
        let own = env!("CARGO_PKG_VERSION");
        if (protocol, version) != (PROTOCOL, own) {
            return Err(End::Refused(format!(
                "this is waystage {own} with protocol {PROTOCOL}, and the controller is waystage {version} with protocol {protocol}; \
                 use the same version on both sides"
            )));
        }
        let claim = self.agent.claim(self.peer).map_err(End::Refused)?;
        let hello = AgentHello { protocol, version: own.into(), host: host(), cores: cores() };
        self.send_message(&FromAgent::Hello(hello))?;
        Ok(claim)
    }

    /// Says here what is done for this controller.
    fn log(&self, line: &str) {
        (self.agent.log)(&format!("{}: {line}", self.peer));
    }

    /// Passes on what happens; a controller that does not take it is gone.
    fn watch(&self, progress: Progress<'_>) {
        let said = match progress {
            Progress::Prefill { keys, of } => self.send_message(&FromAgent::Prefill { keys, of }),
            Progress::Second(second) => {
                if second.second == 0 {
                    self.log("runs");
                }
                self.send_message(&FromAgent::Second(Box::new(second.clone())))
            }
            Progress::Part(_) | Progress::Note(_) | Progress::Stage { .. } => Ok(()),
        };
        if said.is_err() {
            self.stop.store(true, Ordering::Relaxed);
        }
    }

    fn failed(&self, error: &LoadError) -> End {
        if self.agent.stop.load(Ordering::Relaxed) { self.ended() } else { End::Refused(error.to_string()) }
    }

    fn ended(&self) -> End {
        End::Refused("the agent was ended".into())
    }
}

/// The name of this machine, as far as it is known.
pub(crate) fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    if name.trim().is_empty() { "unknown".into() } else { name.trim().into() }
}

/// How many threads this machine runs at once; 0 when it is not known.
pub(crate) fn cores() -> usize {
    thread::available_parallelism().map_or(0, usize::from)
}
