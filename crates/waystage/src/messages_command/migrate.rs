//! `waystage messages migrate`: brings the schema of the database up to date, or checks whether it is.

use crate::ready::announce;
use clap::Args;
use messages::{Config, ConfigError, Document, MessagesError, SchemaState, ServiceFile};
use records::report;
use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments of `waystage messages migrate`.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 the schema is up to date, 1 it is not or the database cannot be used (one line on stderr), \
2 invalid arguments or configuration."
)]
pub(super) struct MigrateArguments {
    /// Read the configuration from this file (TOML).
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Connect to this database: a URL, or libpq's form such as host=/run/postgresql.
    #[arg(long, value_name = "URL")]
    database: Option<String>,
    /// Use TLS to the database. Its certificate must be signed by one of these authorities (PEM) and name its host.
    #[arg(long, value_name = "FILE")]
    database_authority: Option<PathBuf>,
    /// Change nothing; exit with 0 if the schema is up to date, with 1 if steps are missing.
    #[arg(long)]
    check: bool,
}

/// Migrates or checks.
pub(super) fn run(arguments: &MigrateArguments) -> Result<ExitCode, String> {
    let config = match config(arguments) {
        Ok(config) => config,
        Err(line) => {
            report(format_args!("waystage: {line}"));
            return Ok(ExitCode::from(2));
        }
    };
    super::warn_about_password(arguments.database.as_deref());
    let SchemaState { step, known } = match messages::migrate(&config, arguments.check) {
        Ok(state) => state,
        Err(error @ MessagesError::Setting(_)) => {
            report(format_args!("waystage: {error}"));
            return Ok(ExitCode::from(2));
        }
        Err(error) => return Err(error.to_string()),
    };
    if step < known {
        return Err(format!(
            "the schema is at step {step}, but this program needs step {known}; run waystage messages migrate"
        ));
    }
    announce(&format!("schema    step {step}, up to date"));
    Ok(ExitCode::SUCCESS)
}

fn config(arguments: &MigrateArguments) -> Result<Config, String> {
    let document = arguments.config.as_deref().map(Document::read).transpose().map_err(|error| error.to_string())?;
    let mut file: ServiceFile = match &document {
        Some(document) => document.settings().map_err(|error| error.to_string())?,
        None => ServiceFile::default(),
    };
    if file.database.is_none() && file.database_file.is_none() {
        file.database = super::database_of_environment();
    }
    let flags = ServiceFile {
        database: arguments.database.clone(),
        database_authority: arguments.database_authority.clone(),
        ..ServiceFile::default()
    };
    let line = |error: ConfigError| document.as_ref().map_or(error.to_string(), |file| file.locate(&error).to_string());
    let config = file.overridden_by(flags).config().map_err(line)?;
    match config.database.is_empty() {
        true => Err("no database is given; give --database URL".into()),
        false => Ok(config),
    }
}
