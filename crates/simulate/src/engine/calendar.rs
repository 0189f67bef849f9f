//! The event calendar: a heap with one pending event for each job or station that waits for time to pass.
//!
//! The heap has four children per node: it is half as deep as a binary one, and the children fill one or two cache lines. An
//! entry is one 128-bit number, so that a comparison is one operation: 64 bits of time (floats that are not negative order
//! like their bits), 40 bits of sequence, which order simultaneous events by the time of scheduling, and 24 bits for the
//! owner. An event that fires leaves a hole at the root, and the first event scheduled after it fills the hole: nearly every
//! event costs one pass down the heap instead of two.

use crate::description::checks::{NAMES_MAX, PRESENT_MAX};

const SLOT_BITS: u32 = 24;
const SLOT_MASK: u32 = (1 << SLOT_BITS) - 1;
const SEQUENCE_MASK: u64 = (1 << (64 - SLOT_BITS)) - 1;
const CHILDREN: usize = 4;
const ABSENT: u32 = u32::MAX;

// Requests present, and the stations and classes besides.
const _: () = assert!(PRESENT_MAX + 2 * NAMES_MAX < 1 << SLOT_BITS);

/// Pending events.
#[derive(Debug, Default)]
pub(crate) struct Calendar {
    heap: Vec<u128>,
    /// The position of each owner's event in the heap.
    position: Vec<u32>,
    sequence: u64,
    has_hole: bool,
}

impl Calendar {
    /// Makes room for events of this many owners.
    pub(crate) fn grow(&mut self, slots: usize) {
        if self.position.len() < slots {
            self.position.resize(slots, ABSENT);
        }
    }

    /// Takes the next event: its time and its owner.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<(f64, u32)> {
        if self.has_hole {
            self.close_hole();
        }
        let top = *self.heap.first()?;
        let slot = slot_of(top);
        self.position[slot as usize] = ABSENT;
        self.has_hole = true;
        Some((f64::from_bits((top >> 64) as u64), slot))
    }

    /// Schedules the event of an owner that has none.
    #[inline]
    pub(crate) fn schedule(&mut self, slot: u32, time_s: f64) {
        debug_assert!(self.position[slot as usize] == ABSENT, "a slot has one event");
        let entry = self.entry(slot, time_s);
        if self.has_hole {
            self.has_hole = false;
            self.sift_down(0, entry);
        } else {
            self.heap.push(entry);
            self.sift_up(self.heap.len() - 1, entry);
        }
    }

    /// Reschedules the event of an owner, or schedules it.
    pub(crate) fn reschedule(&mut self, slot: u32, time_s: f64) {
        let position = self.position[slot as usize];
        if position == ABSENT {
            return self.schedule(slot, time_s);
        }
        let entry = self.entry(slot, time_s);
        self.place(position as usize, entry);
    }

    /// Cancels the event of an owner, if it has one.
    pub(crate) fn cancel(&mut self, slot: u32) {
        let position = self.position[slot as usize];
        if position == ABSENT {
            return;
        }
        self.position[slot as usize] = ABSENT;
        if let Some(last) = self.heap.pop()
            && (position as usize) < self.heap.len()
        {
            self.place(position as usize, last);
        }
    }

    /// Whether an owner has an event.
    #[cfg(test)]
    fn has(&self, slot: u32) -> bool {
        self.position[slot as usize] != ABSENT
    }

    #[inline]
    fn entry(&mut self, slot: u32, time_s: f64) -> u128 {
        debug_assert!(time_s >= 0.0, "time is not negative: {time_s}");
        self.sequence = (self.sequence + 1) & SEQUENCE_MASK;
        // Negative zero would order as the largest number.
        u128::from((time_s + 0.0).to_bits()) << 64
            | u128::from(self.sequence) << SLOT_BITS
            | u128::from(slot & SLOT_MASK)
    }

    fn close_hole(&mut self) {
        self.has_hole = false;
        if let Some(last) = self.heap.pop()
            && !self.heap.is_empty()
        {
            self.sift_down(0, last);
        }
    }

    /// Replaces an entry.
    fn place(&mut self, position: usize, entry: u128) {
        if position > 0 && entry < self.heap[(position - 1) / CHILDREN] {
            self.sift_up(position, entry);
        } else {
            self.sift_down(position, entry);
        }
    }

    #[inline]
    fn sift_up(&mut self, mut position: usize, entry: u128) {
        while position > 0 {
            let parent = (position - 1) / CHILDREN;
            let above = self.heap[parent];
            if above <= entry {
                break;
            }
            self.put(position, above);
            position = parent;
        }
        self.put(position, entry);
    }

    #[inline]
    fn sift_down(&mut self, mut position: usize, entry: u128) {
        while let Some((child, below)) = self.first_child(position) {
            if entry <= below {
                break;
            }
            self.put(position, below);
            position = child;
        }
        self.put(position, entry);
    }

    /// The earliest of the children. The branch predictor cannot guess it: four comparisons without a jump.
    #[inline]
    fn first_child(&self, position: usize) -> Option<(usize, u128)> {
        let first = position * CHILDREN + 1;
        let children = self.heap.get(first..)?;
        if let Some([a, b, c, d]) = children.first_chunk() {
            let (left, right) = (usize::from(b < a), 2 + usize::from(d < c));
            let (one, other) = ((*a).min(*b), (*c).min(*d));
            let child = if other < one { right } else { left };
            return Some((first + child, one.min(other)));
        }
        let (child, below) = children.iter().enumerate().min_by_key(|(_, below)| **below)?;
        Some((first + child, *below))
    }

    #[inline]
    fn put(&mut self, position: usize, entry: u128) {
        self.heap[position] = entry;
        self.position[slot_of(entry) as usize] = position as u32;
    }
}

