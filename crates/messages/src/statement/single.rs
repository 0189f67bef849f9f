//! The same for one message and for one wish, with statements that are as plain as what they do: a lone client pays for no more.

use super::{Found, Statements, found};
use crate::low_water::Begin;
use crate::work::{Scope, Sending};
use tokio_postgres::{Client, Error, Statement};

/// Both statements.
#[derive(Debug)]
pub(super) struct Single {
    send: Statement,
    pop: Statement,
}

impl Single {
    /// Prepares them.
    pub(super) async fn prepare(client: &Client) -> Result<Single, Error> {
        let (send, pop) = tokio::try_join!(
            client.prepare(include_str!("send_one.sql")),
            client.prepare(include_str!("pop_one.sql"))
        )?;
        Ok(Single { send, pop })
    }
}

impl Statements {
    /// The id of a message that comes alone, or none where the queue is not there. None at all when it is not alone.
    pub(super) async fn send_one(
        &self,
        client: &Client,
        all: &[&Sending],
    ) -> Option<Result<Vec<Option<Vec<i64>>>, Error>> {
        let [Sending { queue, sender, messages, .. }] = all else { return None };
        let [message] = messages.as_slice() else { return None };
        let row = client.query_opt(&self.single.send, &[queue, &message.receiver, sender, &message.body]).await;
        Some(row.map(|row| vec![row.map(|row| vec![row.get(0)])]))
    }

    /// What is found for a lone wish for messages that are for anyone. None at all when it is another or not alone.
    pub(super) async fn pop_one(
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
                .query(&self.single.pop, &[queue, &wanted, &begin.queue_id, &begin.era, &begin.shared])
                .await
                .map(|rows| found(&rows, 1, false)),
        )
    }
}
