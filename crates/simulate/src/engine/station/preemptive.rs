//! Preemptive-resume priorities: a request of higher priority takes the server of one with lower priority, which continues
//! later where it stopped. Of the requests with the lowest priority, the one that started last is interrupted.

use crate::engine::jobs::Phase;
use crate::engine::jobs::Queue;
use crate::engine::tally::StationTally;
use crate::engine::world::World;
use crate::model::StationPlan;

/// Free servers, the requests in service, and those that wait.
#[derive(Debug)]
pub(crate) struct Preemptive {
    free: u32,
    queue: Queue,
    /// By level.
    serving: Vec<Vec<u32>>,
}

impl Preemptive {
    pub(crate) fn new(plan: &StationPlan, servers: u32) -> Preemptive {
        Preemptive { free: servers, queue: Queue::new(plan.levels), serving: vec![Vec::new(); plan.levels] }
    }

    pub(crate) fn arrive(&mut self, plan: &StationPlan, tally: &mut StationTally, world: &mut World, job: u32) {
        let request = &mut world.jobs[job];
        let level = plan.level[request.class as usize];
        request.work_s = plan.service[request.class as usize].draw(&mut world.random);
        request.since_s = world.now_s;
        request.waited_s = 0.0;
        request.phase = Phase::Waiting;
        if self.free > 0 {
            self.free -= 1;
            return self.begin(plan, tally, world, job);
        }
        let lowest = self.serving.iter().rposition(|serving| !serving.is_empty());
        match lowest.filter(|&lowest| lowest > level as usize).and_then(|lowest| self.latest(world, lowest)) {
            Some(victim) => {
                self.interrupt(plan, tally, world, victim);
                self.begin(plan, tally, world, job);
            }
            None => self.queue.push_back(&mut world.jobs, job, level),
        }
    }

    /// Ends the service of a job; it cannot be interrupted any more while it is blocked.
    pub(crate) fn serviced(&mut self, plan: &StationPlan, world: &mut World, job: u32) {
        let level = plan.level[world.jobs[job].class as usize] as usize;
        let place = world.jobs[job].place as usize;
        self.serving[level].swap_remove(place);
        if let Some(&moved) = self.serving[level].get(place) {
            world.jobs[moved].place = place as u32;
        }
    }

    pub(crate) fn leave(&mut self, plan: &StationPlan, tally: &mut StationTally, world: &mut World, job: u32) {
        tally.serve(world.jobs[job].class, world.now_s, -1.0);
        match self.queue.pop(&mut world.jobs) {
            Some(next) => self.begin(plan, tally, world, next),
            None => self.free += 1,
        }
    }

    pub(crate) fn is_stuck(&self, plan: &StationPlan, blocked: u32) -> bool {
        self.free == 0 && plan.servers == Some(blocked)
    }

    fn latest(&self, world: &World, level: usize) -> Option<u32> {
        let since = |job: &u32| world.jobs[*job].since_s;
        self.serving[level].iter().copied().max_by(|one, other| since(one).total_cmp(&since(other)))
    }

    fn begin(&mut self, plan: &StationPlan, tally: &mut StationTally, world: &mut World, job: u32) {
        let request = &mut world.jobs[job];
        request.waited_s += world.now_s - request.since_s;
        request.since_s = world.now_s;
        let (class, work_s) = (request.class, request.work_s);
        let serving = &mut self.serving[plan.level[class as usize] as usize];
        request.place = serving.len() as u32;
        serving.push(job);
        tally.serve(class, world.now_s, 1.0);
        world.schedule_job(job, work_s, Phase::Serving);
    }

    fn interrupt(&mut self, plan: &StationPlan, tally: &mut StationTally, world: &mut World, job: u32) {
        self.serviced(plan, world, job);
        world.cancel_job(job);
        let request = &mut world.jobs[job];
        request.work_s = (request.work_s - (world.now_s - request.since_s)).max(0.0);
        request.since_s = world.now_s;
        request.phase = Phase::Waiting;
        let class = request.class;
        tally.serve(class, world.now_s, -1.0);
        self.queue.push_front(&mut world.jobs, job, plan.level[class as usize]);
    }
}
