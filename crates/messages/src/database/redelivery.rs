//! Handles messages that are due, in batches beside the path of requests. A message whose lease expired or whose delay is over becomes
//! visible again or moves to the dead-letter queue. An expired message is deleted. Only the database's clock counts. Several services can
//! do this at once.

use crate::database::background_client::BackgroundClient;
use crate::database::connection::Database;
use crate::database::error::{DatabaseError, one_line};
use crate::database::peers::Peers;
use crate::database::set_aside::{SetAside, Skipped, Target};
use crate::observe::journal::{DUE_OUTCOMES, Journal};
use crate::path::health::{BackgroundLoop, Health};
use crate::path::statement::prepare::backoff_ms;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_postgres::Statement;
use tokio_postgres::types::ToSql;

/// The longest pause: a peer may have leased or delayed a message that is due soon.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// The shortest pause, if another service has locked what is due.
const SHORTEST_PAUSE: Duration = Duration::from_millis(5);
/// The shortest pause between two full scans.
const FULL_SCAN_PAUSE: Duration = Duration::from_millis(50);
/// Rows in one statement.
const BATCH: i64 = 500;
/// The number of expired messages that one query finds.
const EXPIRED_BATCH: i64 = 50_000;
/// Between two full scans, scans start where the last full scan ended. Before that point there are only dead rows.
const FULL_SCAN_EVERY_MS: i64 = 30_000;
/// A full scan that takes no longer is repeated at once if it has left a late message behind.
const CHEAP_SCAN: Duration = Duration::from_millis(5);
/// A longer one is repeated after so many times its duration.
const FULL_SCAN_PAUSES: u32 = 100;
/// Longer than the statement timeout, so that everything that was running during the last full scan lies after its start.
const OVERLAP_MS: i64 = 60_000;

/// The index of deleted messages in `DUE_OUTCOMES`.
const DELETED: usize = 2;
/// The outcome for messages whose dead-letter queue is locked, as redeliver.sql names it.
const NOT_DEAD_LETTERED: &str = "not_dead_lettered";

/// The first message that is due, as redeliver.sql finds it.
const FIRST: &str = "SELECT queue_id, id FROM invisible_message WHERE due_at <= now() AND {in_scan}
    ORDER BY due_at LIMIT 1 FOR UPDATE SKIP LOCKED";

/// The `ctid`s of expired messages. One query serves many deletions, because an old snapshot keeps deleted rows in the index.
const EXPIRED: &str = "SELECT ctid::text FROM message
    WHERE expires_at <= now() AND expires_at > to_timestamp($1::bigint / 1000.0) ORDER BY expires_at LIMIT $2";
/// Another message may meanwhile have the same `ctid`, so the expiry is checked again. With IS TRUE, no index serves this condition.
const DELETE_EXPIRED: &str = "DELETE FROM message WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM message WHERE ctid = ANY ($1::text[]::tid[]) AND (expires_at <= now()) IS TRUE FOR UPDATE SKIP LOCKED))";

/// The database's time, and the time until the next message is due, in milliseconds; and whether a full scan has left a message behind that
/// will soon be before the start of the other scans. Another transaction has locked it or its queue. Messages that the database refuses to
/// move do not count.
const NEXT: &str = "SELECT (extract(epoch FROM now()) * 1000)::bigint,
    (SELECT ceil(extract(epoch FROM due_at - now()) * 1000)::bigint
     FROM invisible_message WHERE {in_scan} ORDER BY due_at LIMIT 1),
    CASE WHEN $1::bigint = 0 THEN EXISTS (
        SELECT FROM invisible_message WHERE due_at <= now() - interval '30 seconds' AND id <> ALL ($6::bigint[])
    ) ELSE false END";
/// The condition of all three statements about messages that are due: not in the part with only dead rows, and not set aside. The first
/// and the second array are queues whose returns are set aside, and the numbers of attempts below which a message returns. The third and
/// the fourth are the same for moves to dead-letter queues. Looking a limit up in an array costs less for each row than a join.
const IN_SCAN: &str = "due_at > to_timestamp($1::bigint / 1000.0)
    AND (attempts < ($3::integer[])[array_position($2::integer[], queue_id)]) IS NOT TRUE
    AND (attempts >= ($5::integer[])[array_position($4::integer[], queue_id)]) IS NOT TRUE AND id <> ALL ($6::bigint[])";

/// Wakes the redelivery.
#[derive(Clone, Debug, Default)]
pub(crate) struct Redelivery(Arc<Notify>);

/// What the loop uses beside its connection.
struct Surroundings {
    peers: Arc<Peers>,
    journal: Arc<Journal>,
    health: Arc<Health>,
}

