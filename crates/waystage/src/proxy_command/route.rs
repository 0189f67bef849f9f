//! `waystage proxy route`: prints the servers of keys, and the reason. Opens no socket.

use crate::proxy_command::flags::PoolFlags;
use crate::proxy_command::invalid;
use crate::proxy_command::key_route::{KeyRoute, Report};
use crate::proxy_command::lists::Lists;
use crate::proxy_command::names::Names;
use crate::proxy_command::source::Source;
use clap::Args;
use proxy::{Config, Lookup, Router};
use std::ffi::OsString;
use std::io::{self, BufRead, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::ExitCode;

/// The longest key of memcached.
const KEY_BYTES_MAX: usize = 250;
/// How much of a longer one a message shows.
const SHOWN_BYTES_MAX: usize = 60;
/// More than any key with its line end and some spaces.
const LINE_BYTES_MAX: u64 = 4096;

/// Arguments of `waystage proxy route`.
#[derive(Debug, Args)]
pub(crate) struct RouteArguments {
    /// Keys. With -, read keys from standard input, one per line, and print how many each server gets.
    #[arg(value_name = "KEY", required = true)]
    keys: Vec<OsString>,
    /// Read the configuration from this file (TOML).
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    pool: PoolFlags,
    /// Route as for a client of this pool's own listener, for which the routes do not apply.
    #[arg(long = "pool", value_name = "NAME")]
    only_pool: Option<String>,
    /// Print JSON instead of text.
    #[arg(long)]
    json: bool,
}

/// Prints the servers of the keys.
pub(crate) fn run(arguments: &RouteArguments) -> Result<ExitCode, String> {
    let source = Source { file: arguments.config.clone(), flags: arguments.pool.settings() };
    let names = Names::new(Lookup::default());
    let config = match source.config(&mut Lists::new(names)) {
        Ok(config) => config,
        Err(line) => return Ok(invalid(&line)),
    };
    let report = only_pool(&config, arguments.only_pool.as_deref());
    let report = match report.and_then(|pool| report_of(&config, &arguments.keys, pool)) {
        Ok(report) => report,
        Err(line) => return Ok(invalid(&line)),
    };
    let text = if arguments.json {
        serde_json::to_string_pretty(&report).map_err(|error| error.to_string())? + "\n"
    } else {
        report.text(&config)
    };
    match io::stdout().write_all(text.as_bytes()) {
        // The reader of our output may close it early, as `head` does.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(format!("cannot write: {error}")),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// The pool of --pool. It is needed if clients connect to listeners of several pools only.
fn only_pool(config: &Config, name: Option<&str>) -> Result<Option<usize>, String> {
    let names: Vec<&str> = config.pools.iter().map(|pool| pool.name.as_str()).collect();
    match name {
        Some(name) => match config.pool(name) {
            Some(pool) => Ok(Some(pool)),
            None => Err(format!("--pool {name}: there is no such pool; give one of: {}", names.join(", "))),
        },
        None if config.listen.is_empty() && config.listeners().next().is_some() && names.len() > 1 => {
            Err(format!("every listener belongs to a pool; give --pool with one of: {}", names.join(", ")))
        }
        None => Ok(None),
    }
}

fn report_of(config: &Config, keys: &[OsString], pool: Option<usize>) -> Result<Report, String> {
    let router = Router::new(config);
    let mut report = Report::default();
    let mut counts = None;
    for key in keys {
        let key = key.as_bytes();
        if key == b"-" {
            // A second one finds nothing more to read.
            let counts = counts.get_or_insert_with(|| vec![0; router.backends().into()]);
            count(&router, pool, &mut io::stdin().lock(), counts)?;
        } else {
            check(key).map_err(|problem| format!("key {}: {problem}", quoted(key)))?;
            report.keys.push(KeyRoute::new(config, &router, pool, key));
        }
    }
    report.spread = counts.map(|counts| Report::spread(config, &counts));
    Ok(report)
}

/// Counts keys by their primary's number. Empty lines are no keys.
fn count(router: &Router, pool: Option<usize>, input: &mut impl BufRead, counts: &mut [u64]) -> Result<(), String> {
    let mut line = Vec::new();
    for number in 1_u64.. {
        line.clear();
        let read = input.take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
        if read.map_err(|error| format!("cannot read standard input: {error}"))? == 0 {
            break;
        }
        let key = line.strip_suffix(b"\n").unwrap_or(&line);
        let key = key.strip_suffix(b"\r").unwrap_or(key);
        if !key.is_empty() {
            check(key).map_err(|problem| format!("standard input:{number}: {problem}"))?;
            let primary = pool.map_or_else(|| router.primary(key), |pool| router.explain_in(pool, key).backends[0]);
            counts[usize::from(primary)] += 1;
        }
    }
    Ok(())
}

/// A key in quotes. Of one that is too long to be a key, the beginning.
fn quoted(key: &[u8]) -> String {
    match key.get(..SHOWN_BYTES_MAX) {
        Some(beginning) if key.len() > KEY_BYTES_MAX => format!("{:?}...", String::from_utf8_lossy(beginning)),
        _ => format!("{:?}", String::from_utf8_lossy(key)),
    }
}

/// Returns the reason if these bytes cannot be a key.
fn check(key: &[u8]) -> Result<(), String> {
    match key.len() {
        0 => Err("a key has at least one byte".into()),
        1..=KEY_BYTES_MAX if key.iter().any(|byte| matches!(byte, b' ' | b'\r' | b'\n' | 0)) => {
            Err("no key has spaces or line ends".into())
        }
        1..=KEY_BYTES_MAX => Ok(()),
        _ => Err(format!("more than {KEY_BYTES_MAX} bytes; no key is longer")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_as_keys() {
        let router = Router::new(&Config::new("127.0.0.1:0", &["a:1".into(), "b:1".into()]));
        let mut counts = vec![0; 2];
        let keys: Vec<String> = (0..100).map(|key| format!("key-{key}")).collect();
        count(&router, None, &mut keys.join("\r\n").as_bytes(), &mut counts).unwrap();
        count(&router, Some(0), &mut &b"\n\nkey-1\n"[..], &mut counts).unwrap();
        assert_eq!(counts.iter().sum::<u64>(), 101);
        assert!(counts.iter().all(|&count| count > 10), "{counts:?}");
    }

    #[test]
    fn an_invalid_key_is_refused_with_its_line() {
        let router = Router::new(&Config::new("127.0.0.1:0", &["a:1".into()]));
        let long = "x".repeat(251);
        for (text, expected) in [
            ("a b\n", "standard input:1: no key has spaces or line ends".to_string()),
            (&format!("a\n{long}\n"), "standard input:2: more than 250 bytes; no key is longer".into()),
            (&"y".repeat(100_000), "standard input:1: more than 250 bytes; no key is longer".into()),
        ] {
            assert_eq!(count(&router, None, &mut text.as_bytes(), &mut [0]).unwrap_err(), expected);
        }
        let shown = quoted("ä".repeat(100_000).as_bytes());
        assert_eq!(shown, format!("\"{}\"...", "ä".repeat(30)));
        assert_eq!([quoted(b"a b"), quoted(&[b'x'; 250])], ["\"a b\"".into(), format!("\"{}\"", "x".repeat(250))]);
        assert!(check(b"").is_err() && check(&[b'x'; 250]).is_ok() && check("ключ".as_bytes()).is_ok());
    }
}
