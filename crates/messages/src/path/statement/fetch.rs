//! The statements that pop, receive and peek.

use crate::database::low_water::StartIds;
use crate::path::lease::{Lease, LeaseToken};
use crate::path::statement::prepare::Statements;
use crate::path::work::{Message, Scope};
use std::collections::HashMap;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Row};

/// The result of one fetch.
#[derive(Debug, Default)]
pub(crate) struct Fetched {
    /// Its queue does not exist.
    pub(crate) is_unknown: bool,
    /// Nothing was taken although there are messages: other transactions have locked them.
    pub(crate) is_contended: bool,
    /// The oldest first.
    pub(crate) messages: Vec<Message>,
}

impl Statements {
    /// Takes messages out for each fetch, starting at its start ids. With `leases_ms` the messages are leased: one visibility timeout in
    /// milliseconds for each message of each fetch, or 0 for the queue's own. All scopes differ. Either all or none have a sender. Scopes
    /// with a sender and without a queue are not mixed with others.
    pub(crate) async fn take(
        &self,
        client: &Client,
        fetches: &[(&Scope, usize)],
        starts: &[StartIds],
        leases_ms: Option<&[i64]>,
    ) -> Result<Vec<Fetched>, Error> {
        if leases_ms.is_none()
            && let Some(found) = self.pop_one(client, fetches, starts).await
        {
            return found;
        }
        let mut numbers: HashMap<(&str, &str), i32> = HashMap::new();
        let mut parts: Vec<i32> = Vec::with_capacity(fetches.len());
        for (scope, _) in fetches {
            let next = i32::try_from(numbers.len()).unwrap_or(i32::MAX);
            parts.push(*numbers.entry((&scope.queue, &scope.sender)).or_insert(next));
        }
        let columns = Columns::of(fetches);
        let index = usize::from(columns.is_by_sender);
        let [queues, receivers, senders, count] = columns.parameters();
        let ids: Vec<i32> = starts.iter().map(|start| start.queue_id).collect();
        let eras: Vec<i32> = starts.iter().map(|start| start.era).collect();
        let own: Vec<i64> = starts.iter().map(|start| start.own).collect();
        let shared: Vec<i64> = starts.iter().map(|start| start.shared).collect();
        let mut parameters: Vec<&(dyn ToSql + Sync)> =
            vec![&parts, queues, receivers, senders, count, &ids, &eras, &own, &shared];
        let rows = match &leases_ms {
            None => client.query(&self.pop[index], &parameters).await?,
            Some(times_ms) => {
                parameters.push(times_ms);
                client.query(&self.receive[index], &parameters).await?
            }
        };
        Ok(found(&rows, fetches.len(), leases_ms.is_some()))
    }

    /// The result of a single fetch of messages to anyone. None if the fetch is not of this form or not alone.
    async fn pop_one(
        &self,
        client: &Client,
        fetches: &[(&Scope, usize)],
        starts: &[StartIds],
    ) -> Option<Result<Vec<Fetched>, Error>> {
        let [(Scope { queue, receiver, sender }, count)] = fetches else { return None };
        if !receiver.is_empty() || !sender.is_empty() {
            return None;
        }
        let start = starts.first()?;
        let count = i64::try_from(*count).unwrap_or(i64::MAX);
        Some(
            client
                .query(&self.pop_one, &[queue, &count, &start.queue_id, &start.era, &start.shared])
                .await
                .map(|rows| found(&rows, 1, false)),
        )
    }

    /// Reads messages for each fetch without taking them out. Either all or none of the scopes have a sender.
    pub(crate) async fn peek(&self, client: &Client, fetches: &[(&Scope, usize)]) -> Result<Vec<Fetched>, Error> {
        let columns = Columns::of(fetches);
        let statement = &self.peek[usize::from(columns.is_by_sender)];
        let rows = client.query(statement, &columns.parameters()).await?;
        Ok(found(&rows, fetches.len(), false))
    }
}

/// Fetches as arrays, one for each statement parameter.
struct Columns<'w> {
    is_by_sender: bool,
    queues: Vec<&'w str>,
    receivers: Vec<&'w str>,
    senders: Vec<&'w str>,
    count: Vec<i32>,
}

impl<'w> Columns<'w> {
    fn of(fetches: &[(&'w Scope, usize)]) -> Columns<'w> {
        let is_by_sender = fetches.iter().any(|(scope, _)| !scope.sender.is_empty());
        assert!(fetches.iter().all(|(scope, _)| scope.sender.is_empty() != is_by_sender), "one index for all");
        Columns {
            is_by_sender,
            queues: fetches.iter().map(|(scope, _)| scope.queue.as_str()).collect(),
            receivers: fetches.iter().map(|(scope, _)| scope.receiver.as_str()).collect(),
            senders: fetches.iter().map(|(scope, _)| scope.sender.as_str()).collect(),
            count: fetches.iter().map(|(_, count)| i32::try_from(*count).unwrap_or(i32::MAX)).collect(),
        }
    }

    fn parameters(&self) -> [&(dyn ToSql + Sync); 4] {
        [&self.queues, &self.receivers, &self.senders, &self.count]
    }
}

/// Assigns rows to the fetch they belong to. A fetch that found no message has one row without a message.
fn found(rows: &[Row], fetches: usize, is_leased: bool) -> Vec<Fetched> {
    let mut all: Vec<Fetched> = (0..fetches).map(|_| Fetched::default()).collect();
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
                // Only this program writes it.
                dead_letter: row.get::<_, Option<&str>>(9).and_then(|text| serde_json::from_str(text).ok()),
                lease: is_leased
                    .then(|| Lease { token: LeaseToken::new(row.get(10), id, row.get(11)), attempt: row.get(12) }),
            });
        }
    }
    all
}
