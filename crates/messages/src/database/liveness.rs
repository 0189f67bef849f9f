//! Checks whether the server still runs a statement whose reply has not arrived. A network can silently drop the packets of a connection
//! that stays open. Then the reply never arrives, and only the server knows that the statement has finished. A commit can wait for a
//! synchronous standby for ever. The check uses a connection of its own.

use crate::database::connection_driver::Progress;
use crate::database::connector::Connector;
use crate::database::error::DatabaseError;
use crate::database::table_state::TableState;
use crate::observe::limits::Limit;
use std::fmt;
use std::pin::pin;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};
use tokio_postgres::{Client, SimpleQueryMessage};

/// If a statement takes longer than this, its state on the server is checked, and again after each further such time.
const LOOK_UP_EVERY: Duration = Duration::from_secs(1);
/// The shortest pause between two checks of a commit that waits for a standby.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
/// Timeout of the connection for checks, and of each of its statements.
const LOOK_UP_WITHIN: Duration = Duration::from_secs(2);
/// Pause between two attempts to open the connection for checks.
const RETRY_AFTER: Duration = Duration::from_millis(500);
/// Attempts to terminate a process, and the pause between them. A process that is not terminated keeps its locks until the server notices
/// that the connection is gone.
const TERMINATIONS: u32 = 60;
const TERMINATE_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// The server cancels a statement after half of this time. If the server has not answered a check for longer, it is
/// unreachable.
const SILENT_FOR: Duration = Duration::from_secs(60);

/// A statement of this size can take a second to reach the server. The kernel takes all of it at once, so its progress is not visible.
const SENT_PER_SECOND_BYTES: usize = 512 << 10;

/// `backend_start` distinguishes processes that have the same number at different times, or on different servers.
const OWN_PROCESS: &str = "SELECT pid, extract(epoch FROM backend_start)::text,
    CASE WHEN pg_is_in_recovery() THEN 0 ELSE ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer END,
    (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint
    FROM pg_stat_activity WHERE pid = pg_backend_pid()";
/// `ClientWrite`: the process waits for a connection that takes no more bytes. `SyncRep`: it waits for a synchronous standby.
const STATE: &str = "SELECT state = 'disabled', state = 'active' AND wait_event IS DISTINCT FROM 'ClientWrite',
    extract(epoch FROM query_start)::text, wait_event IS NOT DISTINCT FROM 'SyncRep',
    CASE WHEN wait_event_type = 'Lock' THEN wait_event END,
    CASE WHEN wait_event_type = 'Lock' THEN array_to_string(pg_blocking_pids(pid), ', ') END
    FROM pg_stat_activity WHERE pid = $1 AND extract(epoch FROM backend_start)::text = $2";
const TERMINATE: &str = "SELECT pg_terminate_backend(pid)
    FROM pg_stat_activity WHERE pid = $1 AND extract(epoch FROM backend_start)::text = $2";
/// The processes whose locks stop a send with a key, without those of single rows. The statement reads `queue` and writes to the others.
const TABLE_LOCKS: &str = "SELECT string_agg(DISTINCT pid::text, ', ') FROM pg_locks
    WHERE locktype = 'relation' AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND pid <> pg_backend_pid()
        AND (mode = 'AccessExclusiveLock' AND relation = to_regclass('queue')
            OR mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock') AND relation IN (
                to_regclass('idempotency_key'), to_regclass('message'), to_regclass('invisible_message')
            ))";
/// Identifies a server and its history. Another server, or the same after a restart or promotion, can draw the same ids again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServerId {
    /// The timeline, which every promotion increments. 0: it is a standby.
    pub(crate) timeline: i32,
    /// When the server started, in microseconds since 1970.
    pub(crate) started_us: i64,
}

/// The server's process of one connection.
#[derive(Clone, Debug)]
pub(crate) struct ServerProcess {
    pid: i32,
    started: String,
    pub(crate) server: ServerId,
    /// Of the connection to it.
    progress: Progress,
}

/// A lock that another process of the server holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LockWait {
    /// PostgreSQL's name of the type, such as `relation` for the lock of a table.
    kind: String,
    /// The processes that hold the lock, or wait for it in front of this one.
    processes: String,
}

