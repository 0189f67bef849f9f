//! Checks every second whether the database answers and accepts writes, for `/readyz`.

use crate::database::liveness::Liveness;
use crate::path::failure::Failure;
use crate::path::health::Health;
use std::sync::Arc;
use std::time::Duration;

const EVERY: Duration = Duration::from_secs(1);

/// Runs until it is dropped.
pub(crate) async fn run(liveness: Liveness, health: Arc<Health>) {
    loop {
        health.set_database(match liveness.is_writable().await {
            Ok(true) => Ok(()),
            Ok(false) => Err(Failure::NotReady("the database is read-only".into())),
            Err(error) => Err(match error.refusal() {
                Some(reason) => Failure::NotReady(format!("the database refuses a connection: {reason}")),
                None => Failure::DatabaseDown,
            }),
        });
        tokio::time::sleep(EVERY).await;
    }
}
