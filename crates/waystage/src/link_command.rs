//! `waystage link`: emulates the link of a host. Only the lab starts it, because it needs the devices of both ends.

use clap::Args;
use clock::Clock;
use link::{Direction, Way, forward};
use std::fs::File;
use std::io::{stdin, stdout};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments of `waystage link`. Standard input is the device of the host, standard output that of the switch.
#[derive(Debug, Args)]
pub(crate) struct LinkArguments {
    /// The file for the counters.
    #[arg(long, value_name = "FILE")]
    counters: PathBuf,
    /// What happens to the frames that the host sends, as JSON.
    #[arg(long, value_name = "JSON", value_parser = direction)]
    up: Direction,
    /// What happens to the frames that the host receives, as JSON.
    #[arg(long, value_name = "JSON", value_parser = direction)]
    down: Direction,
}

/// Parses the settings of one direction. JSON has neither infinity nor nan.
fn direction(json: &str) -> Result<Direction, String> {
    let found: Direction = serde_json::from_str(json).map_err(|error| error.to_string())?;
    let least = found.delay_ms.min(found.rate_mbit).min(found.late_ms).min(found.loss);
    if least < 0.0 || found.loss > 1.0 {
        return Err("give numbers that are not below 0, and a loss of at most 1".into());
    }
    Ok(found)
}

/// Forwards frames until a signal ends the program or a device fails.
pub(crate) fn run(arguments: &LinkArguments) -> Result<ExitCode, String> {
    let counters = File::options().write(true).create(true).truncate(false).open(&arguments.counters);
    let counters = counters.map_err(|error| format!("{}: {error}", arguments.counters.display()))?;
    let (host, switch) = (stdin(), stdout());
    let mut ways = [
        Way::new(&arguments.up, host.as_fd(), switch.as_fd(), 1),
        Way::new(&arguments.down, switch.as_fd(), host.as_fd(), 2),
    ];
    forward(&mut ways, &counters, &Clock::monotonic())
        .map(|never| match never {})
        .map_err(|error| format!("link: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_no_link_can_have_are_refused() {
        let json = |delay: &str, loss: &str| {
            format!(r#"{{"delay_ms":{delay},"rate_mbit":1,"queue_bytes":100,"loss":{loss},"late_ms":0.1}}"#)
        };
        assert!(direction(&json("2.5", "0.5")).is_ok());
        for (delay, loss) in [("-1", "0"), ("0", "-0.1"), ("0", "1.5"), ("NaN", "0")] {
            assert!(direction(&json(delay, loss)).is_err(), "{delay} {loss}");
        }
        assert!(direction("{}").is_err());
    }
}
