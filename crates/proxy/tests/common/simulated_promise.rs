//! What a client of the simulation may be told of a key: the sentences of docs/consistency.md about what is seen, one by one, for
//! the policies of a scenario. Knows no bytes and no connections; `simulated_requests` reads replies and asks here.

use clock::Nanos;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What the policies of a scenario promise.
#[derive(Clone)]
pub(crate) struct Promise {
    /// A copy that a write did not reach is not read until it has forgotten the value before. Where there is one copy and nothing
    /// beside it, a write that failed may happen yet at any time.
    pub(crate) mends: bool,
    /// With `majority` and `first`, how long after an acknowledgement a late copy may tell what was there before.
    pub(crate) late: Option<Duration>,
    /// A value may be missing although no write of it failed.
    pub(crate) forgets: bool,
    /// Reads may be answered by copies, which forget what was changed on the primary alone.
    pub(crate) reads_copies: bool,
    /// Every key has a value of version 0 in a pool that missing values come from.
    pub(crate) has_source: bool,
    /// Such a value may be stored after its client has deleted it: it does not take the way of the client's own requests.
    pub(crate) fills_late: bool,
    /// A part of a multi-get that fails looks like misses.
    pub(crate) parts_may_miss: bool,
    /// What backends of a pool that stands in ever held: it may come back when they stand in again.
    pub(crate) stood_in: Vec<GatedServer>,
    pub(crate) board: Arc<Board>,
}

/// The values that a backend ever held, by key, writer and version.
pub(crate) type GatedServer = Arc<Mutex<HashSet<(String, usize, u64)>>>;

/// What one client has done to a key that only it writes, in its order.
#[derive(Debug, Default)]
pub(crate) struct History {
    writes: Vec<Write>,
    /// A `gat` may have cost copies their value.
    is_touched: bool,
}

/// That of a key to which nothing was done.
pub(crate) static UNTOUCHED: History = History { writes: Vec::new(), is_touched: false };

/// One write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Write {
    /// None for a deletion.
    pub(crate) version: Option<u64>,
    /// When the client heard that it was done; none if it failed or was not to be answered.
    pub(crate) acknowledged: Option<Nanos>,
    /// Done on the primary alone: the copies were deleted.
    pub(crate) is_on_primary: bool,
}

/// The acknowledged writes of keys that everybody writes.
#[derive(Default)]
pub(crate) struct Board {
    writes: Mutex<HashMap<String, Vec<Posted>>>,
}

/// One of them.
pub(crate) struct Posted {
    pub(crate) writer: usize,
    pub(crate) version: Option<u64>,
    pub(crate) sent: Nanos,
    pub(crate) acknowledged: Nanos,
}

impl Promise {
    /// Whether a request that was sent at this time may be told this version by `client`, the only writer of the key.
    pub(crate) fn may_tell(&self, key: &str, client: usize, history: &History, version: u64, sent: Nanos) -> bool {
        let place = history.writes.iter().position(|write| write.version == Some(version));
        let after = match place {
            Some(place) => place + 1,
            None if version == 0 && self.has_source => 0,
            // It was not asked for before this request.
            None => return false,
        };
        let overwritten = history.writes[after..].iter().find_map(|write| write.acknowledged);
        // Nothing acknowledged has come after it: it is the value, or a write that failed and may have happened.
        let Some(overwritten) = overwritten else { return true };
        let has_failed = place.is_some_and(|place| history.writes[place].acknowledged.is_none());
        let may_happen_yet = !self.mends && has_failed;
        let is_filled_late = place.is_none() && self.fills_late && self.may_have_been_missing(history);
        let is_late = self.late.is_some_and(|late| sent < overwritten + late);
        may_happen_yet || is_filled_late || is_late || self.has_stood_in(key, client, version)
    }

    /// Whether the key may be missing.
    pub(crate) fn may_miss(&self, history: &History) -> bool {
        let last = history.writes.iter().rfind(|write| write.acknowledged.is_some());
        // A deletion of copies may also come after a set that was sent before the primary had answered.
        let is_on_primary = history.writes.iter().any(|write| write.is_on_primary);
        let copies_are_gone = self.reads_copies && (is_on_primary || history.is_touched);
        let has_failed = history.writes.iter().any(|write| write.acknowledged.is_none());
        self.forgets || has_failed || copies_are_gone || last.is_none_or(|last| last.version.is_none())
    }

    /// Whether something may have deleted the key.
    fn may_have_been_missing(&self, history: &History) -> bool {
        let deletes = |write: &Write| write.version.is_none() || write.acknowledged.is_none() || write.is_on_primary;
        self.forgets || history.is_touched || history.writes.iter().any(deletes)
    }

    /// Whether the key may be there, whatever its value.
    pub(crate) fn may_be_there(&self, key: &str, client: usize, history: &History, sent: Nanos) -> bool {
        let versions = history.writes.iter().filter_map(|write| write.version).chain([0]);
        let mut possible = versions.filter(|&version| self.may_tell(key, client, history, version, sent));
        possible.next().is_some()
    }

    /// Whether a request that was sent at this time may be told this writer's version of a key that everybody writes. Where
    /// all copies must take a write, a value is gone when a write that began after its own was done has been acknowledged.
    pub(crate) fn may_tell_shared(&self, key: &str, writer: usize, version: u64, sent: Nanos) -> bool {
        if self.late.is_some() || self.has_stood_in(key, writer, version) {
            return true;
        }
        let board = self.board.writes.lock().unwrap();
        let Some(writes) = board.get(key) else { return true };
        let own = writes.iter().find(|write| (write.writer, write.version) == (writer, Some(version)));
        // What failed or was not answered may have happened later than it seems, and so may what was fetched elsewhere.
        let Some(own) = own else { return true };
        !writes.iter().any(|other| other.sent > own.acknowledged && other.acknowledged < sent)
    }

    fn has_stood_in(&self, key: &str, writer: usize, version: u64) -> bool {
        let holds = |held: &GatedServer| held.lock().unwrap().contains(&(key.to_string(), writer, version));
        self.stood_in.iter().any(holds)
    }
}

impl History {
    pub(crate) fn add(&mut self, write: Write) {
        self.writes.push(write);
    }

    pub(crate) fn touch(&mut self) {
        self.is_touched = true;
    }
}

impl Board {
    pub(crate) fn post(&self, key: &str, write: Posted) {
        self.writes.lock().unwrap().entry(key.into()).or_default().push(write);
    }
}
