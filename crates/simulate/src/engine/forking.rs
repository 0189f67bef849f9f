//! Splits a request into legs, one for each branch of a fork; the request continues when enough legs are done.
//!
//! A leg is a job of its own. It refers to its request by number and serial. Once the request has continued, its serial
//! differs, and the leg disappears after its service. A leg that a full station drops is never done. If too few other legs
//! are left, the request is lost.

use crate::engine::Engine;
use crate::engine::jobs::Phase;
use crate::engine::observer::Observer;
use crate::model::NONE;

impl<O: Observer> Engine<'_, O> {
    /// A request arrives at a fork: the first leg is sent at once, the others one sending time apart.
    pub(crate) fn fork(&mut self, job: u32, fork: usize) {
        let model = self.model;
        let plan = &model.forks[fork];
        let request = &mut self.world.jobs[job];
        request.arrived_s = self.world.now_s;
        request.waited_s = 0.0;
        request.phase = Phase::Waiting;
        request.serial = request.serial.wrapping_add(1);
        request.legs_done = 0;
        request.legs_left = plan.branches.len() as u32;
        self.observer.arrived(job, request, 0);
        // If the request is lost meanwhile, its number may belong to another request before the last leg is made.
        let request = request.clone();
        let pool = model.pool_of[model.stations.len() + fork];
        for (index, &branch) in plan.branches.iter().enumerate() {
            let number = self.new_job();
            let leg = &mut self.world.jobs[number];
            let own_serial = leg.serial;
            leg.clone_from(&request);
            leg.serial = own_serial;
            leg.is_leg = true;
            leg.leg = index as u16;
            leg.owner = job;
            leg.owner_serial = request.serial;
            leg.node = NONE;
            leg.pool = NONE;
            leg.pool_ahead = NONE;
            leg.target = branch;
            leg.target_class = request.class;
            leg.is_inside = pool != NONE && model.pool_of[branch as usize] == pool;
            if index > 0 && plan.send_s > 0.0 {
                self.world.schedule_job(number, index as f64 * plan.send_s, Phase::Sending);
            } else {
                leg.phase = Phase::Serving;
                self.head_out(number);
            }
        }
    }

    /// A leg has been served.
    pub(crate) fn leg_done(&mut self, leg: u32) {
        self.depart(leg);
        self.release(leg);
        let Some(owner) = self.give_leg_back(leg) else { return };
        let request = &mut self.world.jobs[owner];
        request.legs_done += 1;
        request.legs_left -= 1;
        let fork = request.node as usize - self.model.stations.len();
        if request.legs_done < self.model.forks[fork].needed {
            return;
        }
        request.serial = request.serial.wrapping_add(1);
        let joined = &mut self.forks[fork][request.class as usize];
        joined.0 += 1;
        joined.1 += self.world.now_s - request.arrived_s;
        self.go_on(owner);
    }

    /// A leg has been dropped by a full station; it occupies nothing any more.
    pub(crate) fn leg_lost(&mut self, leg: u32) {
        let Some(owner) = self.give_leg_back(leg) else { return };
        let request = &mut self.world.jobs[owner];
        request.legs_left -= 1;
        let fork = request.node as usize - self.model.stations.len();
        if request.legs_done + request.legs_left >= self.model.forks[fork].needed {
            return;
        }
        request.serial = request.serial.wrapping_add(1);
        self.depart(owner);
        self.release(owner);
        self.lose(owner);
    }

    /// Ends the leg; returns the request that waits for it, if it still does.
    fn give_leg_back(&mut self, leg: u32) -> Option<u32> {
        let (owner, serial) = (self.world.jobs[leg].owner, self.world.jobs[leg].owner_serial);
        self.world.jobs[leg].is_leg = false;
        self.world.jobs[leg].is_inside = false;
        self.world.jobs.release(leg);
        (self.world.jobs[owner].serial == serial).then_some(owner)
    }
}
