//! The tables, as numbered steps that are part of the program. Brings a database to the latest step, and refuses programs that cannot use
//! the tables.
//!
//! Every connection that uses the tables holds an advisory lock in shared mode, its fence. The fence has two numbers: the last step that
//! the program knows, and the number of the schema with the tables. Services in other schemas of the database have other fences. Each
//! step states the oldest program that can use the tables after it. Before the step runs, the migration locks the fences of all older
//! programs in exclusive mode. It is refused while such a program is connected. If such a program connects during the step, it waits until
//! the step has finished and is then refused.

use crate::database::error::SchemaError;
use std::time::Duration;
use tokio::time::sleep;
use tokio_postgres::{Client, Transaction};

#[cfg(test)]
mod tests;
mod waiting;

pub(crate) use waiting::SchemaWaits;

/// A change of the tables. A released step is never changed.
#[derive(Debug)]
pub(crate) struct Step {
    text: &'static str,
    /// Programs that know this step or a later one can use the tables after the change.
    oldest_program: usize,
}

/// Every step, in order. Programs of the previous release must be able to work after a new step, unless there is no other way.
pub(crate) const STEPS: &[Step] = &[
    Step { text: include_str!("migrations/0001_queues_and_messages.sql"), oldest_program: 1 },
    Step { text: include_str!("migrations/0002_leases_delays_and_keys.sql"), oldest_program: 2 },
    Step { text: include_str!("migrations/0003_low_water_marks.sql"), oldest_program: 3 },
    Step { text: include_str!("migrations/0004_lost_leases_and_dead_letters.sql"), oldest_program: 4 },
    Step { text: include_str!("migrations/0005_deleted_queues.sql"), oldest_program: 4 },
    Step { text: include_str!("migrations/0006_sql_functions.sql"), oldest_program: 4 },
];

/// How often and after which pause a fence is tried before an older program counts as connected.
const FENCE_ATTEMPTS: u32 = 10;
const FENCE_PAUSE: Duration = Duration::from_millis(50);
const NO_TIMEOUT: &str = "SET statement_timeout = 0";
/// The server's process ends if the host of the program vanishes, also while it waits for a lock.
const CHECK_CLIENT: &str = "SET client_connection_check_interval = '10s'";
const DEFAULT_TIMEOUTS: &str = "RESET statement_timeout; RESET client_connection_check_interval";
/// Locked while the schema is changed, because several services may start at once. The number is arbitrary but must stay the same.
const LOCK: &str = "SELECT pg_advisory_xact_lock(7294011736218)";
/// The schema with the tables. Without tables, the one in which they will be created; none if the role can use no schema.
const SCHEMA: &str = "SELECT coalesce((SELECT relnamespace FROM pg_class WHERE oid = to_regclass('waystage_schema')),
        (SELECT oid FROM pg_namespace WHERE nspname = current_schema())) AS schema";
/// Locked in shared mode by each connection. The first number of the lock is this one plus the program's step, and the second is the
/// schema's. The number is arbitrary but must stay the same.
const FENCE: &str = "SELECT schema, pg_advisory_lock_shared(1463877632 + $1, schema::integer) FROM ({schema}) AS found";
/// Locks the fences of all steps below this one in exclusive mode, and stops at the first one that a connection holds. Returns its
/// step. Older builds hold a fence of the whole database instead.
const CLOSE_FENCES: &str = "SELECT number FROM generate_series(0, $1 - 1) AS t (number), ({schema}) AS found
    WHERE NOT (pg_try_advisory_xact_lock(1463877632 + number, schema::integer) AND pg_try_advisory_xact_lock(1463904085, number))
    ORDER BY number LIMIT 1";

/// All steps change the schema that has the tables, also if the search path meanwhile begins with another one.
const STAY: &str = "SELECT set_config('search_path', quote_ident(nspname), true)
    FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE pg_class.oid = to_regclass('waystage_schema')";
const CREATE: &str = "CREATE TABLE IF NOT EXISTS waystage_schema (step integer NOT NULL);
    ALTER TABLE waystage_schema ADD COLUMN IF NOT EXISTS oldest_program integer";
/// The latest step, and the oldest program that can use the tables after all steps: a later step cannot admit a program that an earlier one
/// excluded. Rows that were written before the fence existed have no `oldest_program`.
const LATEST: &str =
    "SELECT coalesce(max(step), 0), coalesce(max(coalesce((to_jsonb(s) ->> 'oldest_program')::integer, step)), 0)
    FROM waystage_schema AS s";

/// The state of the schema in a database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// The latest step; 0 if the database is empty.
    pub(crate) step: usize,
    /// Programs that know at least this step can work with it.
    oldest_program: usize,
}

