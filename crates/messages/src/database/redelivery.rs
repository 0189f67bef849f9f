//! Handles messages that are due, in batches beside the path of requests. A message whose lease expired or whose delay is over becomes
//! visible again or moves to the dead-letter queue. An expired message is deleted. Only the database's clock counts. Several services can
//! do this at once.

use crate::database::background_client::BackgroundClient;
use crate::database::connection::Database;
use crate::database::error::{DatabaseError, one_line};
use crate::database::peers::Peers;
use crate::observe::journal::Journal;
use crate::path::health::{BackgroundLoop, Health};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio_postgres::Statement;

/// The longest pause: a peer may have leased or delayed a message that is due soon.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// The shortest pause, if another service has locked what is due.
const SHORTEST_PAUSE: Duration = Duration::from_millis(5);
/// Rows in one statement.
const BATCH: i64 = 500;
/// Between two full scans, scans start where the last full scan ended. Before that point there are only dead rows.
const FULL_SCAN_EVERY_MS: i64 = 30_000;
/// Longer than the statement timeout, so that everything that was running during the last full scan lies after its start.
const OVERLAP_MS: i64 = 60_000;

/// Indices into `DUE_OUTCOMES` of the journal.
const VISIBLE: usize = 0;
const DEAD_LETTERED: usize = 1;
const DELETED: usize = 2;

const EXPIRED: &str = "DELETE FROM message WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM message WHERE expires_at <= now() AND expires_at > to_timestamp($1::bigint / 1000.0)
    ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED))";

/// The database's time, and the time until the next message is due, in milliseconds.
const NEXT: &str = "SELECT (extract(epoch FROM now()) * 1000)::bigint,
    (SELECT ceil(extract(epoch FROM min(due_at) - now()) * 1000)::bigint
     FROM invisible_message WHERE due_at > to_timestamp($1::bigint / 1000.0))";

/// Wakes the redelivery.
#[derive(Clone, Debug, Default)]
pub(crate) struct Redelivery(Arc<Notify>);

/// The redelivery's own connection.
struct RedeliverySession {
    client: BackgroundClient,
    due: Statement,
    expired: Statement,
    next: Statement,
    /// Where scans start, in milliseconds since 1970; 0 for a full scan.
    begin_ms: i64,
    /// When the last full scan ended.
    full_scan_ms: i64,
}

impl Redelivery {
    /// A message may be due now or soon.
    pub(crate) fn wake(&self) {
        self.0.notify_one();
    }

    /// Runs until it is dropped. If the database is unreachable, it tries again later.
    pub(crate) async fn run(self, database: Database, journal: Arc<Journal>, health: Arc<Health>, peers: Arc<Peers>) {
        let mut session: Option<RedeliverySession> = None;
        loop {
            let pause = match redeliver_all(&database, &mut session, &peers, &journal, &health).await {
                Ok(pause) => pause,
                Err(error) => {
                    journal.note_connect_failure(&one_line(&error));
                    session = None;
                    LONGEST_PAUSE
                }
            };
            // A timeout is no error: it is time for the next run.
            let _ = tokio::time::timeout(pause, self.0.notified()).await;
        }
    }
}

/// Handles everything that is due. Returns how long to pause.
async fn redeliver_all(
    database: &Database,
    session: &mut Option<RedeliverySession>,
    peers: &Peers,
    journal: &Journal,
    health: &Health,
) -> Result<Duration, DatabaseError> {
    if session.as_ref().is_none_or(|open| open.client.is_closed()) {
        *session = RedeliverySession::open(database).await?;
    }
    // The tables may not exist yet.
    let Some(session) = session else { return Ok(LONGEST_PAUSE) };
    while session.redeliver_batch(peers, journal).await? {
        health.note_round(BackgroundLoop::Redelivery);
    }
    loop {
        let expired = session.client.execute(&session.expired, &[&session.begin_ms, &BATCH]).await?;
        journal.count_due(DELETED, expired);
        health.note_round(BackgroundLoop::Redelivery);
        if expired == 0 {
            return session.pause().await;
        }
    }
}

impl RedeliverySession {
    async fn open(database: &Database) -> Result<Option<RedeliverySession>, DatabaseError> {
        let client = database.connect_in_background().await?;
        let there = client.query_one("SELECT to_regclass('idempotency_key') IS NOT NULL", &[]).await?;
        if !there.get::<_, bool>(0) {
            return Ok(None);
        }
        let due = client.prepare(include_str!("redeliver.sql")).await?;
        let (expired, next) = (client.prepare(EXPIRED).await?, client.prepare(NEXT).await?);
        Ok(Some(RedeliverySession { client, due, expired, next, begin_ms: 0, full_scan_ms: 0 }))
    }

    /// Handles a batch and wakes the polls that wait for its messages. Returns whether more may be due.
    async fn redeliver_batch(&self, peers: &Peers, journal: &Journal) -> Result<bool, DatabaseError> {
        let mut moved = 0;
        for row in self.client.query(&self.due, &[&self.begin_ms, &BATCH]).await? {
            let messages: i64 = row.get(0);
            moved += messages;
            let to = match (row.get::<_, Option<&str>>(1), row.get(2)) {
                (None, _) => DELETED,
                (Some(queue), is_dead) => {
                    peers.notify(queue);
                    if is_dead { DEAD_LETTERED } else { VISIBLE }
                }
            };
            journal.count_due(to, messages.unsigned_abs());
        }
        Ok(moved >= BATCH)
    }

    async fn pause(&mut self) -> Result<Duration, DatabaseError> {
        let row = self.client.query_one(&self.next, &[&self.begin_ms]).await?;
        let (now_ms, due_ms): (i64, Option<i64>) = (row.get(0), row.get(1));
        if self.begin_ms == 0 {
            (self.begin_ms, self.full_scan_ms) = (now_ms - OVERLAP_MS, now_ms);
        } else if !(0..FULL_SCAN_EVERY_MS).contains(&(now_ms - self.full_scan_ms)) {
            self.begin_ms = 0;
        }
        let due = due_ms.map_or(LONGEST_PAUSE, |ms| Duration::from_millis(u64::try_from(ms).unwrap_or(0)));
        Ok(due.clamp(SHORTEST_PAUSE, LONGEST_PAUSE))
    }
}
