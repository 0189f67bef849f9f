//! `waystage messages`: runs the message service until a signal arrives.

mod flags;
mod migrate;

use crate::ready::{StopSignals, announce};
use clap::{Args, Subcommand};
use clock::Clock;
use flags::MessagesFlags;
use messages::{Config, ConfigError, DispatchConfig, Document, Embedded, RunningService, ServiceFile};
use records::report;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The data directory of the private PostgreSQL.
const EMBEDDED: &str = ".waystage/postgres";
/// File descriptors for everything but client and database connections.
const OTHER_DESCRIPTORS: usize = 64;
/// Connections over the limit that are refused at the same time, at each address.
const REFUSED_CONNECTIONS: usize = 100;
/// Connections to `admin-listen`.
const ADMIN_CONNECTIONS: usize = 100;

/// Arguments of `waystage messages`.
#[derive(Debug, Args)]
#[command(after_help = "docs/messages.md describes the interface and its guarantees; \
examples/messages/reference.toml has every key of the file. Arguments override the file.
Exit codes: 0 stopped by a signal, 1 cannot start (one line on stderr), 2 invalid arguments or configuration.")]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct MessagesArguments {
    /// Read the configuration from this file (TOML).
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Check the configuration, print a summary and exit with 0 if it is valid, 2 if not. Opens no socket.
    #[arg(long)]
    check: bool,
    /// Start a private PostgreSQL from installed programs. Its data are in .waystage/postgres.
    #[arg(long, conflicts_with = "database")]
    embedded: bool,
    #[command(flatten)]
    flags: MessagesFlags,
    #[command(subcommand)]
    command: Option<MessagesCommand>,
}

/// What to do instead of serving.
#[derive(Debug, Subcommand)]
enum MessagesCommand {
    /// Bring the database's schema up to date before services of this version start, or check it.
    Migrate(migrate::MigrateArguments),
}

/// Serves until a signal arrives.
pub(crate) fn run(arguments: &MessagesArguments) -> Result<ExitCode, String> {
    if let Some(MessagesCommand::Migrate(arguments)) = &arguments.command {
        return migrate::run(arguments);
    }
    let mut config = match config(arguments) {
        Ok(config) => config,
        Err(line) => {
            report(format_args!("waystage: {line}"));
            return Ok(ExitCode::from(2));
        }
    };
    let is_null = matches!(config.dispatch, DispatchConfig::None { .. });
    // The URL of a private database is known only after its start.
    let database = if arguments.embedded { "host=/nowhere".into() } else { config.database.clone() };
    if let Err(error) = messages::check(&Config { database, ..config.clone() }) {
        report(format_args!("waystage: {error}"));
        return Ok(ExitCode::from(2));
    }
    if arguments.check {
        announce(&summary(&config, arguments.embedded));
        return Ok(ExitCode::SUCCESS);
    }
    fit_into_descriptors(&mut config)?;
    warn_about_password(arguments.flags.database());
    let mut signals = StopSignals::take_over_with_reload()?;
    if is_null {
        report(format_args!("waystage: messages: MEASURING MODE: there is no database, and all messages are lost"));
    }
    // Stops after the service, whatever happens in between.
    let embedded = match arguments.embedded {
        true => {
            let connections = config.dispatch.accepted_connections();
            let started = Embedded::start_for(Path::new(EMBEDDED), connections).and_then(Embedded::supervise);
            Some(started.map_err(|error| error.to_string())?)
        }
        false => None,
    };
    if let Some(embedded) = &embedded {
        config.database = embedded.url().into();
    }
    let running = messages::start(&config, Clock::monotonic()).map_err(|error| error.to_string())?;
    let dispatch = flags::name(config.dispatch);
    announce(&format!("waystage messages ready on {} dispatch={dispatch}", running.address()));
    while signals.wait_for_reload() {
        reload(&running, arguments);
    }
    if let Some(embedded) = &embedded {
        count_signals(signals, embedded.further_signals());
    }
    let records = running.stop().map_err(|error| error.to_string());
    drop(embedded);
    if let Some(records) = records? {
        announce(&format!("waystage messages records written {} dropped {}", records.written, records.dropped));
    }
    Ok(ExitCode::SUCCESS)
}

