//! `waystage simulate`: reads a model, runs replications on all cores, and reports the result on the terminal and in a file.

use clap::Args;
use clock::Clock;
use quantity::duration;
use records::report;
use simulate::{Model, Progress, Settings, SimulateError, Simulation};
use std::fs::{self, File};
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// A shorter run shows no progress.
const QUIET_FOR: Duration = Duration::from_secs(2);
const SHOW_EVERY: Duration = Duration::from_millis(500);
/// A run that takes longer is announced, also if standard error is not a terminal.
const ANNOUNCED_FROM: Duration = Duration::from_secs(10);

/// Arguments of `waystage simulate`.
#[derive(Debug, Args)]
#[command(
    about = "Simulate a queueing network described in a file, with confidence intervals",
    after_help = "MODEL.json is described in docs/model-format.md.
The same seed gives the same result, bit for bit, whatever the number of threads.
Every interval is the 95 % confidence interval of a mean over replications.

Exit codes: 0 success, 1 no result (one line gives the reason), 2 invalid arguments."
)]
pub(crate) struct SimulateArguments {
    /// Model file, `waystage-model/1`.
    #[arg(value_name = "MODEL.json")]
    model: PathBuf,
    /// Seed of all random numbers.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Number of independent replications.
    #[arg(long, value_name = "N", default_value_t = 20)]
    replications: usize,
    /// Requests measured in each replication [default: 200000, or more where a queue near saturation needs them].
    #[arg(long, value_name = "N")]
    requests: Option<u64>,
    /// Requests discarded at the start of each replication; auto determines the number with a pilot replication.
    #[arg(long, value_name = "auto|N", default_value = "auto", value_parser = warm_up)]
    warm_up: WarmUp,
    /// Add replications until the half-width of every mean response time is below this share of the mean.
    #[arg(long, value_name = "SHARE")]
    precision: Option<f64>,
    /// With --precision: maximum number of replications.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    replications_max: usize,
    /// Replications that run at the same time [default: one per core].
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Stop after this time and report the replications that are done.
    #[arg(long, value_name = "TIME", default_value = "600s", value_parser = duration)]
    time_limit: Duration,
    /// Print the result as JSON instead of tables.
    #[arg(long)]
    json: bool,
    /// Write the result as JSON to this file.
    #[arg(long, value_name = "FILE")]
    json_out_file: Option<PathBuf>,
    /// Write records of the first replication to files in this directory.
    #[arg(long, value_name = "DIR")]
    records: Option<PathBuf>,
    /// Record one request in N.
    #[arg(long, value_name = "N", default_value_t = 1)]
    sample: u32,
}

/// The length of the warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WarmUp {
    Auto,
    Requests(u64),
}

impl SimulateArguments {
    fn settings(&self) -> Settings {
        let usual = Settings::default();
        Settings {
            seed: self.seed,
            replications: self.replications,
            replications_max: self.replications_max,
            requests: self.requests,
            warm_up: match self.warm_up {
                WarmUp::Auto => None,
                WarmUp::Requests(requests) => Some(requests),
            },
            precision: self.precision,
            threads: self.threads.unwrap_or(usual.threads),
            time_limit: self.time_limit,
            records: self.records.clone().map(|directory| (directory, self.sample)),
        }
    }
}

