//! Slots that are held, and who waits for one.

use crate::engine::jobs::List;

/// One pool.
#[derive(Debug)]
pub(crate) struct Pool {
    free: u32,
    busy: f64,
    pub(crate) queue: List,
    changed_s: f64,
    /// Area under the number of slots that are held.
    pub(crate) busy_s: f64,
    /// By class: how many took a slot, and how long they waited.
    pub(crate) waits: Vec<(u64, f64)>,
}

impl Pool {
    pub(crate) fn new(slots: u32, classes: usize) -> Pool {
        Pool { free: slots, busy: 0.0, queue: List::EMPTY, changed_s: 0.0, busy_s: 0.0, waits: vec![(0, 0.0); classes] }
    }

    pub(crate) fn has_free(&self) -> bool {
        self.free > 0
    }

    /// Somebody takes a slot, having waited.
    pub(crate) fn take(&mut self, class: u32, now_s: f64, waited_s: f64) {
        self.settle(now_s);
        self.free -= 1;
        self.busy += 1.0;
        let wait = &mut self.waits[class as usize];
        wait.0 += 1;
        wait.1 += waited_s;
    }

    pub(crate) fn give_back(&mut self, now_s: f64) {
        self.settle(now_s);
        self.free += 1;
        self.busy -= 1.0;
    }

    /// Counts until now.
    pub(crate) fn settle(&mut self, now_s: f64) {
        self.busy_s += self.busy * (now_s - self.changed_s);
        self.changed_s = now_s;
    }

    /// Begins to count anew.
    pub(crate) fn reset(&mut self, now_s: f64) {
        self.settle(now_s);
        self.busy_s = 0.0;
        self.waits.fill((0, 0.0));
    }
}
