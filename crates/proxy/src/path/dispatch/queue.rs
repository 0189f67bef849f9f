//! A bounded first-in-first-out queue, and the slots that serve it. Knows neither connections nor jobs.

use std::collections::VecDeque;

/// A queue that is full when it has `entries_max` entries or `bytes_max` bytes.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    entries: VecDeque<(T, usize)>,
    bytes: u64,
    entries_max: usize,
    bytes_max: u64,
}

/// The state of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    /// It may serve a request.
    Free,
    Busy,
    /// It cannot serve a request, because its connection is down.
    Down,
}

/// The slots of one queue.
#[derive(Debug)]
pub(crate) struct Slots {
    states: Vec<Slot>,
    /// The free slots. The one freed last is used first, because its connection and buffers are in the CPU caches.
    free: Vec<usize>,
    busy: usize,
}

impl<T> Queue<T> {
    /// An empty queue.
    pub(crate) fn new(entries_max: usize, bytes_max: u64) -> Queue<T> {
        Queue { entries: VecDeque::new(), bytes: 0, entries_max, bytes_max }
    }

    /// The number of entries.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no entry.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether no further entry may be added.
    pub(crate) fn is_full(&self) -> bool {
        self.entries.len() >= self.entries_max || self.bytes >= self.bytes_max
    }

    /// Adds an entry at the end.
    pub(crate) fn push(&mut self, entry: T, bytes: usize) {
        assert!(!self.is_full(), "a full queue admits no entry");
        self.bytes += bytes as u64;
        self.entries.push_back((entry, bytes));
    }

    /// The first entry.
    pub(crate) fn head(&self) -> Option<&T> {
        self.entries.front().map(|(entry, _)| entry)
    }

    /// Removes the first entry.
    pub(crate) fn pop(&mut self) -> Option<T> {
        let (entry, bytes) = self.entries.pop_front()?;
        self.bytes -= bytes as u64;
        Some(entry)
    }
}

impl Slots {
    /// `count` slots, all down.
    pub(crate) fn new(count: usize) -> Slots {
        Slots { states: vec![Slot::Down; count], free: Vec::with_capacity(count), busy: 0 }
    }

    /// The number of slots.
    pub(crate) fn len(&self) -> usize {
        self.states.len()
    }

    /// Sets the state of a slot.
    pub(crate) fn set(&mut self, slot: usize, state: Slot) {
        let before = std::mem::replace(&mut self.states[slot], state);
        if before == state {
            return;
        }
        match before {
            // Usually the last free slot was used.
            Slot::Free if self.free.last() == Some(&slot) => _ = self.free.pop(),
            Slot::Free => self.free.retain(|&other| other != slot),
            Slot::Busy => self.busy -= 1,
            Slot::Down => {}
        }
        match state {
            Slot::Free => self.free.push(slot),
            Slot::Busy => self.busy += 1,
            Slot::Down => {}
        }
    }

    /// The free slots. The last one must be used first.
    pub(crate) fn free(&self) -> &[usize] {
        &self.free
    }

    /// The number of busy slots.
    pub(crate) fn busy(&self) -> usize {
        self.busy
    }

    /// Whether any slot is busy or free.
    pub(crate) fn any_up(&self) -> bool {
        self.busy + self.free.len() > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_first_in_first_out_and_bounded_in_entries_and_bytes() {
        let mut queue = Queue::new(3, 100);
        for entry in 0..3 {
            assert!(!queue.is_full());
            queue.push(entry, 10);
        }
        assert!(queue.is_full());
        assert_eq!((queue.pop(), queue.pop(), queue.head()), (Some(0), Some(1), Some(&2)));
        queue.push(3, 90);
        assert!(queue.is_full(), "a hundred bytes wait");
        assert_eq!((queue.pop(), queue.pop(), queue.pop()), (Some(2), Some(3), None));
        assert!(!queue.is_full() && queue.is_empty());
    }

    #[test]
    fn slots_are_counted_through_all_state_changes() {
        let mut slots = Slots::new(3);
        assert!(!slots.any_up());
        for slot in 0..3 {
            slots.set(slot, Slot::Free);
        }
        slots.set(1, Slot::Down);
        assert_eq!(slots.free(), [0, 2]);
        slots.set(2, Slot::Busy);
        slots.set(2, Slot::Busy);
        assert_eq!((slots.free(), slots.busy()), (&[0][..], 1));
        slots.set(2, Slot::Free);
        assert_eq!((slots.free(), slots.busy()), (&[0, 2][..], 0));
        slots.set(0, Slot::Down);
        slots.set(2, Slot::Down);
        assert!(!slots.any_up());
    }
}
