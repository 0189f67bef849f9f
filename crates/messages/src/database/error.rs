//! Why the database cannot be used.

use crate::database::storage::StorageFault;
use thiserror::Error;
use tokio_postgres::error::SqlState;

/// Why there is no connection, or no reply.
#[derive(Debug, Error)]
pub(crate) enum DatabaseError {
    #[error("{}", explain(.0))]
    Postgres(#[from] tokio_postgres::Error),
    #[error("it does not answer")]
    Silent,
    /// The server has just refused a connection for this reason.
    #[error("{0}")]
    Refused(String),
    /// The commit waited longer than `replication-timeout`.
    #[error("a commit waited for a synchronous standby longer than replication-timeout")]
    Unreplicated,
    /// Something between the service and PostgreSQL drops the session settings.
    #[error(
        "a connection pooler such as PgBouncer answers, and it drops the session settings that the guarantees need: \
         connect to PostgreSQL itself"
    )]
    Pooler,
    #[error("{0}")]
    Schema(#[from] SchemaError),
}

/// The tables and the sequence of the service.
const TABLES: [&str; 7] =
    ["waystage_schema", "queue", "message", "invisible_message", "idempotency_key", "lost_lease", "message_id"];
/// What to do if a transaction cannot write.
const READ_ONLY: &str = ": the server is a standby, so connect to its primary; or default_transaction_read_only is on for the server, the \
    database or the role, so switch it off";
/// The function of PostgreSQL that refuses a row because of a policy.
const CHECK_POLICY: &str = "ExecWithCheckOptions";
/// The function of PostgreSQL that refuses a prepared statement whose columns have changed.
const CHECK_PLAN: &str = "RevalidateCachedQuery";

/// The role lacks a privilege, or no schema of its `search_path` exists and can be used.
fn is_forbidden(error: &tokio_postgres::Error) -> bool {
    StorageFault::of(error).is_none()
        && [&SqlState::INSUFFICIENT_PRIVILEGE, &SqlState::INVALID_SCHEMA_NAME]
            .iter()
            .any(|code| error.code() == Some(code))
}

/// A step of the schema needs the name of another program's function.
fn is_name_taken(error: &tokio_postgres::Error) -> bool {
    error.code().is_some_and(|code| code.code() == "WS007")
}

/// The client has refused to go on: the server wants a password and there is none, or a method that the client does not support. The
/// library has no codes for these errors.
fn is_refused_by_client(error: &tokio_postgres::Error) -> bool {
    let text = error.to_string();
    error.code().is_none()
        && ["invalid configuration", "authentication error"].iter().any(|kind| text.starts_with(kind))
}

/// The server's certificate is not valid for its name, the authority or the time. The library has no code for this error.
fn is_untrusted(error: &tokio_postgres::Error) -> bool {
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<std::io::Error>());
    let fault = cause.and_then(std::io::Error::get_ref).and_then(|fault| fault.downcast_ref::<rustls::Error>());
    matches!(fault, Some(rustls::Error::InvalidCertificate(_)))
}

/// What to do about an error. PostgreSQL 15 and newer give no role CREATE in the schema public.
fn remedy(error: &tokio_postgres::Error) -> &'static str {
    if let Some(fault) = StorageFault::of(error) {
        return fault.remedy();
    }
    let message = error.as_db_error().map(|reported| reported.message()).unwrap_or_default();
    let is_about_table =
        message.split(|letter: char| !letter.is_alphanumeric() && letter != '_').any(|word| TABLES.contains(&word));
    match error.code() {
        Some(&SqlState::READ_ONLY_SQL_TRANSACTION) => READ_ONLY,
        Some(&SqlState::INVALID_SCHEMA_NAME) => {
            ": the search_path of the role names no schema that exists and that it can use; correct it, or as the owner of the database \
             run GRANT USAGE, CREATE ON SCHEMA public TO the role of the service"
        }
        Some(&SqlState::INSUFFICIENT_PRIVILEGE) if is_about_table => {
            ": the tables belong to another role, or a privilege on them was revoked; use that role, run GRANT that role TO the role of \
             the service, or GRANT SELECT, INSERT, UPDATE, DELETE ON the tables and USAGE, SELECT ON SEQUENCE message_id TO it"
        }
        Some(&SqlState::INSUFFICIENT_PRIVILEGE) => {
            ": as the owner of the database run GRANT USAGE, CREATE ON SCHEMA public TO the role of the service, or \
             CREATE SCHEMA AUTHORIZATION that role"
        }
        _ if is_outdated_plan(error) => "",
        _ if is_about_tables(error) => {
            ": another program has dropped, renamed or changed a table of the service, or the search_path of the role; undo it"
        }
        _ => "",
    }
}

/// PgBouncer refuses the startup parameter with the settings of the session.
fn is_pooler(error: &tokio_postgres::Error) -> bool {
    error.as_db_error().is_some_and(|reported| reported.message().starts_with("unsupported startup parameter"))
}

/// The statement was prepared before a table changed.
pub(crate) fn is_outdated_plan(error: &tokio_postgres::Error) -> bool {
    error.as_db_error().is_some_and(|reported| reported.routine() == Some(CHECK_PLAN))
}

