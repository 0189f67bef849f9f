//! The statements about queues and their settings.

use crate::path::statement::prepare::Statements;
use crate::path::statement::standby::wait_for_standby;
use crate::path::work::{Answer, COUNT_MAX, Page, QueueSettings, QueueState};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Row};

/// Queues in which one statement looks for messages of each receiver.
const LOOKUPS_MAX: i64 = 10_000;

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
            let is_new = client.query_opt(&self.create, &[&name]).await?.is_some();
            if !is_new {
                // Nothing was written. The earlier creation may be in doubt.
                wait_for_standby(client).await?;
            }
            return Ok(Some(is_new));
        };
        let QueueSettings { attempts, dead_letter_queue, expiry_ms, lease_ms, backoff_ms } = settings;
        let parameters: [&(dyn ToSql + Sync); 6] =
            [&name, attempts, dead_letter_queue, expiry_ms, lease_ms, backoff_ms];
        let row = client.query_opt(&self.configure, &parameters).await?;
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
                backoff_ms: row.get(4),
            },
            visible: row.get(5),
            invisible: row.get(6),
        }))
    }

    /// Returns whether the queue existed.
    pub(crate) async fn delete_queue(&self, client: &Client, name: &str) -> Result<bool, Error> {
        let existed = client.query_opt(&self.delete, &[&name]).await?.is_some();
        if !existed {
            // Nothing was written. An earlier deletion may be in doubt.
            wait_for_standby(client).await?;
        }
        Ok(existed)
    }

    /// A page of the names of all queues.
    pub(crate) async fn list_queues(&self, client: &Client, page: &Page) -> Result<Answer, Error> {
        let max = i64::try_from(page.max).unwrap_or(i64::MAX);
        let row = client.query_one(&self.list, &[&page.after, &max, &page.prefixes]).await?;
        Ok(Answer::Queues { names: row.get(0), next: row.get(1) })
    }

    /// For each receiver, a page of the queues that have messages addressed to it.
    pub(crate) async fn waiting_queues(
        &self,
        client: &Client,
        receivers: &[String],
        page: &Page,
    ) -> Result<Vec<Answer>, Error> {
        let max = i64::try_from(page.max).unwrap_or(i64::MAX);
        let parameters: [&(dyn ToSql + Sync); 5] = [&receivers, &page.after, &max, &page.prefixes, &LOOKUPS_MAX];
        let rows = client.query(&self.waiting_queues, &parameters).await?;
        let answer = |row: &Row| {
            let names: Vec<String> = row.get(1);
            // The list is cut where the limit of names or of lookups is reached.
            let next = if names.len() == page.max { names.last().cloned() } else { row.get(2) };
            Answer::Queues { names, next }
        };
        Ok(rows.iter().map(answer).collect())
    }
}
