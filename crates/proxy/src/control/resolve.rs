//! Resolves the host names of backends on its own threads: at the start, at an interval, and after a connection has failed. The
//! event loops receive changes as messages, and never resolve names themselves.

use crate::config::Lookup;
use crate::control::inherit::Servers;
use crate::control::threads::Worker;
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
use std::thread::Builder;
use std::time::Duration;

/// The most lookups at one time. More than one, so that a lookup that hangs does not delay the others.
const LOOKUPS_MAX: usize = 16;
/// The shortest interval between two lookups of one name, however often connections fail.
const LOOKUP_GAP: Duration = Duration::from_millis(500);
/// How long the start waits for the first results. A backend without a result counts as down.
const START_WAIT: Duration = Duration::from_secs(5);
/// The pause before a change is sent again to a loop whose mailbox was full.
const INFORM_GAP: Duration = Duration::from_millis(10);
/// The most events in the resolver's queue.
const EVENTS_MAX: usize = 4096;
/// The wait when no lookup is due.
const LONG: Duration = Duration::from_secs(3600);

/// An event for the resolver.
#[derive(Debug)]
pub(crate) enum Event {
    /// A connection to a backend has failed.
    Failed(Failure),
    /// A lookup has ended.
    Found { name: usize, answer: io::Result<Vec<SocketAddr>> },
    /// The proxy stops.
    Stop,
}

/// The names to resolve, before the event loops exist.
#[derive(Debug)]
pub(crate) struct Resolver {
    names: Vec<Name>,
    every: Duration,
    lookup: Lookup,
    clock: Clock,
    sender: SyncSender<Event>,
    receiver: Receiver<Event>,
    posts: Vec<Post<LoopMessage>>,
    servers: Servers,
    counters: Arc<NameCounters>,
}

/// A running resolver.
#[derive(Debug)]
pub(crate) struct Resolving {
    sender: SyncSender<Event>,
    thread: Worker<()>,
}

/// One backend's name.
#[derive(Debug)]
struct Name {
    backend: u16,
    target: Target,
    /// The addresses that it last resolved to.
    addresses: Vec<SocketAddr>,
    /// The address in use. It stays in use as long as the name still resolves to it.
    current: Option<SocketAddr>,
    is_looking_up: bool,
    /// Loops that have not received the current address yet, because their mailboxes were full.
    to_inform: Vec<usize>,
    last_lookup: Nanos,
    due: Nanos,
}

impl Resolver {
    /// A resolver for those targets that have a host name.
    pub(crate) fn new(
        targets: &[Target],
        every: Duration,
        lookup: Lookup,
        clock: &Clock,
        servers: Servers,
        counters: Arc<NameCounters>,
    ) -> Resolver {
        let name = |(backend, target): (usize, &Target)| Name {
            backend: backend as u16,
            target: target.clone(),
            addresses: Vec::new(),
            current: None,
            is_looking_up: false,
            to_inform: Vec::new(),
            last_lookup: Nanos::UNSET,
            due: Nanos::UNSET,
        };
        let names = targets.iter().enumerate().filter(|(_, target)| target.fixed().is_none()).map(name).collect();
        let (sender, receiver) = sync_channel(EVENTS_MAX);
        Resolver { names, every, lookup, clock: clock.clone(), sender, receiver, posts: Vec::new(), servers, counters }
    }

    /// Passes connection failures to the resolver.
    pub(crate) fn reporter(&self) -> Reporter {
        let sender = self.sender.clone();
        Reporter::new(move |failure| {
            // If the queue is full, a later failure will be reported. If the resolver has ended, none is needed.
            let _ = sender.try_send(Event::Failed(failure));
        })
    }

    /// Resolves every name once, and waits up to `START_WAIT` for the results. A name keeps the address that it had `before`, in the
    /// configuration that is replaced, if it still resolves to it or has no result. Returns a warning for each name without one.
    pub(crate) fn resolve_all(&mut self, before: Option<&Servers>) -> Vec<String> {
        let until = self.clock.now() + START_WAIT;
        let known = |name: &Name| before.and_then(|servers| servers.latest_socket(&name.target.address));
        let mut warnings: Vec<Option<String>> = self.names.iter().map(|_| Some("no result yet".into())).collect();
        // A name can be resolved twice before another one is resolved at all.
        let mut has_result = vec![false; self.names.len()];
        while has_result.contains(&false) {
            self.start_due_lookups(self.clock.now());
            let Ok(event) = self.receiver.recv_timeout(until.after(self.clock.now())) else { break };
            if let Event::Found { name, mut answer } = event {
                has_result[name] = true;
                if let (Ok(addresses), Some(socket)) = (&mut answer, known(&self.names[name])) {
                    let at = addresses.iter().position(|&address| address == socket);
                    addresses.rotate_left(at.unwrap_or_default());
                }
                warnings[name] = answer.as_ref().err().map(ToString::to_string);
                self.found(name, answer);
            }
        }
        for index in 0..self.names.len() {
            let name = &self.names[index];
            if let Some(socket) = known(name).filter(|_| name.current.is_none()) {
                self.move_to(index, socket);
            }
        }
        let line = |(name, reason): (&Name, Option<String>)| {
            let address = &name.target.address;
            let effect = match name.current {
                Some(socket) => format!("its address {socket} stays in use"),
                None => "the backend is down until its name resolves".into(),
            };
            reason.map(|reason| format!("--server {address} cannot be resolved ({reason}): {effect}"))
        };
        self.names.iter().zip(warnings).filter_map(line).collect()
    }

