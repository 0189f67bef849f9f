//! `waystage proxy convert`: writes the configuration of another proxy as one for this proxy. Opens no socket.

use crate::proxy_command::invalid;
use ::convert::{Options, Origin};
use clap::{Args, ValueEnum};
use proxy::{Document, ProxyFile};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Arguments of `waystage proxy convert`.
#[derive(Debug, Args)]
#[command(
    after_help = "See docs/migration.md. Exit codes: 0, or 2 if the file cannot be converted without moving keys."
)]
pub(crate) struct ConvertArguments {
    /// The configuration: nutcracker.yml of twemproxy, or the JSON of mcrouter. The result goes to standard output.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The proxy that it is for [default: mcrouter if the file begins with a brace, otherwise twemproxy].
    #[arg(long, value_enum)]
    from: Option<OriginArgument>,
    /// For mcrouter: the routing prefix whose route is converted, as mcrouter's argument of this name.
    #[arg(long, value_name = "PREFIX")]
    route_prefix: Option<String>,
}

/// A proxy whose configuration can be converted.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum OriginArgument {
    /// twemproxy, also called nutcracker.
    Twemproxy,
    /// mcrouter.
    Mcrouter,
}

/// Prints the converted configuration.
pub(crate) fn run(arguments: &ConvertArguments) -> Result<ExitCode, String> {
    let options = Options {
        file: arguments.file.display().to_string(),
        origin: arguments.from.map(|from| match from {
            OriginArgument::Twemproxy => Origin::Twemproxy,
            OriginArgument::Mcrouter => Origin::Mcrouter,
        }),
        route_prefix: arguments.route_prefix.clone(),
    };
    let text = match converted(&arguments.file, &options) {
        Ok(text) => text,
        Err(line) => return Ok(invalid(&line)),
    };
    match io::stdout().write_all(text.as_bytes()) {
        // The reader of our output may close it early, as `head` does.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(format!("cannot write: {error}")),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// The result, which the proxy would accept.
fn converted(file: &Path, options: &Options) -> Result<String, String> {
    let document = Document::read(file).map_err(|error| error.to_string())?;
    let text = ::convert::convert(document.text(), options).map_err(|error| error.to_string())?;
    let result = Document::new("result", &text);
    let settings: ProxyFile = result.settings().map_err(|error| refusal(options, &error.to_string()))?;
    let checked = settings.config().and_then(|config| config.check());
    checked.map_err(|error| refusal(options, &result.locate(&error).to_string()))?;
    Ok(text)
}

/// The line for a configuration that the other proxy may accept, but this one does not.
fn refusal(options: &Options, problem: &str) -> String {
    format!("{}: the result would be invalid: {problem}", options.file)
}