/// The state of the server's process of a connection.
#[derive(Debug, PartialEq, Eq)]
enum Activity {
    /// It runs a statement, and may wait for a lock.
    Running(Option<LockWait>),
    /// The statement that began at this time has finished, and its commit waits for a synchronous standby.
    Replicating(Option<String>),
    /// It has finished the statement that began at this time, and waits for the next one.
    Waiting(Option<String>),
    /// The process does not exist.
    Gone,
    /// The server does not answer, or does not track it.
    Unknown,
}

/// Checks the state of processes on the server, over a connection that is opened when it is first needed.
#[derive(Clone, Debug)]
pub(crate) struct Liveness {
    connector: Connector,
    look_up: Arc<Mutex<Option<LookUp>>>,
    /// The start of the latest statement whose reply was lost.
    silent_since: Arc<std::sync::Mutex<Option<Instant>>>,
    /// Increases when the tables have been replaced. Connections of before are then replaced as well.
    epoch: Arc<AtomicU64>,
    /// How long a commit can wait for a synchronous standby.
    replication_timeout: Duration,
}

/// The connection.
#[derive(Debug)]
enum LookUp {
    Open(Client),
    /// When the attempt failed, and why, if the server refused the connection.
    Failed(Instant, Option<String>),
}

impl ServerProcess {
    /// The server process of this connection.
    pub(crate) async fn of(client: &Client, progress: Progress) -> Result<ServerProcess, DatabaseError> {
        let messages = client.simple_query(OWN_PROCESS).await?;
        let row = messages.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        let column = |index: usize| row.and_then(|row| row.get(index)).unwrap_or_default();
        let server = ServerId { timeline: number(column(2))?, started_us: number(column(3))? };
        Ok(ServerProcess { pid: number(column(0))?, started: column(1).to_string(), server, progress })
    }
}

impl LockWait {
    /// The lock of a table that a send with a key has waited for. The wait is too short for a check of running statements to see it.
    pub(crate) async fn of_tables(client: &Client) -> Result<Option<LockWait>, tokio_postgres::Error> {
        let processes: Option<String> = client.query_one(TABLE_LOCKS, &[]).await?.try_get(0)?;
        Ok(processes.map(|processes| LockWait { kind: "relation".into(), processes }))
    }

    /// Whether it is a lock that programs take by a number, such as the fence of the schema.
    pub(crate) fn is_advisory(&self) -> bool {
        self.kind == "advisory"
    }

    #[cfg(test)]
    pub(crate) fn advisory(processes: &str) -> LockWait {
        LockWait { kind: "advisory".into(), processes: processes.into() }
    }

    /// Whether only some rows are locked. Statements about others are not affected.
    pub(crate) fn is_for_rows(&self) -> bool {
        ["transactionid", "tuple", "spectoken"].contains(&self.kind.as_str())
    }
}

impl fmt::Display for LockWait {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LockWait { kind, processes } = self;
        write!(formatter, "its statement waits for a lock ({kind}) of the server process {processes}")
    }
}

/// A number in a reply. PostgreSQL returns no other text here.
fn number<N: FromStr>(text: &str) -> Result<N, DatabaseError> {
    text.parse().map_err(|_| DatabaseError::Silent)
}

impl Liveness {
    /// Checks processes on the server that this connector reaches.
    pub(super) fn new(connector: Connector, replication_timeout: Duration) -> Liveness {
        let (look_up, silent_since, epoch) = Default::default();
        Liveness { connector, look_up, silent_since, epoch, replication_timeout }
    }

    /// Runs work whose statements run in this process of the server. If the process has finished but its reply does not arrive,
    /// or its commit waits too long for a standby, cancels the work and terminates the process. The outcome of the work is then unknown.
    pub(crate) async fn attend<W: Future>(&self, process: &ServerProcess, work: W) -> Result<W::Output, DatabaseError> {
        self.attend_for(SILENT_FOR, 0, process, &mut |_| {}, work).await
    }

