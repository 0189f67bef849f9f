//! Reports the state of the process to the service manager that has started it, such as systemd: the protocol of sd_notify(3). Each
//! message is one datagram to the socket in NOTIFY_SOCKET.

use rustix::io::Errno;
use rustix::net::{SendFlags, SocketAddrUnix, sendto};
use std::env;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixDatagram;
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long a message waits if the service manager does not read.
const SEND_WAIT: Duration = Duration::from_secs(1);
/// A message that a signal interrupts while it waits is sent again, this many times at most.
const ATTEMPTS_MAX: usize = 10;
/// The number of signs of life in the time after which the service manager misses them. An event loop that hangs ends them after two
/// further intervals at most.
const SIGNS_PER_TIMEOUT: u32 = 4;

/// The socket of the service manager. Each message is sent to its address, so that a manager that was restarted receives the next one.
#[derive(Debug)]
pub(crate) struct ServiceManager {
    name: String,
    address: SocketAddrUnix,
    socket: UnixDatagram,
    /// The last report could not be sent.
    is_lost: AtomicBool,
}

/// A change of the process's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StateReport<'a> {
    /// It serves, or serves again after a reload. The text is shown to operators.
    Ready(&'a str),
    /// A reload has begun, at this time of CLOCK_MONOTONIC in microseconds.
    Reloading(u64),
    /// It stops.
    Stopping,
}

impl StateReport<'_> {
    fn message(self) -> String {
        match self {
            // A control character, such as a line end in a path, would begin another assignment.
            StateReport::Ready(status) => format!("READY=1\nSTATUS={}", status.replace(char::is_control, " ")),
            StateReport::Reloading(now_us) => format!("RELOADING=1\nMONOTONIC_USEC={now_us}"),
            StateReport::Stopping => "STOPPING=1".into(),
        }
    }
}

impl ServiceManager {
    /// The service manager, if NOTIFY_SOCKET names one.
    ///
    /// # Errors
    /// If its value cannot be the address of a socket. The error is one line.
    pub(crate) fn from_environment() -> Result<Option<ServiceManager>, String> {
        let Some(name) = env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else { return Ok(None) };
        let failed = |problem: String| format!("NOTIFY_SOCKET is {name:?}, {problem}; the state is not reported");
        let address = match name.as_bytes() {
            [b'@', rest @ ..] => SocketAddrUnix::new_abstract_name(rest),
            path @ [b'/', ..] => SocketAddrUnix::new(path),
            _ => return Err(failed("which is neither a path nor an abstract name with @".into())),
        };
        let address = address.map_err(|error| failed(io::Error::from(error).to_string()))?;
        let socket = UnixDatagram::unbound().map_err(|error| failed(error.to_string()))?;
        socket.set_write_timeout(Some(SEND_WAIT)).map_err(|error| failed(error.to_string()))?;
        let name = name.to_string_lossy().into_owned();
        Ok(Some(ServiceManager { name, address, socket, is_lost: AtomicBool::new(false) }))
    }

    /// Sends a report. Waits for a moment if the service manager does not read.
    ///
    /// # Errors
    /// If it cannot be sent, and the report before could be sent. The error is one line.
    pub(crate) fn report(&self, report: StateReport<'_>) -> Result<(), String> {
        let message = report.message();
        let sent = self.send(&message, SendFlags::NOSIGNAL);
        let was_lost = self.is_lost.swap(sent.is_err(), Ordering::Relaxed);
        match sent {
            Err(error) if !was_lost => {
                let first = message.lines().next().unwrap_or_default();
                Err(format!("cannot report {first} to the service manager at {}: {error}", self.name))
            }
            _ => Ok(()),
        }
    }

    /// Sends a sign of life. Never waits. A sign that cannot be sent is lost, which the service manager notices if it lasts.
    pub(crate) fn show_life(&self) {
        let _ = self.send("WATCHDOG=1", SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }

    fn send(&self, message: &str, flags: SendFlags) -> io::Result<()> {
        let send = || sendto(&self.socket, message.as_bytes(), flags, &self.address);
        // The kernel does not continue a call that has a timeout after a signal.
        let sent = (0..ATTEMPTS_MAX).map(|_| send()).find(|sent| !matches!(sent, Err(Errno::INTR)));
        sent.unwrap_or(Err(Errno::INTR))?;
        Ok(())
    }
}

/// How often the service manager expects a sign of life, if it does: a fraction of the time in WATCHDOG_USEC.
///
/// # Errors
/// If a variable is not a number. The error is one line.
pub(crate) fn sign_interval() -> Result<Option<Duration>, String> {
    let Some(timeout_us) = number("WATCHDOG_USEC", "a time in microseconds")? else { return Ok(None) };
    let pid = number("WATCHDOG_PID", "a process ID")?;
    if timeout_us == 0 || pid.is_some_and(|pid| pid != u64::from(process::id())) {
        return Ok(None);
    }
    Ok(Some(Duration::from_micros(timeout_us) / SIGNS_PER_TIMEOUT))
}

/// The value of a variable. One that is empty counts as not set.
fn number(name: &str, meaning: &str) -> Result<Option<u64>, String> {
    let Some(text) = env::var_os(name).filter(|text| !text.is_empty()) else { return Ok(None) };
    let value = text.to_str().and_then(|text| text.parse().ok());
    value.map(Some).ok_or_else(|| format!("{name} is {text:?}, which is not {meaning}; no signs of life are sent"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_cannot_contain_another_assignment() {
        let ready = StateReport::Ready("serves on unix:/run/a\nSTOPPING=1 and 127.0.0.1:1");
        assert_eq!(ready.message(), "READY=1\nSTATUS=serves on unix:/run/a STOPPING=1 and 127.0.0.1:1");
        assert_eq!(StateReport::Reloading(17).message(), "RELOADING=1\nMONOTONIC_USEC=17");
        assert_eq!(StateReport::Stopping.message(), "STOPPING=1");
    }
}