    /// The address of a backend, if its name has been resolved.
    pub(crate) fn endpoint(&self, backend: usize) -> Option<Endpoint> {
        let name = self.names.iter().find(|name| usize::from(name.backend) == backend)?;
        name.current.map(|socket| name.target.at(socket))
    }

    /// Prepares to continue on a thread of its own, and to send changes to these loops.
    pub(crate) fn prepare(mut self, posts: Vec<Post<LoopMessage>>) -> io::Result<Resolving> {
        let sender = self.sender.clone();
        self.posts = posts;
        let thread = Worker::prepare("resolve", move || {
            self.serve();
            Ok(())
        })?;
        Ok(Resolving { sender, thread })
    }

    fn serve(&mut self) {
        loop {
            let now = self.clock.now();
            self.start_due_lookups(now);
            self.inform_loops();
            let due = self.names.iter().filter(|name| !name.is_looking_up).map(|name| name.due).min();
            let wait = match due {
                Some(due) if due != Nanos::NEVER && self.running_lookups() < LOOKUPS_MAX => due.after(now).min(LONG),
                _ => LONG,
            };
            let is_behind = self.names.iter().any(|name| !name.to_inform.is_empty());
            let wait = if is_behind { wait.min(INFORM_GAP) } else { wait };
            match self.receiver.recv_timeout(wait) {
                Ok(Event::Failed(failure)) => self.failed(&failure),
                Ok(Event::Found { name, answer }) => self.found(name, answer),
                Err(RecvTimeoutError::Timeout) => {}
                Ok(Event::Stop) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn running_lookups(&self) -> usize {
        self.names.iter().filter(|name| name.is_looking_up).count()
    }

    /// Starts the lookups that are due, each on its own thread.
    fn start_due_lookups(&mut self, now: Nanos) {
        let mut free = LOOKUPS_MAX.saturating_sub(self.running_lookups());
        for index in 0..self.names.len() {
            let name = &mut self.names[index];
            if free == 0 || name.is_looking_up || name.due > now {
                continue;
            }
            let Some(host_port) = name.target.address.host_port().cloned() else { continue };
            let (lookup, sender) = (self.lookup.clone(), self.sender.clone());
            let last_lookup = Builder::new().name("lookup".into()).spawn(move || {
                let answer = lookup.look_up(&host_port);
                // The proxy may have stopped meanwhile.
                let _ = sender.send(Event::Found { name: index, answer });
            });
            name.last_lookup = now;
            match last_lookup {
                Ok(_) => {
                    name.is_looking_up = true;
                    free -= 1;
                }
                Err(_) => name.due = now + LOOKUP_GAP,
            }
        }
    }

    /// Records the result of a lookup. If it failed, the old address stays in use.
    fn found(&mut self, index: usize, answer: io::Result<Vec<SocketAddr>>) {
        let name = &mut self.names[index];
        name.is_looking_up = false;
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
                // Without an address no connection can fail and so cause a lookup.
                let retry = self.clock.now() + LOOKUP_GAP * 4;
                name.due = if name.current.is_none() { again.min(retry) } else { again };
                self.counters.names[usize::from(name.backend)].lookups_failed.add(1);
            }
        }
    }

    /// Resolves the name again soon. If it has several addresses and this one is unreachable, uses the next.
    fn failed(&mut self, failure: &Failure) {
        let Some(index) = self.names.iter().position(|name| name.backend == failure.backend) else { return };
        let name = &mut self.names[index];
        name.due = name.due.min(name.last_lookup + LOOKUP_GAP);
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
        self.servers.moved(name.backend.into(), &name.target.at(socket));
        name.to_inform = (0..self.posts.len()).collect();
        let backend = usize::from(name.backend);
        self.inform_loops();
        // Counted after the loops have been informed, so that a reader of the counter can rely on it.
        self.counters.names[backend].moves.add(u64::from(!is_first));
    }

    /// Sends the loops the changes that they have not received yet.
    fn inform_loops(&mut self) {
        for name in &mut self.names {
            let Some(endpoint) = name.current.map(|socket| name.target.at(socket)) else { continue };
            let moved = || LoopMessage::BackendMoved { backend: name.backend, endpoint: endpoint.clone() };
            name.to_inform.retain(|&index| self.posts[index].send(moved()).is_err());
        }
    }
}

impl Resolving {
    /// Lets the thread begin.
    pub(crate) fn begin(&mut self) {
        self.thread.begin();
    }

    /// Stops the resolver, without waiting for lookups that hang.
    pub(crate) fn stop(self) {
        if self.sender.send(Event::Stop).is_ok() {
            // A panic of the resolver does not fail the proxy's orderly end.
            let _ = self.thread.join();
        }
    }
}
