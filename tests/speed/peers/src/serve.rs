//! pgmq's SQL and a plain table behind HTTP, as one writes it: a handler takes a connection from a pool, does one prepared statement
//! and gives it back. Both share the pool, since only one of them works at a time.

use crate::dead::Dead;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::serve::ListenerExt;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Semaphore;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Config, NoTls, Row, Statement};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const PLAIN: &str =
    "CREATE TABLE IF NOT EXISTS plain (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body bytea NOT NULL)";
const PLAIN_SEND: &str = "INSERT INTO plain (body) VALUES ($1) RETURNING id";
const PLAIN_POP: &str = "DELETE FROM plain WHERE id = (SELECT id FROM plain ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED)
    RETURNING id, body";
const PGMQ_SEND: &str = "SELECT pgmq.send('q', $1::text::jsonb)";
const PGMQ_POP: &str = "SELECT msg_id, message::text FROM pgmq.pop('q')";
/// Bytes of the log so far, and the transactions that have written so far.
const COUNTERS: &str = "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint,
    pg_snapshot_xmax(pg_current_snapshot())::text::bigint";

/// A connection with its statements.
struct Connection {
    client: Client,
    plain_send: Statement,
    plain_pop: Statement,
    /// To send and to pop; none where pgmq is not built in.
    pgmq: Option<[Statement; 2]>,
}

/// Connections that nobody uses, the one used last on top.
struct Pool {
    dead: Dead,
    free: Mutex<Vec<Connection>>,
    permits: Semaphore,
}

/// Serves until it is killed.
pub(crate) fn run(database: &str, connections: &str) -> Result<(), Failure> {
    let connections: usize = connections.parse()?;
    let config: Config = database.parse()?;
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(async move {
        prepare(&config).await?;
        let pool = Arc::new(Pool::connect(&config, connections).await?);
        let router = Router::new()
            .route("/plain", post(plain_send))
            .route("/plain:pop", post(plain_pop))
            .route("/pgmq", post(pgmq_send))
            .route("/pgmq:pop", post(pgmq_pop))
            .route("/counters", get(counters))
            .route("/dead", post(dead))
            .with_state(pool);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        println!("{}", listener.local_addr()?);
        let listener = listener.tap_io(|stream| {
            let _ = stream.set_nodelay(true);
        });
        axum::serve(listener, router).await?;
        Ok(())
    })
}

/// Installs pgmq from its crate and makes one queue of each kind.
async fn prepare(config: &Config) -> Result<(), Failure> {
    #[cfg(feature = "pgmq")]
    install_pgmq(config).await?;
    let (client, connection) = config.connect(NoTls).await?;
    tokio::spawn(connection);
    client.batch_execute(PLAIN).await?;
    if cfg!(feature = "pgmq") {
        client.batch_execute("SELECT pgmq.create('q')").await?;
    }
    Ok(())
}

/// pgmq's installer wants a pool of another library.
#[cfg(feature = "pgmq")]
async fn install_pgmq(config: &Config) -> Result<(), Failure> {
    use tokio_postgres::config::Host;
    let mut options = sqlx::postgres::PgConnectOptions::new();
    for host in config.get_hosts() {
        options = match host {
            Host::Tcp(name) => options.host(name),
            Host::Unix(path) => options.socket(path),
        };
    }
    options = options.username(config.get_user().unwrap_or("postgres"));
    options = options.database(config.get_dbname().unwrap_or("postgres"));
    let pool = sqlx::postgres::PgPoolOptions::new().max_connections(1).connect_with(options).await?;
    pgmq::install::install_sql_from_embedded(&pool).await?;
    pool.close().await;
    Ok(())
}

impl Pool {
    async fn connect(config: &Config, connections: usize) -> Result<Pool, Failure> {
        let mut free = Vec::new();
        for _ in 0..connections {
            let (client, connection) = config.connect(NoTls).await?;
            tokio::spawn(connection);
            client.batch_execute("SET synchronous_commit = on").await?;
            let pgmq = match cfg!(feature = "pgmq") {
                true => Some([client.prepare_typed(PGMQ_SEND, &[Type::TEXT]).await?, client.prepare(PGMQ_POP).await?]),
                false => None,
            };
            free.push(Connection {
                plain_send: client.prepare(PLAIN_SEND).await?,
                plain_pop: client.prepare(PLAIN_POP).await?,
                pgmq,
                client,
            });
        }
        Ok(Pool { dead: Dead::new(config), free: Mutex::new(free), permits: Semaphore::new(connections) })
    }

    /// Does one statement over a free connection, when there is one.
    async fn with<F>(&self, work: F) -> Response
    where
        F: AsyncFnOnce(&Connection) -> Result<Response, tokio_postgres::Error>,
    {
        let Ok(_permit) = self.permits.acquire().await else { return StatusCode::SERVICE_UNAVAILABLE.into_response() };
        let Some(connection) = self.free().pop() else { return StatusCode::SERVICE_UNAVAILABLE.into_response() };
        let result = work(&connection).await;
        self.free().push(connection);
        result.unwrap_or_else(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response())
    }

    fn free(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn plain_send(State(pool): State<Arc<Pool>>, body: Bytes) -> Response {
    pool.with(async |connection| {
        let row = connection.client.query_one(&connection.plain_send, &[&body.as_ref()]).await?;
        Ok(stored(row.get(0)))
    })
    .await
}

async fn plain_pop(State(pool): State<Arc<Pool>>) -> Response {
    pool.with(async |connection| {
        let row = connection.client.query_opt(&connection.plain_pop, &[]).await?;
        Ok(row.map_or_else(empty, |row| popped(&row, row.get::<_, Vec<u8>>(1))))
    })
    .await
}

async fn pgmq_send(State(pool): State<Arc<Pool>>, body: Bytes) -> Response {
    let Ok(text) = std::str::from_utf8(&body) else { return StatusCode::BAD_REQUEST.into_response() };
    pool.with(async |connection| {
        let Some([send, _]) = &connection.pgmq else { return Ok(StatusCode::NOT_FOUND.into_response()) };
        let row = connection.client.query_one(send, &[&text]).await?;
        Ok(stored(row.get(0)))
    })
    .await
}

async fn pgmq_pop(State(pool): State<Arc<Pool>>) -> Response {
    pool.with(async |connection| {
        let Some([_, pop]) = &connection.pgmq else { return Ok(StatusCode::NOT_FOUND.into_response()) };
        let row = connection.client.query_opt(pop, &[]).await?;
        Ok(row.map_or_else(empty, |row| popped(&row, row.get::<_, String>(1).into_bytes())))
    })
    .await
}

async fn dead(State(pool): State<Arc<Pool>>, words: String) -> (StatusCode, String) {
    pool.dead.does(&words).await
}

async fn counters(State(pool): State<Arc<Pool>>) -> Response {
    pool.with(async |connection| {
        let row = connection.client.query_one(COUNTERS, &[]).await?;
        let (log_bytes, commits): (i64, i64) = (row.get(0), row.get(1));
        Ok(serde_json::json!({ "log_bytes": log_bytes, "commits": commits }).to_string().into_response())
    })
    .await
}

fn stored(id: i64) -> Response {
    (StatusCode::CREATED, [("content-type", "application/json")], format!("{{\"id\":{id}}}")).into_response()
}

fn popped(row: &Row, body: Vec<u8>) -> Response {
    ([("message", row.get::<_, i64>(0).to_string())], body).into_response()
}

fn empty() -> Response {
    StatusCode::NO_CONTENT.into_response()
}