/// Counts the stop signals after the first one, until the process ends.
fn count_signals(mut signals: StopSignals, counter: Arc<AtomicUsize>) {
    std::thread::spawn(move || {
        loop {
            if !signals.wait_for_reload() {
                counter.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
}

/// Every user of the host can list the arguments of a process.
fn warn_about_password(database: Option<&str>) {
    let has_password = |url: &str| {
        let user = url.split_once("://").and_then(|(_, rest)| rest.split_once('@'));
        user.is_some_and(|(user, _)| user.contains(':')) || url.contains("password=")
    };
    if database.is_some_and(has_password) {
        report(format_args!(
            "waystage: messages: the password in --database is visible in the list of processes; use `database` in --config FILE, or WAYSTAGE_DATABASE"
        ));
    }
}

/// Reads tokens and certificates again. If the configuration has an error, nothing changes.
fn reload(running: &RunningService, arguments: &MessagesArguments) {
    match config(arguments).and_then(|config| running.reload(&config).map_err(|error| error.to_string())) {
        Ok(()) => report(format_args!("waystage: messages: tokens and certificates were read again")),
        Err(line) => {
            report(format_args!(
                "waystage: messages: not reloaded; the previous tokens and certificates stay valid: {line}"
            ));
        }
    }
}

/// The configuration from file and arguments, or an error in one line.
fn config(arguments: &MessagesArguments) -> Result<Config, String> {
    let document = arguments.config.as_deref().map(Document::read).transpose().map_err(|error| error.to_string())?;
    let mut file = match &document {
        Some(document) => document.settings().map_err(|error| error.to_string())?,
        None => ServiceFile::default(),
    };
    let flags = arguments.flags.as_file();
    if arguments.embedded {
        (file.database, file.database_file) = (None, None);
    } else if file.database.is_none() && file.database_file.is_none() {
        file.database = database_of_environment();
    }
    let line = |error: ConfigError| match (&document, flags::is_set(&flags, &error.key)) {
        (Some(document), false) => document.locate(&error).to_string(),
        _ => format!("--{error}"),
    };
    let config = file.overridden_by(flags.clone()).config().map_err(line)?;
    let needs_database = !matches!(config.dispatch, DispatchConfig::None { .. }) && !arguments.embedded;
    if needs_database && config.database.is_empty() {
        return Err("no database is given; give --database URL, or --embedded for a private one".into());
    }
    Ok(config)
}

/// The URL in the environment, which only the same user and root can read.
fn database_of_environment() -> Option<String> {
    std::env::var("WAYSTAGE_DATABASE").ok().filter(|url| !url.is_empty())
}

/// A summary of the configuration without secrets.
fn summary(config: &Config, is_embedded: bool) -> String {
    let database = match (config.dispatch, is_embedded, &config.database_authority) {
        (DispatchConfig::None { .. }, _, _) => "none: all messages are lost".into(),
        (_, true, _) => format!("private, in {EMBEDDED}"),
        (_, _, None) => "without TLS".into(),
        (_, _, Some(path)) => format!("with TLS, verified by {}", path.display()),
    };
    let clients = if config.tls.is_some() { "TLS" } else { "no TLS" };
    let tokens = match config.tokens.len() {
        0 => "none: everything is permitted".into(),
        number => format!("{number}"),
    };
    format!(
        "listen    {} ({clients}, at most {} connections)\ndatabase  {database}\ndispatch  {}\ntokens    {tokens}",
        config.listen,
        config.clients.connections_max,
        flags::name(config.dispatch),
    )
}

/// Raises the limit of open files as far as possible, and lowers the limit of clients so that connections to the database always fit.
fn fit_into_descriptors(config: &mut Config) -> Result<(), String> {
    let limit = getrlimit(Resource::Nofile);
    // If the limit cannot be raised, the current one counts.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    let Some(available) = getrlimit(Resource::Nofile).current else { return Ok(()) };
    let connections = config.dispatch.request_connections();
    // Twice, because a connection may be replaced before the kernel has closed the old one.
    let for_operators = if config.admin_listen.is_some() { ADMIN_CONNECTIONS + REFUSED_CONNECTIONS } else { 0 };
    let reserved = OTHER_DESCRIPTORS + REFUSED_CONNECTIONS + for_operators + 2 * connections;
    let room = usize::try_from(available).unwrap_or(usize::MAX).saturating_sub(reserved);
    if room == 0 {
        return Err(format!(
            "connections to the database, of operators and over the limit need up to {reserved} open files, but the limit is \
             {available}; raise it (ulimit -n) or use fewer connections"
        ));
    }
    if room < config.clients.connections_max {
        let wanted = config.clients.connections_max;
        announce(&format!(
            "waystage messages admits {room} connections, not {wanted}, because open files are limited to {available}"
        ));
        config.clients.connections_max = room;
    }
    Ok(())
}
