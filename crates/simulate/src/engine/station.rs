//! A station: one of six ways to serve, a capacity, and counts. Knows no routes; the engine moves the jobs that are done.

mod batch;
mod preemptive;
mod servers;
mod sharing;
mod single;

use crate::description::Discipline;
use crate::engine::jobs::{List, Phase};
use crate::engine::station::batch::Batch;
use crate::engine::station::preemptive::Preemptive;
use crate::engine::station::servers::Servers;
use crate::engine::station::sharing::Sharing;
use crate::engine::station::single::Single;
use crate::engine::tally::StationTally;
use crate::engine::world::World;
use crate::model::StationPlan;

/// A station and the jobs at it.
#[derive(Debug)]
pub(crate) struct StationState<'m> {
    pub(crate) plan: &'m StationPlan,
    kind: Kind,
    pub(crate) present: u32,
    /// Jobs elsewhere that wait for room here, first come, first served.
    pub(crate) waiting_for_room: List,
    /// Jobs here that are done but blocked.
    blocked: u32,
    pub(crate) tally: StationTally,
}

/// The ways to serve.
#[derive(Debug)]
enum Kind {
    /// As many servers as requests.
    Delay,
    Servers(Servers),
    Batch(Batch),
    Single(Single),
    Sharing(Sharing),
    Preemptive(Preemptive),
}

impl<'m> StationState<'m> {
    /// An empty station; `slot` is its owner number in the calendar.
    pub(crate) fn new(plan: &'m StationPlan, slot: u32) -> StationState<'m> {
        let kind = match (plan.servers, plan.discipline) {
            (None, _) => Kind::Delay,
            (_, Discipline::Sharing) => Kind::Sharing(Sharing::new(slot)),
            _ if !plan.rates.is_empty() => Kind::Single(Single::new(plan, slot)),
            (Some(servers), Discipline::Preemptive) => Kind::Preemptive(Preemptive::new(plan, servers)),
            _ if plan.batch > 1 => Kind::Batch(Batch::new()),
            (Some(servers), _) => Kind::Servers(Servers::new(plan, servers)),
        };
        let is_shared = matches!(kind, Kind::Sharing(_));
        let tally = StationTally::new(plan.service.len(), is_shared);
        StationState { plan, kind, present: 0, waiting_for_room: List::EMPTY, blocked: 0, tally }
    }

    /// Whether there is no room, or others wait for it already.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.present >= self.plan.capacity || !self.waiting_for_room.is_empty()
    }

    /// Admits a job.
    #[inline]
    pub(crate) fn arrive(&mut self, world: &mut World, job: u32) {
        let (plan, tally) = (self.plan, &mut self.tally);
        self.present += 1;
        let request = &mut world.jobs[job];
        request.arrived_s = world.now_s;
        let class = request.class;
        tally.arrive(class, world.now_s, self.present);
        match &mut self.kind {
            Kind::Servers(servers) => servers.arrive(plan, tally, world, job),
            Kind::Delay => {
                world.jobs[job].waited_s = 0.0;
                let service_s = plan.service[class as usize].draw(&mut world.random);
                world.schedule_job(job, service_s, Phase::Serving);
            }
            Kind::Batch(batch) => batch.arrive(plan, tally, world, job),
            Kind::Single(single) => single.arrive(plan, tally, world, job, self.present),
            Kind::Sharing(sharing) => sharing.arrive(plan, tally, world, job),
            Kind::Preemptive(servers) => servers.arrive(plan, tally, world, job),
        }
    }

    /// The event of a job in service: ends its service, and that of all jobs threaded to it if the result is true.
    #[inline]
    pub(crate) fn serviced(&mut self, world: &mut World, job: u32) -> bool {
        match &mut self.kind {
            Kind::Preemptive(servers) => servers.serviced(self.plan, world, job),
            Kind::Batch(batch) => {
                batch.serviced();
                return true;
            }
            Kind::Delay | Kind::Servers(_) | Kind::Single(_) | Kind::Sharing(_) => {}
        }
        false
    }

    /// The event of the station itself: returns the job that is done.
    pub(crate) fn due(&mut self, world: &mut World) -> Option<u32> {
        match &mut self.kind {
            Kind::Single(single) => Some(single.due()),
            Kind::Sharing(sharing) => sharing.due(self.plan, &mut self.tally, world),
            Kind::Delay | Kind::Servers(_) | Kind::Batch(_) | Kind::Preemptive(_) => None,
        }
    }

    /// A job that is done is blocked: it keeps its server and its room.
    pub(crate) fn block(&mut self, world: &mut World, job: u32) {
        world.jobs[job].phase = Phase::Waiting;
        self.blocked += 1;
    }

    /// Removes a job that is done.
    #[inline]
    pub(crate) fn leave(&mut self, world: &mut World, job: u32) {
        let (plan, tally) = (self.plan, &mut self.tally);
        self.present -= 1;
        let request = &world.jobs[job];
        if request.phase == Phase::Waiting {
            self.blocked -= 1;
        }
        let response_s = world.now_s - request.arrived_s;
        tally.leave(request.class, world.now_s, self.present, response_s, request.waited_s);
        match &mut self.kind {
            Kind::Servers(servers) => servers.leave(plan, tally, world, job),
            Kind::Delay | Kind::Sharing(_) => {}
            Kind::Batch(batch) => batch.leave(plan, tally, world, job),
            Kind::Single(single) => single.leave(plan, tally, world, job, self.present),
            Kind::Preemptive(servers) => servers.leave(plan, tally, world, job),
        }
    }

    /// Whether all its jobs are blocked, so that there is no room until one of them can leave.
    pub(crate) fn is_stuck(&self) -> bool {
        let is_blocked = match &self.kind {
            Kind::Delay => self.blocked == self.present,
            Kind::Servers(servers) => servers.is_stuck(self.plan, self.blocked),
            Kind::Batch(batch) => batch.is_stuck(),
            Kind::Single(single) => single.is_stuck(),
            Kind::Sharing(sharing) => sharing.is_stuck(),
            Kind::Preemptive(servers) => servers.is_stuck(self.plan, self.blocked),
        };
        self.present >= self.plan.capacity && is_blocked
    }

    /// Adds the areas since the last change.
    pub(crate) fn advance_to(&mut self, now_s: f64) {
        if let Kind::Sharing(sharing) = &mut self.kind {
            sharing.progress(self.plan, &mut self.tally, now_s);
        }
        self.tally.advance_to(now_s);
    }

    /// Restarts the counts.
    pub(crate) fn reset(&mut self, now_s: f64) {
        self.advance_to(now_s);
        self.tally.reset(now_s);
    }

    /// The divisor that turns the area under the number in service into the utilisation of the servers.
    pub(crate) fn busy_divisor(&self) -> Option<f64> {
        match (&self.kind, self.plan.servers) {
            (Kind::Delay, _) => None,
            (Kind::Single(_), _) => Some(1.0),
            _ if !self.plan.rates.is_empty() => Some(1.0),
            (_, servers) => servers.map(f64::from),
        }
    }
}
