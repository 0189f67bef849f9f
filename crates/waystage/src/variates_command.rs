//! `waystage variates`: prints random variates, or keys of an access pattern, or describes either.

use clap::{Args, ValueEnum};
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use records::report;
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;
use variates::{Popularity, Unit, Variate, VariateError};

const PERCENTILES: [f64; 10] = [1.0, 5.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9];
/// The numbers of most popular keys whose share a description lists.
const TOPS: [u64; 7] = [1, 10, 100, 1000, 10_000, 100_000, 1_000_000];

/// Arguments of `waystage variates`.
#[derive(Debug, Args)]
#[command(
    about = "Print random variates or keys of a pattern, or describe them",
    after_help = "Examples:
  waystage variates --describe fb_value --unit bytes
  waystage variates --count 1000 --unit time exp:1ms          nanoseconds, one per line
  waystage variates --count 1000 --keys 10000 --pattern zipf:0.99
  waystage variates --describe --keys 10000 --pattern zipf:0.99
docs/random-variates.md describes both languages.

Exit codes: 0 success, 1 the output could not be written, 2 invalid arguments."
)]
pub(crate) struct VariatesArguments {
    /// A random variate, such as fb_value, uniform:10:20 or exp:1ms.
    #[arg(value_name = "SPEC", required_unless_present = "keys", conflicts_with = "keys")]
    spec: Option<String>,
    /// Unit of the numbers in SPEC; sizes are printed in bytes, times in nanoseconds.
    #[arg(long, value_name = "UNIT", default_value = "plain", conflicts_with = "keys")]
    unit: UnitName,
    /// Draw key numbers from 0 to N - 1.
    #[arg(long, value_name = "N", requires = "pattern")]
    keys: Option<u64>,
    /// Access pattern: uniform, sequential, zipf:0.99, gaussian, gaussian:500:20 or hot:0.1:0.9.
    #[arg(long, value_name = "PATTERN", requires = "keys")]
    pattern: Option<Popularity>,
    /// Print the rank of each key, 0 for the most popular, instead of its number (zipf and hot only).
    #[arg(long, requires = "keys")]
    ranks: bool,
    /// Number of draws.
    #[arg(long, value_name = "N", default_value_t = 10)]
    count: u64,
    /// Seed of the draws.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Instead of draws, print the formula, mean and quantiles, or the shares of the most popular keys.
    #[arg(long, conflicts_with_all = ["count", "seed", "ranks"])]
    describe: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum UnitName {
    Bytes,
    Time,
    Plain,
}

/// The source of the draws.
enum Source {
    Values(Variate),
    Keys(Popularity, u64),
}

/// Draws or describes. Invalid arguments are a one-line error.
pub(crate) fn run(arguments: &VariatesArguments) -> Result<ExitCode, String> {
    let source = match source(arguments) {
        Ok(source) => source,
        Err(line) => {
            report(format_args!("waystage: {line}"));
            return Ok(ExitCode::from(2));
        }
    };
    let out = BufWriter::new(io::stdout().lock());
    let written = if arguments.describe { describe(&source, out) } else { draw(&source, arguments, out) };
    match written {
        // The reader of a pipe may exit early, as `head` does.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(format!("cannot write: {error}")),
        _ => Ok(ExitCode::SUCCESS),
    }
}

fn source(arguments: &VariatesArguments) -> Result<Source, String> {
    let line = |error: VariateError| error.to_string();
    if let (Some(keys), Some(pattern)) = (arguments.keys, arguments.pattern) {
        pattern.check(keys).map_err(line)?;
        if arguments.ranks && !pattern.has_ranks() {
            return Err(format!("--ranks: keys have no ranks in {pattern}; they have in zipf and hot"));
        }
        return Ok(Source::Keys(pattern, keys));
    }
    let unit = match arguments.unit {
        UnitName::Bytes => Unit::Bytes,
        UnitName::Time => Unit::Time,
        UnitName::Plain => Unit::Plain,
    };
    let spec = arguments.spec.as_deref().unwrap_or_default();
    Variate::parse(spec, unit).map(Source::Values).map_err(line)
}

fn draw(source: &Source, arguments: &VariatesArguments, mut out: impl Write) -> io::Result<()> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(arguments.seed);
    match source {
        Source::Values(variate) => {
            for _ in 0..arguments.count {
                writeln!(out, "{}", variate.draw(&mut random))?;
            }
        }
        Source::Keys(pattern, keys) => {
            let mut sampler = pattern.sampler(*keys, 0, 1);
            for _ in 0..arguments.count {
                let drawn = if arguments.ranks { sampler.draw_rank(&mut random) } else { sampler.draw(&mut random) };
                writeln!(out, "{drawn}")?;
            }
        }
    }
    out.flush()
}