impl Found {
    /// Whether a program that knows this many steps can work with it, now or after a migration.
    pub(crate) fn check(self, known: usize) -> Result<(), SchemaError> {
        match self.step > known && self.oldest_program > known {
            true => Err(SchemaError::Newer { found: self.step, known }),
            false => Ok(()),
        }
    }
}

/// Holds the fence for as long as this connection lasts, and runs the missing steps, all or none. A step may take as long as it needs on a
/// large table, so every statement can wait as long for the step of another program.
pub(crate) async fn enter(client: &mut Client, steps: &[Step]) -> Result<(), SchemaError> {
    let (unlimited, checked) = tokio::join!(client.batch_execute(NO_TIMEOUT), client.batch_execute(CHECK_CLIENT));
    unlimited?;
    // A server whose operating system cannot check the connection meanwhile refuses the setting.
    if let Err(error) = checked
        && error.as_db_error().is_none()
    {
        return Err(error.into());
    }
    let entered = enter_and_update(client, steps).await;
    client.batch_execute(DEFAULT_TIMEOUTS).await?;
    entered
}

async fn enter_and_update(client: &mut Client, steps: &[Step]) -> Result<(), SchemaError> {
    let mut schema = hold_fence(client, steps.len()).await?;
    loop {
        // Checked without a transaction first, because nearly always there is nothing to do.
        if find(client).await?.step < steps.len() {
            migrate(client, steps).await?;
        }
        // Another service may meanwhile have created the tables in another schema of the search path.
        let held = std::mem::replace(&mut schema, hold_fence(client, steps.len()).await?);
        if held == schema {
            return find(client).await?.check(steps.len());
        }
    }
}

/// Like `enter`, but runs no steps: background loops wait until the tables exist.
pub(crate) async fn enter_in_background(client: &Client, steps: &[Step]) -> Result<(), SchemaError> {
    hold_fence(client, steps.len()).await?;
    find(client).await?.check(steps.len())
}

/// The step of the database, without changing it.
pub(crate) async fn find(client: &Client) -> Result<Found, tokio_postgres::Error> {
    let there = client.query_one("SELECT to_regclass('waystage_schema') IS NOT NULL", &[]).await?;
    if !there.get::<_, bool>(0) {
        return Ok(Found::default());
    }
    let row = client.query_one(LATEST, &[]).await?;
    let number = |column| usize::try_from(row.get::<_, i32>(column)).unwrap_or(0);
    Ok(Found { step: number(0), oldest_program: number(1) })
}

/// Runs the missing steps, all or none.
pub(crate) async fn migrate(client: &mut Client, steps: &[Step]) -> Result<(), SchemaError> {
    let transaction = client.transaction().await?;
    transaction.batch_execute(LOCK).await?;
    transaction.batch_execute(STAY).await?;
    transaction.batch_execute(CREATE).await?;
    // Another service may have run them meanwhile.
    let row = transaction.query_one("SELECT coalesce(max(step), 0) FROM waystage_schema", &[]).await?;
    let found = usize::try_from(row.get::<_, i32>(0)).unwrap_or(0);
    let missing = steps.get(found..).unwrap_or_default();
    let Some(oldest_program) = missing.iter().map(|step| step.oldest_program).max() else { return Ok(()) };
    close_fences(&transaction, oldest_program).await?;
    for (number, step) in steps.iter().enumerate().skip(found) {
        transaction.batch_execute(step.text).await?;
        let row = [number + 1, step.oldest_program].map(|number| i32::try_from(number).unwrap_or(i32::MAX));
        transaction
            .execute("INSERT INTO waystage_schema (step, oldest_program) VALUES ($1, $2)", &[&row[0], &row[1]])
            .await?;
    }
    transaction.commit().await?;
    Ok(())
}

/// Returns the number of the schema whose fence this connection now holds. It can hold a fence several times.
async fn hold_fence(client: &Client, known: usize) -> Result<Option<u32>, tokio_postgres::Error> {
    let known = i32::try_from(known).unwrap_or(i32::MAX);
    client.query_one(&FENCE.replace("{schema}", SCHEMA), &[&known]).await?.try_get(0)
}

/// Makes sure that no older program is connected, until the transaction ends.
///
/// A transaction that ends releases its locks one by one. So a migration that fails can already have released the lock of the schema and
/// still hold fences, which is no older program.
async fn close_fences(transaction: &Transaction<'_>, oldest_program: usize) -> Result<(), SchemaError> {
    let oldest_program = i32::try_from(oldest_program).unwrap_or(i32::MAX);
    let mut attempts = 0;
    while let Some(row) = transaction.query_opt(&CLOSE_FENCES.replace("{schema}", SCHEMA), &[&oldest_program]).await? {
        attempts += 1;
        if attempts == FENCE_ATTEMPTS {
            return Err(SchemaError::OlderIsConnected { known: row.get(0) });
        }
        sleep(FENCE_PAUSE).await;
    }
    Ok(())
}
