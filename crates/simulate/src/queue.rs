//! Who waits at a station: first come first served, by levels of priority where there are several.

use crate::jobs::{Jobs, List};

/// One list for each level; the lowest number goes first.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    levels: Vec<List>,
}

impl Queue {
    pub(crate) fn new(levels: usize) -> Queue {
        Queue { levels: vec![List::EMPTY; levels] }
    }

    #[inline]
    pub(crate) fn push_back(&mut self, jobs: &mut Jobs, job: u32, level: u16) {
        self.levels[level as usize].push_back(jobs, job);
    }

    /// For who was interrupted: it goes on before the others of its level.
    pub(crate) fn push_front(&mut self, jobs: &mut Jobs, job: u32, level: u16) {
        self.levels[level as usize].push_front(jobs, job);
    }

    #[inline]
    pub(crate) fn pop(&mut self, jobs: &mut Jobs) -> Option<u32> {
        self.levels.iter_mut().find_map(|level| level.pop_front(jobs))
    }
}
