//! The servers that names stand for: host names with several addresses, and names with SRV records. Threads of their own look them up, so
//! that a lookup that hangs delays nothing for longer than `WAIT`.

use crate::proxy_command::srv;
use net::HostPort;
use proxy::{Lookup, ServerConfig};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::Duration;

/// How long a start or a reload waits for answers.
const WAIT: Duration = Duration::from_secs(5);

/// The shortest time between two lookups of a name.
const INTERVAL_MIN: Duration = Duration::from_secs(1);

/// The servers of a name, or why there are none.
pub(super) type Answer = Result<Vec<ServerConfig>, String>;

/// A name to look up, and the kind of records.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Question {
    /// The addresses of a host, which have the same port.
    Addresses(HostPort),
    /// The SRV records of a name, at this DNS server or at those of the system.
    Records(String, Option<SocketAddr>),
}

/// All names, and the last answer for each. A clone is a handle to the same names.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    lookup: Lookup,
    known: Arc<Mutex<BTreeMap<Question, Name>>>,
}

#[derive(Debug, Default)]
struct Name {
    answer: Option<Answer>,
    /// How long the answer may be used, if it says so.
    time_to_live: Option<Duration>,
    is_looked_up: bool,
    /// Whether the lookup that runs may have the state of before a reload that was requested since. Then another one follows.
    is_outdated: bool,
    /// Dropped when the answer is there.
    waits: Vec<Sender<()>>,
    /// Whether the answer of a lookup that still runs is dropped.
    is_forgotten: bool,
}

impl Names {
    pub(super) fn new(lookup: Lookup) -> Names {
        Names { lookup, known: Arc::default() }
    }

    /// The last answer for a name.
    pub(super) fn answer(&self, name: &Question) -> Answer {
        let known = self.lock();
        known.get(name).and_then(|name| name.answer.clone()).unwrap_or_else(|| Err("no answer yet".into()))
    }

    /// The time between two lookups of a name: at most this one, and no longer than the last answer may be used.
    pub(super) fn interval(&self, name: &Question, every: Duration) -> Duration {
        let time_to_live = self.lock().get(name).and_then(|name| name.time_to_live);
        time_to_live.map_or(every, |time| time.clamp(INTERVAL_MIN, every.max(INTERVAL_MIN)))
    }

    /// Looks these names up, and waits for the answers. `is_forced` looks up those with an answer, too.
    pub(super) fn look_up(&self, names: &[Question], is_forced: bool) {
        let (waits, receiver) = channel();
        let has_answer = |name: &Question| self.lock().get(name).is_some_and(|name| name.answer.is_some());
        let missing = names.iter().filter(|name| is_forced || !has_answer(name));
        missing.for_each(|name| self.begin(name, Some((&waits, is_forced))));
        drop(waits);
        // Nothing is sent. The wait ends when all threads have dropped their senders.
        let _ = receiver.recv_timeout(WAIT);
    }

    /// Forgets the answers for other names than these, so that a name that comes back is looked up again.
    pub(super) fn keep_only(&self, names: impl Iterator<Item = Question>) {
        let kept: BTreeSet<Question> = names.collect();
        self.lock().retain(|question, name| {
            name.is_forgotten |= !kept.contains(question);
            if name.is_forgotten {
                name.answer = None;
            }
            !name.is_forgotten || name.is_looked_up
        });
    }

    /// Looks a name up on another thread, unless a lookup of it still runs. The thread drops a clone of `waits` after it has stored the
    /// answer. If the lookup is forced, one that still runs is repeated, because the records may have changed since it began.
    pub(super) fn begin(&self, name: &Question, waits: Option<(&Sender<()>, bool)>) {
        let mut known = self.lock();
        let entry = known.entry(name.clone()).or_default();
        entry.is_forgotten = false;
        let is_forced = waits.is_some_and(|(_, is_forced)| is_forced);
        if !entry.is_looked_up || is_forced {
            entry.waits.extend(waits.map(|(waits, _)| waits.clone()));
        }
        if entry.is_looked_up {
            entry.is_outdated |= is_forced;
            return;
        }
        let (all, own) = (self.clone(), name.clone());
        let spawned = Builder::new().name("lookup".into()).spawn(move || while !all.store_answer(&own) {});
        entry.is_looked_up = spawned.is_ok();
        if spawned.is_err() {
            entry.waits.clear();
        }
    }

