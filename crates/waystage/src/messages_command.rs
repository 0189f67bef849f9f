//! `waystage messages`: queues of messages over PostgreSQL, behind HTTP.

mod flags;

use crate::ready::{StopSignals, announce};
use clap::Args;
use clock::Clock;
use flags::MessagesFlags;
use messages::{Config, ConfigError, Dispatch, Document, Embedded, Settings};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Where a private PostgreSQL keeps its data.
const EMBEDDED: &str = ".waystage/postgres";
/// Descriptors that are no client's.
const OTHER_DESCRIPTORS: usize = 64;

/// Arguments of `waystage messages`.
#[derive(Debug, Args)]
#[command(after_help = "docs/messages.md has the interface, what it promises and how it works; \
examples/messages/reference.toml has every key of the file. Arguments override the file.
Exit codes: 0 ended by a signal, 1 cannot serve (one line says why), 2 the arguments or the configuration make no sense.")]
pub(crate) struct MessagesArguments {
    /// Read the configuration from this file (TOML).
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Check the configuration, say what it means, and end: 0 it can work, 2 it cannot. Opens no socket.
    #[arg(long)]
    check: bool,
    /// Start a private PostgreSQL from an installed one; its data are in .waystage/postgres.
    #[arg(long, conflicts_with = "database")]
    embedded: bool,
    #[command(flatten)]
    flags: MessagesFlags,
}

/// Serves until a signal comes.
pub(crate) fn run(arguments: &MessagesArguments) -> Result<ExitCode, String> {
    let mut config = match config(arguments) {
        Ok(config) => config,
        Err(line) => {
            eprintln!("waystage: {line}");
            return Ok(ExitCode::from(2));
        }
    };
    let is_null = matches!(config.dispatch, Dispatch::None { .. });
    if arguments.check {
        // A private database has no URL before it runs.
        let database = if arguments.embedded { "host=/nowhere".into() } else { config.database.clone() };
        if let Err(error) = messages::check(&Config { database, ..config.clone() }) {
            eprintln!("waystage: {error}");
            return Ok(ExitCode::from(2));
        }
        announce(&summary(&config, arguments.embedded));
        return Ok(ExitCode::SUCCESS);
    }
    fit_into_descriptors(&mut config)?;
    let mut signals = StopSignals::take_over()?;
    if is_null {
        eprintln!("waystage: messages: MEASURING MODE: there is no database, and everything that is sent is lost");
    }
    // It ends after the service, whatever happens in between.
    let embedded = match arguments.embedded {
        true => Some(Embedded::start(Path::new(EMBEDDED)).map_err(|error| error.to_string())?),
        false => None,
    };
    if let Some(embedded) = &embedded {
        config.database = embedded.url();
    }
    let running = messages::start(&config, Clock::monotonic()).map_err(|error| error.to_string())?;
    let dispatch = flags::name(config.dispatch);
    announce(&format!("waystage messages ready on {} dispatch={dispatch}", running.address()));
    signals.wait();
    let records = running.stop().map_err(|error| error.to_string());
    drop(embedded);
    if let Some(records) = records? {
        announce(&format!("waystage messages records written {} dropped {}", records.written, records.dropped));
    }
    Ok(ExitCode::SUCCESS)
}

/// What the file and the arguments say together; or one line.
fn config(arguments: &MessagesArguments) -> Result<Config, String> {
    let document = arguments.config.as_deref().map(Document::read).transpose().map_err(|error| error.to_string())?;
    let mut said = match &document {
        Some(document) => document.settings().map_err(|error| error.to_string())?,
        None => Settings::default(),
    };
    let flags = arguments.flags.settings();
    if arguments.embedded {
        said.database = None;
    }
    let told = |error: ConfigError| match (&document, flags::is_said(&flags, &error.key)) {
        (Some(document), false) => document.told(&error).to_string(),
        _ => format!("--{error}"),
    };
    let config = said.overridden_by(flags.clone()).config().map_err(told)?;
    let needs_database = !matches!(config.dispatch, Dispatch::None { .. }) && !arguments.embedded;
    if needs_database && config.database.is_empty() {
        return Err("there is no database: give --database URL, or --embedded for a private one".into());
    }
    Ok(config)
}

/// What the configuration means, without what is secret.
fn summary(config: &Config, is_embedded: bool) -> String {
    let database = match (config.dispatch, is_embedded, &config.database_authority) {
        (Dispatch::None { .. }, _, _) => "none: what is sent is lost".into(),
        (_, true, _) => format!("a private one in {EMBEDDED}"),
        (_, _, None) => "as given, without TLS".into(),
        (_, _, Some(path)) => format!("as given, with TLS, verified by {}", path.display()),
    };
    let clients = if config.tls.is_some() { "TLS" } else { "no TLS" };
    let tokens = match config.tokens.len() {
        0 => "none: everyone may do everything".into(),
        number => format!("{number}"),
    };
    format!(
        "listen    {} ({clients}, at most {} connections)\ndatabase  {database}\ndispatch  {}\ntokens    {tokens}",
        config.listen,
        config.clients.connections_max,
        flags::name(config.dispatch),
    )
}

/// Raises the limit of open files as far as it goes, and admits only so many clients that the database is always reached.
fn fit_into_descriptors(config: &mut Config) -> Result<(), String> {
    let limit = getrlimit(Resource::Nofile);
    // What cannot be raised is taken as it is.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    let Some(available) = getrlimit(Resource::Nofile).current else { return Ok(()) };
    let connections = match config.dispatch {
        Dispatch::Fused { lanes } => lanes,
        Dispatch::Pool { connections } => connections,
        Dispatch::None { .. } => 0,
    };
    // Twice, since a connection may be replaced before the kernel has let go of the old one.
    let reserved = OTHER_DESCRIPTORS + 2 * connections;
    let room = usize::try_from(available).unwrap_or(usize::MAX).saturating_sub(reserved);
    if room == 0 {
        return Err(format!(
            "connections to the database take up to {reserved} open files, but only {available} are allowed: \
             raise the limit (ulimit -n) or use fewer connections"
        ));
    }
    if room < config.clients.connections_max {
        let wanted = config.clients.connections_max;
        announce(&format!(
            "waystage messages admits {room} connections, not {wanted}: open files are limited to {available}"
        ));
        config.clients.connections_max = room;
    }
    Ok(())
}
