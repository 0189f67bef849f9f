//! Moves what is due, a piece at a time, beside the path of requests: messages whose lease or delay has ended go back to their queue or
//! become dead letters, and expired ones go away. Only the database's clock counts. Several services may do this at once.

use crate::database::connection::Database;
use crate::database::error::chain;
use crate::database::peers::Neighbours;
use crate::observe::journal::Journal;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio_postgres::{Client, Error, Statement};

/// It looks at least so often: another service may have brought something that is due soon.
const LONGEST: Duration = Duration::from_millis(500);
/// And at most so often, when what is due is in other hands.
const SHORTEST: Duration = Duration::from_millis(5);
/// Rows of one statement.
const PIECE: i64 = 500;
/// For so long looks begin where the last whole one ended: what is before has been moved, and only dead rows lie there.
const WHOLE_EVERY_MS: i64 = 30_000;
/// Longer than any statement takes, so that what was under way during the last whole look is after it.
const OVERLAP_MS: i64 = 60_000;

/// Places in `MOVES` of the journal.
const TO_QUEUE: usize = 0;
const TO_DEAD_LETTERS: usize = 1;
const NOWHERE: usize = 2;

const EXPIRED: &str = "DELETE FROM message WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM message WHERE expires_at <= now() AND expires_at > to_timestamp($1::bigint / 1000.0)
    ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED))";

/// The database's time, and how long until something is due, in milliseconds.
const NEXT: &str = "SELECT (extract(epoch FROM now()) * 1000)::bigint,
    (SELECT ceil(extract(epoch FROM min(due_at) - now()) * 1000)::bigint
     FROM held WHERE due_at > to_timestamp($1::bigint / 1000.0))";

/// Wakes the mover.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mover(Arc<Notify>);

/// A connection of its own.
struct Session {
    client: Client,
    due: Statement,
    expired: Statement,
    next: Statement,
    /// Where to begin, in milliseconds since 1970; 0 for a whole look.
    begin_ms: i64,
    /// When the last whole look ended.
    whole_ms: i64,
}

impl Mover {
    /// Something may be due now, or soon.
    pub(crate) fn wake(&self) {
        self.0.notify_one();
    }

    /// Moves until it is dropped. A database that is down is tried again later.
    pub(crate) async fn run(self, database: Database, journal: Arc<Journal>, neighbours: Arc<Neighbours>) {
        let mut session: Option<Session> = None;
        loop {
            let pause = match look(&database, &mut session, &neighbours, &journal).await {
                Ok(pause) => pause,
                Err(error) => {
                    journal.note_connect_failure(&chain(&error));
                    session = None;
                    LONGEST
                }
            };
            // Errors of timing mean nothing here: it is time, or somebody woke us.
            let _ = tokio::time::timeout(pause, self.0.notified()).await;
        }
    }
}

/// Moves everything that is due. How long to rest afterwards.
async fn look(
    database: &Database,
    session: &mut Option<Session>,
    neighbours: &Neighbours,
    journal: &Journal,
) -> Result<Duration, Error> {
    if session.as_ref().is_none_or(|open| open.client.is_closed()) {
        *session = Session::open(database).await?;
    }
    // The tables may not be there yet.
    let Some(session) = session else { return Ok(LONGEST) };
    while session.piece(neighbours, journal).await? {}
    loop {
        let expired = session.client.execute(&session.expired, &[&session.begin_ms, &PIECE]).await?;
        journal.count_moved(NOWHERE, expired);
        if expired == 0 {
            return session.rest().await;
        }
    }
}

impl Session {
    async fn open(database: &Database) -> Result<Option<Session>, Error> {
        let client = database.connect_bare().await?;
        let there = client.query_one("SELECT to_regclass('send_key') IS NOT NULL", &[]).await?;
        if !there.get::<_, bool>(0) {
            return Ok(None);
        }
        let due = client.prepare(include_str!("redeliver.sql")).await?;
        let (expired, next) = (client.prepare(EXPIRED).await?, client.prepare(NEXT).await?);
        Ok(Some(Session { client, due, expired, next, begin_ms: 0, whole_ms: 0 }))
    }

    /// Moves a piece, and wakes those who wait for it. Whether there may be more.
    async fn piece(&self, neighbours: &Neighbours, journal: &Journal) -> Result<bool, Error> {
        let mut moved = 0;
        for row in self.client.query(&self.due, &[&self.begin_ms, &PIECE]).await? {
            let messages: i64 = row.get(0);
            moved += messages;
            let to = match (row.get::<_, Option<&str>>(1), row.get(2)) {
                (None, _) => NOWHERE,
                (Some(queue), is_dead) => {
                    neighbours.changed(queue);
                    if is_dead { TO_DEAD_LETTERS } else { TO_QUEUE }
                }
            };
            journal.count_moved(to, messages.unsigned_abs());
        }
        Ok(moved >= PIECE)
    }

    async fn rest(&mut self) -> Result<Duration, Error> {
        let row = self.client.query_one(&self.next, &[&self.begin_ms]).await?;
        let (now_ms, due_ms): (i64, Option<i64>) = (row.get(0), row.get(1));
        if self.begin_ms == 0 {
            (self.begin_ms, self.whole_ms) = (now_ms - OVERLAP_MS, now_ms);
        } else if !(0..WHOLE_EVERY_MS).contains(&(now_ms - self.whole_ms)) {
            self.begin_ms = 0;
        }
        let due = due_ms.map_or(LONGEST, |ms| Duration::from_millis(u64::try_from(ms).unwrap_or(0)));
        Ok(due.clamp(SHORTEST, LONGEST))
    }
}
