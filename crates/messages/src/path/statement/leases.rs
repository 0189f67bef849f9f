//! The statements that acknowledge, extend and nack.

use crate::path::lease::{LeaseAction, LeaseRequest, LeaseToken};
use crate::path::statement::prepare::Statements;
use crate::path::statement::standby::wait_for_standby;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Row};

/// The parameters of leases that are handled together.
#[derive(Default)]
struct Columns<'r> {
    queues: Vec<i32>,
    ids: Vec<i64>,
    secrets: Vec<&'r str>,
    times_ms: Vec<i64>,
}

impl Statements {
    /// Applies one action to the leases of all requests. Returns for each request the indices of the leases for which it failed: those that
    /// were lost and, except for acknowledgements, those that have expired.
    pub(crate) async fn apply_lease_action(
        &self,
        client: &Client,
        action: LeaseAction,
        all: &[&LeaseRequest],
    ) -> Result<Vec<Vec<usize>>, Error> {
        let leases: Vec<(&LeaseToken, i64)> =
            all.iter().flat_map(|request| request.tokens.iter().map(|token| (token, request.time_ms))).collect();
        let is_applied = match action {
            LeaseAction::Acknowledge => self.acknowledge(client, &leases).await?,
            LeaseAction::Extend | LeaseAction::Nack => {
                let Columns { queues, ids, secrets, times_ms } = Columns::of(leases.iter());
                let parameters: [&(dyn ToSql + Sync); 4] = [&queues, &ids, &secrets, &times_ms];
                let rows = client.query(&self.lease_actions[action as usize], &parameters).await?;
                let mut is_applied = vec![false; leases.len()];
                places(&rows).for_each(|place| is_applied[place] = true);
                is_applied
            }
        };
        let mut is_applied = is_applied.into_iter();
        let failed = |request: &&LeaseRequest| {
            let mine = is_applied.by_ref().take(request.tokens.len()).enumerate();
            mine.filter_map(|(place, is_applied)| (!is_applied).then_some(place)).collect()
        };
        Ok(all.iter().map(failed).collect())
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
