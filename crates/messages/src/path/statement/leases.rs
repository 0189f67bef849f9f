//! The statements that acknowledge, extend and nack.

use crate::path::lease::{LeaseAction, LeaseRequest, LeaseToken};
use crate::path::statement::prepare::Statements;
use crate::path::statement::standby::wait_for_standby;
use std::time::Duration;
use tokio_postgres::{Client, Error, Row};

/// Pauses before a nack tries again to lock the row of a queue.
const PAUSES_OF_NACKS: [Duration; 4] =
    [Duration::from_millis(1), Duration::from_millis(2), Duration::from_millis(4), Duration::from_millis(8)];

/// The parameters of leases that are handled together.
#[derive(Default)]
struct Columns<'r> {
    queues: Vec<i32>,
    ids: Vec<i64>,
    secrets: Vec<&'r str>,
    times_ms: Vec<i64>,
}

/// The result of one request about leases.
#[derive(Debug, Default)]
pub(crate) struct LeaseOutcome {
    /// The indices of the leases for which it failed.
    pub(crate) failed: Vec<usize>,
    /// The queue to which a nack has returned its message.
    pub(crate) returned_to: Option<String>,
}

impl Statements {
    /// Applies one action to the leases of all requests. It fails for leases that were lost and, except for
    /// acknowledgements, for those that have expired.
    pub(crate) async fn apply_lease_action(
        &self,
        client: &Client,
        action: LeaseAction,
        all: &[&LeaseRequest],
    ) -> Result<Vec<LeaseOutcome>, Error> {
        let leases: Vec<(&LeaseToken, i64)> =
            all.iter().flat_map(|request| request.tokens.iter().map(|token| (token, request.time_ms))).collect();
        let mut returned_to = vec![None; leases.len()];
        let is_applied = match action {
            LeaseAction::Nack => self.nack(client, &leases, &mut returned_to).await?,
            LeaseAction::Acknowledge => self.acknowledge(client, &leases).await?,
            LeaseAction::Extend => {
                let Columns { queues, ids, secrets, times_ms } = Columns::of(leases.iter());
                let rows = client.query(&self.lease_actions[1], &[&queues, &ids, &secrets, &times_ms]).await?;
                let mut is_applied = vec![false; leases.len()];
                places(&rows).for_each(|place| is_applied[place] = true);
                is_applied
            }
        };
        let mut outcomes = is_applied.into_iter().zip(returned_to);
        let outcome = |request: &&LeaseRequest| {
            let mut outcome = LeaseOutcome::default();
            for (place, (is_applied, queue)) in outcomes.by_ref().take(request.tokens.len()).enumerate() {
                if !is_applied {
                    outcome.failed.push(place);
                }
                outcome.returned_to = outcome.returned_to.or(queue);
            }
            outcome
        };
        Ok(all.iter().map(outcome).collect())
    }

    /// Nacks leases, and returns for each whether this succeeded. Adds the queues to which messages have returned. A message whose queue is
    /// locked after several attempts is left to the redelivery. Most such locks are held for the time of one commit, by the redelivery
    /// itself, by the reader of low-water marks or by another service.
    async fn nack(
        &self,
        client: &Client,
        leases: &[(&LeaseToken, i64)],
        returned_to: &mut [Option<String>],
    ) -> Result<Vec<bool>, Error> {
        let mut is_applied = vec![false; leases.len()];
        let mut left: Vec<usize> = (0..leases.len()).collect();
        for pause in PAUSES_OF_NACKS.map(Some).into_iter().chain([None]) {
            let Columns { queues, ids, secrets, times_ms } = Columns::of(left.iter().map(|index| &leases[*index]));
            let rows =
                client.query(&self.lease_actions[2], &[&queues, &ids, &secrets, &times_ms, &pause.is_none()]).await?;
            let mut contended = Vec::new();
            for (place, row) in places(&rows).zip(&rows) {
                let index = left[place];
                if row.get(2) {
                    contended.push(index);
                } else {
                    is_applied[index] = true;
                    returned_to[index] = row.get(1);
                }
            }
            left = contended;
            match pause {
                Some(pause) if !left.is_empty() => tokio::time::sleep(pause).await,
                _ => break,
            }
        }
        Ok(is_applied)
    }

    /// Acknowledges leases, and returns for each whether this succeeded. It fails only for lost leases. If a message is gone and its lease
    /// was not lost, it was acknowledged before.
    async fn acknowledge(&self, client: &Client, leases: &[(&LeaseToken, i64)]) -> Result<Vec<bool>, Error> {
        let mut is_done = vec![false; leases.len()];
        // The first statement can miss a message that becomes visible while it runs, so it runs a second time.
        for _ in 0..2 {
            let left = remaining(&is_done);
            if left.is_empty() {
                return Ok(is_done);
            }
            let Columns { queues, ids, secrets, .. } = Columns::of(left.iter().map(|index| &leases[*index]));
            let rows = client.query(&self.lease_actions[0], &[&queues, &ids, &secrets]).await?;
            places(&rows).for_each(|place| is_done[left[place]] = true);
        }
        // A client that has taken a message meanwhile has committed, so this statement sees that the lease was lost.
        let left = remaining(&is_done);
        if !left.is_empty() {
            let Columns { queues, ids, secrets, .. } = Columns::of(left.iter().map(|index| &leases[*index]));
            let rows = client.query(&self.lost_leases, &[&queues, &ids, &secrets]).await?;
            left.iter().for_each(|index| is_done[*index] = true);
            places(&rows).for_each(|place| is_done[left[place]] = false);
            if left.iter().any(|index| is_done[*index]) {
                // The earlier acknowledgement may be in doubt.
                wait_for_standby(client).await?;
            }
        }
        Ok(is_done)
    }
}

impl<'r> Columns<'r> {
    fn of<'l>(leases: impl Iterator<Item = &'l (&'r LeaseToken, i64)>) -> Columns<'r>
    where
        'r: 'l,
    {
        let mut columns = Columns::default();
        for (lease, time_ms) in leases {
            columns.queues.push(lease.queue_id);
            columns.ids.push(lease.id);
            columns.secrets.push(lease.secret.as_str());
            columns.times_ms.push(*time_ms);
        }
        columns
    }
}

fn remaining(is_done: &[bool]) -> Vec<usize> {
    is_done.iter().enumerate().filter_map(|(index, is_done)| (!is_done).then_some(index)).collect()
}

/// The indices in the rows of a statement, from 0.
fn places(rows: &[Row]) -> impl Iterator<Item = usize> {
    rows.iter().map(|row| usize::try_from(row.get::<_, i64>(0)).unwrap_or(0) - 1)
}
