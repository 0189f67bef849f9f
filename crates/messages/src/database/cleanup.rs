//! Deletes the rows of deleted queues, and expired idempotency keys, in small batches. Runs beside the path of requests.

use crate::database::background_client::BackgroundClient;
use crate::database::connection::Database;
use crate::database::error::{DatabaseError, one_line};
use crate::observe::journal::Journal;
use crate::path::health::{BackgroundLoop, Health};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// How often it runs without a wake-up.
const EVERY: Duration = Duration::from_secs(30);

/// How soon it runs again after a failure.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// One batch, so that no statement takes long. The limit of the lateral look-ups keeps them from becoming a join over all rows.
const PIECE: &str = "DELETE FROM {table} WHERE ctid = ANY (ARRAY(
    SELECT found.row FROM queue CROSS JOIN LATERAL (
        SELECT m.ctid AS row FROM {table} AS m WHERE m.queue_id = queue.id LIMIT 5000 FOR UPDATE SKIP LOCKED
    ) AS found
    WHERE queue.deleted_at IS NOT NULL LIMIT 5000))";

/// The tables with rows of queues.
const TABLES: [&str; 4] = ["message", "invisible_message", "idempotency_key", "lost_lease"];

/// Idempotency keys past their retention.
pub(super) const KEYS: &str = "DELETE FROM idempotency_key WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM idempotency_key WHERE created_at < now() - $1::bigint * interval '1 millisecond'
    ORDER BY created_at LIMIT 5000 FOR UPDATE SKIP LOCKED))";

/// Lost leases that are older than `key-retention`; their holders no longer acknowledge them.
pub(super) const LOST_LEASES: &str = "DELETE FROM lost_lease WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM lost_lease WHERE lost_at < now() - $1::bigint * interval '1 millisecond'
    ORDER BY lost_at LIMIT 5000 FOR UPDATE SKIP LOCKED))";

/// Queues that transactions of applications use through the functions of 0006_sql_functions.sql. Such a transaction can last long, and may
/// still commit messages to a queue that was deleted meanwhile. It must be read before the snapshot of FORGET.
const HELD: &str = "SELECT coalesce(array_agg(objid::bigint), '{}') FROM pg_locks
    WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND classid = 1463943168 AND objsubid = 2";

/// After this time, which is longer than the statement timeout, every send of a service has ended that was running when its queue was
/// deleted. The parameter has the queues that other transactions hold. OFFSET 0 keeps the lookups from becoming joins over all rows.
pub(super) const FORGET: &str =
    "DELETE FROM queue WHERE deleted_at < now() - interval '2 minutes' AND id <> ALL ($1::bigint[])
    AND NOT EXISTS (SELECT FROM message AS m WHERE m.queue_id = queue.id OFFSET 0)
    AND NOT EXISTS (SELECT FROM invisible_message AS m WHERE m.queue_id = queue.id OFFSET 0)
    AND NOT EXISTS (SELECT FROM idempotency_key AS m WHERE m.queue_id = queue.id OFFSET 0)";

/// Wakes the cleanup.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cleanup(Arc<Notify>);

impl Cleanup {
    /// A queue was deleted.
    pub(crate) fn wake(&self) {
        self.0.notify_one();
    }

    /// Runs until it is dropped. If the database is unreachable, it tries again later.
    pub(crate) async fn run(
        self,
        database: Database,
        journal: Arc<Journal>,
        health: Arc<Health>,
        key_retention: Duration,
    ) {
        let mut client: Option<BackgroundClient> = None;
        loop {
            if let Err(error) = clean_up(&database, &mut client, &health, key_retention).await {
                journal.note_loop_failure(&error);
                health.note_failure(BackgroundLoop::Cleanup, one_line(&error));
                client = None;
                tokio::time::sleep(RETRY_AFTER).await;
                continue;
            }
            // A timeout is no error: it is time for the next run.
            let _ = tokio::time::timeout(EVERY, self.0.notified()).await;
        }
    }
}

/// One statement for each table, which deletes a batch of rows of deleted queues.
pub(super) fn pieces() -> [String; 4] {
    TABLES.map(|table| PIECE.replace("{table}", table))
}

async fn clean_up(
    database: &Database,
    client: &mut Option<BackgroundClient>,
    health: &Health,
    key_retention: Duration,
) -> Result<(), DatabaseError> {
    let client = match client {
        Some(open) if !open.is_closed() => open,
        _ => client.insert(database.connect_in_background().await?),
    };
    // The tables may not exist yet.
    let there = client.query_one("SELECT to_regclass('lost_lease') IS NOT NULL", &[]).await?;
    if !there.get::<_, bool>(0) {
        health.note_round(BackgroundLoop::Cleanup);
        return Ok(());
    }
    for piece in pieces() {
        while client.execute(&piece, &[]).await? > 0 {
            health.note_round(BackgroundLoop::Cleanup);
        }
    }
    let kept_ms = i64::try_from(key_retention.as_millis()).unwrap_or(i64::MAX);
    for old in [KEYS, LOST_LEASES] {
        while client.execute(old, &[&kept_ms]).await? > 0 {
            health.note_round(BackgroundLoop::Cleanup);
        }
    }
    let held: Vec<i64> = client.query_one(HELD, &[]).await?.get(0);
    client.execute(FORGET, &[&held]).await?;
    health.note_round(BackgroundLoop::Cleanup);
    Ok(())
}
