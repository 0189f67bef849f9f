//! Finds out, on threads of its own, what the names of backends mean: at the start, every so often, and when a connection
//! has failed. Event loops are told of changes; they never look up anything themselves.

use crate::config::Lookup;
use crate::control::transport::Target;
use crate::observe::counters::NameCounters;
use crate::path::backend::server::{Failure, Reporter};
use crate::path::messages::LoopMessage;
use clock::{Clock, Nanos};
use net::{Endpoint, Post};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// Lookups under way at one time; one that hangs must not hold up the others.
const LOOKUPS_MAX: usize = 16;
/// A name is not looked up more often than this, however often connections fail.
const LOOKUP_GAP: Duration = Duration::from_millis(500);
/// How long the start waits for the first answers. A name without one is a backend that is down.
const START_WAIT: Duration = Duration::from_secs(5);
/// After this, a loop whose mailbox was full is told again.
const TELL_GAP: Duration = Duration::from_millis(10);
/// Events that may wait.
const EVENTS_MAX: usize = 4096;
/// Far enough away when nothing is due.
const LONG: Duration = Duration::from_secs(3600);

/// What the resolver is told.
#[derive(Debug)]
pub(crate) enum Event {
    /// A connection to a backend has failed.
    Failed(Failure),
    /// A lookup has ended.
    Found { name: usize, answer: io::Result<Vec<SocketAddr>> },
    /// The proxy ends.
    Stop,
}

/// The names that must be looked up, before the loops exist.
#[derive(Debug)]
pub(crate) struct Resolver {
    names: Vec<Name>,
    every: Duration,
    lookup: Lookup,
    clock: Clock,
    sender: SyncSender<Event>,
    receiver: Receiver<Event>,
    posts: Vec<Post<LoopMessage>>,
    counters: Arc<NameCounters>,
}

/// A resolver that runs.
#[derive(Debug)]
pub(crate) struct Resolving {
    sender: SyncSender<Event>,
    thread: JoinHandle<()>,
}

/// One backend's name.
#[derive(Debug)]
struct Name {
    backend: u16,
    target: Target,
    /// What it last meant.
    addresses: Vec<SocketAddr>,
    /// The one that is used; it stays as long as the name still means it.
    current: Option<SocketAddr>,
    is_asking: bool,
    /// Loops that could not be told of it yet, since their mailboxes were full.
    untold: Vec<usize>,
    asked: Nanos,
    due: Nanos,
}

impl Resolver {
    /// A resolver of those targets that are names.
    pub(crate) fn new(
        targets: &[Target],
        every: Duration,
        lookup: Lookup,
        clock: &Clock,
        counters: Arc<NameCounters>,
    ) -> Resolver {
        let name = |(backend, target): (usize, &Target)| Name {
            backend: backend as u16,
            target: target.clone(),
            addresses: Vec::new(),
            current: None,
            is_asking: false,
            untold: Vec::new(),
            asked: Nanos::UNSET,
            due: Nanos::UNSET,
        };
        let names = targets.iter().enumerate().filter(|(_, target)| target.fixed().is_none()).map(name).collect();
        let (sender, receiver) = sync_channel(EVENTS_MAX);
        Resolver { names, every, lookup, clock: clock.clone(), sender, receiver, posts: Vec::new(), counters }
    }

    /// Who is to be told of failures.
    pub(crate) fn reporter(&self) -> Reporter {
        let sender = self.sender.clone();
        Reporter::new(move |failure| {
            // When it is behind, another failure will come; when it has ended, nobody needs it.
            let _ = sender.try_send(Event::Failed(failure));
        })
    }

    /// Looks every name up once and waits for the answers, but not for long. Returns a line for each name without one.
    pub(crate) fn start_looking(&mut self) -> Vec<String> {
        let until = self.clock.now() + START_WAIT;
        let mut warnings: Vec<Option<String>> = self.names.iter().map(|_| Some("no answer yet".into())).collect();
        let mut missing = self.names.len();
        while missing > 0 {
            self.ask_due(self.clock.now());
            let Ok(event) = self.receiver.recv_timeout(until.after(self.clock.now())) else { break };
            if let Event::Found { name, answer } = event {
                missing -= 1;
                warnings[name] = answer.as_ref().err().map(ToString::to_string);
                self.found(name, answer);
            }
        }
        let line = |(name, reason): (&Name, Option<String>)| {
            let address = &name.target.address;
            reason.map(|reason| {
                format!("--server {address} cannot be looked up ({reason}): it is down until its name means something")
            })
        };
        self.names.iter().zip(warnings).filter_map(line).collect()
    }

    /// What a backend's name means so far.
    pub(crate) fn endpoint(&self, backend: usize) -> Option<Endpoint> {
        let name = self.names.iter().find(|name| usize::from(name.backend) == backend)?;
        name.current.map(|socket| name.target.at(socket))
    }

