//! The statement for sends with a key, a delay or an expiry. Plain sends have their own, which touches nothing but messages.

use super::Statements;
use crate::work::Sending;
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
