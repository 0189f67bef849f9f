//! One replication in progress: takes events from the calendar, starts and ends requests, and counts them.
//! `movement` moves requests from place to place; `forking` splits them into legs.

mod calendar;
mod forking;
pub(crate) mod histogram;
pub(crate) mod jobs;
mod movement;
pub(crate) mod observer;
pub(crate) mod pool;
pub(crate) mod station;
pub(crate) mod tally;
mod world;

use crate::description::checks::PRESENT_MAX;
use crate::engine::histogram::Histogram;
use crate::engine::jobs::Phase;
use crate::engine::observer::Observer;
use crate::engine::pool::PoolState;
use crate::engine::station::StationState;
use crate::engine::world::World;
use crate::error::Stop;
use crate::model::{Model, NONE};
use crate::watch::Watch;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::VecDeque;

/// This many events at the same time mean that time stands still.
const STANDING_MAX: u64 = 50_000_000;
/// Beyond this, adding seconds would lose precision.
const TIME_MAX_S: f64 = 1e200;
/// Events between two checks of the stop flag.
const LOOK_EVERY: u64 = 1 << 16;

/// One replication.
#[derive(Debug)]
pub(crate) struct Engine<'m, O> {
    pub(crate) model: &'m Model,
    pub(crate) world: World,
    pub(crate) stations: Vec<StationState<'m>>,
    pub(crate) pools: Vec<PoolState>,
    /// Actions that have become possible and happen before time advances.
    pub(crate) agenda: VecDeque<Task>,
    /// Counts by the class in which requests begin.
    pub(crate) requests: Vec<RequestTally>,
    /// By fork and class: the number of joins, and the sum of their durations.
    pub(crate) forks: Vec<Vec<(u64, f64)>>,
    pub(crate) observer: O,
    /// The reason why the replication cannot continue.
    pub(crate) failure: Option<Stop>,
    pub(crate) events: u64,
    /// Requests that have returned to the client since counting started.
    completed: u64,
    /// Those of them that `Watch` knows.
    reported: u64,
    arrivals: u32,
    standing: u64,
}

/// An action that happens before time advances.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Task {
    /// A customer without think time starts its next request.
    Begin(u32),
    /// A station for which others wait has room.
    Room(u32),
    /// A pool for which others wait has a free slot.
    Slot(u32),
}

/// Counts of the requests that began in one class.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestTally {
    pub(crate) began: u64,
    pub(crate) completed: u64,
    pub(crate) lost: u64,
    pub(crate) response_s: f64,
    pub(crate) responses: Histogram,
}

