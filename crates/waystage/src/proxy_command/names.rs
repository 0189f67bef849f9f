//! The addresses of host names that stand for several servers. Threads of their own look them up, so that a lookup that hangs delays
//! nothing for longer than `WAIT`.

use net::HostPort;
use proxy::Lookup;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::Duration;

/// How long a start or a reload waits for answers.
const WAIT: Duration = Duration::from_secs(5);

/// The addresses of a name, or why there are none.
pub(super) type Answer = Result<Vec<SocketAddr>, String>;

/// All names, and the last answer for each. A clone is a handle to the same names.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    lookup: Lookup,
    known: Arc<Mutex<BTreeMap<String, Name>>>,
}

#[derive(Debug, Default)]
struct Name {
    answer: Option<Answer>,
    is_looked_up: bool,
    /// Whether the answer of a lookup that still runs is dropped.
    is_forgotten: bool,
}

impl Names {
    pub(super) fn new(lookup: Lookup) -> Names {
        Names { lookup, known: Arc::default() }
    }

    /// The last answer for a name.
    pub(super) fn answer(&self, name: &HostPort) -> Answer {
        let known = self.lock();
        known.get(&key(name)).and_then(|name| name.answer.clone()).unwrap_or_else(|| Err("no answer yet".into()))
    }

    /// Looks these names up, and waits for the answers. `is_forced` looks up those with an answer, too.
    pub(super) fn look_up(&self, names: &[HostPort], is_forced: bool) {
        let (waits, receiver) = channel();
        let has_answer = |name: &HostPort| self.lock().get(&key(name)).is_some_and(|name| name.answer.is_some());
        let missing = names.iter().filter(|name| is_forced || !has_answer(name));
        missing.for_each(|name| self.begin(name, Some(waits.clone())));
        drop(waits);
        // Nothing is sent. The wait ends when all threads have dropped their senders.
        let _ = receiver.recv_timeout(WAIT);
    }

    /// Forgets the answers for other names than these, so that a name that comes back is looked up again.
    pub(super) fn keep_only(&self, names: impl Iterator<Item = HostPort>) {
        let kept: BTreeSet<String> = names.map(|name| key(&name)).collect();
        self.lock().retain(|key, name| {
            name.is_forgotten |= !kept.contains(key);
            if name.is_forgotten {
                name.answer = None;
            }
            !name.is_forgotten || name.is_looked_up
        });
    }

    /// Looks a name up on another thread, unless a lookup of it still runs. The thread drops `waits` after it has stored the answer.
    pub(super) fn begin(&self, name: &HostPort, waits: Option<Sender<()>>) {
        let mut known = self.lock();
        let entry = known.entry(key(name)).or_default();
        entry.is_forgotten = false;
        if entry.is_looked_up {
            return;
        }
        let (all, own) = (self.clone(), name.clone());
        let spawned = Builder::new().name("lookup".into()).spawn(move || {
            let answer = usable(all.lookup.look_up(&own).map_err(|error| error.to_string()));
            let mut known = all.lock();
            let entry = known.entry(key(&own)).or_default();
            entry.is_looked_up = false;
            entry.answer = (!entry.is_forgotten).then_some(answer);
            drop(known);
            drop(waits);
        });
        entry.is_looked_up = spawned.is_ok();
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Name>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key(name: &HostPort) -> String {
    format!("{}:{}", name.host(), name.port())
}

/// Each address once, in order. Of a server with addresses of both kinds, the one of version 4: it would be two servers otherwise.
fn usable(answer: Answer) -> Answer {
    let mut addresses = answer?;
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
}
