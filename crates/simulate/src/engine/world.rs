//! What everything in the simulation shares: the time, the calendar, the jobs and the source of randomness.
//!
//! Time is a float of seconds. It works for any scale, microseconds or hours, and what is added up are differences between
//! neighbouring events, never absolute times. The end of a run of a thousand million events lies some 10^9 service times
//! after its beginning; there a float still tells apart 10^-7 of a service time, and its rounding has no direction.

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
    /// Slots of the calendar that belong to stations and arrivals; jobs come after them.
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

    /// Lets a job's event come after `delay_s`.
    #[inline]
    pub(crate) fn schedule_job(&mut self, job: u32, delay_s: f64, phase: Phase) {
        self.jobs[job].phase = phase;
        self.calendar.schedule(self.first_job_slot + job, self.now_s + delay_s);
    }

    /// Takes a job's event away.
    pub(crate) fn cancel_job(&mut self, job: u32) {
        self.calendar.cancel(self.first_job_slot + job);
    }

    /// The job that a slot belongs to, if it is one.
    #[inline]
    pub(crate) fn job_of(&self, slot: u32) -> Option<u32> {
        slot.checked_sub(self.first_job_slot)
    }
}
