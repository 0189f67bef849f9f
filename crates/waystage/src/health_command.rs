//! `waystage health`: checks whether a running proxy or message service is ready. Containers without a shell need it.

use crate::command_line::host_port;
use clap::Args;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::ExitCode;
use std::time::Duration;

/// The longest wait for each part of the reply.
const PATIENCE: Duration = Duration::from_secs(2);
/// Bytes of the reply that are read: more than a status line has.
const STATUS_LINE_MAX: u64 = 256;

/// The arguments of `waystage health`.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 ready (a status of 2xx), 1 not ready or not reachable, 2 invalid arguments.")]
pub(crate) struct HealthArguments {
    /// The address of a proxy's --metrics, or of a message service.
    #[arg(value_name = "HOST:PORT", value_parser = host_port)]
    address: String,
    /// The path: /readyz, or /healthz.
    #[arg(long, value_name = "PATH", default_value = "/readyz")]
    path: String,
}

/// Prints the status line; an `Err` is one line that states why there is none.
pub(crate) fn run(arguments: &HealthArguments) -> Result<ExitCode, String> {
    let HealthArguments { address, path } = arguments;
    let line = status_line(address, path).map_err(|error| format!("{address}: no reply to GET {path}: {error}"))?;
    // The reader may have exited; the exit code is the answer.
    let _ = writeln!(std::io::stdout(), "{line}");
    let is_ready = line.split(' ').nth(1).is_some_and(|status| status.starts_with('2'));
    Ok(if is_ready { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn status_line(address: &str, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut reply = Vec::new();
    stream.take(STATUS_LINE_MAX).read_to_end(&mut reply)?;
    let text = String::from_utf8_lossy(&reply);
    Ok(text.lines().next().unwrap_or_default().to_owned())
}