#[inline]
fn slot_of(entry: u128) -> u32 {
    entry as u32 & SLOT_MASK
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn simultaneous_events_come_in_the_order_in_which_they_were_scheduled() {
        let mut calendar = Calendar::default();
        calendar.grow(10);
        for slot in [7, 3, 9, 1] {
            calendar.schedule(slot, 2.0);
        }
        calendar.schedule(5, 1.0);
        let order: Vec<u32> = std::iter::from_fn(|| calendar.next()).map(|(_, slot)| slot).collect();
        assert_eq!(order, [5, 7, 3, 9, 1]);
    }

    proptest! {
        /// Compares with a sorted list, for any mix of firing, scheduling, rescheduling and cancelling.
        #[test]
        fn events_come_in_the_order_of_a_sorted_list(steps in proptest::collection::vec((0u8..4, 0u32..40, 0u32..50), 1..400)) {
            let mut calendar = Calendar::default();
            calendar.grow(40);
            let (mut list, mut now, mut order): (Vec<(f64, u64, u32)>, f64, u64) = (Vec::new(), 0.0, 0);
            for (step, slot, delay) in steps {
                let time = now + f64::from(delay) / 4.0;
                order += 1;
                prop_assert_eq!(calendar.has(slot), list.iter().any(|entry| entry.2 == slot));
                match step {
                    0 => {
                        list.sort_by(|one, other| one.partial_cmp(other).unwrap());
                        let expected = (!list.is_empty()).then(|| list.remove(0));
                        let found = calendar.next();
                        prop_assert_eq!(found, expected.map(|(time, _, slot)| (time, slot)));
                        now = found.map_or(now, |(time, _)| time);
                    }
                    1 if !calendar.has(slot) => {
                        calendar.schedule(slot, time);
                        list.push((time, order, slot));
                    }
                    2 => {
                        calendar.cancel(slot);
                        list.retain(|entry| entry.2 != slot);
                    }
                    _ => {
                        calendar.reschedule(slot, time);
                        list.retain(|entry| entry.2 != slot);
                        list.push((time, order, slot));
                    }
                }
            }
        }
    }
}