/// Simulates. An invalid model or setting is a one-line error.
pub(crate) fn run(arguments: &SimulateArguments) -> Result<ExitCode, String> {
    let model = Model::read(&arguments.model).map_err(|error| error.to_string())?;
    // The file is opened before the run, so that a mistyped path does not waste a run.
    let json_file = arguments.json_out_file.as_deref().map(create).transpose()?;
    let mut display = Display {
        shown: Duration::ZERO,
        is_open: false,
        is_announced: false,
        shows: io::stderr().is_terminal(),
        limit: arguments.time_limit,
    };
    let outcome = simulate::run(&model, &arguments.settings(), &Clock::monotonic(), &mut |progress| {
        display.show(progress);
    });
    display.close();
    if let (Err(_), Some(path)) = (&outcome, &arguments.json_out_file) {
        // An empty file would look like a result.
        let _ = fs::remove_file(path);
    }
    let simulation = match outcome {
        Ok(simulation) => simulation,
        Err(error @ SimulateError::Setting(..)) => {
            report(format_args!("waystage: {error}"));
            return Ok(ExitCode::from(2));
        }
        Err(error) => return Err(error.to_string()),
    };
    if let (Some(file), Some(path)) = (json_file, &arguments.json_out_file) {
        write_json(&simulation, file).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    let written = if arguments.json {
        write_json(&simulation, io::stdout().lock())
    } else {
        io::stdout().write_all(simulate::render(&simulation).as_bytes())
    };
    match written {
        // The reader of a pipe may exit early, as `head` does.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(format!("cannot write: {error}")),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// A progress line on the terminal, overwritten by the next.
struct Display {
    shown: Duration,
    is_open: bool,
    /// Whether the time of a long run was announced.
    is_announced: bool,
    shows: bool,
    limit: Duration,
}

impl Display {
    fn show(&mut self, progress: &Progress) {
        let elapsed = progress.elapsed;
        self.announce(progress);
        if !self.shows || elapsed < QUIET_FOR || (self.is_open && elapsed < self.shown + SHOW_EVERY) {
            return;
        }
        (self.shown, self.is_open) = (elapsed, true);
        let width = match progress.relative_half_width {
            Some(share) => format!(", half-width {:.2} % of the mean response time", share * 100.0),
            None => String::new(),
        };
        let left = progress.left.map_or(String::new(), |left| format!(", about {:.0} s left", left.as_secs_f64()));
        let text = match progress.requests {
            None => "a pilot replication determines the warm-up".into(),
            Some(_) => format!(
                "{:.0} % simulated, {} of {} replications done{width}{left}",
                (100.0 * progress.share).floor(),
                progress.done,
                progress.wanted
            ),
        };
        // A closed terminal does not stop the run.
        let _ = write!(io::stderr(), "\r\x1b[K{text}");
    }

    /// Reports once, before the first replication, how long a long run takes.
    fn announce(&mut self, progress: &Progress) {
        let (Some(requests), Some(left)) = (progress.requests, progress.left) else { return };
        let is_first = !std::mem::replace(&mut self.is_announced, true);
        if !is_first || left < ANNOUNCED_FROM {
            return;
        }
        self.close();
        self.is_open = false;
        let limit = match left > self.limit {
            true => format!(", longer than the --time-limit of {} s", self.limit.as_secs_f64()),
            false => String::new(),
        };
        let _ = writeln!(
            io::stderr(),
            "waystage: {} replications of {:.1} million requests take about {:.0} s{limit}",
            progress.wanted,
            requests as f64 * 1e-6,
            left.as_secs_f64()
        );
    }

    fn close(&self) {
        if self.is_open {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

fn create(path: &Path) -> Result<File, String> {
    File::create(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn write_json(simulation: &Simulation, mut out: impl Write) -> io::Result<()> {
    out.write_all(simulation.to_json()?.as_bytes())
}

fn warm_up(text: &str) -> Result<WarmUp, String> {
    match text.parse() {
        Ok(requests) => Ok(WarmUp::Requests(requests)),
        Err(_) if text == "auto" => Ok(WarmUp::Auto),
        Err(_) => Err(format!("{text:?} is not auto or a number of requests")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warm_up_is_found_or_given() {
        assert_eq!(warm_up("auto"), Ok(WarmUp::Auto));
        assert_eq!(warm_up("500"), Ok(WarmUp::Requests(500)));
        for text in ["", "-1", "1.5", "none"] {
            assert!(warm_up(text).is_err(), "{text}");
        }
    }
}
