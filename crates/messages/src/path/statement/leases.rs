//! The statements that acknowledge, extend and return leases.

use crate::path::lease::{Settlement, Settling};
use crate::path::statement::prepare::Statements;
use tokio_postgres::{Client, Error};

impl Statements {
    /// Settles the leases of all, in the same way. For each the leases that did not hold, by their place.
    pub(crate) async fn settle(
        &self,
        client: &Client,
        how: Settlement,
        all: &[&Settling],
    ) -> Result<Vec<Vec<usize>>, Error> {
        let (mut queues, mut ids, mut secrets, mut times_ms) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for settling in all {
            for lease in &settling.leases {
                queues.push(lease.queue_id);
                ids.push(lease.id);
                secrets.push(lease.secret.as_str());
                times_ms.push(settling.time_ms);
            }
        }
        let rows = client.query(&self.settle[how as usize], &[&queues, &ids, &secrets, &times_ms]).await?;
        let mut is_settled = vec![false; queues.len()];
        for row in rows {
            is_settled[usize::try_from(row.get::<_, i64>(0)).unwrap_or(0) - 1] = true;
        }
        let mut is_settled = is_settled.into_iter();
        let unsettled = |settling: &&Settling| {
            let mine = is_settled.by_ref().take(settling.leases.len()).enumerate();
            mine.filter_map(|(place, is_settled)| (!is_settled).then_some(place)).collect()
        };
        Ok(all.iter().map(unsettled).collect())
    }
}
