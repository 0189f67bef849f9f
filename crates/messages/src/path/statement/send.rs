//! Station 7. The statements that store messages: many requests become arrays, and rows become ids. Each statement is a transaction. Its
//! result is read to the server's last word, which it says after the commit.

use crate::path::statement::prepare::Statements;
use crate::path::work::Sending;
use tokio_postgres::{Client, Error};

/// What became of a send.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    Stored(Vec<i64>),
    /// The ids of the first with this key.
    Replayed(Vec<i64>),
    /// The key was used for something else.
    KeyReused,
    UnknownQueue,
}

impl Statements {
    /// Stores the messages of all; the ids of each, or none where the queue is not there.
    pub(crate) async fn send(&self, client: &Client, all: &[&Sending]) -> Result<Vec<Option<Vec<i64>>>, Error> {
        if let Some(stored) = self.send_one(client, all).await {
            return stored;
        }
        let (mut queues, mut receivers, mut senders, mut bodies) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for sending in all {
            for message in &sending.messages {
                queues.push(sending.queue.as_str());
                receivers.push(message.receiver.as_str());
                senders.push(sending.sender.as_str());
                bodies.push(message.body.as_slice());
            }
        }
        let rows = client.query(&self.send, &[&queues, &receivers, &senders, &bodies]).await?;
        let mut ids = rows.iter().map(|row| row.get::<_, Option<i64>>(1));
        let of_one = |sending: &&Sending| (0..sending.messages.len()).map(|_| ids.next().flatten()).collect();
        Ok(all.iter().map(of_one).collect())
    }

    /// The id of a message that comes alone, or none where the queue is not there. None at all when it is not alone.
    async fn send_one(&self, client: &Client, all: &[&Sending]) -> Option<Result<Vec<Option<Vec<i64>>>, Error>> {
        let [Sending { queue, sender, messages, .. }] = all else { return None };
        let [message] = messages.as_slice() else { return None };
        let row = client.query_opt(&self.send_one, &[queue, &message.receiver, sender, &message.body]).await;
        Some(row.map(|row| vec![row.map(|row| vec![row.get(0)])]))
    }

    /// Stores the messages of all whose key has not been used.
    pub(crate) async fn send_with(&self, client: &Client, all: &[&Sending]) -> Result<Vec<Sent>, Error> {
        let queues: Vec<&str> = all.iter().map(|sending| sending.queue.as_str()).collect();
        let senders: Vec<&str> = all.iter().map(|sending| sending.sender.as_str()).collect();
        let keys: Vec<&str> = all.iter().map(|sending| sending.key.as_str()).collect();
        let (mut places, mut receivers, mut bodies) = (Vec::new(), Vec::new(), Vec::new());
        let (mut delays_ms, mut expiries_ms) = (Vec::new(), Vec::new());
        for (place, sending) in (1_i64..).zip(all) {
            for message in &sending.messages {
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
            (None, ..) => Sent::UnknownQueue,
            (Some(_), _, true) => Sent::KeyReused,
            (Some(ids), true, false) => Sent::Replayed(ids),
            (Some(ids), false, false) => Sent::Stored(ids),
        };
        Ok(rows.iter().map(sent).collect())
    }
}
