//! Servers that serve one request each to its end: first come, first served, or by priority without interruption.

use crate::engine::jobs::Phase;
use crate::engine::jobs::Queue;
use crate::engine::tally::StationTally;
use crate::engine::world::World;
use crate::model::StationPlan;

/// Free servers, and the requests that wait for one.
#[derive(Debug)]
pub(crate) struct Servers {
    free: u32,
    queue: Queue,
}

impl Servers {
    pub(crate) fn new(plan: &StationPlan, servers: u32) -> Servers {
        Servers { free: servers, queue: Queue::new(plan.levels) }
    }

    #[inline]
    pub(crate) fn arrive(&mut self, plan: &StationPlan, tally: &mut StationTally, world: &mut World, job: u32) {
        if self.free > 0 {
            self.free -= 1;
            start(plan, tally, world, job);
        } else {
            let level = plan.level[world.jobs[job].class as usize];
            world.jobs[job].phase = Phase::Waiting;
            self.queue.push_back(&mut world.jobs, job, level);
        }
    }

    #[inline]
    pub(crate) fn leave(&mut self, plan: &StationPlan, tally: &mut StationTally, world: &mut World, job: u32) {
        tally.serve(world.jobs[job].class, world.now_s, -1.0);
        match self.queue.pop(&mut world.jobs) {
            Some(next) => start(plan, tally, world, next),
            None => self.free += 1,
        }
    }

    /// Whether no request in service can still finish, when `blocked` are done and blocked.
    pub(crate) fn is_stuck(&self, plan: &StationPlan, blocked: u32) -> bool {
        self.free == 0 && plan.servers == Some(blocked)
    }
}

#[inline]
fn start(plan: &StationPlan, tally: &mut StationTally, world: &mut World, job: u32) {
    let request = &mut world.jobs[job];
    request.waited_s = world.now_s - request.arrived_s;
    let class = request.class;
    tally.serve(class, world.now_s, 1.0);
    let service_s = plan.service[class as usize].draw(&mut world.random);
    world.schedule_job(job, service_s, Phase::Serving);
}
