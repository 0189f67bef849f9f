//! Checks every second whether the database answers and accepts writes, and whether the tables and privileges are there, for `/readyz`.

use crate::database::liveness::Liveness;
use crate::path::failure::Failure;
use crate::path::health::Health;
use records::report;
use std::sync::Arc;
use std::time::Duration;

const EVERY: Duration = Duration::from_secs(1);

/// Runs until it is dropped.
pub(crate) async fn run(liveness: Liveness, health: Arc<Health>) {
    let mut monitor = Monitor::default();
    loop {
        health.set_database(monitor.check(&liveness, &health).await);
        tokio::time::sleep(EVERY).await;
    }
}

/// What the latest checks have found.
#[derive(Debug, Default)]
struct Monitor {
    /// The tables that were there last.
    tables: Option<String>,
    /// What is missing.
    problem: Option<String>,
}

impl Monitor {
    async fn check(&mut self, liveness: &Liveness, health: &Health) -> Result<(), Failure> {
        let state = liveness.check_tables().await.map_err(|error| match error.refusal() {
            Some(reason) => Failure::NotReady(format!("the database refuses a connection: {reason}")),
            None => Failure::DatabaseDown,
        })?;
        self.note_tables(state.identity, liveness);
        // The tables of a new database cannot be created meanwhile, and nothing else is missing.
        if let Some(reason) = state.read_only {
            return Err(Failure::NotReady(format!("the database is read-only: {reason}")));
        }
        self.note_problem(state.problem.clone(), health);
        state.problem.map_or(Ok(()), |problem| Err(Failure::NotReady(problem)))
    }

    /// If the tables are not those of before, every connection is made again: what it knows of ids and of the schema is wrong.
    fn note_tables(&mut self, found: Option<String>, liveness: &Liveness) {
        let Some(found) = found else { return };
        if self.tables.as_ref().is_some_and(|tables| *tables != found) {
            report(format_args!(
                "waystage: messages: the tables have been replaced, or their ids start again; connecting again"
            ));
            liveness.end_epoch();
        }
        self.tables = Some(found);
    }

    fn note_problem(&mut self, found: Option<String>, health: &Health) {
        if self.problem != found {
            match &found {
                Some(problem) => report(format_args!("waystage: messages: {problem}")),
                None => {
                    report(format_args!("waystage: messages: the role has all tables and privileges again"));
                    // A service that is not ready may receive no requests that could show it.
                    health.forget_refusals();
                }
            }
            self.problem = found;
        }
    }
}