    /// The same for work that sends this many bytes. Reports every second that the server still runs a statement, with the lock that it waits for.
    pub(crate) async fn attend_and_report<W: Future>(
        &self,
        sent_bytes: usize,
        process: &ServerProcess,
        report: &mut (dyn FnMut(Option<LockWait>) + Send),
        work: W,
    ) -> Result<W::Output, DatabaseError> {
        self.attend_for(SILENT_FOR, sent_bytes, process, report, work).await
    }

    /// The same for work that may run for longer, as long as the server says that it runs.
    pub(super) async fn attend_long<W: Future>(
        &self,
        process: &ServerProcess,
        report: &mut (dyn FnMut(Option<LockWait>) + Send),
        work: W,
    ) -> Result<W::Output, DatabaseError> {
        self.attend_for(Duration::MAX, 0, process, report, work).await
    }

    pub(super) async fn attend_for<W: Future>(
        &self,
        longest: Duration,
        sent_bytes: usize,
        process: &ServerProcess,
        report: &mut (dyn FnMut(Option<LockWait>) + Send),
        work: W,
    ) -> Result<W::Output, DatabaseError> {
        let mut work = pin!(work);
        let began = Instant::now();
        let sending_s = sent_bytes as f64 / SENT_PER_SECOND_BYTES as f64;
        let mut seen_running = began;
        let (mut before, mut transferred) = (Activity::Unknown, process.progress.count());
        // The start of the statement whose commit waits for a standby, and when a check first found that. Each statement of a batch has
        // a commit of its own.
        let mut replicating: Option<(Option<String>, Instant)> = None;
        loop {
            let left = |since: &Instant| self.replication_timeout.saturating_sub(since.elapsed()).max(SHORTEST_PAUSE);
            let pause = replicating.as_ref().map_or(LOOK_UP_EVERY, |(_, since)| left(since).min(LOOK_UP_EVERY));
            if let Ok(done) = timeout(pause, &mut work).await {
                return Ok(done);
            }
            let mut activity = tokio::select! {
                biased;
                done = &mut work => return Ok(done),
                activity = self.activity(process) => activity,
            };
            if !matches!(activity, Activity::Replicating(_) | Activity::Unknown) {
                replicating = None;
            }
            // A reply can still be on its way, so two checks must find the same statement finished, a second apart. A process that sends a
            // large reply counts as finished, and one that receives a large statement as waiting. While bytes arrive, and until a large
            // statement must have arrived, the network is only slow.
            let count = process.progress.count();
            let is_silent =
                std::mem::replace(&mut transferred, count) == count && began.elapsed().as_secs_f64() >= sending_s;
            let is_lost = match &mut activity {
                Activity::Running(wait) => {
                    report(wait.take());
                    seen_running = Instant::now();
                    began.elapsed() >= longest
                }
                Activity::Unknown => began.elapsed() >= longest || seen_running.elapsed() >= SILENT_FOR,
                Activity::Waiting(_) => activity == before && is_silent || began.elapsed() >= longest,
                Activity::Gone => true,
                Activity::Replicating(statement) => {
                    let since = match &replicating {
                        Some((known, since)) if known == statement => *since,
                        _ => Instant::now(),
                    };
                    replicating = Some((statement.take(), since));
                    let longest = longest.max(self.replication_timeout);
                    if since.elapsed() >= self.replication_timeout || began.elapsed() >= longest {
                        tokio::spawn(self.clone().terminate(process.clone()));
                        return Err(DatabaseError::Unreplicated);
                    }
                    false
                }
            };
            if is_lost {
                *self.silent_since.lock().unwrap_or_else(PoisonError::into_inner) = Some(began);
                tokio::spawn(self.clone().terminate(process.clone()));
                return Err(DatabaseError::Silent);
            }
            before = activity;
        }
    }

    /// Whether a connection that last received a reply at this time may be silent, because another connection has become
    /// silent since.
    pub(crate) fn is_suspect(&self, answered: Instant) -> bool {
        self.silent_since.lock().unwrap_or_else(PoisonError::into_inner).is_some_and(|since| answered < since)
    }

