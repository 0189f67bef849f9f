//! The statements about queues and their settings.

use crate::path::statement::prepare::Statements;
use crate::path::work::{COUNTED, QueueState, Settings};
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

    /// Whether the queue was there.
    pub(crate) async fn delete_queue(&self, client: &Client, name: &str) -> Result<bool, Error> {
        Ok(client.query_opt(&self.delete, &[&name]).await?.is_some())
    }

    /// The names of all queues.
    pub(crate) async fn list_queues(&self, client: &Client) -> Result<Vec<String>, Error> {
        Ok(client.query(&self.list, &[]).await?.iter().map(|row| row.get(0)).collect())
    }
    /// For each receiver the queues in which messages wait for it.
    pub(crate) async fn waiting(&self, client: &Client, receivers: &[&str]) -> Result<Vec<Vec<String>>, Error> {
        let rows = client.query(&self.waiting, &[&receivers]).await?;
        Ok(rows.iter().map(|row| row.get(1)).collect())
    }
}