/// The redelivery's own connection.
pub(super) struct RedeliverySession {
    pub(super) client: BackgroundClient,
    due: Statement,
    first: Statement,
    expired: Statement,
    delete_expired: Statement,
    next: Statement,
    /// Where scans start, in milliseconds since 1970; 0 for a full scan.
    begin_ms: i64,
    /// When the last full scan ended, and the time from then to the next one.
    full_scan_ms: i64,
    full_scan_after_ms: i64,
    aside: SetAside,
    /// The time of the next query for expired messages.
    next_expiry: Instant,
}

impl Redelivery {
    /// A message may be due now or soon.
    pub(crate) fn wake(&self) {
        self.0.notify_one();
    }

    /// Runs until it is dropped. If the database is unreachable, it tries again later.
    pub(crate) async fn run(self, database: Database, journal: Arc<Journal>, health: Arc<Health>, peers: Arc<Peers>) {
        let around = Surroundings { peers, journal, health };
        let mut session: Option<RedeliverySession> = None;
        loop {
            let pause = match redeliver_all(&database, &mut session, &around).await {
                Ok(pause) => pause,
                Err(error) => {
                    around.journal.note_loop_failure(&error);
                    around.health.note_failure(BackgroundLoop::Redelivery, one_line(&error));
                    session = None;
                    LONGEST_PAUSE
                }
            };
            // A timeout is no error: it is time for the next run.
            let _ = tokio::time::timeout(pause, self.0.notified()).await;
        }
    }
}

/// Redelivers due messages and deletes expired ones. Redelivery goes first, and again after each batch of deletions. Returns how long to
/// pause.
async fn redeliver_all(
    database: &Database,
    session: &mut Option<RedeliverySession>,
    around: &Surroundings,
) -> Result<Duration, DatabaseError> {
    if session.as_ref().is_none_or(|open| open.client.is_closed()) {
        *session = RedeliverySession::open(database).await?;
    }
    // The tables may not exist yet.
    let Some(session) = session else {
        around.health.note_round(BackgroundLoop::Redelivery);
        return Ok(LONGEST_PAUSE);
    };
    session.redeliver_due(around).await?;
    session.delete_expired(around).await?;
    session.pause().await
}

impl RedeliverySession {
    pub(super) async fn open(database: &Database) -> Result<Option<RedeliverySession>, DatabaseError> {
        let client = database.connect_in_background().await?;
        let there = client.query_one("SELECT to_regclass('lost_lease') IS NOT NULL", &[]).await?;
        if !there.get::<_, bool>(0) {
            return Ok(None);
        }
        let due = include_str!("redeliver.sql").replace("{backoff_ms}", &backoff_ms("due"));
        let [due, first, next] = [&due, FIRST, NEXT].map(|text| text.replace("{in_scan}", IN_SCAN));
        let (due, first, next) =
            (client.prepare(&due).await?, client.prepare(&first).await?, client.prepare(&next).await?);
        let (expired, delete_expired) = (client.prepare(EXPIRED).await?, client.prepare(DELETE_EXPIRED).await?);
        let (aside, next_expiry) = (SetAside::default(), Instant::now());
        let statements = RedeliverySession {
            client,
            due,
            first,
            expired,
            delete_expired,
            next,
            begin_ms: 0,
            full_scan_ms: 0,
            full_scan_after_ms: FULL_SCAN_EVERY_MS,
            aside,
            next_expiry,
        };
        Ok(Some(statements))
    }

    /// Handles all messages that are due. If a batch fails because of its rows, smaller batches find the message that caused the error.
    async fn redeliver_due(&mut self, around: &Surroundings) -> Result<(), DatabaseError> {
        let mut limit = BATCH;
        // Only here, so that each locked queue is tried once before the messages of others are, however many are locked.
        self.aside.end_pauses();
        loop {
            match self.redeliver_batch(limit, around).await {
                // Other messages nearby may also be refused, so the batches grow slowly.
                Ok(true) => limit = (2 * limit).min(BATCH),
                Ok(false) => return Ok(()),
                Err(error) if error.is_about_rows() && limit > 1 => limit /= 2,
                Err(error) if error.is_about_rows() => self.set_first_aside(&error, around).await?,
                Err(error) => return Err(error),
            }
            around.health.note_round(BackgroundLoop::Redelivery);
        }
    }

    /// Handles a batch and wakes the polls that wait for its messages. Returns whether more may be due.
    async fn redeliver_batch(&mut self, limit: i64, around: &Surroundings) -> Result<bool, DatabaseError> {
        let mut found = 0;
        let Skipped { returns, burials, messages } = self.aside.current();
        let parameters: [&(dyn ToSql + Sync); 7] =
            [&self.begin_ms, &returns.0, &returns.1, &burials.0, &burials.1, &messages, &limit];
        for row in self.client.query(&self.due, &parameters).await? {
            let messages: i64 = row.get(0);
            found += messages;
            let outcome: &str = row.get(2);
            if let Some(queue) = row.get(3) {
                let target = if outcome == NOT_DEAD_LETTERED { Target::DeadLetterQueue } else { Target::Queue };
                self.aside.add_queue(queue, target, row.get(4));
                continue;
            }
            if let Some(queue) = row.get::<_, Option<&str>>(1) {
                around.peers.notify(queue);
            }
            if let Some(index) = DUE_OUTCOMES.iter().position(|known| *known == outcome) {
                around.journal.count_due(index, messages.unsigned_abs());
            }
        }
        Ok(found >= limit)
    }