    /// The number of times that the tables have been replaced. A connection remembers the number from before it was made.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Relaxed)
    }

    /// Whether the tables have been replaced since a connection was made. Low-water marks and the fence of before do not count.
    pub(crate) fn is_outdated(&self, epoch: u64) -> bool {
        self.epoch() != epoch
    }

    /// The tables have been replaced.
    pub(super) fn end_epoch(&self) {
        self.epoch.fetch_add(1, Ordering::Relaxed);
    }

    /// The state of the database and of the tables.
    pub(super) async fn check_tables(&self) -> Result<TableState, DatabaseError> {
        let state = self.look_up(async |client| TableState::read(client).await).await?;
        if state.read_only.is_some() {
            // A new connection may reach another server, which is writable.
            *self.look_up.lock().await = None;
        }
        Ok(state)
    }

    async fn activity(&self, process: &ServerProcess) -> Activity {
        let rows = self.look_up(async |client| client.query(STATE, &[&process.pid, &process.started]).await).await;
        match rows.as_deref() {
            Err(_) => Activity::Unknown,
            Ok([]) => Activity::Gone,
            Ok([row, ..]) => match (row.get::<_, Option<bool>>(0), row.get::<_, Option<bool>>(1)) {
                (Some(false), Some(true)) if row.get(3) => Activity::Replicating(row.get(2)),
                (Some(false), Some(true)) => {
                    let (kind, processes) = (row.get::<_, Option<String>>(4), row.get::<_, Option<String>>(5));
                    Activity::Running(kind.zip(processes).map(|(kind, processes)| LockWait { kind, processes }))
                }
                (Some(false), _) => Activity::Waiting(row.get(2)),
                _ => Activity::Unknown,
            },
        }
    }

    /// Terminates the process of a connection that was given up. Otherwise the server might keep the process, and the locks
    /// of its statement, for hours.
    pub(super) async fn terminate(self, process: ServerProcess) {
        for _ in 0..TERMINATIONS {
            // After a failover, the process does not exist on the new server.
            if self
                .look_up(async |client| client.query(TERMINATE, &[&process.pid, &process.started]).await)
                .await
                .is_ok()
            {
                return;
            }
            tokio::time::sleep(TERMINATE_AGAIN_AFTER).await;
        }
        self.connector.limits.reach(Limit::Terminations);
    }

    /// Runs a statement on the connection for checks.
    async fn look_up<T>(
        &self,
        statement: impl AsyncFnOnce(&Client) -> Result<T, tokio_postgres::Error>,
    ) -> Result<T, DatabaseError> {
        let mut state = self.look_up.lock().await;
        let client = match state.take() {
            Some(LookUp::Open(client)) if !client.is_closed() => client,
            // Many connections can be silent at the same time. Their checks wait here for each other.
            Some(LookUp::Failed(at, refusal)) if at.elapsed() < RETRY_AFTER => {
                *state = Some(LookUp::Failed(at, refusal.clone()));
                return Err(refusal.map_or(DatabaseError::Silent, DatabaseError::Refused));
            }
            _ => match self.connector.connect_alone(LOOK_UP_WITHIN).await {
                Ok((client, _)) => client,
                Err(error) => {
                    if matches!(error, DatabaseError::Silent) {
                        self.connector.limits.reach(Limit::Checks);
                    }
                    *state = Some(LookUp::Failed(Instant::now(), error.refusal()));
                    return Err(error);
                }
            },
        };
        match timeout(LOOK_UP_WITHIN, statement(&client)).await {
            Ok(result) => {
                *state = Some(LookUp::Open(client));
                Ok(result?)
            }
            Err(_) => {
                self.connector.limits.reach(Limit::Checks);
                Err(DatabaseError::Silent)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With paused time, the clock advances whenever all tasks wait.
    #[tokio::test(start_paused = true)]
    async fn a_process_that_cannot_be_terminated_is_counted() {
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let connector = Connector::parse(&format!("host=127.0.0.1 port={} user=me", closed.port()), None).unwrap();
        let liveness = Liveness::new(connector, Duration::from_secs(10));
        let (server, progress) = Default::default();
        liveness.clone().terminate(ServerProcess { pid: 1, started: String::new(), server, progress }).await;
        assert_eq!(liveness.connector.limits.reached()[Limit::Terminations as usize], 1);
    }
}
