//! Reads low-water marks, beside the path of requests and over a connection of its own. It records the last drawn id, waits until all
//! transactions that can have drawn one of these ids have ended, and then finds the oldest message. Most transactions are short, so it
//! compares transaction ids first. Beside a long transaction of another program, it looks for those that can have stored messages.

use crate::database::background_client::BackgroundClient;
use crate::database::connection::Database;
use crate::database::error::{DatabaseError, one_line};
use crate::database::low_water::{LowWaterMark, LowWaterMarks, SCAN_FROM, UNKNOWN};
use crate::observe::journal::Journal;
use crate::path::health::{BackgroundLoop, Health};
use clock::{Clock, Nanos};
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::Statement;

/// Pause between two rounds while messages are taken out.
const PAUSE: Duration = Duration::from_millis(50);
/// Pause after a round that failed.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// A round without anything to read.
const IDLE_ROUND: Duration = Duration::from_secs(10);
/// Pairs in one round.
const PAIRS_PER_ROUND: usize = 1000;

/// The last drawn id. A transaction that draws an id has a transaction id by then.
const LAST_ID: &str = "SELECT CASE WHEN is_called THEN last_value ELSE last_value - 1 END FROM message_id";
/// A transaction id above all of those, if it is assigned afterwards.
const TRANSACTION_ID: &str = "SELECT pg_current_xact_id()::text::bigint";

/// Transactions that have locked the table of messages to change it, all or those of a list. Every statement that stores messages locks the
/// table before it draws an id, until its transaction has ended and is visible.
const WRITERS: &str = "SELECT virtualtransaction FROM pg_locks
    WHERE locktype = 'relation' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND relation = 'message'::regclass AND mode = 'RowExclusiveLock' AND granted
        AND ($1::text[] IS NULL OR virtualtransaction = ANY ($1))";

/// The last drawn id, and which transactions can have drawn ids up to it.
#[derive(Clone, Debug)]
struct DrawnIds {
    last_id: i64,
    /// Above the ids of all these transactions.
    transaction_id: i64,
    /// Those of them that have not ended, if a transaction up to `transaction_id` ran for longer than a round.
    writers: Option<Vec<String>>,
}

pub(super) struct Reader {
    pub(super) client: BackgroundClient,
    end_era: Statement,
    read_marks: Statement,
    drawn: DrawnIds,
    /// When the connection was made.
    connected: Nanos,
}

/// Reads marks while messages are taken out, until it is dropped. Not started without a database.
pub(crate) async fn run(
    all: Arc<LowWaterMarks>,
    database: Database,
    clock: Clock,
    journal: Arc<Journal>,
    health: Arc<Health>,
) {
    let mut reader: Option<Reader> = None;
    loop {
        // Without anything to read, the round is empty.
        if !all.has_stale() && tokio::time::timeout(IDLE_ROUND, all.stale.notified()).await.is_err() {
            health.note_round(BackgroundLoop::LowWater);
            continue;
        }
        match round(&all, &database, &clock, &mut reader).await {
            Ok(is_read) => {
                // A connection alone does not end a failure of the statements.
                if is_read {
                    health.note_round(BackgroundLoop::LowWater);
                }
                tokio::time::sleep(PAUSE).await;
            }
            Err(error) => {
                journal.note_loop_failure(&error);
                health.note_failure(BackgroundLoop::LowWater, one_line(&error));
                reader = None;
                tokio::time::sleep(RETRY_AFTER).await;
            }
        }
    }
}

