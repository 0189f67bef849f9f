//! The arguments that override keys of the configuration file. An argument that is not given leaves the file or the default unchanged.

use clap::Args;
use messages::{Discipline, DispatchConfig, ServiceFile};
use std::path::PathBuf;
use std::time::Duration;

/// Arguments that override the configuration file.
#[derive(Debug, Args)]
pub(super) struct MessagesFlags {
    /// Connect to this database: postgres://USER:PASSWORD@HOST:PORT/NAME, or libpq's form such as host=/run/postgresql.
    #[arg(long, value_name = "URL")]
    database: Option<String>,
    /// Listen on this address; port 0 selects a free port [default: 127.0.0.1:8080].
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<String>,
    /// Start although others can reach the service and there are no tokens, or no TLS for the tokens.
    #[arg(long)]
    insecure: bool,
    /// How requests reach the database: fused combines waiting requests into one statement, pool uses one statement for each request,
    /// none answers without a database, to measure the rest of the service: ALL MESSAGES ARE LOST [default: fused].
    #[arg(help_heading = "Dispatch", long, value_name = "fused|pool|none", value_parser = dispatch)]
    dispatch: Option<Discipline>,
    /// With fused: connections to the database. The queue's name determines which one a request uses [default: 2].
    #[arg(help_heading = "Dispatch", long, value_name = "NUMBER")]
    lanes: Option<usize>,
    /// With pool: connections to the database [default: 40].
    #[arg(help_heading = "Dispatch", long, value_name = "NUMBER")]
    connections: Option<usize>,
    /// Worker threads [default: half as many as cores].
    #[arg(help_heading = "Dispatch", long, value_name = "NUMBER")]
    threads: Option<usize>,
    /// With none: every pop returns a message with a body of this size; without it, no message.
    #[arg(help_heading = "Dispatch", long, value_name = "SIZE", value_parser = quantity::bytes)]
    null_body: Option<usize>,
    /// Write records of requests to a file in this directory.
    #[arg(help_heading = "Measurement", long, value_name = "DIR")]
    records: Option<PathBuf>,
    /// With --records: record one request in N [default: 100].
    #[arg(help_heading = "Measurement", long, value_name = "N")]
    sample: Option<u32>,
    /// Limit the body of a message [default: 256k].
    #[arg(help_heading = "Limits", long, value_name = "SIZE", value_parser = quantity::bytes)]
    body_limit: Option<usize>,
    /// Limit the requests that wait for a lane or for the pool; further ones receive 503 [default: 10000].
    #[arg(help_heading = "Limits", long, value_name = "NUMBER")]
    queue: Option<usize>,
    /// Limit the client connections; further ones receive 503 and are closed [default: 10000].
    #[arg(help_heading = "Limits", long, value_name = "NUMBER")]
    connections_max: Option<usize>,
    /// Close a connection without a request after this time [default: 75s].
    #[arg(help_heading = "Limits", long, value_name = "TIME", value_parser = quantity::duration)]
    idle_timeout: Option<Duration>,
    /// Close a connection if the head of a request takes longer than this, from its first byte [default: 10s].
    #[arg(help_heading = "Limits", long, value_name = "TIME", value_parser = quantity::duration)]
    head_timeout: Option<Duration>,
    /// Reply 408 if the body of a request takes longer than this, from the end of its head [default: 30s].
    #[arg(help_heading = "Limits", long, value_name = "TIME", value_parser = quantity::duration)]
    body_timeout: Option<Duration>,
    /// Close a connection if the client reads nothing of a reply for this time [default: 30s].
    #[arg(help_heading = "Limits", long, value_name = "TIME", value_parser = quantity::duration)]
    unread_timeout: Option<Duration>,
    /// Use TLS to the database. Its certificate must be signed by one of these authorities (PEM) and name its host.
    #[arg(help_heading = "TLS", long, value_name = "FILE")]
    database_authority: Option<PathBuf>,
    /// Serve clients over TLS: PEM, the certificate first, then intermediate certificates.
    #[arg(help_heading = "TLS", long, value_name = "FILE", alias = "tls-cert")]
    tls_certificate: Option<PathBuf>,
    /// The private key of the certificate (PEM).
    #[arg(help_heading = "TLS", long, value_name = "FILE")]
    tls_key: Option<PathBuf>,
}

fn dispatch(text: &str) -> Result<Discipline, String> {
    match text {
        "fused" => Ok(Discipline::Fused),
        "pool" => Ok(Discipline::Pool),
        "none" => Ok(Discipline::None),
        _ => Err("give one of: fused, pool, none".into()),
    }
}

/// The name of a discipline in a configuration.
pub(super) fn name(dispatch: DispatchConfig) -> &'static str {
    match dispatch {
        DispatchConfig::Fused { .. } => "fused",
        DispatchConfig::Pool { .. } => "pool",
        DispatchConfig::None { .. } => "none",
    }
}

/// Whether an argument sets this key.
pub(super) fn is_set(flags: &ServiceFile, key: &str) -> bool {
    toml::Table::try_from(flags).is_ok_and(|table| table.contains_key(key))
}

impl MessagesFlags {
    /// The database URL, if it is an argument.
    pub(super) fn database(&self) -> Option<&str> {
        self.database.as_deref()
    }

    /// The keys that the arguments set.
    pub(super) fn as_file(&self) -> ServiceFile {
        ServiceFile {
            listen: self.listen.clone(),
            insecure: self.insecure.then_some(true),
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
            ..ServiceFile::default()
        }
    }
}
