//! Servers that serve several waiting requests at once. The class of the first one determines the service time, and counts
//! as the class that the server is busy with. A server is free again when the last of them has left.

use crate::engine::jobs::{List, Phase};
use crate::engine::tally::StationTally;
use crate::engine::world::World;
use crate::model::{NONE, StationPlan};

/// Servers, and the requests that wait for one.
#[derive(Debug)]
pub(crate) struct Batch {
    queue: List,
    /// Servers that have ever been used.
    used: Vec<Server>,
    free: Vec<u32>,
    /// Busy servers, without those whose requests are all blocked.
    running: u32,
}

#[derive(Clone, Copy, Debug)]
struct Server {
    /// Requests that have not left.
    inside: u32,
    class: u32,
}

impl Batch {
    pub(crate) fn new() -> Batch {
        Batch { queue: List::EMPTY, used: Vec::new(), free: Vec::new(), running: 0 }
    }

    pub(crate) fn arrive(&mut self, plan: &StationPlan, tally: &mut StationTally, world: &mut World, job: u32) {
        world.jobs[job].phase = Phase::Waiting;
        self.queue.push_back(&mut world.jobs, job);
        if let Some(server) = self.free_server(plan) {
            self.start(server, plan, tally, world);
        }
    }

    /// Ends the service of a batch.
    pub(crate) fn serviced(&mut self) {
        self.running -= 1;
    }

    pub(crate) fn leave(&mut self, plan: &StationPlan, tally: &mut StationTally, world: &mut World, job: u32) {
        let place = world.jobs[job].place;
        let server = &mut self.used[place as usize];
        server.inside -= 1;
        if server.inside == 0 {
            tally.serve(server.class, world.now_s, -1.0);
            if self.queue.is_empty() {
                self.free.push(place);
            } else {
                self.start(place, plan, tally, world);
            }
        }
    }

    pub(crate) fn is_stuck(&self) -> bool {
        self.running == 0
    }

    /// Servers are created when first needed, because there may be many more than are ever used.
    fn free_server(&mut self, plan: &StationPlan) -> Option<u32> {
        self.free.pop().or_else(|| {
            let is_left = plan.servers.is_some_and(|servers| (self.used.len() as u64) < u64::from(servers));
            is_left.then(|| {
                self.used.push(Server { inside: 0, class: 0 });
                (self.used.len() - 1) as u32
            })
        })
    }

    /// Takes as many as fit. They stay threaded to each other, and the event of the first one ends the service of all.
    fn start(&mut self, place: u32, plan: &StationPlan, tally: &mut StationTally, world: &mut World) {
        let (mut taken, mut first, mut last) = (0, NONE, NONE);
        while taken < plan.batch
            && let Some(job) = self.queue.pop_front(&mut world.jobs)
        {
            let request = &mut world.jobs[job];
            request.waited_s = world.now_s - request.arrived_s;
            request.phase = Phase::Serving;
            request.place = place;
            request.next = NONE;
            if last == NONE {
                first = job;
            } else {
                world.jobs[last].next = job;
            }
            last = job;
            taken += 1;
        }
        let class = world.jobs[first].class;
        self.used[place as usize] = Server { inside: taken, class };
        self.running += 1;
        tally.serve(class, world.now_s, 1.0);
        let service_s = plan.service[class as usize].draw(&mut world.random);
        world.schedule_job(first, service_s, Phase::Serving);
    }
}
