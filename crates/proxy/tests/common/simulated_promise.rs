//! The versions of a key that a client of the simulation may receive: the guarantees of docs/consistency.md, one by one, for
//! the policies of a scenario. Knows no bytes and no connections; `simulated_judge` reads replies and calls this.

use clock::Nanos;
use proxy::CommandGroup;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The guarantees of a scenario: those of the pool that a key belongs to.
#[derive(Clone)]
pub(crate) struct Promises {
    pub(crate) pools: Vec<Promise>,
    /// Prefixes and the index of the pool of such keys. The longest prefix wins; all other keys belong to the first pool.
    pub(crate) routes: Vec<(&'static str, usize)>,
    /// A part of a multi-get that fails looks like misses.
    pub(crate) parts_may_miss: bool,
    /// A failed part of a multi-get is always answered with misses.
    pub(crate) parts_always_miss: bool,
    /// The listener does not allow these commands.
    pub(crate) denied: Option<CommandGroup>,
    pub(crate) board: Arc<Board>,
}

/// The guarantees of one pool's policy.
#[derive(Clone)]
pub(crate) struct Promise {
    /// A replica that a write did not reach is not read until the key is deleted there. With one replica and no other policy, a
    /// failed write may still be applied at any time.
    pub(crate) mends: bool,
    /// With `majority` and `first`, how long after an acknowledgement a slow replica may return the old value.
    pub(crate) late: Option<Duration>,
    /// A value may be missing although no write of it failed.
    pub(crate) forgets: bool,
    /// Reads may be answered by any replica. Values that were changed on the primary are deleted on the others.
    pub(crate) reads_replicas: bool,
    /// Every key has a value of version 0 in a warm-up pool.
    pub(crate) has_source: bool,
    /// Such a value may be stored after its client has deleted it, because it does not use the client's connection.
    pub(crate) fills_late: bool,
    /// Plain reads are served by another pool, which keeps what it has fetched until the key is deleted.
    pub(crate) is_read_elsewhere: bool,
}

/// One client's writes to a key that only it writes, in order.
#[derive(Debug, Default)]
pub(crate) struct History {
    writes: Vec<Write>,
    /// A `gat` or a `touch` may have caused an invalidation of replicas.
    is_touched: bool,
    /// A `touch` has failed, and may have caused an invalidation of every replica.
    is_lost: bool,
}

/// The history of an unused key.
pub(crate) static UNTOUCHED: History = History { writes: Vec::new(), is_touched: false, is_lost: false };

/// One write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Write {
    /// The version, or none for a delete.
    pub(crate) version: Option<u64>,
    /// When the client received the acknowledgement; none if the write failed or was quiet.
    pub(crate) acknowledged: Option<Nanos>,
    /// The write ran on the primary, and the other replicas were deleted.
    pub(crate) is_on_primary: bool,
    /// It was a command that deletes, which reaches other pools, too.
    pub(crate) is_delete: bool,
}

/// The acknowledged writes of keys that all clients write.
#[derive(Default)]
pub(crate) struct Board {
    writes: Mutex<HashMap<String, Vec<Posted>>>,
}

/// One acknowledged write.
pub(crate) struct Posted {
    pub(crate) writer: usize,
    pub(crate) version: Option<u64>,
    pub(crate) sent: Nanos,
    pub(crate) acknowledged: Nanos,
}

impl Promises {
    /// The guarantees for a key.
    pub(crate) fn of(&self, key: &str) -> &Promise {
        let matching = self.routes.iter().filter(|(prefix, _)| key.starts_with(prefix));
        &self.pools[matching.max_by_key(|(prefix, _)| prefix.len()).map_or(0, |(_, place)| *place)]
    }

    /// Takes back that slow replicas may return old values: they have answered.
    pub(crate) fn without_late_replicas(mut self) -> Promises {
        self.pools.iter_mut().for_each(|pool| pool.late = pool.late.map(|_| Duration::ZERO));
        self
    }

