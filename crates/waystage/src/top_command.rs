//! `waystage top`: shows running programs in the terminal, from their metrics.

use clap::Args;
use quantity::duration;
use std::io::{ErrorKind, IsTerminal, Write, stdin, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use std::{env, fs};
use top::{Settings, Target};

/// Shorter intervals would cost the targets more than a look at them is worth.
const INTERVAL_MIN: Duration = Duration::from_millis(100);
/// The width of a frame of text if COLUMNS does not say another one, and the largest one.
const WIDTH: usize = 80;
const WIDTH_MAX: usize = 1000;

/// Arguments of `waystage top`.
#[derive(Debug, Args)]
#[command(
    about = "Show rates, times, backends and queues of running programs in the terminal",
    after_help = "Examples:
  waystage top 127.0.0.1:9150                          the --metrics of a proxy or a load generator
  waystage top http://127.0.0.1:8080/metrics           a message service
  waystage top 10.0.0.1:9150 10.0.0.2:9150 --sum       two proxies, added up
  waystage top 127.0.0.1:9150 --once                   one frame as text
docs/top.md describes the view and its keys.

Exit codes: 0 success, 1 no figures of a target with --once or no terminal, 2 invalid arguments."
)]
pub(crate) struct TopArguments {
    /// The metrics page of a proxy, a message service or a load generator: HOST:PORT or http://HOST:PORT/PATH. The path is /metrics
    /// unless another one is given.
    #[arg(value_name = "URL", required = true)]
    targets: Vec<Target>,
    /// Print one frame as text and exit. It is implied if standard input or output is not a terminal.
    #[arg(long)]
    once: bool,
    /// Begin with the sum of the targets that run the same program, instead of one column for each target.
    #[arg(long)]
    sum: bool,
    /// The time between two readings, at least 100ms.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Duration,
    /// The time limit of each reading.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = interval)]
    timeout: Duration,
    /// A file with the token for the metrics, which is sent to all targets. A message service with metrics-need-token requires
    /// one with the right admin.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

fn interval(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        short if short < INTERVAL_MIN => Err("give at least 100ms".into()),
        found => Ok(found),
    }
}

/// Shows the targets until a key ends the view, or prints one frame.
pub(crate) fn run(arguments: &TopArguments) -> Result<ExitCode, String> {
    let settings = Settings {
        targets: arguments.targets.clone(),
        token: arguments.token_file.as_deref().map(token).transpose()?,
        interval: arguments.interval,
        timeout: arguments.timeout,
    };
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
    // A dumb terminal has no cursor to move.
    let is_screen = stdout().is_terminal() && stdin().is_terminal() && set("TERM").is_none_or(|term| term != "dumb");
    if is_screen && !arguments.once {
        let shown = top::show(&settings, arguments.sum, set("NO_COLOR").is_none());
        return shown.map(|()| ExitCode::SUCCESS).map_err(|error| format!("the terminal cannot be used: {error}"));
    }
    let columns = set("COLUMNS").and_then(|text| text.to_str()?.parse().ok()).filter(|width| *width > 0);
    let width = columns.unwrap_or(WIDTH).min(WIDTH_MAX);
    let frame = top::once(&settings, arguments.sum, width);
    let (text, is_whole) = frame.map_err(|error| format!("cannot start a thread: {error}"))?;
    match stdout().write_all(text.as_bytes()) {
        // The reader of a pipe may exit early, as `head` does.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(format!("cannot write: {error}")),
        _ => Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE }),
    }
}

/// The token of a file, which is its first line.
fn token(path: &std::path::Path) -> Result<String, String> {
    let failure = |what: &str| format!("--token-file {}: {what}", path.display());
    let text = fs::read_to_string(path).map_err(|error| failure(&error.to_string()))?;
    let token = text.lines().next().unwrap_or_default().trim();
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(failure("the first line must be a token, of visible ASCII characters without spaces"));
    }
    Ok(token.to_owned())
}
