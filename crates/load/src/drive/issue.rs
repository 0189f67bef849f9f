//! Step 3: what a client sends next. It is an operation of the schedule, a row of a trace or a request to a message
//! service, and goes to the lane of the server that owns the key. Knows no sockets.

use crate::drive::client::{Client, Join};
use crate::drive::connection::ConnectionId;
use crate::drive::encoder;
use crate::drive::lane::Lane;
use crate::drive::pending::PendingRequest;
use crate::drive::plan::Permit;
use crate::drive::worker::Worker;
use crate::measure::request::Operation;
use crate::workload::replay::BufferedRow;
use crate::workload::schedule::Choice;
use crate::workload::versions::KnownVersion;
use clock::Nanos;
use records::Outcome;

impl Client {
    /// Step 3: issues every request that is ready. `lanes` are the client's own.
    pub(crate) fn issue(&mut self, worker: &mut Worker<'_>, lanes: &mut [Lane]) {
        // A client with one connection waits until that is up. A client with several keeps using the others.
        while let Some(&intended) = self.ready.front()
            && (lanes.len() > 1 || lanes[0].is_up())
            && self.in_flight < worker.context.config.pipeline
        {
            let issued = worker.now();
            let permit = worker.context.plan.may_issue(intended, issued);
            if permit == Permit::Refused {
                self.ready.clear();
                worker.rows_released(std::mem::take(&mut self.rows).len());
                return;
            }
            self.ready.pop_front();
            worker.issued += 1;
            let pending =
                |operation| PendingRequest::new(operation, intended, issued).charged(permit == Permit::Charged);
            if let Some(row) = self.rows.pop_front() {
                self.replay(worker, lanes, &row, if worker.is_unpaced() { issued } else { intended }, issued);
                continue;
            }
            if worker.conversation.is_some() {
                self.message(worker, lanes, pending, issued);
                continue;
            }
            match worker.schedule.choose(worker.context.versions) {
                Choice::Set { key, version } => self.set(worker, lanes, (key, version), pending(Operation::Set)),
                Choice::Get => self.get(worker, lanes, pending(Operation::Get)),
            }
        }
    }

    fn set(
        &mut self,
        worker: &mut Worker<'_>,
        lanes: &mut [Lane],
        (key, version): (u64, u64),
        mut pending: PendingRequest,
    ) {
        let lane = &mut lanes[worker.owner(key)];
        pending.keys = 1;
        pending.is_quiet = worker.context.config.noreply;
        if !lane.is_up() {
            worker.context.versions.release(key);
            return self.refuse(worker, pending, lane.id);
        }
        lane.window.expect(key, KnownVersion::default());
        lane.push(pending, |_, out| worker.encoder.set(key, version, out));
    }

    fn replay(
        &mut self,
        worker: &mut Worker<'_>,
        lanes: &mut [Lane],
        row: &BufferedRow,
        intended: Nanos,
        issued: Nanos,
    ) {
        worker.rows_released(1);
        self.in_flight += 1;
        let mut pending = PendingRequest::new(Operation::of(row.operation), intended, issued);
        (pending.keys, pending.verb, pending.is_row) = (1, encoder::verb(row.operation), true);
        let lane = &mut lanes[worker.owner_of(&row.key)];
        if !lane.is_up() {
            return self.refuse(worker, pending, lane.id);
        }
        lane.window.expect_row(row.name, row.is_checked);
        lane.push(pending, |_, out| worker.encoder.row(row, out));
    }

    /// Sends the next request to a message service.
    fn message(
        &mut self,
        worker: &mut Worker<'_>,
        lanes: &mut [Lane],
        pending: impl Fn(Operation) -> PendingRequest,
        issued: Nanos,
    ) {
        let Some(conversation) = &mut worker.conversation else { return };
        let lane = &mut lanes[0];
        let (operation, server) = (conversation.choose(self.number, issued), lane.id.server);
        let mut pending = pending(operation.class());
        pending.message = Some(operation);
        lane.push(pending, |_, out| conversation.write(self.number, server, out));
    }

    fn get(&mut self, worker: &mut Worker<'_>, lanes: &mut [Lane], mut pending: PendingRequest) {
        let keys = worker.context.config.multi_key_get;
        pending.keys = keys as u32;
        if lanes.len() > 1 {
            return self.get_from_owners(worker, lanes, pending);
        }
        let lane = &mut lanes[0];
        for _ in 0..keys {
            let key = worker.schedule.key();
            lane.window.expect(key, worker.context.versions.known(key));
        }
        lane.push(pending, |window, out| worker.encoder.get(window.last_keys(keys), out));
    }

    /// Sends one get to each server, with the keys that the server owns. The request is answered when all servers have
    /// replied.
    fn get_from_owners(&mut self, worker: &mut Worker<'_>, lanes: &mut [Lane], whole: PendingRequest) {
        let mut keys = std::mem::take(&mut worker.keys);
        keys.clear();
        for _ in 0..whole.keys {
            let key = worker.schedule.key();
            keys.push((worker.owner(key), key));
        }
        // The sort is stable, so the keys of a server keep their order.
        keys.sort_by_key(|(owner, _)| *owner);
        let parts_left = keys.chunk_by(|one, other| one.0 == other.0).count();
        let first = lanes[keys[0].0].id;
        let join = (parts_left > 1)
            .then(|| self.joins.insert(Join { whole, id: first, parts_left, outcome: Outcome::Answered }));
        for part in keys.chunk_by(|one, other| one.0 == other.0) {
            let lane = &mut lanes[part[0].0];
            let pending = whole.part(part.len(), join);
            if lane.is_up() {
                for &(_, key) in part {
                    lane.window.expect(key, worker.context.versions.known(key));
                }
                lane.push(pending, |window, out| worker.encoder.get(window.last_keys(part.len()), out));
            } else {
                self.refuse(worker, pending, lane.id);
            }
        }
        worker.keys = keys;
    }

    /// Fails a request whose server is not connected.
    fn refuse(&mut self, worker: &mut Worker<'_>, pending: PendingRequest, id: ConnectionId) {
        worker.tally.error("server not connected");
        self.finish(worker, &pending, id, pending.issued, Outcome::BackendDown);
    }
}
