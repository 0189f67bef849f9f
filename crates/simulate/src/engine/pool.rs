//! A pool of slots, and the jobs that wait for one.

use crate::engine::jobs::List;

/// One pool.
#[derive(Debug)]
pub(crate) struct PoolState {
    free: u32,
    busy: f64,
    pub(crate) queue: List,
    changed_s: f64,
    /// Area under the number of slots in use.
    pub(crate) busy_s: f64,
    /// By class: the number of acquired slots, and the sum of the waits for them.
    pub(crate) waits: Vec<(u64, f64)>,
}

impl PoolState {
    pub(crate) fn new(slots: u32, classes: usize) -> PoolState {
        PoolState {
            free: slots,
            busy: 0.0,
            queue: List::EMPTY,
            changed_s: 0.0,
            busy_s: 0.0,
            waits: vec![(0, 0.0); classes],
        }
    }

    pub(crate) fn has_free(&self) -> bool {
        self.free > 0
    }

    /// Acquires a slot after a wait.
    pub(crate) fn take(&mut self, class: u32, now_s: f64, waited_s: f64) {
        self.advance_to(now_s);
        self.free -= 1;
        self.busy += 1.0;
        let wait = &mut self.waits[class as usize];
        wait.0 += 1;
        wait.1 += waited_s;
    }

    pub(crate) fn release(&mut self, now_s: f64) {
        self.advance_to(now_s);
        self.free += 1;
        self.busy -= 1.0;
    }

    /// Adds the area since the last change.
    pub(crate) fn advance_to(&mut self, now_s: f64) {
        self.busy_s += self.busy * (now_s - self.changed_s);
        self.changed_s = now_s;
    }

    /// Restarts the counts.
    pub(crate) fn reset(&mut self, now_s: f64) {
        self.advance_to(now_s);
        self.busy_s = 0.0;
        self.waits.fill((0, 0.0));
    }
}
