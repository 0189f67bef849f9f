//! The state that all parts of a replication share: the time, the calendar, the jobs and the random numbers.
//!
//! Time is a float in seconds, so that microseconds and hours both work. Sums contain differences between consecutive events,
//! never absolute times. A run of a thousand million events ends about 10^9 service times after its start. There a float
//! still resolves 10^-7 of a service time, and its rounding has no direction.

use crate::engine::calendar::Calendar;
use crate::engine::jobs::{Jobs, Phase};
use rand_xoshiro::Xoshiro256PlusPlus;

/// The shared state of one replication.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) now_s: f64,
    pub(crate) random: Xoshiro256PlusPlus,
    pub(crate) calendar: Calendar,
    pub(crate) jobs: Jobs,
    /// Owners of the calendar before this one are stations and arrivals; jobs come after them.
    first_job_slot: u32,
}

impl World {
    pub(crate) fn new(random: Xoshiro256PlusPlus, first_job_slot: u32) -> World {
        let mut calendar = Calendar::default();
        calendar.grow(first_job_slot as usize);
        World { now_s: 0.0, random, calendar, jobs: Jobs::new(), first_job_slot }
    }

    /// A new job, which can have an event.
    #[inline]
    pub(crate) fn take_job(&mut self) -> u32 {
        let job = self.jobs.take();
        self.calendar.grow(self.first_job_slot as usize + self.jobs.len());
        job
    }

    /// Schedules a job's event after `delay_s`.
    #[inline]
    pub(crate) fn schedule_job(&mut self, job: u32, delay_s: f64, phase: Phase) {
        self.jobs[job].phase = phase;
        self.calendar.schedule(self.first_job_slot + job, self.now_s + delay_s);
    }

    /// Cancels a job's event.
    pub(crate) fn cancel_job(&mut self, job: u32) {
        self.calendar.cancel(self.first_job_slot + job);
    }

    /// The job that an owner number belongs to, if it is one.
    #[inline]
    pub(crate) fn job_of(&self, slot: u32) -> Option<u32> {
        slot.checked_sub(self.first_job_slot)
    }
}
