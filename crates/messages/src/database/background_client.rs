//! A connection for background loops. Its calls fail if the reply does not arrive.

use crate::database::connection_driver::Progress;
use crate::database::connector::{HANDSHAKE_TIMEOUT, in_time};
use crate::database::error::DatabaseError;
use crate::database::liveness::{Liveness, ServerId, ServerProcess};
use crate::database::schema;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row, Statement, ToStatement};

/// The connection.
#[derive(Debug)]
pub(crate) struct BackgroundClient {
    client: Client,
    process: ServerProcess,
    liveness: Liveness,
    /// As [`Liveness::epoch`] returned it when the connection was made.
    epoch: u64,
}

type Parameters<'p> = &'p [&'p (dyn ToSql + Sync)];

impl BackgroundClient {
    /// Takes a connection that was just made.
    pub(super) async fn new(
        client: Client,
        progress: Progress,
        liveness: &Liveness,
    ) -> Result<BackgroundClient, DatabaseError> {
        let epoch = liveness.epoch();
        let process = in_time(HANDSHAKE_TIMEOUT, ServerProcess::of(&client, progress)).await?;
        Ok(BackgroundClient { client, process, liveness: liveness.clone(), epoch })
    }

    /// Checks that this program can use the tables, and ensures it for as long as the connection lasts.
    pub(super) async fn enter(&self) -> Result<(), DatabaseError> {
        let entering = schema::enter_in_background(&self.client, schema::STEPS);
        Ok(self.liveness.attend(&self.process, entering).await??)
    }

    /// Whether the connection has ended, or was made before the tables were replaced.
    pub(crate) fn is_closed(&self) -> bool {
        self.client.is_closed() || self.liveness.is_outdated(self.epoch)
    }

    /// The server that this client is connected to.
    pub(crate) fn server(&self) -> ServerId {
        self.process.server
    }

    /// Prepares a statement.
    pub(crate) async fn prepare(&self, text: &str) -> Result<Statement, DatabaseError> {
        self.attend(self.client.prepare(text)).await
    }

    /// Runs statements without parameters.
    pub(crate) async fn batch_execute(&self, text: &str) -> Result<(), DatabaseError> {
        self.attend(self.client.batch_execute(text)).await
    }

    /// Runs a statement. Returns the number of its rows.
    pub(crate) async fn execute<T>(&self, statement: &T, parameters: Parameters<'_>) -> Result<u64, DatabaseError>
    where
        T: ?Sized + ToStatement,
    {
        self.attend(self.client.execute(statement, parameters)).await
    }

    /// Runs a statement that returns rows.
    pub(crate) async fn query<T>(&self, statement: &T, parameters: Parameters<'_>) -> Result<Vec<Row>, DatabaseError>
    where
        T: ?Sized + ToStatement,
    {
        self.attend(self.client.query(statement, parameters)).await
    }

    /// Runs a statement that returns one row.
    pub(crate) async fn query_one<T>(&self, statement: &T, parameters: Parameters<'_>) -> Result<Row, DatabaseError>
    where
        T: ?Sized + ToStatement,
    {
        self.attend(self.client.query_one(statement, parameters)).await
    }

    async fn attend<R>(
        &self,
        call: impl Future<Output = Result<R, tokio_postgres::Error>>,
    ) -> Result<R, DatabaseError> {
        Ok(self.liveness.attend(&self.process, call).await??)
    }
}
