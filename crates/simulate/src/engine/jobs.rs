//! Requests and legs of requests, in a slab: no allocation while the simulation runs, once it has seen its largest number.
//! Lists of them are threaded through the slab; a job is in at most one list.

use crate::model::NONE;

/// What a job is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    /// A place in the slab that nobody has.
    #[default]
    Free,
    /// A closed customer between two requests.
    Thinking,
    /// Waits for others, not for time.
    Waiting,
    /// In service; its event ends the service.
    Serving,
    /// A leg that has not been sent; its event sends it.
    Sending,
}

/// A request, a thinking customer, or one leg of a request.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    /// When the request left the client.
    pub(crate) began_s: f64,
    /// When it came to where it is: the station, the fork, or the queue for a pool.
    pub(crate) arrived_s: f64,
    /// When it last began to wait or to be served (stations where service can be interrupted).
    pub(crate) since_s: f64,
    /// How long it waited at this station, once that is known.
    pub(crate) waited_s: f64,
    /// Work left, or work at which it is done, as the station needs it; after service, the time at which it ended.
    pub(crate) work_s: f64,
    /// Next in the list that it is in.
    pub(crate) next: u32,
    /// Number of the customer; a leg has that of its request.
    pub(crate) customer: u32,
    /// For a leg, the request it is of.
    pub(crate) owner: u32,
    /// For a leg, the serial of its owner when it was cut: when that has changed, nobody waits for the leg any more.
    pub(crate) owner_serial: u32,
    /// Counts the forks that the job came to and went from, and what its number was used for.
    pub(crate) serial: u32,
    /// Place among those in service, or the server, as the station needs it.
    pub(crate) place: u32,
    /// Visits of the present node that are still to come.
    pub(crate) repeats: u32,
    /// Where in the list of visits it is.
    pub(crate) visit: u32,
    /// Number of the request among those of its customer.
    pub(crate) sequence: u32,
    /// Class now, and class in which the request began.
    pub(crate) class: u32,
    pub(crate) began_class: u32,
    /// Where it is; [`NONE`] when it is nowhere, as while it waits for a slot.
    pub(crate) node: u32,
    /// Where it wants to go, and as which class.
    pub(crate) target: u32,
    pub(crate) target_class: u32,
    /// Pool of which it holds a slot, and pool of which it has taken one for where it wants to go.
    pub(crate) pool: u32,
    pub(crate) pool_ahead: u32,
    /// In a fork: legs that are done, and legs that may still come to be done.
    pub(crate) legs_done: u32,
    pub(crate) legs_left: u32,
    pub(crate) phase: Phase,
    pub(crate) is_leg: bool,
    /// For a leg, whether its request holds the slot that it would need.
    pub(crate) is_inside: bool,
    /// For a leg, its number.
    pub(crate) leg: u16,
}

/// All jobs, by number.
#[derive(Debug)]
pub(crate) struct Jobs {
    all: Vec<Job>,
    free: List,
    present: usize,
}

/// First in, first out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    head: u32,
    tail: u32,
}

impl Jobs {
    pub(crate) fn new() -> Jobs {
        Jobs { all: Vec::new(), free: List::EMPTY, present: 0 }
    }

    /// A new job; whoever takes it says everything about it.
    #[inline]
    pub(crate) fn take(&mut self) -> u32 {
        self.present += 1;
        let mut free = self.free;
        match free.pop_front(self) {
            Some(job) => {
                self.free = free;
                job
            }
            None => {
                self.all.push(Job::EMPTY);
                (self.all.len() - 1) as u32
            }
        }
    }

    /// Gives a job back. The one used last is used first: it is in the cache.
    #[inline]
    pub(crate) fn give_back(&mut self, job: u32) {
        self.present -= 1;
        self[job].serial = self[job].serial.wrapping_add(1);
        self[job].phase = Phase::Free;
        let mut free = self.free;
        free.push_front(self, job);
        self.free = free;
    }

    /// How many there are, thinking customers included.
    pub(crate) fn present(&self) -> usize {
        self.present
    }

    /// How many numbers have been used.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }
}

impl std::ops::Index<u32> for Jobs {
    type Output = Job;
    #[inline]
    fn index(&self, job: u32) -> &Job {
        &self.all[job as usize]
    }
}

impl std::ops::IndexMut<u32> for Jobs {
    #[inline]
    fn index_mut(&mut self, job: u32) -> &mut Job {
        &mut self.all[job as usize]
    }
}

impl Job {
    const EMPTY: Job = Job {
        began_s: 0.0,
        arrived_s: 0.0,
        since_s: 0.0,
        waited_s: 0.0,
        work_s: 0.0,
        next: NONE,
        customer: 0,
        owner: NONE,
        owner_serial: 0,
        serial: 0,
        place: 0,
        repeats: 0,
        visit: 0,
        sequence: 0,
        class: 0,
        began_class: 0,
        node: NONE,
        target: NONE,
        target_class: 0,
        pool: NONE,
        pool_ahead: NONE,
        legs_done: 0,
        legs_left: 0,
        phase: Phase::Free,
        is_leg: false,
        is_inside: false,
        leg: 0,
    };
}

impl List {
    pub(crate) const EMPTY: List = List { head: NONE, tail: NONE };

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.head == NONE
    }

    /// The first, without taking it.
    pub(crate) fn front(&self) -> Option<u32> {
        (self.head != NONE).then_some(self.head)
    }

    #[inline]
    pub(crate) fn push_back(&mut self, jobs: &mut Jobs, job: u32) {
        jobs[job].next = NONE;
        if self.head == NONE {
            self.head = job;
        } else {
            jobs[self.tail].next = job;
        }
        self.tail = job;
    }

    #[inline]
    pub(crate) fn push_front(&mut self, jobs: &mut Jobs, job: u32) {
        jobs[job].next = self.head;
        if self.head == NONE {
            self.tail = job;
        }
        self.head = job;
    }

    #[inline]
    pub(crate) fn pop_front(&mut self, jobs: &mut Jobs) -> Option<u32> {
        if self.head == NONE {
            return None;
        }
        let job = self.head;
        self.head = jobs[job].next;
        Some(job)
    }
}

/// The requests that wait at a station, in order of arrival: one list for each priority level, the lowest number first.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_first_in_first_out() {
        let mut jobs = Jobs::new();
        let numbers: Vec<u32> = (0..4).map(|_| jobs.take()).collect();
        let mut list = List::EMPTY;
        for &job in &numbers[..3] {
            list.push_back(&mut jobs, job);
        }
        list.push_front(&mut jobs, numbers[3]);
        let order: Vec<u32> = std::iter::from_fn(|| list.pop_front(&mut jobs)).collect();
        assert_eq!(order, [3, 0, 1, 2]);
        list.push_back(&mut jobs, 2);
        assert_eq!((list.front(), list.is_empty()), (Some(2), false));
    }

    #[test]
    fn a_number_is_used_again_with_another_serial() {
        let mut jobs = Jobs::new();
        let first = jobs.take();
        let serial = jobs[first].serial;
        jobs.give_back(first);
        assert_eq!(jobs.present(), 0);
        assert_eq!(jobs.take(), first);
        assert_ne!(jobs[first].serial, serial);
        assert_eq!(jobs.len(), 1);
    }
}
