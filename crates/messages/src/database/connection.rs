//! Connections to PostgreSQL: with the current schema and every statement prepared, or for background loops.

use crate::database::background_client::BackgroundClient;
use crate::database::connection_driver::ConnectionDriver;
use crate::database::connector::{Connector, HANDSHAKE_TIMEOUT, Notifications, in_time};
use crate::database::error::DatabaseError;
use crate::database::liveness::{Liveness, ServerProcess};
use crate::database::schema::{self, Found, SchemaWaits};
use crate::observe::limits::LimitCounts;
use crate::path::statement::prepare::Statements;
use clock::{Clock, Nanos};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::Client;

/// How long a new connection waits for the lock of a table.
const LOCK_TIMEOUT: &str = "SET lock_timeout = '5s'";

/// The database.
#[derive(Clone, Debug)]
pub(crate) struct Database {
    connector: Connector,
    pub(crate) liveness: Liveness,
    schema_waits: SchemaWaits,
}

/// A connection with its prepared statements.
#[derive(Debug)]
pub(crate) struct DatabaseSession {
    pub(crate) client: Client,
    pub(crate) process: ServerProcess,
    pub(crate) statements: Statements,
    /// When the connection was made.
    pub(crate) connected: Nanos,
    /// As [`Liveness::epoch`] returned it before the connection was made.
    pub(crate) epoch: u64,
}

impl Database {
    /// Parses the database URL. Commits wait for a synchronous standby for up to `replication_timeout`.
    pub(crate) fn parse(
        text: &str,
        authority: Option<&Path>,
        replication_timeout: Duration,
    ) -> Result<Database, String> {
        let connector = Connector::parse(text, authority)?;
        let liveness = Liveness::new(connector.clone(), replication_timeout);
        Ok(Database { connector, liveness, schema_waits: SchemaWaits::default() })
    }

    /// The counters of limits that connections reach.
    pub(crate) fn limits(&self) -> Arc<LimitCounts> {
        self.connector.limits.clone()
    }

    /// Connects, updates the schema and prepares every statement.
    pub(crate) async fn connect(&self, clock: &Clock) -> Result<(DatabaseSession, ConnectionDriver), DatabaseError> {
        let epoch = self.liveness.epoch();
        let (mut client, mut driver) = self.connector.connect().await?;
        let progress = driver.progress();
        let process = in_time(HANDSHAKE_TIMEOUT, driver.drive(ServerProcess::of(&client, progress))).await?;
        // A step of the schema takes as long as it needs on a large table, and other connections wait for it.
        let entering = driver.drive(schema::enter(&mut client, schema::STEPS));
        self.liveness.attend_long(&process, &mut self.schema_waits.reporter(), entering).await??;
        let prepare = async {
            // To prepare a statement that writes to a table waits for the same locks as to run it.
            client.batch_execute(LOCK_TIMEOUT).await?;
            Statements::prepare(&client).await
        };
        let statements = self.liveness.attend(&process, driver.drive(prepare)).await??;
        Ok((DatabaseSession { client, process, statements, connected: clock.now(), epoch }, driver))
    }

    /// A connection that neither checks nor locks the schema.
    #[cfg(test)]
    pub(crate) async fn connect_to_check(&self) -> Result<Client, DatabaseError> {
        Ok(self.connector.connect_alone(HANDSHAKE_TIMEOUT).await?.0)
    }

    /// Reads the state of the schema, after the missing steps if they are to run. If it fails, no process of its connection is left on the
    /// server, also if the caller's runtime ends now.
    pub(crate) async fn find_schema(&self, update: bool) -> Result<Found, DatabaseError> {
        let (mut client, progress) = self.connector.connect_alone(HANDSHAKE_TIMEOUT).await?;
        let process = in_time(HANDSHAKE_TIMEOUT, ServerProcess::of(&client, progress)).await?;
        let finding = async {
            if update {
                schema::enter(&mut client, schema::STEPS).await?;
            }
            let found = schema::find(&client).await.map_err(DatabaseError::from)?;
            found.check(schema::STEPS.len())?;
            Ok(found)
        };
        let found = self.liveness.attend_long(&process, &mut self.schema_waits.reporter(), finding).await;
        if found.is_err() {
            // `attend_long` does the same in a task, which the end of the runtime would stop.
            let terminating = self.liveness.clone().terminate(process);
            let _ = tokio::time::timeout(HANDSHAKE_TIMEOUT, terminating).await;
        }
        found?
    }

    /// A connection without prepared statements.
    pub(crate) async fn connect_in_background(&self) -> Result<BackgroundClient, DatabaseError> {
        let (client, progress) = self.connector.connect_alone(HANDSHAKE_TIMEOUT).await?;
        let background = BackgroundClient::new(client, progress, &self.liveness).await?;
        background.enter().await?;
        Ok(background)
    }

    /// The same, and the notifications that it receives, until either end of it is dropped.
    pub(crate) async fn connect_listening(&self) -> Result<(BackgroundClient, Notifications), DatabaseError> {
        let (client, progress, notifications) = self.connector.connect_listening().await?;
        Ok((BackgroundClient::new(client, progress, &self.liveness).await?, notifications))
    }
}