    /// Skips the first due message for a while, because the database refuses to move it.
    async fn set_first_aside(&mut self, error: &DatabaseError, around: &Surroundings) -> Result<(), DatabaseError> {
        let Skipped { returns, burials, messages } = self.aside.current();
        let parameters: [&(dyn ToSql + Sync); 6] =
            [&self.begin_ms, &returns.0, &returns.1, &burials.0, &burials.1, &messages];
        for row in self.client.query(&self.first, &parameters).await? {
            let (queue, id): (i32, i64) = (row.get(0), row.get(1));
            self.aside.add_message(id);
            around.journal.note_stuck_message(queue, id, &one_line(error));
        }
        Ok(())
    }

    /// Deletes expired messages in batches. This is not urgent, because fetches do not return expired messages.
    async fn delete_expired(&mut self, around: &Surroundings) -> Result<(), DatabaseError> {
        while Instant::now() >= self.next_expiry {
            let began = Instant::now();
            let rows = self.client.query(&self.expired, &[&self.begin_ms, &EXPIRED_BATCH]).await?;
            // A scan past many dead rows is slow, so the pause grows with the duration of the scan.
            let pause = if rows.is_empty() { LONGEST_PAUSE.max(began.elapsed() * 10) } else { Duration::ZERO };
            self.next_expiry = Instant::now() + pause;
            let places: Vec<&str> = rows.iter().map(|row| row.get(0)).collect();
            let mut deleted = 0;
            for piece in places.chunks(usize::try_from(BATCH).unwrap_or(1)) {
                let removed = self.client.execute(&self.delete_expired, &[&piece]).await?;
                around.journal.count_due(DELETED, removed);
                deleted += removed;
                self.redeliver_due(around).await?;
            }
            around.health.note_round(BackgroundLoop::Redelivery);
            if deleted == 0 {
                // No message has expired, or other services are deleting the expired ones.
                self.next_expiry = Instant::now() + LONGEST_PAUSE.max(pause);
            }
        }
        around.health.note_round(BackgroundLoop::Redelivery);
        Ok(())
    }

    async fn pause(&mut self) -> Result<Duration, DatabaseError> {
        let Skipped { returns, burials, messages } = self.aside.current();
        let parameters: [&(dyn ToSql + Sync); 6] =
            [&self.begin_ms, &returns.0, &returns.1, &burials.0, &burials.1, &messages];
        let began = Instant::now();
        let row = self.client.query_one(&self.next, &parameters).await?;
        let (now_ms, due_ms, has_late): (i64, Option<i64>, bool) = (row.get(0), row.get(1), row.get(2));
        if self.begin_ms == 0 {
            let pause = full_scan_pause(has_late, began.elapsed());
            (self.full_scan_ms, self.full_scan_after_ms) = (now_ms, pause);
            self.begin_ms = if pause == 0 { 0 } else { now_ms - OVERLAP_MS };
        } else if !(0..self.full_scan_after_ms).contains(&(now_ms - self.full_scan_ms)) {
            self.begin_ms = 0;
        }
        let due = due_ms.map_or(LONGEST_PAUSE, |ms| Duration::from_millis(u64::try_from(ms).unwrap_or(0)));
        let shortest = if self.begin_ms == 0 { FULL_SCAN_PAUSE } else { SHORTEST_PAUSE };
        let longest = self.aside.pause().unwrap_or(LONGEST_PAUSE);
        Ok(due.clamp(shortest, longest))
    }
}

/// How long after a full scan the next one is due, in milliseconds. A late message must return soon after the lock has ended, but full scans
/// past many dead rows must not delay other messages.
fn full_scan_pause(has_late: bool, duration: Duration) -> i64 {
    match has_late {
        false => FULL_SCAN_EVERY_MS,
        true if duration <= CHEAP_SCAN => 0,
        true => i64::try_from((duration * FULL_SCAN_PAUSES).as_millis()).unwrap_or(i64::MAX).min(FULL_SCAN_EVERY_MS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_scans_are_frequent_only_while_they_are_cheap_and_leave_a_late_message() {
        let pauses = [1, 5, 6, 100, 1000].map(|ms| full_scan_pause(true, Duration::from_millis(ms)));
        assert_eq!(pauses, [0, 0, 600, 10_000, FULL_SCAN_EVERY_MS]);
        assert_eq!(full_scan_pause(false, Duration::from_millis(1)), FULL_SCAN_EVERY_MS);
    }
}
