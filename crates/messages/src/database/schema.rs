//! The tables, as numbered steps that are part of the program, and the step at which a database is.

use crate::database::error::SchemaError;
use tokio_postgres::Client;

/// Every step, in order. A step that was released is never changed.
const STEPS: [&str; 3] = [
    include_str!("migrations/0001_queues_and_messages.sql"),
    include_str!("migrations/0002_leases_delays_and_keys.sql"),
    include_str!("migrations/0003_low_waters.sql"),
];

/// Held while the schema is changed, since several services may start at once. The number has no meaning but must stay.
const LOCK: &str = "SELECT pg_advisory_xact_lock(7294011736218)";

/// Does the steps that are missing, all or none.
pub(crate) async fn migrate(client: &mut Client) -> Result<(), SchemaError> {
    // Without a transaction first: nearly always there is nothing to do.
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

/// The step at which the database is; none when it is empty.
async fn step(client: &Client) -> Result<Option<usize>, tokio_postgres::Error> {
    let there = client.query_one("SELECT to_regclass('waystage_schema') IS NOT NULL", &[]).await?;
    if !there.get::<_, bool>(0) {
        return Ok(None);
    }
    let row = client.query_one("SELECT coalesce(max(step), 0) FROM waystage_schema", &[]).await?;
    Ok(usize::try_from(row.get::<_, i32>(0)).ok())
}