    /// Whether the reply to a request sent at this time may have this writer's version of a key that all clients write. If
    /// all replicas must apply a write, a value is overwritten once a write that began after its acknowledgement is acknowledged.
    pub(crate) fn may_return_shared(&self, key: &str, writer: usize, version: u64, sent: Nanos) -> bool {
        if self.of(key).late.is_some() || self.of(key).is_read_elsewhere {
            return true;
        }
        let board = self.board.writes.lock().unwrap();
        let Some(writes) = board.get(key) else { return true };
        let own = writes.iter().find(|write| (write.writer, write.version) == (writer, Some(version)));
        // A failed or quiet write may have been applied later than it seems, and so may a fill.
        let Some(own) = own else { return true };
        !writes.iter().any(|other| other.sent > own.acknowledged && other.acknowledged < sent)
    }
}

impl Promise {
    /// Whether the reply to a request sent at this time may have this version by `client`, the only writer of the key.
    pub(crate) fn may_return(&self, history: &History, version: u64, sent: Nanos) -> bool {
        let place = history.writes.iter().position(|write| write.version == Some(version));
        let after = match place {
            Some(place) => place + 1,
            None if version == 0 && self.has_source => 0,
            // This version was not sent before this request.
            None => return false,
        };
        let counts = |write: &&Write| !self.is_read_elsewhere || (write.is_delete && !self.fills_late);
        let overwritten = history.writes[after..].iter().filter(counts).find_map(|write| write.acknowledged);
        // No later write was acknowledged: this is the current value, or that of a failed write that may have been applied.
        let Some(overwritten) = overwritten else { return true };
        let has_failed = place.is_some_and(|place| history.writes[place].acknowledged.is_none());
        let may_still_be_applied = !self.mends && has_failed;
        let is_filled_late = place.is_none() && self.fills_late && self.may_have_been_missing(history);
        let is_late = self.late.is_some_and(|late| sent < overwritten + late);
        may_still_be_applied || is_filled_late || is_late
    }

    /// Whether the key may be missing.
    pub(crate) fn may_miss(&self, history: &History) -> bool {
        let last = history.writes.iter().rfind(|write| write.acknowledged.is_some());
        // A delete of replicas may also arrive after a set that was sent before the primary had answered.
        let is_on_primary = history.writes.iter().any(|write| write.is_on_primary);
        let replicas_are_deleted = self.reads_replicas && (is_on_primary || history.is_touched);
        self.forgets
            || history.is_lost
            || history.has_failed()
            || replicas_are_deleted
            || last.is_none_or(|last| last.version.is_none())
    }

    /// Whether something may have deleted the key.
    fn may_have_been_missing(&self, history: &History) -> bool {
        let deletes = |write: &Write| write.version.is_none() || write.acknowledged.is_none() || write.is_on_primary;
        self.forgets || history.is_touched || history.is_lost || history.writes.iter().any(deletes)
    }

    /// Whether the key may be stored, with any value.
    pub(crate) fn may_be_there(&self, history: &History, sent: Nanos) -> bool {
        let versions = history.writes.iter().filter_map(|write| write.version).chain([0]);
        let mut possible = versions.filter(|&version| self.may_return(history, version, sent));
        possible.next().is_some()
    }
}

impl History {
    pub(crate) fn add(&mut self, write: Write) {
        self.writes.push(write);
    }

    pub(crate) fn touch(&mut self) {
        self.is_touched = true;
    }

    pub(crate) fn lose(&mut self) {
        self.is_lost = true;
    }

    /// Whether a write has failed, so that it may have been applied or not.
    pub(crate) fn has_failed(&self) -> bool {
        self.writes.iter().any(|write| write.acknowledged.is_none())
    }

    /// The number of writes so far.
    pub(crate) fn count(&self) -> usize {
        self.writes.len()
    }

    /// The writes after the first `count`.
    pub(crate) fn since(&self, count: usize) -> &[Write] {
        &self.writes[count..]
    }

    /// How many writes there are up to the one of this version.
    pub(crate) fn up_to(&self, version: u64) -> Option<usize> {
        self.writes.iter().position(|write| write.version == Some(version)).map(|place| place + 1)
    }
}

impl Board {
    pub(crate) fn post(&self, key: &str, write: Posted) {
        self.writes.lock().unwrap().entry(key.into()).or_default().push(write);
    }
}