impl<'m, O: Observer> Engine<'m, O> {
    /// An empty network; closed customers think.
    pub(crate) fn new(model: &'m Model, random: Xoshiro256PlusPlus, observer: O) -> Engine<'m, O> {
        let (classes, stations) = (model.classes.len(), model.stations.len());
        let mut engine = Engine {
            model,
            world: World::new(random, (stations + classes) as u32),
            stations: model.stations.iter().zip(0..).map(|(plan, slot)| StationState::new(plan, slot)).collect(),
            pools: model.pools.iter().map(|pool| PoolState::new(pool.slots, classes)).collect(),
            agenda: VecDeque::new(),
            requests: vec![RequestTally::default(); classes],
            forks: vec![vec![(0, 0.0); classes]; model.forks.len()],
            observer,
            failure: None,
            events: 0,
            completed: 0,
            reported: 0,
            arrivals: 0,
            standing: 0,
        };
        engine.populate();
        engine
    }

    fn populate(&mut self) {
        let mut customer = 0;
        for (class, plan) in self.model.classes.iter().enumerate() {
            for _ in 0..plan.population {
                let job = self.world.take_job();
                self.world.jobs[job].customer = customer;
                customer += 1;
                self.think(job, class as u32);
            }
            if let Some(between) = &plan.arrivals {
                let first_s = between.draw(&mut self.world.random);
                self.world.calendar.schedule((self.model.stations.len() + class) as u32, first_s);
            }
        }
    }

    /// Runs until this many requests have returned since counting started.
    ///
    /// # Errors
    /// If it is stopped, or cannot continue.
    pub(crate) fn run(&mut self, requests: u64, watch: &Watch) -> Result<(), Stop> {
        self.work_off();
        while self.completed < requests {
            let Some((time_s, slot)) = self.world.calendar.next() else { return Err(Stop::Stuck) };
            if time_s > self.world.now_s {
                self.world.now_s = time_s;
                self.standing = 0;
            }
            self.standing += 1;
            self.events += 1;
            self.fire(slot);
            if !self.agenda.is_empty() {
                self.work_off();
            }
            if self.events.is_multiple_of(LOOK_EVERY) || self.failure.is_some() {
                self.check_progress(watch)?;
            }
        }
        // A replication that is complete does not fail because others must stop.
        match self.check_progress(watch) {
            Err(Stop::Asked) => Ok(()),
            other => other,
        }
    }

    /// Checks that the replication can continue.
    fn check_progress(&mut self, watch: &Watch) -> Result<(), Stop> {
        watch.add(self.completed - self.reported);
        self.reported = self.completed;
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        if self.world.now_s.is_nan() || self.world.now_s >= TIME_MAX_S {
            return Err(Stop::TooLate);
        }
        if self.standing > STANDING_MAX {
            return Err(Stop::NoTime);
        }
        if watch.is_stopped() { Err(Stop::Asked) } else { Ok(()) }
    }

    /// Restarts the counts, and keeps the state of the network.
    pub(crate) fn reset(&mut self) {
        let now_s = self.world.now_s;
        self.stations.iter_mut().for_each(|station| station.reset(now_s));
        self.pools.iter_mut().for_each(|pool| pool.reset(now_s));
        self.forks.iter_mut().for_each(|classes| classes.fill((0, 0.0)));
        self.requests.iter_mut().for_each(RequestTally::reset);
        (self.completed, self.reported) = (0, 0);
    }

    /// Brings the areas of all counts up to the present time.
    pub(crate) fn advance_counts(&mut self) {
        let now_s = self.world.now_s;
        self.stations.iter_mut().for_each(|station| station.advance_to(now_s));
        self.pools.iter_mut().for_each(|pool| pool.advance_to(now_s));
    }

    #[inline]
    fn fire(&mut self, slot: u32) {
        match self.world.job_of(slot) {
            Some(job) => match self.world.jobs[job].phase {
                Phase::Serving => self.serviced(job),
                Phase::Thinking => self.begin(job),
                Phase::Sending => self.head_out(job),
                Phase::Waiting | Phase::Free => debug_assert!(false, "a waiting job has no event"),
            },
            None => match (slot as usize).checked_sub(self.stations.len()) {
                Some(class) => self.arrive(slot, class as u32),
                None => {
                    if let Some(job) = self.stations[slot as usize].due(&mut self.world) {
                        self.done(job);
                    }
                }
            },
        }
    }

    /// A request arrives from outside.
    #[inline]
    fn arrive(&mut self, slot: u32, class: u32) {
        // Schedules the next arrival first: it takes the place of this event in the calendar.
        if let Some(between) = &self.model.classes[class as usize].arrivals {
            let delay_s = between.draw(&mut self.world.random);
            self.world.calendar.schedule(slot, self.world.now_s + delay_s);
        }
        let job = self.new_job();
        let request = &mut self.world.jobs[job];
        request.is_leg = false;
        request.class = class;
        request.customer = self.arrivals;
        request.sequence = 0;
        self.arrivals = self.arrivals.wrapping_add(1);
        self.begin(job);
    }

    pub(crate) fn new_job(&mut self) -> u32 {
        let job = self.world.take_job();
        if self.world.jobs.present() > PRESENT_MAX && self.failure.is_none() {
            let crowded = self.stations.iter().max_by_key(|station| station.present);
            let place = crowded.filter(|station| station.present as usize > PRESENT_MAX / 2);
            let place =
                place.map_or("outside the stations".into(), |station| format!("at station {:?}", station.plan.name));
            self.failure = Some(Stop::TooMany { limit: PRESENT_MAX, place });
        }
        job
    }

    /// A request leaves the client, in its class.
    #[inline]
    fn begin(&mut self, job: u32) {
        let request = &mut self.world.jobs[job];
        request.began_s = self.world.now_s;
        request.began_class = request.class;
        request.visit = 0;
        request.repeats = 0;
        request.node = NONE;
        request.pool = NONE;
        request.pool_ahead = NONE;
        request.phase = Phase::Serving;
        self.requests[request.class as usize].began += 1;
        self.observer.began(job, request);
        self.go_on(job);
    }

    #[inline]
    fn serviced(&mut self, job: u32) {
        let node = self.world.jobs[job].node;
        if !self.stations[node as usize].serviced(&mut self.world, job) {
            return self.done(job);
        }
        let mut member = job;
        while member != NONE {
            // Before the job moves and joins another list.
            let following = self.world.jobs[member].next;
            self.done(member);
            member = following;
        }
    }

    /// The service of a job has ended.
    #[inline]
    fn done(&mut self, job: u32) {
        let request = &mut self.world.jobs[job];
        request.work_s = self.world.now_s;
        if request.is_leg { self.leg_done(job) } else { self.go_on(job) }
    }

    /// A request has returned to the client.
    #[inline]
    pub(crate) fn complete(&mut self, job: u32) {
        let request = &self.world.jobs[job];
        let response_s = self.world.now_s - request.began_s;
        let (class, began) = (request.target_class, request.began_class);
        let tally = &mut self.requests[began as usize];
        tally.completed += 1;
        tally.response_s += response_s;
        tally.responses.record(response_s);
        self.completed += 1;
        self.observer.ended(job, request, self.world.now_s, false);
        self.end(job, class);
    }

    /// A full station drops a request. Its customer continues as after a request that ended in the class in which this one
    /// began; if no request can end in that class, it starts another request of that class.
    pub(crate) fn lose(&mut self, job: u32) {
        let request = &self.world.jobs[job];
        let began = request.began_class;
        self.requests[began as usize].lost += 1;
        self.observer.ended(job, request, self.world.now_s, true);
        if self.is_open(began) || self.model.ends[began as usize] {
            self.end(job, began);
        } else {
            self.world.jobs[job].sequence = self.world.jobs[job].sequence.wrapping_add(1);
            self.think(job, began);
        }
    }

    fn is_open(&self, class: u32) -> bool {
        self.model.classes[class as usize].arrivals.is_some()
    }

    /// Ends a request in `class`.
    #[inline]
    fn end(&mut self, job: u32, class: u32) {
        if self.is_open(self.world.jobs[job].began_class) {
            return self.world.jobs.release(job);
        }
        self.world.jobs[job].sequence = self.world.jobs[job].sequence.wrapping_add(1);
        let next = self.model.next_class[class as usize].draw(&mut self.world.random);
        self.think(job, next);
    }

    /// A customer thinks, then starts a request of `class`.
    fn think(&mut self, job: u32, class: u32) {
        self.world.jobs[job].class = class;
        let think = &self.model.classes[class as usize].think;
        if think.is_zero() {
            self.agenda.push_back(Task::Begin(job));
        } else {
            let think_s = think.draw(&mut self.world.random);
            self.world.schedule_job(job, think_s, Phase::Thinking);
        }
    }

    /// Performs the actions that have become possible, in that order.
    fn work_off(&mut self) {
        while let Some(task) = self.agenda.pop_front() {
            match task {
                Task::Begin(job) => self.begin(job),
                Task::Room(station) => self.let_in(station),
                Task::Slot(pool) => self.hand_out(pool),
            }
            self.standing += 1;
            if self.standing > STANDING_MAX || self.failure.is_some() {
                self.failure.get_or_insert(Stop::NoTime);
                self.agenda.clear();
            }
        }
    }
}

impl RequestTally {
    fn reset(&mut self) {
        self.began = 0;
        self.completed = 0;
        self.lost = 0;
        self.response_s = 0.0;
        self.responses.reset();
    }
}
