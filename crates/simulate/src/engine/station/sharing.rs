//! Processor sharing: each of n requests is served at 1/n of the station's speed.
//! A virtual clock advances with the work that each request receives, so that an arrival changes no other request: each is
//! done when the clock shows its value at the arrival plus the work. One event stands for the first one to be done.

use crate::engine::jobs::Phase;
use crate::engine::tally::StationTally;
use crate::engine::world::World;
use crate::model::StationPlan;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The requests in service.
#[derive(Debug)]
pub(crate) struct Sharing {
    /// Its owner number in the calendar.
    slot: u32,
    /// Work that each request has received since the station was last empty.
    clock_s: f64,
    changed_s: f64,
    /// The value of the clock at the end of each, then the order of arrival, then the job.
    sharing: BinaryHeap<Reverse<(Ordered, u64, u32)>>,
    arrivals: u64,
}

/// The bits of a float that is not negative, which order like the float.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Ordered(u64);

impl Sharing {
    pub(crate) fn new(slot: u32) -> Sharing {
        Sharing { slot, clock_s: 0.0, changed_s: 0.0, sharing: BinaryHeap::new(), arrivals: 0 }
    }

    pub(crate) fn arrive(&mut self, plan: &StationPlan, tally: &mut StationTally, world: &mut World, job: u32) {
        self.progress(plan, tally, world.now_s);
        let request = &mut world.jobs[job];
        let work_s = plan.service[request.class as usize].draw(&mut world.random);
        request.work_s = work_s;
        request.phase = Phase::Serving;
        tally.serve(request.class, world.now_s, 1.0);
        self.arrivals += 1;
        let done_at = Ordered((self.clock_s + work_s + 0.0).to_bits());
        self.sharing.push(Reverse((done_at, self.arrivals, job)));
        self.set_timer(plan, world);
    }

    /// The first request is done. It shares no more, but stays until it can leave.
    pub(crate) fn due(&mut self, plan: &StationPlan, tally: &mut StationTally, world: &mut World) -> Option<u32> {
        self.progress(plan, tally, world.now_s);
        let Reverse((done_at, _, job)) = self.sharing.pop()?;
        // Exactly, so that rounding errors of the timer do not accumulate.
        self.clock_s = f64::from_bits(done_at.0);
        let request = &mut world.jobs[job];
        let alone_s = request.work_s / plan.rate(1);
        request.waited_s = (world.now_s - request.arrived_s - alone_s).max(0.0);
        tally.serve(request.class, world.now_s, -1.0);
        self.set_timer(plan, world);
        Some(job)
    }

    pub(crate) fn is_stuck(&self) -> bool {
        self.sharing.is_empty()
    }

    /// Advances the virtual clock.
    pub(crate) fn progress(&mut self, plan: &StationPlan, tally: &mut StationTally, now_s: f64) {
        let passed_s = now_s - self.changed_s;
        self.changed_s = now_s;
        let count = self.sharing.len() as u32;
        if count > 0 {
            self.clock_s += passed_s * plan.rate(count) / f64::from(count);
            let busy = if plan.rates.is_empty() { plan.rate(count) } else { 1.0 };
            tally.share(passed_s * busy / f64::from(count));
        }
    }

    fn set_timer(&mut self, plan: &StationPlan, world: &mut World) {
        let count = self.sharing.len() as u32;
        match self.sharing.peek() {
            Some(Reverse((done_at, _, _))) => {
                let left_s = (f64::from_bits(done_at.0) - self.clock_s).max(0.0);
                let delay_s = left_s * f64::from(count) / plan.rate(count);
                world.calendar.reschedule(self.slot, world.now_s + delay_s);
            }
            None => {
                self.clock_s = 0.0;
                world.calendar.cancel(self.slot);
            }
        }
    }
}