    /// Goes on on a thread of its own, and tells these loops of changes.
    pub(crate) fn run(mut self, posts: Vec<Post<LoopMessage>>) -> io::Result<Resolving> {
        let sender = self.sender.clone();
        self.posts = posts;
        let thread = Builder::new().name("resolve".into()).spawn(move || self.serve())?;
        Ok(Resolving { sender, thread })
    }

    fn serve(&mut self) {
        loop {
            let now = self.clock.now();
            self.ask_due(now);
            self.tell();
            let due = self.names.iter().filter(|name| !name.is_asking).map(|name| name.due).min();
            let wait = match due {
                Some(due) if due != Nanos::NEVER && self.asking() < LOOKUPS_MAX => due.after(now).min(LONG),
                _ => LONG,
            };
            let is_untold = self.names.iter().any(|name| !name.untold.is_empty());
            let wait = if is_untold { wait.min(TELL_GAP) } else { wait };
            match self.receiver.recv_timeout(wait) {
                Ok(Event::Failed(failure)) => self.failed(&failure),
                Ok(Event::Found { name, answer }) => self.found(name, answer),
                Err(RecvTimeoutError::Timeout) => {}
                Ok(Event::Stop) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn asking(&self) -> usize {
        self.names.iter().filter(|name| name.is_asking).count()
    }

    /// Starts the lookups that are due, each on a thread that ends with it.
    fn ask_due(&mut self, now: Nanos) {
        let mut free = LOOKUPS_MAX.saturating_sub(self.asking());
        for index in 0..self.names.len() {
            let name = &mut self.names[index];
            if free == 0 || name.is_asking || name.due > now {
                continue;
            }
            let Some(host_port) = name.target.address.host_port().cloned() else { continue };
            let (lookup, sender) = (self.lookup.clone(), self.sender.clone());
            let asked = Builder::new().name("lookup".into()).spawn(move || {
                let answer = lookup.look_up(&host_port);
                // The proxy may have ended meanwhile.
                let _ = sender.send(Event::Found { name: index, answer });
            });
            name.asked = now;
            match asked {
                Ok(_) => {
                    name.is_asking = true;
                    free -= 1;
                }
                Err(_) => name.due = now + LOOKUP_GAP,
            }
        }
    }

    /// Takes note of what a name means. When nothing came of it, it goes on to mean what it meant.
    fn found(&mut self, index: usize, answer: io::Result<Vec<SocketAddr>>) {
        let name = &mut self.names[index];
        name.is_asking = false;
        let again = if self.every.is_zero() { Nanos::NEVER } else { self.clock.now() + self.every };
        match answer {
            Ok(addresses) if !addresses.is_empty() => {
                name.due = again;
                name.addresses = addresses;
                if !name.current.is_some_and(|current| name.addresses.contains(&current)) {
                    self.move_to(index, self.names[index].addresses[0]);
                }
            }
            _ => {
                // As long as nothing is known, nobody fails to connect who could ask again.
                let retry = self.clock.now() + LOOKUP_GAP * 4;
                name.due = if name.current.is_none() { again.min(retry) } else { again };
                self.counters.names[usize::from(name.backend)].lookups_failed.add(1);
            }
        }
    }

    /// Looks the name up again, soon. Of several addresses, the next is used when one cannot be reached.
    fn failed(&mut self, failure: &Failure) {
        let Some(index) = self.names.iter().position(|name| name.backend == failure.backend) else { return };
        let name = &mut self.names[index];
        name.due = name.due.min(name.asked + LOOKUP_GAP);
        let at = name.addresses.iter().position(|&address| name.target.at(address) == failure.endpoint);
        if let Some(at) = at.filter(|&at| failure.is_unreachable && name.current == Some(name.addresses[at])) {
            let next = name.addresses[(at + 1) % name.addresses.len()];
            if name.current != Some(next) {
                self.move_to(index, next);
            }
        }
    }

    fn move_to(&mut self, index: usize, socket: SocketAddr) {
        let name = &mut self.names[index];
        let is_first = name.current.replace(socket).is_none();
        name.untold = (0..self.posts.len()).collect();
        let backend = usize::from(name.backend);
        self.tell();
        // Counted when the loops know it, so that who reads the number can rely on it.
        self.counters.names[backend].moves.add(u64::from(!is_first));
    }

    /// Tells the loops what they do not know yet.
    fn tell(&mut self) {
        for name in &mut self.names {
            let Some(endpoint) = name.current.map(|socket| name.target.at(socket)) else { continue };
            let moved = || LoopMessage::Moved { backend: name.backend, endpoint: endpoint.clone() };
            name.untold.retain(|&index| self.posts[index].send(moved()).is_err());
        }
    }
}

impl Resolving {
    /// Ends it. A lookup that hangs is left to itself.
    pub(crate) fn stop(self) {
        if self.sender.send(Event::Stop).is_ok() {
            // A panic in it is no reason to fail the proxy's orderly end.
            let _ = self.thread.join();
        }
    }
}
