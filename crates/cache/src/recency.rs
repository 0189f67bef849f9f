//! The order of use of the items: a doubly linked list through the slots of a slab, without pointers.

/// The end of the list.
const NONE: usize = usize::MAX;

/// The slots before and after one slot.
#[derive(Clone, Copy, Debug)]
struct Link {
    newer: usize,
    older: usize,
}

/// The slots from the most to the least recently used.
#[derive(Debug)]
pub(crate) struct Recency {
    links: Vec<Link>,
    newest: usize,
    oldest: usize,
}

impl Default for Recency {
    fn default() -> Recency {
        Recency { links: Vec::new(), newest: NONE, oldest: NONE }
    }
}

impl Recency {
    /// The least recently used slot.
    pub(crate) fn oldest(&self) -> Option<usize> {
        (self.oldest != NONE).then_some(self.oldest)
    }

    /// Adds a slot as the most recently used.
    pub(crate) fn insert(&mut self, slot: usize) {
        if slot >= self.links.len() {
            self.links.resize(slot + 1, Link { newer: NONE, older: NONE });
        }
        self.links[slot] = Link { newer: NONE, older: self.newest };
        match self.newest {
            NONE => self.oldest = slot,
            newest => self.links[newest].newer = slot,
        }
        self.newest = slot;
    }

    /// Removes a slot.
    pub(crate) fn remove(&mut self, slot: usize) {
        let Link { newer, older } = self.links[slot];
        match newer {
            NONE => self.newest = older,
            newer => self.links[newer].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.links[older].newer = newer,
        }
    }

    /// Makes a slot the most recently used.
    pub(crate) fn touch(&mut self, slot: usize) {
        if self.newest != slot {
            self.remove(slot);
            self.insert(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn slots_are_listed_in_order_of_use(steps in proptest::collection::vec((0usize..12, 0u8..3), 0..300)) {
            let mut recency = Recency::default();
            let mut model: Vec<usize> = Vec::new();
            for (slot, action) in steps {
                let known = model.contains(&slot);
                model.retain(|&other| other != slot);
                match (known, action) {
                    (true, 0) => recency.remove(slot),
                    (true, _) => {
                        recency.touch(slot);
                        model.push(slot);
                    }
                    (false, _) => {
                        recency.insert(slot);
                        model.push(slot);
                    }
                }
                prop_assert_eq!(recency.oldest(), model.first().copied());
            }
            for slot in model {
                prop_assert_eq!(recency.oldest(), Some(slot));
                recency.remove(slot);
            }
            prop_assert_eq!(recency.oldest(), None);
        }
    }
}
