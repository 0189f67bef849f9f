//! A bounded queue, first in first out, and the slots that serve it. Knows neither connections nor jobs.

use std::collections::VecDeque;

/// Those who wait. It is full when it holds so many entries, or so many bytes.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    entries: VecDeque<(T, usize)>,
    bytes: u64,
    entries_max: usize,
    bytes_max: u64,
}

/// What a slot does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    /// It serves nobody and may.
    Free,
    Busy,
    /// It serves nobody and cannot.
    Down,
}

/// The slots of one queue.
#[derive(Debug)]
pub(crate) struct Slots {
    states: Vec<Slot>,
    /// The free ones. The last one freed is taken first: its connection and buffers are warm.
    free: Vec<usize>,
    busy: usize,
}

impl<T> Queue<T> {
    /// An empty queue.
    pub(crate) fn new(entries_max: usize, bytes_max: u64) -> Queue<T> {
        Queue { entries: VecDeque::new(), bytes: 0, entries_max, bytes_max }
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nobody waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether one more would be too much.
    pub(crate) fn is_full(&self) -> bool {
        self.entries.len() >= self.entries_max || self.bytes >= self.bytes_max
    }

    /// Lets one in, at the end.
    pub(crate) fn push(&mut self, entry: T, bytes: usize) {
        assert!(!self.is_full(), "a queue that is full admits nobody");
        self.bytes += bytes as u64;
        self.entries.push_back((entry, bytes));
    }

    /// The one whose turn is next.
    pub(crate) fn head(&self) -> Option<&T> {
        self.entries.front().map(|(entry, _)| entry)
    }

    /// Lets the next one out.
    pub(crate) fn pop(&mut self) -> Option<T> {
        let (entry, bytes) = self.entries.pop_front()?;
        self.bytes -= bytes as u64;
        Some(entry)
    }
}

impl Slots {
    /// So many slots, which cannot serve yet.
    pub(crate) fn new(count: usize) -> Slots {
        Slots { states: vec![Slot::Down; count], free: Vec::with_capacity(count), busy: 0 }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.states.len()
    }

    /// Notes what a slot does from now on.
    pub(crate) fn set(&mut self, slot: usize, state: Slot) {
        let before = std::mem::replace(&mut self.states[slot], state);
        if before == state {
            return;
        }
        match before {
            // Usually the slot that is taken is the last one.
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

    /// The free slots; the last one is to be taken first.
    pub(crate) fn free(&self) -> &[usize] {
        &self.free
    }

    /// How many serve somebody.
    pub(crate) fn busy(&self) -> usize {
        self.busy
    }

    /// Whether any serves or could.
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
    fn slots_are_counted_whatever_happens_to_them() {
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
