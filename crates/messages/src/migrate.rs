//! Brings the schema of a database up to date without a service, or reports what would be done.

use crate::config::Config;
use crate::database::error::DatabaseError;
use crate::database::schema::STEPS;
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
    match runtime.block_on(database.find_schema(!only_check)) {
        Ok(found) => Ok(SchemaState { step: found.step, known: STEPS.len() }),
        Err(error @ DatabaseError::Silent) if !only_check => Err(MessagesError::Database(format!(
            "{error}; either all missing steps have been applied, or none: waystage messages migrate --check shows which"
        ))),
        Err(error) => Err(MessagesError::Database(error.to_string())),
    }
}
