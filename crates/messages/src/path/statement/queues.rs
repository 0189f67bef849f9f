//! The statements about queues and their settings.

use crate::path::statement::prepare::Statements;
use crate::path::work::{COUNT_MAX, QueueSettings, QueueState};
use tokio_postgres::{Client, Error};

impl Statements {
    /// Creates a queue. Returns whether it is new, or none if its dead-letter queue does not exist. Without settings, an existing queue
    /// keeps its own.
    pub(crate) async fn create_queue(
        &self,
        client: &Client,
        name: &str,
        settings: Option<&QueueSettings>,
    ) -> Result<Option<bool>, Error> {
        let Some(settings) = settings else {
            return Ok(Some(client.query_opt(&self.create, &[&name]).await?.is_some()));
        };
        let QueueSettings { attempts, dead_letter_queue, expiry_ms, lease_ms } = settings;
        let row = client.query_opt(&self.configure, &[&name, attempts, dead_letter_queue, expiry_ms, lease_ms]).await?;
        Ok(row.map(|row| row.get(0)))
    }

    pub(crate) async fn show_queue(&self, client: &Client, name: &str) -> Result<Option<QueueState>, Error> {
        let row = client.query_opt(&self.show, &[&name, &COUNT_MAX]).await?;
        Ok(row.map(|row| QueueState {
            name: name.to_string(),
            settings: QueueSettings {
                attempts: row.get(0),
                dead_letter_queue: row.get(1),
                expiry_ms: row.get(2),
                lease_ms: row.get(3),
            },
            visible: row.get(4),
            invisible: row.get(5),
        }))
    }

    /// Returns whether the queue existed.
    pub(crate) async fn delete_queue(&self, client: &Client, name: &str) -> Result<bool, Error> {
        Ok(client.query_opt(&self.delete, &[&name]).await?.is_some())
    }

    pub(crate) async fn list_queues(&self, client: &Client) -> Result<Vec<String>, Error> {
        Ok(client.query(&self.list, &[]).await?.iter().map(|row| row.get(0)).collect())
    }

    /// For each receiver, the queues that have messages addressed to it.
    pub(crate) async fn waiting_queues(&self, client: &Client, receivers: &[&str]) -> Result<Vec<Vec<String>>, Error> {
        let rows = client.query(&self.waiting_queues, &[&receivers]).await?;
        Ok(rows.iter().map(|row| row.get(1)).collect())
    }
}
