//! One server whose speed depends on the number present; it serves the request at the head of the queue.
//! With exponential service, the means do not depend on how requests share this speed (product form).

use crate::description::Discipline;
use crate::engine::jobs::Phase;
use crate::engine::jobs::Queue;
use crate::engine::tally::StationTally;
use crate::engine::world::World;
use crate::model::{NONE, StationPlan};

/// The request in service, and those that wait.
#[derive(Debug)]
pub(crate) struct Single {
    /// Its owner number in the calendar.
    slot: u32,
    current: u32,
    /// Whether the request in service is done but blocked.
    is_done: bool,
    speed: f64,
    queue: Queue,
}

impl Single {
    pub(crate) fn new(plan: &StationPlan, slot: u32) -> Single {
        Single { slot, current: NONE, is_done: false, speed: 1.0, queue: Queue::new(plan.levels) }
    }

    /// Adds an arrival; now `present` are here.
    pub(crate) fn arrive(
        &mut self,
        plan: &StationPlan,
        tally: &mut StationTally,
        world: &mut World,
        job: u32,
        present: u32,
    ) {
        self.progress(world);
        let request = &mut world.jobs[job];
        let level = plan.level[request.class as usize];
        request.work_s = plan.service[request.class as usize].draw(&mut world.random);
        request.since_s = world.now_s;
        request.waited_s = 0.0;
        request.phase = Phase::Waiting;
        if self.current == NONE {
            self.begin(tally, world, job);
        } else if self.makes_way(plan, world, level) {
            let before = self.current;
            let class = world.jobs[before].class;
            tally.serve(class, world.now_s, -1.0);
            world.jobs[before].phase = Phase::Waiting;
            self.queue.push_front(&mut world.jobs, before, plan.level[class as usize]);
            self.begin(tally, world, job);
        } else {
            self.queue.push_back(&mut world.jobs, job, level);
        }
        self.set_timer(plan, world, present);
    }

    /// Ends the service of the request in service.
    pub(crate) fn due(&mut self) -> u32 {
        self.is_done = true;
        self.current
    }

    /// Removes the request in service; now `present` are here.
    pub(crate) fn leave(
        &mut self,
        plan: &StationPlan,
        tally: &mut StationTally,
        world: &mut World,
        job: u32,
        present: u32,
    ) {
        tally.serve(world.jobs[job].class, world.now_s, -1.0);
        self.is_done = false;
        self.current = NONE;
        if let Some(next) = self.queue.pop(&mut world.jobs) {
            self.begin(tally, world, next);
            self.set_timer(plan, world, present);
        }
    }

    pub(crate) fn is_stuck(&self) -> bool {
        self.is_done
    }

    fn makes_way(&self, plan: &StationPlan, world: &World, level: u16) -> bool {
        let current = plan.level[world.jobs[self.current].class as usize];
        plan.discipline == Discipline::Preemptive && !self.is_done && level < current
    }

    fn begin(&mut self, tally: &mut StationTally, world: &mut World, job: u32) {
        let request = &mut world.jobs[job];
        request.waited_s += world.now_s - request.since_s;
        request.since_s = world.now_s;
        request.phase = Phase::Serving;
        tally.serve(request.class, world.now_s, 1.0);
        self.current = job;
    }

    /// Subtracts the work since the last change from that of the request in service.
    fn progress(&mut self, world: &mut World) {
        if self.current != NONE && !self.is_done {
            let request = &mut world.jobs[self.current];
            request.work_s = (request.work_s - (world.now_s - request.since_s) * self.speed).max(0.0);
            request.since_s = world.now_s;
        }
    }

    fn set_timer(&mut self, plan: &StationPlan, world: &mut World, present: u32) {
        if !self.is_done {
            self.speed = plan.rate(present);
            let work_s = world.jobs[self.current].work_s;
            world.calendar.reschedule(self.slot, world.now_s + work_s / self.speed);
        }
    }
}
