//! Finds low-waters, beside the path of requests and over a connection of its own: notes how far ids have been drawn, waits until all
//! who may have drawn them have ended, and looks where the messages begin.

use crate::database::connection::Database;
use crate::database::error::chain;
use crate::database::low_water::{KNOWN_FROM, LowWaters, Mark, UNKNOWN};
use crate::observe::journal::Journal;
use clock::{Clock, Nanos};
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::{Client, Error, Statement};

/// Time between two looks while messages are taken out.
const EVERY: Duration = Duration::from_millis(50);
/// Pairs of one look.
const PIECE: usize = 1000;

/// The last id that was drawn. Who draws one has a transaction's number by then.
const LAST_ID: &str = "SELECT CASE WHEN is_called THEN last_value ELSE last_value - 1 END FROM message_id";
/// A transaction's number that is above all of those, if it is taken afterwards.
const NUMBER: &str = "SELECT pg_current_xact_id()::text::bigint";

/// How far ids had been drawn, and a number above those of all who had drawn them.
#[derive(Clone, Copy, Debug)]
struct Note {
    last_id: i64,
    number: i64,
}

struct Looker {
    client: Client,
    end_era: Statement,
    look: Statement,
    note: Note,
    /// When the connection was made.
    connected: Nanos,
}

/// Finds marks while messages are taken out, until it is dropped. Without a database there are none.
pub(crate) async fn run(all: Arc<LowWaters>, database: Database, clock: Clock, journal: Arc<Journal>) {
    let mut looker: Option<Looker> = None;
    loop {
        if !all.is_worthwhile() {
            all.worthwhile.notified().await;
        }
        if let Err(error) = round(&all, &database, &clock, &mut looker).await {
            journal.note_connect_failure(&chain(&error));
            looker = None;
        }
        tokio::time::sleep(EVERY).await;
    }
}

async fn round(all: &LowWaters, database: &Database, clock: &Clock, looker: &mut Option<Looker>) -> Result<(), Error> {
    let Some(looker) = looker.as_mut().filter(|open| !open.client.is_closed()) else {
        *looker = Some(Looker::open(database, clock).await?);
        return Ok(());
    };
    let mut pairs = all.worthwhile();
    pairs.truncate(PIECE);
    // As in `LowWaters::begin`: a mark from before the connection may speak of ids that are drawn again.
    for (_, _, mark) in pairs.iter_mut().filter(|(_, _, mark)| mark.made <= looker.connected) {
        *mark = UNKNOWN;
    }
    let made = clock.now();
    let rows = looker.look(&pairs).await?;
    // Somebody who may have drawn an id is still at it: later.
    let Some(heads) = rows else { return Ok(()) };
    let mark = |found: Option<(i32, i32, Option<i64>)>| {
        found.map(|(queue_id, era, head)| {
            let low = head.unwrap_or(i64::MAX).min(looker.note.last_id + 1);
            Mark { queue_id, era, low, made }
        })
    };
    all.keep(&pairs, heads.into_iter().map(mark));
    looker.note = note(&looker.client).await?;
    Ok(())
}

impl Looker {
    async fn open(database: &Database, clock: &Clock) -> Result<Looker, Error> {
        let client = database.connect_bare().await?;
        let connected = clock.now();
        let end_era = client.prepare(include_str!("end_era.sql")).await?;
        let look = client.prepare(&include_str!("low_water.sql").replace("{known_from}", KNOWN_FROM)).await?;
        let note = note(&client).await?;
        Ok(Looker { client, end_era, look, note, connected })
    }

    /// For each pair its queue's id and era, and the oldest message; none when the queue is not there. None at all when what was noted
    /// is not settled.
    #[allow(clippy::type_complexity, reason = "it is taken apart at once")]
    async fn look(
        &self,
        pairs: &[(String, String, Mark)],
    ) -> Result<Option<Vec<Option<(i32, i32, Option<i64>)>>>, Error> {
        let queues: Vec<&str> = pairs.iter().map(|(queue, _, _)| queue.as_str()).collect();
        self.client.execute(&self.end_era, &[&queues]).await?;
        let receivers: Vec<&str> = pairs.iter().map(|(_, receiver, _)| receiver.as_str()).collect();
        let ids: Vec<i32> = pairs.iter().map(|(_, _, mark)| mark.queue_id).collect();
        let eras: Vec<i32> = pairs.iter().map(|(_, _, mark)| mark.era).collect();
        let lows: Vec<i64> = pairs.iter().map(|(_, _, mark)| mark.low).collect();
        let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 6] =
            [&self.note.number, &queues, &receivers, &ids, &eras, &lows];
        let rows = self.client.query(&self.look, &parameters).await?;
        if rows.iter().any(|row| !row.get::<_, bool>(0)) {
            return Ok(None);
        }
        let found = |row: &tokio_postgres::Row| {
            row.get::<_, Option<i32>>(1).map(|queue_id| (queue_id, row.get::<_, i32>(2), row.get(3)))
        };
        Ok(Some(rows.iter().map(found).collect()))
    }
}

/// In this order: the first answer is there before the second question.
async fn note(client: &Client) -> Result<Note, Error> {
    let last_id = client.query_one(LAST_ID, &[]).await?.get(0);
    let number = client.query_one(NUMBER, &[]).await?.get(0);
    Ok(Note { last_id, number })
}
