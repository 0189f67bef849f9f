//! Why a request failed, as the steps report it to each other. `http::problem` turns it into what the client receives.

use crate::database::error::is_about_tables;
use crate::database::storage::StorageFault;
use thiserror::Error;
use tokio_postgres::Error;
use tokio_postgres::error::{Severity, SqlState};

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum Failure {
    #[error("no queue has this name")]
    UnknownQueue,
    #[error("delay: it must be shorter than the expiry of the queue")]
    NeverVisible,
    #[error("the dead-letter queue does not exist: create it first")]
    UnknownDeadLetterQueue,
    #[error("the lease has expired, another client has the message, or the lease never existed")]
    LeaseExpired,
    #[error("this key was used for a send with other bodies or receivers")]
    KeyReused,
    #[error("too many requests wait for the database")]
    Overloaded,
    #[error("too many requests of this sender, receiver or client are waiting for the database")]
    OverQuota,
    #[error("the memory for bodies and replies is full")]
    OutOfMemory,
    #[error("this client's share of the memory for bodies and replies is full")]
    OutOfShare,
    #[error("the client closed the connection before the request was executed")]
    ClientClosed,
    #[error("the service is shutting down")]
    ShuttingDown,
    #[error("the database is unreachable")]
    DatabaseDown,
    /// The database is reachable, and refuses connections for this reason.
    #[error("the database refuses a connection: {0}")]
    ConnectionRefused(String),
    /// The database is reachable, but the service cannot do all its work.
    #[error("{0}")]
    NotReady(String),
    /// The statement was running when the connection broke.
    #[error("the connection to the database broke during this request, which may or may not have been applied")]
    InDoubt,
    /// Nothing was changed, and a retry may succeed: the disk is full, the database is read-only, the statement took too long.
    #[error("the database reports a temporary error: {0}")]
    DatabaseError(String),
    /// Nothing was changed. The role lacks a privilege, or a table is missing or was changed.
    #[error("the database refuses this until an operator repairs it: {0}")]
    Refused(String),
    /// Nothing was changed. The database has damaged data, which an operator must restore.
    #[error("{0}")]
    Damaged(String),
    /// Nothing was changed. The first send with this key may be in progress, perhaps in another service.
    #[error("another transaction has locked this key, probably the first send with it, which has not ended; retry")]
    KeyLocked,
    /// A batch of acknowledgements.
    #[error("some of the leases were acknowledged, and others may not have been; a repeat is safe: {0}")]
    PartlyApplied(String),
    /// Nothing was changed. This is a bug, or another program has changed the tables.
    #[error("the database reports an unexpected error: {0}")]
    Internal(String),
}

impl Failure {
    /// Classifies the error of a statement. The server rolls back before it reports an error. If the server shuts down or the connection
    /// breaks, the outcome is unknown.
    pub(crate) fn of_statement(error: &Error) -> Failure {
        let Some(reported) = error.as_db_error() else { return Failure::InDoubt };
        let code = reported.code();
        let refuses = [
            SqlState::READ_ONLY_SQL_TRANSACTION,
            SqlState::QUERY_CANCELED,
            SqlState::T_R_DEADLOCK_DETECTED,
            SqlState::LOCK_NOT_AVAILABLE,
        ];
        // A server that terminates may have written the commit before.
        let is_ending = matches!(reported.parsed_severity(), Some(Severity::Panic | Severity::Fatal));
        if is_ending || code.code().starts_with("57P") {
            Failure::InDoubt
        } else if let Some(fault) = StorageFault::of(error) {
            let text = format!("{}: {}", fault.description(), reported.message());
            match fault {
                StorageFault::Damaged => Failure::Damaged(text),
                StorageFault::NotWritable => Failure::Refused(text),
                StorageFault::DiskFull | StorageFault::Memory | StorageFault::Io => Failure::DatabaseError(text),
            }
        } else if code.code().starts_with("53") || refuses.contains(code) {
            Failure::DatabaseError(reported.message().to_string())
        } else if is_about_tables(error) {
            Failure::Refused(reported.message().to_string())
        } else {
            Failure::Internal(format!("{} ({})", reported.message(), code.code()))
        }
    }
}
