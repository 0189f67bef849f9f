//! The tables, as numbered steps that are part of the program. Brings a database to the latest step.

use crate::database::error::SchemaError;
use tokio_postgres::Client;

/// Every step, in order. A released step is never changed.
const STEPS: [&str; 4] = [
    include_str!("migrations/0001_queues_and_messages.sql"),
    include_str!("migrations/0002_leases_delays_and_keys.sql"),
    include_str!("migrations/0003_low_water_marks.sql"),
    include_str!("migrations/0004_lost_leases_and_dead_letters.sql"),
];

/// Locked while the schema is changed, because several services may start at once. The number is arbitrary but must stay the same.
const LOCK: &str = "SELECT pg_advisory_xact_lock(7294011736218)";

/// Runs the missing steps, all or none.
pub(crate) async fn migrate(client: &mut Client) -> Result<(), SchemaError> {
    // Checked without a transaction first, because nearly always there is nothing to do.
    if step(client).await? == Some(STEPS.len()) {
        return Ok(());
    }
    let transaction = client.transaction().await?;
    // A step may take as long as it needs on a large table.
    transaction.batch_execute("SET LOCAL statement_timeout = 0").await?;
    transaction.batch_execute(LOCK).await?;
    transaction.batch_execute("CREATE TABLE IF NOT EXISTS waystage_schema (step integer NOT NULL)").await?;
    let row = transaction.query_one("SELECT coalesce(max(step), 0) FROM waystage_schema", &[]).await?;
    let found = usize::try_from(row.get::<_, i32>(0)).unwrap_or(0);
    if found > STEPS.len() {
        return Err(SchemaError::Newer { found, known: STEPS.len() });
    }
    for (number, text) in STEPS.iter().enumerate().skip(found) {
        transaction.batch_execute(text).await?;
        let step = i32::try_from(number + 1).unwrap_or(i32::MAX);
        transaction.execute("INSERT INTO waystage_schema VALUES ($1)", &[&step]).await?;
    }
    transaction.commit().await?;
    Ok(())
}

/// The step of the database; none if it is empty.
async fn step(client: &Client) -> Result<Option<usize>, tokio_postgres::Error> {
    let there = client.query_one("SELECT to_regclass('waystage_schema') IS NOT NULL", &[]).await?;
    if !there.get::<_, bool>(0) {
        return Ok(None);
    }
    let row = client.query_one("SELECT coalesce(max(step), 0) FROM waystage_schema", &[]).await?;
    Ok(usize::try_from(row.get::<_, i32>(0)).ok())
}
