//! The statements that pop, receive and peek.

use crate::database::low_water::Begin;
use crate::path::lease::{Lease, Leased};
use crate::path::statement::prepare::Statements;
use crate::path::work::{Message, Scope};
use std::collections::HashMap;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Row};

/// What was found for one wish.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Its queue is not there.
    pub(crate) is_unknown: bool,
    /// Nothing was taken although something seems to be there: somebody else has it in his hands.
    pub(crate) is_contended: bool,
    /// The oldest first.
    pub(crate) messages: Vec<Message>,
}

impl Statements {
    /// Takes out messages for each wish, looking from where it begins, and puts them under a lease if there are times for it: one for each message that is wanted, in
    /// milliseconds, or 0 for the queue's own. All scopes differ, and all or none are by sender; those with a sender and no queue are
    /// not together with others.
    pub(crate) async fn take(
        &self,
        client: &Client,
        wishes: &[(&Scope, usize)],
        begins: &[Begin],
        leases_ms: Option<&[i64]>,
    ) -> Result<Vec<Found>, Error> {
        if leases_ms.is_none()
            && let Some(found) = self.pop_one(client, wishes, begins).await
        {
            return found;
        }
        let mut numbers: HashMap<(&str, &str), i32> = HashMap::new();
        let mut parts: Vec<i32> = Vec::with_capacity(wishes.len());
        for (scope, _) in wishes {
            let next = i32::try_from(numbers.len()).unwrap_or(i32::MAX);
            parts.push(*numbers.entry((&scope.queue, &scope.sender)).or_insert(next));
        }
        let columns = Columns::of(wishes);
        let index = usize::from(columns.is_by_sender);
        let [queues, receivers, senders, wanted] = columns.parameters();
        let ids: Vec<i32> = begins.iter().map(|begin| begin.queue_id).collect();
        let eras: Vec<i32> = begins.iter().map(|begin| begin.era).collect();
        let own: Vec<i64> = begins.iter().map(|begin| begin.own).collect();
        let shared: Vec<i64> = begins.iter().map(|begin| begin.shared).collect();
        let mut parameters: Vec<&(dyn ToSql + Sync)> =
            vec![&parts, queues, receivers, senders, wanted, &ids, &eras, &own, &shared];
        let rows = match &leases_ms {
            None => client.query(&self.pop[index], &parameters).await?,
            Some(times_ms) => {
                parameters.push(times_ms);
                client.query(&self.receive[index], &parameters).await?
            }
        };
        Ok(found(&rows, wishes.len(), leases_ms.is_some()))
    }

    /// What is found for a lone wish for messages that are for anyone. None at all when it is another or not alone.
    async fn pop_one(
        &self,
        client: &Client,
        wishes: &[(&Scope, usize)],
        begins: &[Begin],
    ) -> Option<Result<Vec<Found>, Error>> {
        let [(Scope { queue, receiver, sender }, wanted)] = wishes else { return None };
        if !receiver.is_empty() || !sender.is_empty() {
            return None;
        }
        let begin = begins.first()?;
        let wanted = i64::try_from(*wanted).unwrap_or(i64::MAX);
        Some(
            client
                .query(&self.pop_one, &[queue, &wanted, &begin.queue_id, &begin.era, &begin.shared])
                .await
                .map(|rows| found(&rows, 1, false)),
        )
    }

    /// Reads messages for each wish, and leaves them. All or none of the scopes are by sender.
    pub(crate) async fn peek(&self, client: &Client, wishes: &[(&Scope, usize)]) -> Result<Vec<Found>, Error> {
        let columns = Columns::of(wishes);
        let statement = &self.peek[usize::from(columns.is_by_sender)];
        let rows = client.query(statement, &columns.parameters()).await?;
        Ok(found(&rows, wishes.len(), false))
    }
}

/// Wishes as arrays, one for each parameter.
struct Columns<'w> {
    is_by_sender: bool,
    queues: Vec<&'w str>,
    receivers: Vec<&'w str>,
    senders: Vec<&'w str>,
    wanted: Vec<i32>,
}

impl<'w> Columns<'w> {
    fn of(wishes: &[(&'w Scope, usize)]) -> Columns<'w> {
        let is_by_sender = wishes.iter().any(|(scope, _)| !scope.sender.is_empty());
        assert!(wishes.iter().all(|(scope, _)| scope.sender.is_empty() != is_by_sender), "one index for all");
        Columns {
            is_by_sender,
            queues: wishes.iter().map(|(scope, _)| scope.queue.as_str()).collect(),
            receivers: wishes.iter().map(|(scope, _)| scope.receiver.as_str()).collect(),
            senders: wishes.iter().map(|(scope, _)| scope.sender.as_str()).collect(),
            wanted: wishes.iter().map(|(_, wanted)| i32::try_from(*wanted).unwrap_or(i32::MAX)).collect(),
        }
    }

    fn parameters(&self) -> [&(dyn ToSql + Sync); 4] {
        [&self.queues, &self.receivers, &self.senders, &self.wanted]
    }
}

/// Sorts rows by the wish they belong to. A wish without a message has one row without one.
fn found(rows: &[Row], wishes: usize, is_leased: bool) -> Vec<Found> {
    let mut all: Vec<Found> = (0..wishes).map(|_| Found::default()).collect();
    for row in rows {
        let place = usize::try_from(row.get::<_, i64>(0)).unwrap_or(0);
        let found = &mut all[place - 1];
        found.is_unknown = row.get(1);
        found.is_contended = row.get(2);
        if let Some(id) = row.get::<_, Option<i64>>(3) {
            found.messages.push(Message {
                id,
                queue: row.get(4),
                sender: row.get(5),
                receiver: row.get(6),
                sent_unix_us: row.get(7),
                body: row.get(8),
                leased: is_leased
                    .then(|| Leased { lease: Lease::new(row.get(9), id, row.get(10)), attempt: row.get(11) }),
            });
        }
    }
    all
}
