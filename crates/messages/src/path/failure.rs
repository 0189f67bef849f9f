//! Why a request could not be done, as the stations say it to each other. `problem` says it to clients.

use thiserror::Error;
use tokio_postgres::Error as DatabaseError;
use tokio_postgres::error::{Severity, SqlState};

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum Failure {
    #[error("there is no such queue")]
    UnknownQueue,
    #[error("the queue for dead letters is not there: create it first")]
    UnknownDeadLetters,
    #[error("there is no such lease, or it has ended")]
    LeaseExpired,
    #[error("this key was used for a send with other bodies or receivers")]
    KeyReused,
    #[error("too many requests wait for the database")]
    Overloaded,
    #[error("the service holds as many bytes of bodies and replies as it may")]
    OutOfMemory,
    #[error("the service is ending")]
    Ending,
    #[error("the database cannot be reached")]
    DatabaseDown,
    /// The statement was under way when the connection broke.
    #[error("the connection to the database broke while this was done: it may or may not have been done")]
    InDoubt,
    /// Nothing was changed, and it may work later: the disk is full, the database is read-only, the statement took too long.
    #[error("the database cannot do this now: {0}")]
    DatabaseRefuses(String),
    /// Nothing was changed, and that is a bug or a database that somebody else has changed.
    #[error("the database did not understand: {0}")]
    Unexpected(String),
}

impl Failure {
    /// What a failed statement means. The server rolls back before it reports an error of a statement; when it ends, or the
    /// connection breaks, only the database knows.
    pub(crate) fn of_statement(error: &DatabaseError) -> Failure {
        let Some(reported) = error.as_db_error() else { return Failure::InDoubt };
        let code = reported.code();
        let refuses = [SqlState::READ_ONLY_SQL_TRANSACTION, SqlState::QUERY_CANCELED, SqlState::T_R_DEADLOCK_DETECTED];
        // Whoever ends in the middle may have written the commit before.
        let is_ending = matches!(reported.parsed_severity(), Some(Severity::Panic | Severity::Fatal));
        if is_ending || code.code().starts_with("57P") {
            Failure::InDoubt
        } else if code.code().starts_with("53") || refuses.contains(code) {
            Failure::DatabaseRefuses(reported.message().to_string())
        } else {
            Failure::Unexpected(format!("{} ({})", reported.message(), code.code()))
        }
    }
}