/// Whether the role lacks a privilege, or a table is missing or was changed, so that the statement fails for all rows. Errors of triggers
/// have a context, because they come from a function.
pub(crate) fn is_about_tables(error: &tokio_postgres::Error) -> bool {
    let Some(reported) = error.as_db_error() else { return false };
    let is_of_class = ["42", "3F"].iter().any(|class| reported.code().code().starts_with(class));
    let is_about_one_row = reported.where_().is_some() || reported.routine() == Some(CHECK_POLICY);
    is_outdated_plan(error) || is_of_class && !is_about_one_row && StorageFault::of(error).is_none()
}

/// The error with its causes and what to do about it, in one line.
pub(crate) fn explain(error: &tokio_postgres::Error) -> String {
    format!("{}{}", one_line(error), remedy(error))
}

/// Whether the rows of the statement caused the error, not the connection, the server's state or a lock. Other rows may then succeed, also
/// if the pages of these are damaged.
pub(crate) fn is_about_rows(error: &tokio_postgres::Error) -> bool {
    // Connection, transaction state, serialization, resources, locks, operator, system: in this order.
    const OTHER_CLASSES: [&str; 7] = ["08", "25", "40", "53", "55", "57", "58"];
    !is_about_tables(error)
        && matches!(StorageFault::of(error), None | Some(StorageFault::Damaged))
        && error.code().is_some_and(|code| !OTHER_CLASSES.iter().any(|class| code.code().starts_with(class)))
}

impl DatabaseError {
    /// Whether the rows of the statement caused the error.
    pub(crate) fn is_about_rows(&self) -> bool {
        matches!(self, DatabaseError::Postgres(error) if is_about_rows(error))
    }

    /// Whether the role lacks a privilege, or a table is missing or was changed.
    pub(crate) fn is_about_tables(&self) -> bool {
        match self {
            DatabaseError::Postgres(error) | DatabaseError::Schema(SchemaError::Postgres(error)) => {
                is_about_tables(error)
            }
            _ => false,
        }
    }

    /// Whether the server has cancelled the statement, because of its timeout or for an operator.
    pub(crate) fn is_cancelled(&self) -> bool {
        matches!(self, DatabaseError::Postgres(error) if error.code() == Some(&SqlState::QUERY_CANCELED))
    }

    /// What is wrong with the server's storage, if that is the cause.
    pub(crate) fn storage_fault(&self) -> Option<StorageFault> {
        match self {
            DatabaseError::Postgres(error) | DatabaseError::Schema(SchemaError::Postgres(error)) => {
                StorageFault::of(error)
            }
            _ => None,
        }
    }

    /// The error of a failed attempt to connect.
    pub(crate) fn of_connection(error: tokio_postgres::Error) -> DatabaseError {
        if is_pooler(&error) { DatabaseError::Pooler } else { DatabaseError::Postgres(error) }
    }

    /// The reason if the server answers and there is no connection: it has none left, does not accept the role, cannot create the tables,
    /// its storage fails, or its certificate is not valid. A server that starts or stops does not count.
    pub(crate) fn refusal(&self) -> Option<String> {
        const REFUSALS: [&str; 7] = ["25006", "28", "3D", "42", "53", "58", "XX"];
        let error = match self {
            DatabaseError::Postgres(error) | DatabaseError::Schema(SchemaError::Postgres(error)) => error,
            DatabaseError::Refused(reason) => return Some(reason.clone()),
            DatabaseError::Pooler => return Some(self.to_string()),
            _ => return None,
        };
        let is_refused = error.code().is_some_and(|code| REFUSALS.iter().any(|class| code.code().starts_with(class)));
        (is_refused || is_untrusted(error)).then(|| one_line(error))
    }

    /// Whether only a human can solve it. Otherwise the database may just not be up yet.
    pub(crate) fn is_lasting(&self) -> bool {
        match self {
            DatabaseError::Silent | DatabaseError::Refused(_) | DatabaseError::Unreplicated => false,
            DatabaseError::Schema(SchemaError::Postgres(error)) => {
                is_forbidden(error) || is_about_tables(error) || is_name_taken(error)
            }
            DatabaseError::Schema(_) | DatabaseError::Pooler => true,
            DatabaseError::Postgres(error) => {
                let is_refused = |code: &SqlState| code.code().starts_with("28") || code.code().starts_with("3D");
                error.code().is_some_and(is_refused)
                    || is_forbidden(error)
                    || is_about_tables(error)
                    || is_refused_by_client(error)
            }
        }
    }
}

/// Why the schema cannot be used.
#[derive(Debug, Error)]
pub(crate) enum SchemaError {
    /// The database refused a step.
    #[error("cannot update the schema: {}", explain(.0))]
    Postgres(#[from] tokio_postgres::Error),
    /// A missing step would break an older program that is connected.
    #[error(
        "a connected service knows only {known} steps of the schema, and could not work after the missing step: \
         stop all older services first"
    )]
    OlderIsConnected {
        /// The last step that the connected program knows.
        known: i32,
    },
    /// A newer version of the program has changed the schema.
    #[error("the database is at step {found} of the schema, and this program knows {known}: use a newer program")]
    Newer {
        /// The step of the database.
        found: usize,
        /// The last step that this program knows.
        known: usize,
    },
}

/// An error with its causes, in one line.
pub(crate) fn one_line(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text.replace('\n', " ")
}