/// Returns whether it has read marks, or found that it is too early; otherwise it has made a connection.
async fn round(
    all: &LowWaterMarks,
    database: &Database,
    clock: &Clock,
    reader: &mut Option<Reader>,
) -> Result<bool, DatabaseError> {
    let Some(reader) = reader.as_mut().filter(|open| !open.client.is_closed()) else {
        *reader = Some(Reader::open(database, clock).await?);
        return Ok(false);
    };
    let mut pairs = all.stale();
    pairs.truncate(PAIRS_PER_ROUND);
    // As in `LowWaterMarks::start_ids`: a mark from before the connection, or from another server, can refer to ids that are drawn again.
    let server = reader.client.server();
    let is_other = |mark: &LowWaterMark| mark.read_at <= reader.connected || mark.server != server;
    for (_, _, mark) in pairs.iter_mut().filter(|(_, _, mark)| is_other(mark)) {
        *mark = UNKNOWN;
    }
    let read_at = clock.now();
    let mut heads = reader.read_marks(&pairs, false).await?;
    if heads.is_none() && reader.have_writers_ended().await? {
        // With a new snapshot, which sees what they have stored.
        heads = reader.read_marks(&pairs, true).await?;
    }
    // A transaction that can have drawn an id is still running, or the tables were replaced meanwhile: try again in the next round.
    let Some(heads) = heads.filter(|_| !reader.client.is_closed()) else { return Ok(true) };
    let mark = |found: Option<(i32, i32, Option<i64>)>| {
        found.map(|(queue_id, era, head)| {
            let low = head.unwrap_or(i64::MAX).min(reader.drawn.last_id + 1);
            LowWaterMark { server, queue_id, era, low, read_at }
        })
    };
    all.store(&pairs, heads.into_iter().map(mark));
    reader.drawn = read_drawn_ids(&reader.client).await?;
    Ok(true)
}

impl Reader {
    pub(super) async fn open(database: &Database, clock: &Clock) -> Result<Reader, DatabaseError> {
        let client = database.connect_in_background().await?;
        let connected = clock.now();
        let end_era = client.prepare(include_str!("end_era.sql")).await?;
        let read_marks = client.prepare(&include_str!("low_water.sql").replace("{scan_from}", SCAN_FROM)).await?;
        let drawn = read_drawn_ids(&client).await?;
        Ok(Reader { client, end_era, read_marks, drawn, connected })
    }

    /// Whether all transactions that can have drawn an id up to the last one have ended, when others with a transaction id have not.
    async fn have_writers_ended(&mut self) -> Result<bool, DatabaseError> {
        let rows = self.client.query(WRITERS, &[&self.drawn.writers]).await?;
        self.drawn.writers = Some(rows.iter().map(|row| row.get(0)).collect());
        Ok(rows.is_empty())
    }

    /// For each pair the queue's id, its era and its oldest message; none if the queue does not exist. None at all if a transaction up to
    /// the recorded id is still running, unless it is known that the `writers` among them have ended.
    #[allow(clippy::type_complexity, reason = "it is taken apart at once")]
    async fn read_marks(
        &self,
        pairs: &[(String, String, LowWaterMark)],
        have_writers_ended: bool,
    ) -> Result<Option<Vec<Option<(i32, i32, Option<i64>)>>>, DatabaseError> {
        let queues: Vec<&str> = pairs.iter().map(|(queue, _, _)| queue.as_str()).collect();
        self.client.execute(&self.end_era, &[&queues]).await?;
        let receivers: Vec<&str> = pairs.iter().map(|(_, receiver, _)| receiver.as_str()).collect();
        let ids: Vec<i32> = pairs.iter().map(|(_, _, mark)| mark.queue_id).collect();
        let eras: Vec<i32> = pairs.iter().map(|(_, _, mark)| mark.era).collect();
        let lows: Vec<i64> = pairs.iter().map(|(_, _, mark)| mark.low).collect();
        // Every snapshot's xmin is larger.
        let transaction_id = if have_writers_ended { -1 } else { self.drawn.transaction_id };
        let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 6] =
            [&transaction_id, &queues, &receivers, &ids, &eras, &lows];
        let rows = self.client.query(&self.read_marks, &parameters).await?;
        if rows.iter().any(|row| !row.get::<_, bool>(0)) {
            return Ok(None);
        }
        let found = |row: &tokio_postgres::Row| {
            row.get::<_, Option<i32>>(1).map(|queue_id| (queue_id, row.get::<_, i32>(2), row.get(3)))
        };
        Ok(Some(rows.iter().map(found).collect()))
    }
}

/// The order matters: the second query must start after the first has its result.
async fn read_drawn_ids(client: &BackgroundClient) -> Result<DrawnIds, DatabaseError> {
    let last_id = client.query_one(LAST_ID, &[]).await?.get(0);
    let transaction_id = client.query_one(TRANSACTION_ID, &[]).await?.get(0);
    Ok(DrawnIds { last_id, transaction_id, writers: None })
}
