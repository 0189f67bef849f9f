//! Requests and legs of requests, in a slab: no allocation once the simulation has reached its largest number of jobs.
//! Lists of jobs are threaded through the slab; a job is in at most one list.

use crate::model::NONE;

/// The state of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    /// A free slot of the slab.
    #[default]
    Free,
    /// A closed customer between two requests.
    Thinking,
    /// Waits for other jobs, not for time.
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
    /// When it arrived at its place: the station, the fork, or the queue for a pool.
    pub(crate) arrived_s: f64,
    /// When it last started to wait or to be served (stations with interruption).
    pub(crate) since_s: f64,
    /// Its waiting time at this station, once that is known.
    pub(crate) waited_s: f64,
    /// The remaining work, or the work at which it is done, depending on the station; after service, the end of its service.
    pub(crate) work_s: f64,
    /// The next job in its list.
    pub(crate) next: u32,
    /// The number of the customer; for a leg, that of its request.
    pub(crate) customer: u32,
    /// For a leg, its request.
    pub(crate) owner: u32,
    /// For a leg, the serial of its request when it was made. If that has changed, the request no longer waits for the leg.
    pub(crate) owner_serial: u32,
    /// Changes with every fork that the job enters or leaves, and with every reuse of its number.
    pub(crate) serial: u32,
    /// Its position among the jobs in service, or its server, depending on the station.
    pub(crate) place: u32,
    /// Remaining visits of the present node.
    pub(crate) repeats: u32,
    /// Its position in the list of visits.
    pub(crate) visit: u32,
    /// The number of the request among those of its customer.
    pub(crate) sequence: u32,
    /// The present class, and the class in which the request began.
    pub(crate) class: u32,
    pub(crate) began_class: u32,
    /// Its node; [`NONE`] if it is at none, for example while it waits for a slot.
    pub(crate) node: u32,
    /// Its next node, and the class there.
    pub(crate) target: u32,
    pub(crate) target_class: u32,
    /// The pool of which it has a slot, and the pool of which it has acquired one for its next node.
    pub(crate) pool: u32,
    pub(crate) pool_ahead: u32,
    /// In a fork: legs that are done, and legs that can still be done.
    pub(crate) legs_done: u32,
    pub(crate) legs_left: u32,
    pub(crate) phase: Phase,
    pub(crate) is_leg: bool,
    /// For a leg, whether its request has the slot that it would need.
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

/// A list of jobs, first in, first out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    head: u32,
    tail: u32,
}

impl Jobs {
    pub(crate) fn new() -> Jobs {
        Jobs { all: Vec::new(), free: List::EMPTY, present: 0 }
    }

    /// A new job; the caller sets every field.
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

    /// Frees a job. The slot freed last is reused first, because it is in the CPU's cache.
    #[inline]
    pub(crate) fn release(&mut self, job: u32) {
        self.present -= 1;
        self[job].serial = self[job].serial.wrapping_add(1);
        self[job].phase = Phase::Free;
        let mut free = self.free;
        free.push_front(self, job);
        self.free = free;
    }

    /// The number of jobs, thinking customers included.
    pub(crate) fn present(&self) -> usize {
        self.present
    }

    /// The number of slots ever used.
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

    /// The first job, without removing it.
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

    /// For an interrupted job: it continues before the others of its level.
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
        jobs.release(first);
        assert_eq!(jobs.present(), 0);
        assert_eq!(jobs.take(), first);
        assert_ne!(jobs[first].serial, serial);
        assert_eq!(jobs.len(), 1);
    }
}
