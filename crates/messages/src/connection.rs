//! A connection to PostgreSQL that is ready for work: with the settings that the statements need, the right schema, and every
//! statement prepared.

use crate::schema::{self, SchemaError};
use crate::statement::Statements;
use std::time::Duration;
use thiserror::Error;
use tokio_postgres::{Client, Config, NoTls};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const SILENT_PEER_TIMEOUT: Duration = Duration::from_secs(20);

/// The statements go along indexes, and a plan once made stays; the planner's other ideas, from statistics that know nothing of dead
/// rows, are what makes queues in databases collapse. An acknowledged message is on disk. The sweep of deleted queues relies on the
/// limit of a statement's time.
const OPTIONS: &str = "-c synchronous_commit=on -c default_transaction_isolation=read\\ committed \
    -c plan_cache_mode=force_generic_plan -c enable_seqscan=off -c enable_bitmapscan=off -c jit=off \
    -c statement_timeout=30s -c idle_in_transaction_session_timeout=30s";

/// Where the database is.
#[derive(Clone, Debug)]
pub(crate) struct Database {
    config: Config,
}

/// A connection and its prepared statements.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) client: Client,
    pub(crate) statements: Statements,
}

/// Why there is no connection.
#[derive(Debug, Error)]
pub(crate) enum ConnectError {
    #[error("{}", chain(.0))]
    Postgres(#[from] tokio_postgres::Error),
    #[error("{0}")]
    Schema(#[from] SchemaError),
}

impl ConnectError {
    /// Whether somebody has to change something before it can work; otherwise the database may simply not be there yet.
    pub(crate) fn is_lasting(&self) -> bool {
        match self {
            ConnectError::Schema(error) => !matches!(error, SchemaError::Postgres(_)),
            ConnectError::Postgres(error) => {
                error.code().is_some_and(|code| code.code().starts_with("28") || code.code().starts_with("3D"))
            }
        }
    }
}

impl Database {
    /// Reads the text that says where it is.
    pub(crate) fn parse(text: &str) -> Result<Database, String> {
        let mut config: Config = text.parse().map_err(|error| chain(&error))?;
        if config.get_hosts().is_empty() {
            return Err("it names no host".into());
        }
        let options = match config.get_options() {
            Some(theirs) => format!("{OPTIONS} {theirs}"),
            None => OPTIONS.to_string(),
        };
        config.options(options);
        if config.get_application_name().is_none() {
            config.application_name("waystage");
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(SILENT_PEER_TIMEOUT);
        }
        Ok(Database { config })
    }

    /// Connects, brings the schema up to date and prepares every statement.
    pub(crate) async fn connect(&self) -> Result<Session, ConnectError> {
        let mut client = self.connect_bare().await?;
        schema::migrate(&mut client).await?;
        let statements = Statements::prepare(&client).await?;
        Ok(Session { client, statements })
    }

    /// A connection without statements, for work beside the path of requests.
    pub(crate) async fn connect_bare(&self) -> Result<Client, tokio_postgres::Error> {
        let (client, connection) = self.config.connect(NoTls).await?;
        // It moves the bytes, and ends with the client. Its error is the client's error.
        tokio::spawn(async move {
            let _ = connection.await;
        });
        Ok(client)
    }
}

/// An error with its causes, in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_a_url_or_words() {
        assert!(Database::parse("postgres://me@localhost/queues").is_ok());
        assert!(Database::parse("host=/run/postgresql user=me options='-c work_mem=8MB'").is_ok());
        for text in ["", "nonsense", "postgres://me@localhost:no/queues", "user=me"] {
            let error = Database::parse(text).unwrap_err();
            assert!(!error.is_empty() && !error.contains('\n'), "{text}: {error}");
        }
    }
}
