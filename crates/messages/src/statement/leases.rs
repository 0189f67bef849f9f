//! Statements about leases: the one that takes messages under a lease, and those that settle leases. The first is the statement of
//! pops with another end.

use super::Statements;
use crate::lease::{Settlement, Settling};
use tokio_postgres::{Client, Error};

/// The time of a lease when neither the request nor the queue says one.
const DEFAULT_MS: &str = "30000";

const LEASE_COLUMNS: &str = ", leased.queue_id, replace(leased.lease::text, '-', '') AS secret, leased.attempts";

const ACKNOWLEDGE: &str = "DELETE FROM held USING asked";
const EXTEND: &str = "UPDATE held SET due_at = now() + interval '1 millisecond' * coalesce(nullif(asked.time_ms, 0), \
    (SELECT lease_ms FROM queue WHERE queue.id = held.queue_id), {default_ms}) FROM asked";
const RETURN: &str =
    "UPDATE held SET lease = NULL, due_at = now() + asked.time_ms * interval '1 millisecond' FROM asked";

/// The statement that takes messages, made to lease them.
pub(super) fn receive(take: &str) -> String {
    let then = include_str!("lease.sql").replace("{default_ms}", DEFAULT_MS);
    take.replace("{then}", &then).replace("{rows}", "leased").replace("{lease}", LEASE_COLUMNS)
}

/// One statement for each [`Settlement`], in its order.
pub(super) fn settle() -> [String; 3] {
    let text = include_str!("settle.sql");
    [ACKNOWLEDGE, EXTEND, RETURN].map(|change| {
        let commented = text.replacen("{change}", change.split(' ').next().unwrap_or_default(), 1);
        commented.replace("{change}", &change.replace("{default_ms}", DEFAULT_MS))
    })
}

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
