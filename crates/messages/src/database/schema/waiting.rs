//! Reports what a connection waits for that checks or updates the schema. Such a wait has no time limit: another service may need a long
//! time for a step on a large table.

use crate::database::liveness::LockWait;
use records::report;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// A wait is reported when this many checks in a row, a second apart, have found it.
const CHECKS: u64 = 2;
/// Pause between two reports. Several connections of a service can wait for the same lock.
const AGAIN_AFTER: Duration = Duration::from_secs(10);

/// When a wait was last reported, for all connections of a service.
#[derive(Clone, Debug, Default)]
pub(crate) struct SchemaWaits(Arc<Mutex<Option<Instant>>>);

impl SchemaWaits {
    /// What to do with the result of each check of one connection.
    pub(crate) fn reporter(&self) -> impl FnMut(Option<LockWait>) + Send {
        let (latest, mut checks) = (self.0.clone(), 0);
        move |wait| {
            let Some(wait) = wait else {
                checks = 0;
                return;
            };
            checks += 1;
            let mut latest = latest.lock().unwrap_or_else(PoisonError::into_inner);
            if checks >= CHECKS && latest.is_none_or(|at| at.elapsed() >= AGAIN_AFTER) {
                *latest = Some(Instant::now());
                report(format_args!("waystage: messages: {}", line(checks, &wait)));
            }
        }
    }
}

fn line(seconds: u64, wait: &LockWait) -> String {
    let holder = match wait.is_advisory() {
        true => "which checks or updates a schema in this database, perhaps another one",
        false => "which uses the tables",
    };
    format!(
        "the schema cannot be read or updated for {seconds} s: {wait}, {holder}; it goes on when that process releases the lock"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_wait_is_reported_at_the_second_check_and_every_ten_seconds() {
        let waits = SchemaWaits::default();
        let [mut one, mut other] = [waits.reporter(), waits.reporter()];
        let latest = || waits.0.lock().unwrap().map(|at| at.elapsed().as_secs());
        let wait = || Some(LockWait::advisory("4711"));
        let mut reported = Vec::new();
        for second in 1..=25 {
            for reporter in [&mut one, &mut other] {
                reporter(if second == 24 { None } else { wait() });
            }
            if latest() == Some(0) {
                reported.push(second);
            }
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(reported, [2, 12, 22], "once for both connections");
        let text = line(2, &LockWait::advisory("4711"));
        let wanted = "for 2 s: its statement waits for a lock (advisory) of the server process 4711, which checks or";
        assert!(text.contains(wanted), "{text}");
    }
}
