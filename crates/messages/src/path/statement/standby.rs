//! Waits for the synchronous standby when a repeated request changes nothing. The first request may be in doubt: its change is on the
//! primary, but a standby may not have it, and a failover would undo it.

use tokio_postgres::{Client, Error};

/// A record in the log after all earlier changes. The standby has them when it has this record. Without a synchronous standby, the record
/// is on disk.
const RECORD: &str = "SELECT pg_logical_emit_message(true, 'waystage', '')";

/// Returns when the synchronous standby has all changes that were committed before.
pub(super) async fn wait_for_standby(client: &Client) -> Result<(), Error> {
    client.batch_execute(RECORD).await
}
