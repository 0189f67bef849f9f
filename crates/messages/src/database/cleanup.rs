//! Removes what belongs to deleted queues, and the keys of old sends, a piece at a time, beside the path of requests.

use crate::database::connection::Database;
use crate::database::error::chain;
use crate::observe::journal::Journal;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio_postgres::Client;

/// How often it looks by itself.
const EVERY: Duration = Duration::from_secs(30);

/// A piece, so that no statement takes long.
const PIECE: &str = "DELETE FROM {table} WHERE ctid = ANY (ARRAY(
    SELECT m.ctid FROM queue JOIN {table} AS m ON m.queue_id = queue.id
    WHERE queue.deleted_at IS NOT NULL LIMIT 5000 FOR UPDATE OF m SKIP LOCKED))";

/// The tables with rows of queues.
const TABLES: [&str; 3] = ["message", "held", "send_key"];

/// Keys after their time.
const KEYS: &str = "DELETE FROM send_key WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM send_key WHERE made_at < now() - $1::bigint * interval '1 millisecond'
    ORDER BY made_at LIMIT 5000 FOR UPDATE SKIP LOCKED))";

/// A send that was under way when its queue was deleted has ended after this time, which is longer than a statement may take.
const FORGET: &str = "DELETE FROM queue WHERE deleted_at < now() - interval '2 minutes'
    AND NOT EXISTS (SELECT FROM message AS m WHERE m.queue_id = queue.id)
    AND NOT EXISTS (SELECT FROM held AS m WHERE m.queue_id = queue.id)
    AND NOT EXISTS (SELECT FROM send_key AS m WHERE m.queue_id = queue.id)";

/// Wakes the sweep.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sweeper(Arc<Notify>);

impl Sweeper {
    /// A queue was deleted.
    pub(crate) fn wake(&self) {
        self.0.notify_one();
    }

    /// Sweeps until it is dropped. A database that is down is tried again later.
    pub(crate) async fn run(self, database: Database, journal: Arc<Journal>, keys_kept: Duration) {
        let mut client: Option<Client> = None;
        loop {
            if let Err(error) = sweep(&database, &mut client, keys_kept).await {
                journal.note_connect_failure(&chain(&error));
                client = None;
            }
            // Errors of timing mean nothing here: it is time, or somebody woke us.
            let _ = tokio::time::timeout(EVERY, self.0.notified()).await;
        }
    }
}

async fn sweep(
    database: &Database,
    client: &mut Option<Client>,
    keys_kept: Duration,
) -> Result<(), tokio_postgres::Error> {
    let client = match client {
        Some(open) if !open.is_closed() => open,
        _ => client.insert(database.connect_bare().await?),
    };
    // The tables may not be there yet.
    let there = client.query_one("SELECT to_regclass('send_key') IS NOT NULL", &[]).await?;
    if !there.get::<_, bool>(0) {
        return Ok(());
    }
    for table in TABLES {
        let piece = PIECE.replace("{table}", table);
        while client.execute(&piece, &[]).await? > 0 {}
    }
    let kept_ms = i64::try_from(keys_kept.as_millis()).unwrap_or(i64::MAX);
    while client.execute(KEYS, &[&kept_ms]).await? > 0 {}
    client.execute(FORGET, &[]).await?;
    Ok(())
}
