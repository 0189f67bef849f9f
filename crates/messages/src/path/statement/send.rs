//! Step 7. The statements that store messages: arguments become arrays, rows become ids. Each statement is a transaction. Its result is
//! read up to ReadyForQuery, which PostgreSQL sends after the commit.

use crate::path::statement::prepare::Statements;
use crate::path::work::SendRequest;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error};

/// The result of a send with a key, a delay or an expiry.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    Stored(Vec<i64>),
    /// The ids of the first send with this key.
    Replayed(Vec<i64>),
    /// The key belongs to a send with other bodies or receivers.
    KeyReused,
    UnknownQueue,
    /// The delay is not shorter than the queue's expiry. With a key, the first send may not be committed yet.
    NeverVisible,
}

impl Statements {
    /// Stores the messages of all sends. Returns the ids of each, or none if its queue does not exist.
    pub(crate) async fn send(&self, client: &Client, all: &[&SendRequest]) -> Result<Vec<Option<Vec<i64>>>, Error> {
        if let Some(stored) = self.send_one(client, all).await {
            return stored;
        }
        let (mut queues, mut receivers, mut senders, mut bodies) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for send in all {
            for message in &send.messages {
                queues.push(send.queue.as_str());
                receivers.push(message.receiver.as_str());
                senders.push(send.sender.as_str());
                bodies.push(message.body.as_slice());
            }
        }
        let rows = client.query(&self.send, &[&queues, &receivers, &senders, &bodies]).await?;
        let mut ids = rows.iter().map(|row| row.get::<_, Option<i64>>(1));
        let of_one = |send: &&SendRequest| (0..send.messages.len()).map(|_| ids.next().flatten()).collect();
        Ok(all.iter().map(of_one).collect())
    }

    /// Stores a message that is alone, with a cheaper statement. None if there are several messages.
    async fn send_one(&self, client: &Client, all: &[&SendRequest]) -> Option<Result<Vec<Option<Vec<i64>>>, Error>> {
        let [SendRequest { queue, sender, messages, .. }] = all else { return None };
        let [message] = messages.as_slice() else { return None };
        let row = client.query_opt(&self.send_one, &[queue, &message.receiver, sender, &message.body]).await;
        Some(row.map(|row| vec![row.map(|row| vec![row.get(0)])]))
    }

    /// Stores the messages of all sends whose key has not been used.
    pub(crate) async fn send_with(&self, client: &Client, all: &[&SendRequest]) -> Result<Vec<Sent>, Error> {
        let queues: Vec<&str> = all.iter().map(|send| send.queue.as_str()).collect();
        let senders: Vec<&str> = all.iter().map(|send| send.sender.as_str()).collect();
        let keys: Vec<&str> = all.iter().map(|send| send.key.as_str()).collect();
        let (mut places, mut receivers, mut bodies) = (Vec::new(), Vec::new(), Vec::new());
        let (mut delays_ms, mut expiries_ms) = (Vec::new(), Vec::new());
        for (place, send) in (1_i64..).zip(all) {
            for message in &send.messages {
                places.push(place);
                receivers.push(message.receiver.as_str());
                bodies.push(message.body.as_slice());
                delays_ms.push(message.delay_ms);
                expiries_ms.push(message.expiry_ms);
            }
        }
        let rows = client
            .query(&self.send_with, &[&queues, &senders, &keys, &places, &receivers, &bodies, &delays_ms, &expiries_ms])
            .await?;
        let sent = |row: &tokio_postgres::Row| match (row.get::<_, Option<Vec<i64>>>(1), row.get(2), row.get(3)) {
            _ if row.get(4) => Sent::NeverVisible,
            (None, ..) => Sent::UnknownQueue,
            (Some(_), _, true) => Sent::KeyReused,
            (Some(ids), true, false) => Sent::Replayed(ids),
            (Some(ids), false, false) => Sent::Stored(ids),
        };
        Ok(rows.iter().map(sent).collect())
    }

    /// Whether a send with this key was committed. Waits for one that is in progress, which the statement of sends does not see.
    /// The connection must run no other statement meanwhile, because this is a transaction of several.
    pub(crate) async fn is_key_used(&self, client: &Client, send: &SendRequest) -> Result<bool, Error> {
        // Sent at once, so that the transaction ends even if this call is dropped.
        let parameters: [&(dyn ToSql + Sync); 3] = [&send.queue, &send.sender, &send.key];
        let (begun, claimed, ended) = tokio::join!(
            client.batch_execute("BEGIN"),
            client.execute(&self.claim_key, &parameters),
            client.batch_execute("ROLLBACK"),
        );
        let claimed = claimed?;
        begun.and(ended)?;
        Ok(claimed == 0)
    }
}
