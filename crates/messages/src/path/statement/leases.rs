//! The statements that acknowledge, extend and nack.

use crate::path::lease::{LeaseAction, LeaseRequest};
use crate::path::statement::prepare::Statements;
use tokio_postgres::{Client, Error};

impl Statements {
    /// Applies one action to the leases of all requests. Returns for each request the places of the leases that had expired.
    pub(crate) async fn apply_lease_action(
        &self,
        client: &Client,
        action: LeaseAction,
        all: &[&LeaseRequest],
    ) -> Result<Vec<Vec<usize>>, Error> {
        let (mut queues, mut ids, mut secrets, mut times_ms) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for request in all {
            for lease in &request.tokens {
                queues.push(lease.queue_id);
                ids.push(lease.id);
                secrets.push(lease.secret.as_str());
                times_ms.push(request.time_ms);
            }
        }
        let rows = client.query(&self.lease_actions[action as usize], &[&queues, &ids, &secrets, &times_ms]).await?;
        let mut is_applied = vec![false; queues.len()];
        for row in rows {
            is_applied[usize::try_from(row.get::<_, i64>(0)).unwrap_or(0) - 1] = true;
        }
        let mut is_applied = is_applied.into_iter();
        let expired = |request: &&LeaseRequest| {
            let mine = is_applied.by_ref().take(request.tokens.len()).enumerate();
            mine.filter_map(|(place, is_applied)| (!is_applied).then_some(place)).collect()
        };
        Ok(all.iter().map(expired).collect())
    }
}
