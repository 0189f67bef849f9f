//! Statements about a queue and its settings.

use super::Statements;
use crate::settings::{COUNTED, QueueState, Settings};
use tokio_postgres::{Client, Error};

impl Statements {
    /// Whether the queue is new. Without settings, one that is there keeps its own; with them, none when the queue for dead letters
    /// is not there.
    pub(crate) async fn create_queue(
        &self,
        client: &Client,
        name: &str,
        settings: Option<&Settings>,
    ) -> Result<Option<bool>, Error> {
        let Some(settings) = settings else {
            return Ok(Some(client.query_opt(&self.create, &[&name]).await?.is_some()));
        };
        let Settings { attempts, dead_letters, expiry_ms, lease_ms } = settings;
        let row = client.query_opt(&self.configure, &[&name, attempts, dead_letters, expiry_ms, lease_ms]).await?;
        Ok(row.map(|row| row.get(0)))
    }

    /// The queue, if it is there.
    pub(crate) async fn show_queue(&self, client: &Client, name: &str) -> Result<Option<QueueState>, Error> {
        let row = client.query_opt(&self.show, &[&name, &COUNTED]).await?;
        Ok(row.map(|row| QueueState {
            name: name.to_string(),
            settings: Settings {
                attempts: row.get(0),
                dead_letters: row.get(1),
                expiry_ms: row.get(2),
                lease_ms: row.get(3),
            },
            waiting: row.get(4),
            held: row.get(5),
        }))
    }
}
