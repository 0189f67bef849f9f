//! The arguments that stand for a key of the configuration. What is not given leaves the file, or the default, as it is.

use clap::Args;
use messages::{Dispatch, DispatchKind, Settings};
use std::path::PathBuf;
use std::time::Duration;

/// Arguments that override the file.
#[derive(Debug, Args)]
pub(super) struct MessagesFlags {
    /// The database: postgres://USER:PASSWORD@HOST:PORT/NAME, or libpq's words such as host=/run/postgresql.
    #[arg(long, value_name = "URL")]
    database: Option<String>,
    /// Speak TLS to the database; its certificate must be vouched for by one of these (PEM) and name its host.
    #[arg(long, value_name = "FILE")]
    database_authority: Option<PathBuf>,
    /// Where to listen; port 0 takes a free one [default: 127.0.0.1:8080].
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<String>,
    /// How requests reach the database: fused sends what waits as one statement, pool one statement for each request; none needs no
    /// database and answers at once, which is only of use to measure all the rest: WHAT IS SENT IS LOST [default: fused].
    #[arg(long, value_name = "fused|pool|none", value_parser = dispatch)]
    dispatch: Option<DispatchKind>,
    /// With fused: connections, chosen by the queue's name [default: 2].
    #[arg(long, value_name = "NUMBER")]
    lanes: Option<usize>,
    /// With pool: connections [default: 40].
    #[arg(long, value_name = "NUMBER")]
    connections: Option<usize>,
    /// Threads that serve [default: one for each two processors].
    #[arg(long, value_name = "NUMBER")]
    threads: Option<usize>,
    /// With none: every pop gets a message with a body of so many bytes; without it there is never one.
    #[arg(long, value_name = "SIZE", value_parser = quantity::bytes)]
    null_body: Option<usize>,
    /// Write records of requests, one in --sample, to a file in this directory.
    #[arg(long, value_name = "DIR")]
    records: Option<PathBuf>,
    /// With --records: keep the record of one request in N [default: 100].
    #[arg(long, value_name = "N")]
    sample: Option<u32>,
    /// Bytes of a message's body [default: 256k].
    #[arg(long, value_name = "SIZE", value_parser = quantity::bytes)]
    body_limit: Option<usize>,
    /// Requests that may wait for a lane, or for the pool; more are refused [default: 10000].
    #[arg(long, value_name = "NUMBER")]
    queue: Option<usize>,
    /// Connections of clients; more are told so and closed [default: 10000].
    #[arg(long, value_name = "NUMBER")]
    connections_max: Option<usize>,
    /// A connection without a request is closed after this [default: 75s].
    #[arg(long, value_name = "TIME", value_parser = quantity::duration)]
    idle_timeout: Option<Duration>,
    /// A request's head must be there after this, from its first byte [default: 10s].
    #[arg(long, value_name = "TIME", value_parser = quantity::duration)]
    head_timeout: Option<Duration>,
    /// A request's body must be there after this, from its head [default: 30s].
    #[arg(long, value_name = "TIME", value_parser = quantity::duration)]
    body_timeout: Option<Duration>,
    /// A client that takes nothing of its reply for so long is left [default: 30s].
    #[arg(long, value_name = "TIME", value_parser = quantity::duration)]
    unread_timeout: Option<Duration>,
    /// Speak TLS to clients: PEM, the certificate first, then those between it and the authority.
    #[arg(long, value_name = "FILE", alias = "tls-cert")]
    tls_certificate: Option<PathBuf>,
    /// PEM: the certificate's key.
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,
}

fn dispatch(text: &str) -> Result<DispatchKind, String> {
    match text {
        "fused" => Ok(DispatchKind::Fused),
        "pool" => Ok(DispatchKind::Pool),
        "none" => Ok(DispatchKind::None),
        _ => Err("give one of: fused, pool, none".into()),
    }
}

/// A dispatch as it is written.
pub(super) fn name(dispatch: Dispatch) -> &'static str {
    match dispatch {
        Dispatch::Fused { .. } => "fused",
        Dispatch::Pool { .. } => "pool",
        Dispatch::None { .. } => "none",
    }
}

/// Whether an argument says this.
pub(super) fn is_said(flags: &Settings, key: &str) -> bool {
    toml::Table::try_from(flags).is_ok_and(|table| table.contains_key(key))
}

impl MessagesFlags {
    /// What they say.
    pub(super) fn settings(&self) -> Settings {
        Settings {
            listen: self.listen.clone(),
            database: self.database.clone(),
            database_authority: self.database_authority.clone(),
            dispatch: self.dispatch,
            lanes: self.lanes,
            connections: self.connections,
            threads: self.threads,
            null_body: self.null_body,
            records: self.records.clone(),
            sample: self.sample,
            tls_certificate: self.tls_certificate.clone(),
            tls_key: self.tls_key.clone(),
            connections_max: self.connections_max,
            idle_timeout: self.idle_timeout,
            head_timeout: self.head_timeout,
            body_timeout: self.body_timeout,
            unread_timeout: self.unread_timeout,
            body_limit: self.body_limit,
            queue: self.queue,
            ..Settings::default()
        }
    }
}
