//! Moves a request from one place to the next: chooses the place, acquires a slot, and waits for room.
//!
//! A slot comes before room. A request that waits for a slot has left its place. A request that waits for room at a full
//! station has not: it keeps its server, its room and its slot (blocking after service). Both queues are first come, first
//! served.

use crate::engine::jobs::Phase;
use crate::engine::observer::Observer;
use crate::engine::{Engine, Task};
use crate::error::Stop;
use crate::model::NONE;
use crate::model::routing::{Hop, Routing};

impl<O: Observer> Engine<'_, O> {
    /// Moves on a request that is done at its place.
    #[inline]
    pub(crate) fn go_on(&mut self, job: u32) {
        let hop = self.next_hop(job);
        let request = &mut self.world.jobs[job];
        request.target = hop.node;
        request.target_class = hop.class;
        self.head_out(job);
    }

    #[inline]
    fn next_hop(&mut self, job: u32) -> Hop {
        let client = self.model.nodes() as u32;
        let request = &mut self.world.jobs[job];
        match &self.model.routing {
            Routing::Routes(ways) => {
                let from = if request.node == NONE { client } else { request.node };
                let index = from as usize * self.model.classes.len() + request.class as usize;
                ways[index].draw(&mut self.world.random)
            }
            Routing::Visits(plans) => {
                let class = request.class;
                if request.repeats > 0 {
                    request.repeats -= 1;
                    return Hop { node: request.node, class };
                }
                for visit in &plans[class as usize][request.visit as usize..] {
                    request.visit += 1;
                    let count = visit.draw(&mut self.world.random);
                    if count > 0 {
                        request.repeats = count - 1;
                        return Hop { node: visit.node, class };
                    }
                }
                Hop { node: client, class }
            }
        }
    }

    /// Moves a job to its target: first it acquires a slot, if it needs one.
    #[inline]
    pub(crate) fn head_out(&mut self, job: u32) {
        let request = &self.world.jobs[job];
        if request.target as usize == self.model.nodes() {
            self.depart(job);
            self.release(job);
            return self.complete(job);
        }
        let pool = self.pool_needed(job);
        if pool != NONE && pool != request.pool {
            let now_s = self.world.now_s;
            let waiting = &mut self.pools[pool as usize];
            if !waiting.has_free() || !waiting.queue.is_empty() {
                self.depart(job);
                self.release(job);
                let request = &mut self.world.jobs[job];
                request.arrived_s = now_s;
                request.phase = Phase::Waiting;
                return self.pools[pool as usize].queue.push_back(&mut self.world.jobs, job);
            }
            self.acquire(job, pool, 0.0);
        }
        self.knock(job);
    }

    /// The pool of which a job needs a slot at its target.
    #[inline]
    fn pool_needed(&self, job: u32) -> u32 {
        let request = &self.world.jobs[job];
        if request.is_inside { NONE } else { self.model.pool_of[request.target as usize] }
    }

    fn acquire(&mut self, job: u32, pool: u32, waited_s: f64) {
        let request = &mut self.world.jobs[job];
        request.pool_ahead = pool;
        self.pools[pool as usize].take(request.target_class, self.world.now_s, waited_s);
        self.observer.acquired(job, request, pool, self.world.now_s);
    }

    /// Then it needs room. A job that returns to the same station keeps its room.
    #[inline]
    fn knock(&mut self, job: u32) {
        let (target, node) = (self.world.jobs[job].target, self.world.jobs[job].node);
        if let Some(station) = self.stations.get_mut(target as usize)
            && station.is_closed()
            && target != node
        {
            if !station.plan.blocks_when_full {
                return self.turn_away(job);
            }
            station.waiting_for_room.push_back(&mut self.world.jobs, job);
            match self.stations.get_mut(node as usize) {
                Some(here) => {
                    here.block(&mut self.world, job);
                    self.check_deadlock(node, target);
                }
                None => self.world.jobs[job].phase = Phase::Waiting,
            }
            return;
        }
        self.move_in(job);
    }

    /// A full station drops the job.
    fn turn_away(&mut self, job: u32) {
        self.depart(job);
        self.release(job);
        let ahead = std::mem::replace(&mut self.world.jobs[job].pool_ahead, NONE);
        if ahead != NONE {
            self.world.jobs[job].pool = ahead;
            self.release(job);
        }
        if self.world.jobs[job].is_leg { self.leg_lost(job) } else { self.lose(job) }
    }

    /// Moves the job in; nothing blocks it any more.
    #[inline]
    fn move_in(&mut self, job: u32) {
        self.depart(job);
        let pool = self.pool_needed(job);
        if self.world.jobs[job].pool != pool {
            self.release(job);
        }
        let request = &mut self.world.jobs[job];
        if request.pool_ahead != NONE {
            request.pool = request.pool_ahead;
            request.pool_ahead = NONE;
        }
        request.class = request.target_class;
        request.node = request.target;
        let node = request.target as usize;
        if node < self.stations.len() {
            self.stations[node].arrive(&mut self.world, job);
            let present = self.stations[node].present;
            self.observer.arrived(job, &self.world.jobs[job], present);
        } else {
            self.fork(job, node - self.model.stations.len());
        }
    }

    /// Removes a job from its place, if it has one.
    #[inline]
    pub(crate) fn depart(&mut self, job: u32) {
        let node = self.world.jobs[job].node;
        if node == NONE {
            return;
        }
        self.observer.left(job, &self.world.jobs[job], self.world.now_s);
        if let Some(station) = self.stations.get_mut(node as usize) {
            station.leave(&mut self.world, job);
            if !station.waiting_for_room.is_empty() {
                self.agenda.push_back(Task::Room(node));
            }
        }
        self.world.jobs[job].node = NONE;
    }

    /// Releases the slot of a job, if it has one.
    #[inline]
    pub(crate) fn release(&mut self, job: u32) {
        let pool = self.world.jobs[job].pool;
        if pool == NONE {
            return;
        }
        self.world.jobs[job].pool = NONE;
        self.observer.released(job, &self.world.jobs[job], pool, self.world.now_s);
        let slots = &mut self.pools[pool as usize];
        slots.release(self.world.now_s);
        if !slots.queue.is_empty() {
            self.agenda.push_back(Task::Slot(pool));
        }
    }

    /// Admits the jobs that wait for room.
    pub(crate) fn let_in(&mut self, station: u32) {
        loop {
            let full = &mut self.stations[station as usize];
            if full.present >= full.plan.capacity {
                return;
            }
            let Some(job) = full.waiting_for_room.pop_front(&mut self.world.jobs) else { return };
            self.move_in(job);
        }
    }

    /// Gives free slots to the jobs that wait for one.
    pub(crate) fn hand_out(&mut self, pool: u32) {
        while self.pools[pool as usize].has_free() {
            let Some(job) = self.pools[pool as usize].queue.pop_front(&mut self.world.jobs) else { return };
            let waited_s = self.world.now_s - self.world.jobs[job].arrived_s;
            self.acquire(job, pool, waited_s);
            self.knock(job);
        }
    }

    /// Detects a deadlock: stations that are full of requests which wait for room at each other.
    fn check_deadlock(&mut self, node: u32, target: u32) {
        if !self.stations[node as usize].is_stuck() || !self.stations[target as usize].is_stuck() {
            return;
        }
        let mut stuck: Vec<bool> = self.stations.iter().map(|station| station.is_stuck()).collect();
        // Edges from each blocked station to the one it waits for.
        let mut waits = Vec::new();
        for (target, station) in self.stations.iter().enumerate() {
            let mut next = station.waiting_for_room.front();
            while let Some(job) = next {
                let request = &self.world.jobs[job];
                waits.push((request.node as usize, target));
                next = (request.next != NONE).then_some(request.next);
            }
        }
        while let Some(&(free, _)) = waits.iter().find(|&&(from, to)| stuck.get(from) == Some(&true) && !stuck[to]) {
            stuck[free] = false;
        }
        if stuck[node as usize] {
            let names = self.stations.iter().zip(&stuck).filter(|(_, is_stuck)| **is_stuck);
            let names: Vec<String> = names.map(|(station, _)| format!("{:?}", station.plan.name)).collect();
            self.failure.get_or_insert(Stop::Deadlock { stations: names.join(", ") });
        }
    }
}