fn describe(source: &Source, mut out: impl Write) -> io::Result<()> {
    match source {
        Source::Values(variate) => {
            writeln!(out, "{variate}\n{}", variate.formula())?;
            let mut row = |name: &str, value: f64| writeln!(out, "{name:>9}  {}", readable(value, variate.unit()));
            row("mean", variate.mean())?;
            row("smallest", variate.quantile(0.0))?;
            for percent in PERCENTILES {
                row(&format!("p{percent}"), variate.quantile(percent / 100.0))?;
            }
            row("largest", variate.quantile(1.0))?;
        }
        Source::Keys(pattern, keys) => {
            writeln!(out, "{pattern}, {keys} keys\n{}", pattern.formula())?;
            let sampler = pattern.sampler(*keys, 0, 1);
            for top in TOPS.into_iter().filter(|top| top < keys).chain([*keys]) {
                match pattern.top_share(*keys, top) {
                    Some(share) => writeln!(out, "{top:>9} most popular keys: {:.6} of the requests", share)?,
                    None => break,
                }
            }
            if pattern.has_ranks() {
                let popular: Vec<String> =
                    (0..(*keys).min(10)).map(|rank| sampler.key_of_rank(rank).to_string()).collect();
                writeln!(out, "the most popular first: {}", popular.join(" "))?;
            }
        }
    }
    out.flush()
}

/// Six significant digits, and a suitable unit.
fn readable(value: f64, unit: Unit) -> String {
    let (value, name) = match unit {
        Unit::Plain => (value, ""),
        Unit::Bytes => (value, " bytes"),
        Unit::Time => {
            let units = [(1e9, " s"), (1e6, " ms"), (1e3, " us")];
            let found = units.into_iter().find(|(unit_ns, _)| value.is_finite() && value.abs() >= *unit_ns);
            found.map_or((value, " ns"), |(unit_ns, name)| (value / unit_ns, name))
        }
    };
    if !value.is_finite() {
        return if value > 0.0 { "no limit".into() } else { "no limit below".into() };
    }
    let digits_before = if value == 0.0 { 1 } else { value.abs().log10().floor() as i32 + 1 };
    let rounded = format!("{value:.*}", (6 - digits_before).clamp(0, 12) as usize);
    let rounded = if rounded.contains('.') { rounded.trim_end_matches('0').trim_end_matches('.') } else { &rounded };
    format!("{rounded}{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_six_digits_and_a_unit_that_suits() {
        let cases = [
            (0.0, Unit::Bytes, "0 bytes"),
            (195.123_456, Unit::Bytes, "195.123 bytes"),
            (12_345_678.9, Unit::Plain, "12345679"),
            (-0.012_345_678, Unit::Plain, "-0.0123457"),
            (1_500_000.0, Unit::Time, "1.5 ms"),
            (999.0, Unit::Time, "999 ns"),
            (f64::INFINITY, Unit::Time, "no limit"),
            (f64::NEG_INFINITY, Unit::Plain, "no limit below"),
        ];
        for (value, unit, expected) in cases {
            assert_eq!(readable(value, unit), expected);
        }
    }
}