    /// Looks a name up, and stores the answer. Returns false if it must be looked up again.
    fn store_answer(&self, name: &Question) -> bool {
        let (answer, time_to_live) = self.ask(name);
        let mut known = self.lock();
        let entry = known.entry(name.clone()).or_default();
        if std::mem::take(&mut entry.is_outdated) {
            return false;
        }
        (entry.is_looked_up, entry.time_to_live) = (false, time_to_live);
        entry.answer = (!entry.is_forgotten).then_some(answer);
        entry.waits.clear();
        true
    }

    /// Looks a name up, on this thread.
    fn ask(&self, name: &Question) -> (Answer, Option<Duration>) {
        match name {
            Question::Records(name, server) => srv::look_up(name, *server),
            Question::Addresses(host) => {
                let found = self.lookup.look_up(host).map_err(|error| error.to_string());
                let server = |address: SocketAddr| ServerConfig::new(&address.to_string());
                (usable(found).map(|addresses| addresses.into_iter().map(server).collect()), None)
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Question, Name>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Each address once, in order. Of a server with addresses of both kinds, the one of version 4: it would be two servers otherwise.
fn usable(found: Result<Vec<SocketAddr>, String>) -> Result<Vec<SocketAddr>, String> {
    let mut addresses = found?;
    if addresses.iter().any(SocketAddr::is_ipv4) {
        addresses.retain(SocketAddr::is_ipv4);
    }
    addresses.sort_unstable();
    addresses.dedup();
    if addresses.is_empty() { Err("it has no address".into()) } else { Ok(addresses) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_in_order_and_of_one_kind() {
        let read = |texts: &[&str]| usable(Ok(texts.iter().map(|text| text.parse().unwrap()).collect()));
        let shown = |texts: &[&str]| read(texts).unwrap().iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(shown(&["10.0.0.9:1", "[fe80::1]:1", "10.0.0.2:1", "10.0.0.9:1"]), ["10.0.0.2:1", "10.0.0.9:1"]);
        assert_eq!(shown(&["[fe80::2]:1", "[fe80::1]:1"]), ["[fe80::1]:1", "[fe80::2]:1"]);
        assert_eq!(read(&[]), Err("it has no address".into()));
    }

    #[test]
    fn a_reload_does_not_use_the_answer_of_a_lookup_that_began_before_it() {
        let (answers, answer) = channel::<SocketAddr>();
        let answer = Mutex::new(answer);
        let names = Names::new(Lookup::new(move |_| Ok(vec![answer.lock().unwrap().recv().unwrap()])));
        let address: net::Address = "cache.test:1".parse().unwrap();
        let question = Question::Addresses(address.host_port().unwrap().clone());
        names.begin(&question, None);
        let (reloading, asked) = (names.clone(), question.clone());
        let reload = std::thread::spawn(move || reloading.look_up(&[asked], true));
        while !names.lock()[&question].is_outdated {
            std::thread::sleep(Duration::from_millis(1));
        }
        let [before, after] = ["10.0.0.1:1", "10.0.0.2:1"].map(|text| text.parse::<SocketAddr>().unwrap());
        answers.send(before).unwrap();
        answers.send(after).unwrap();
        reload.join().unwrap();
        assert_eq!(names.answer(&question), Ok(vec![ServerConfig::new("10.0.0.2:1")]));
    }

    #[test]
    fn records_are_looked_up_when_they_expire_within_bounds() {
        let records = |ttl| testkit::DnsReply::Records(vec![(0, 1, 1, "a.test".into())], ttl);
        let server = testkit::DnsServer::start(testkit::DnsReply::NoName);
        let names = Names::new(Lookup::default());
        let question = Question::Records("_memcached._tcp.cache.test".into(), Some(server.address()));
        let every = Duration::from_secs(30);
        for (reply, expected) in [(records(0), 1), (records(5), 5), (records(600), 30), (testkit::DnsReply::NoName, 30)]
        {
            server.set(reply.clone());
            names.look_up(std::slice::from_ref(&question), true);
            assert_eq!(names.interval(&question, every), Duration::from_secs(expected), "{reply:?}");
        }
    }
}
