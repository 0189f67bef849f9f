//! The statements that acknowledge, extend and nack.

use crate::observe::limits::{Limit, LimitCounts};
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
    /// Whether it was applied to one of the leases at least.
    pub(crate) is_applied: bool,
    /// Whether the database reported an error before it was known for each lease.
    pub(crate) is_undecided: bool,
}

/// How often an extension or a nack runs in all. A statement that waits for another transaction to change a message's row misses the row,
/// because its snapshot does not contain the new version.
const TRIES: usize = 2;

/// The same for acknowledgements, each of two statements. Further ones run only if a message is still there.
const ACKNOWLEDGEMENTS: usize = 10;

/// What has become of one lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Applied {
    /// A statement failed before it was known. A statement that fails has changed nothing.
    #[default]
    Undecided,
    No,
    Yes,
    /// Nacked, and returned to this queue.
    Returned(String),
}

impl Statements {
    /// Applies one action to the leases of all requests. It fails for leases that were lost and, except for
    /// acknowledgements, for those that have expired. An action can take several statements, each a transaction. If one of them fails, its
    /// error is returned beside the outcomes, because the earlier ones are committed.
    pub(crate) async fn apply_lease_action(
        &self,
        client: &Client,
        action: LeaseAction,
        all: &[&LeaseRequest],
        limits: &LimitCounts,
    ) -> (Vec<LeaseOutcome>, Option<Error>) {
        let leases: Vec<(&LeaseToken, i64)> =
            all.iter().flat_map(|request| request.tokens.iter().map(|token| (token, request.time_ms))).collect();
        let mut applied = vec![Applied::default(); leases.len()];
        let result = match action {
            LeaseAction::Nack => self.nack(client, &leases, &mut applied, limits).await,
            LeaseAction::Acknowledge => self.acknowledge(client, &leases, &mut applied, limits).await,
            LeaseAction::Extend => self.extend(client, &leases, &mut applied).await,
        };
        let mut applied = applied.into_iter();
        let outcome = |request: &&LeaseRequest| {
            let mut outcome = LeaseOutcome::default();
            for (place, applied) in applied.by_ref().take(request.tokens.len()).enumerate() {
                match applied {
                    Applied::Undecided => outcome.is_undecided = true,
                    Applied::No => outcome.failed.push(place),
                    Applied::Yes => outcome.is_applied = true,
                    Applied::Returned(queue) => {
                        outcome.is_applied = true;
                        outcome.returned_to = outcome.returned_to.or(Some(queue));
                    }
                }
            }
            outcome
        };
        (all.iter().map(outcome).collect(), result.err())
    }

    async fn extend(
        &self,
        client: &Client,
        leases: &[(&LeaseToken, i64)],
        applied: &mut [Applied],
    ) -> Result<(), Error> {
        for _ in 0..TRIES {
            let left = undecided(applied);
            if left.is_empty() {
                return Ok(());
            }
            let Columns { queues, ids, secrets, times_ms } = Columns::of(left.iter().map(|index| &leases[*index]));
            let rows = client.query(&self.lease_actions[1], &[&queues, &ids, &secrets, &times_ms]).await?;
            places(&rows).for_each(|place| applied[left[place]] = Applied::Yes);
        }
        undecided(applied).iter().for_each(|index| applied[*index] = Applied::No);
        Ok(())
    }

    async fn nack(
        &self,
        client: &Client,
        leases: &[(&LeaseToken, i64)],
        applied: &mut [Applied],
        limits: &LimitCounts,
    ) -> Result<(), Error> {
        for _ in 0..TRIES {
            let left = undecided(applied);
            if left.is_empty() {
                return Ok(());
            }
            let given_up = self.nack_once(client, leases, left, applied).await?;
            limits.reach_for(Limit::NackTries, given_up);
        }
        undecided(applied).iter().for_each(|index| applied[*index] = Applied::No);
        Ok(())
    }

    /// Nacks the leases with these indices. Those that have expired stay undecided. A message whose queue is locked after several attempts is
    /// left to the redelivery. Most such locks are held for the time of one commit, by the redelivery itself, by the reader of low-water marks
    /// or by another service. Returns the number of these messages.
    async fn nack_once(
        &self,
        client: &Client,
        leases: &[(&LeaseToken, i64)],
        mut left: Vec<usize>,
        applied: &mut [Applied],
    ) -> Result<usize, Error> {
        let mut given_up = 0;
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
                    let returned = row.get::<_, Option<String>>(1);
                    given_up += usize::from(pause.is_none() && returned.is_none());
                    applied[index] = returned.map_or(Applied::Yes, Applied::Returned);
                }
            }
            left = contended;
            match pause {
                Some(pause) if !left.is_empty() => tokio::time::sleep(pause).await,
                _ => break,
            }
        }
        Ok(given_up)
    }

    /// Acknowledges leases. It fails only for lost leases. If a message is gone and its lease was not lost, it was acknowledged before.
    async fn acknowledge(
        &self,
        client: &Client,
        leases: &[(&LeaseToken, i64)],
        applied: &mut [Applied],
        limits: &LimitCounts,
    ) -> Result<(), Error> {
        for _ in 0..ACKNOWLEDGEMENTS {
            // The first statement can miss a message that becomes visible or is extended while it runs, so it runs a second time.
            for _ in 0..2 {
                let left = undecided(applied);
                if left.is_empty() {
                    return Ok(());
                }
                let Columns { queues, ids, secrets, .. } = Columns::of(left.iter().map(|index| &leases[*index]));
                let rows = client.query(&self.lease_actions[0], &[&queues, &ids, &secrets]).await?;
                places(&rows).for_each(|place| applied[left[place]] = Applied::Yes);
            }
            let left = undecided(applied);
            if left.is_empty() {
                return Ok(());
            }
            // A client that has taken a message meanwhile has committed, so this statement sees that the lease was lost.
            let Columns { queues, ids, secrets, .. } = Columns::of(left.iter().map(|index| &leases[*index]));
            let rows = client.query(&self.lost_leases, &[&queues, &ids, &secrets]).await?;
            let mut is_missed = false;
            for (place, row) in places(&rows).zip(&rows) {
                // Otherwise the message was extended during each of the two statements.
                let is_lost: bool = row.get(1);
                if is_lost {
                    applied[left[place]] = Applied::No;
                }
                is_missed |= !is_lost;
            }
            if is_missed {
                continue;
            }
            let earlier = undecided(applied);
            if !earlier.is_empty() {
                // The earlier acknowledgement may be in doubt.
                wait_for_standby(client).await?;
                earlier.iter().for_each(|index| applied[*index] = Applied::Yes);
            }
            return Ok(());
        }
        // They are still there, and come back.
        let left = undecided(applied);
        limits.reach_for(Limit::AcknowledgementTries, left.len());
        left.iter().for_each(|index| applied[*index] = Applied::No);
        Ok(())
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

fn undecided(applied: &[Applied]) -> Vec<usize> {
    let is_undecided = |applied: &Applied| *applied == Applied::Undecided;
    applied.iter().enumerate().filter_map(|(index, applied)| is_undecided(applied).then_some(index)).collect()
}

/// The indices in the rows of a statement, from 0.
fn places(rows: &[Row]) -> impl Iterator<Item = usize> {
    rows.iter().map(|row| usize::try_from(row.get::<_, i64>(0)).unwrap_or(0) - 1)
}
