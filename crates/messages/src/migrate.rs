//! Brings the schema of a database up to date without a service, or reports what would be done.

use crate::config::Config;
use crate::database::schema::{self, STEPS};
use crate::start::{MessagesError, database};

/// The schema of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchemaState {
    /// The latest step of the database; 0 if it has none.
    pub step: usize,
    /// The latest step that this program knows.
    pub known: usize,
}

/// Runs the missing steps of the schema, unless `only_check`. Returns the state afterwards.
///
/// # Errors
///
/// If the database cannot be reached or refuses a step, if this program cannot use its schema, or if a missing step would break an older
/// service that is connected.
pub fn migrate(config: &Config, only_check: bool) -> Result<SchemaState, MessagesError> {
    let database = database(config)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(MessagesError::Threads)?;
    let failed = |error: &dyn ToString| MessagesError::Database(error.to_string());
    runtime.block_on(async {
        let connected =
            if only_check { database.connect_to_check().await } else { database.connect_and_update().await };
        let client = connected.map_err(|error| failed(&error))?;
        let found = schema::find(&client).await.map_err(|error| failed(&error))?;
        found.check(STEPS.len()).map_err(|error| failed(&error))?;
        Ok(SchemaState { step: found.step, known: STEPS.len() })
    })
}
