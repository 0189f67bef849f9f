//! The listening sockets that a service manager has opened for this process: LISTEN_FDS, LISTEN_PID and LISTEN_FDNAMES.

use listenfd::ListenFd;
use net::Inherited;
use std::env;
use std::fs;
use std::os::fd::OwnedFd;
use std::process;

/// The number of the first passed descriptor.
const FIRST: usize = 3;

/// Takes the passed sockets.
///
/// # Errors
/// If a variable is not a number, or a descriptor is not a listening socket. The error is one line.
pub(crate) fn activated() -> Result<Vec<Inherited>, String> {
    check_variables()?;
    let mut passed = ListenFd::from_env();
    let names = env::var("LISTEN_FDNAMES").unwrap_or_default();
    let mut names = names.split(':');
    let mut sockets = Vec::new();
    for index in 0..passed.len() {
        let name = names.next().filter(|name| !name.is_empty()).unwrap_or("unknown").to_string();
        let tcp = passed.take_tcp_listener(index).ok().flatten().map(OwnedFd::from);
        let socket = match tcp {
            Some(socket) => socket,
            None => match passed.take_unix_listener(index) {
                Ok(Some(socket)) => socket.into(),
                _ => {
                    let descriptor = FIRST + index;
                    let problem = "is not a stream socket that listens on TCP or on a path";
                    return Err(format!("LISTEN_FDS: descriptor {descriptor}, named {name:?}, {problem}"));
                }
            },
        };
        sockets.push(Inherited { name, owns_file: false, is_activated: true, socket });
    }
    Ok(sockets)
}

/// Checks that the variables are numbers, and that the descriptors are open. `ListenFd` ignores what it cannot read, and the proxy would
/// listen elsewhere.
fn check_variables() -> Result<(), String> {
    if number("LISTEN_PID", "the process ID of the proxy")?.is_some_and(|pid| pid != process::id() as usize) {
        return Ok(());
    }
    let count = number("LISTEN_FDS", "the number of sockets")?.unwrap_or(0);
    let is_closed = |descriptor: &usize| fs::read_link(format!("/proc/self/fd/{descriptor}")).is_err();
    match (FIRST..FIRST.saturating_add(count)).find(is_closed) {
        Some(descriptor) => Err(format!("LISTEN_FDS is {count}, but descriptor {descriptor} is not open")),
        None => Ok(()),
    }
}

/// The value of a variable. One that is empty counts as not set.
fn number(name: &str, meaning: &str) -> Result<Option<usize>, String> {
    let Some(text) = env::var_os(name).filter(|text| !text.is_empty()) else { return Ok(None) };
    let value = text.to_str().and_then(|text| text.parse().ok());
    value.map(Some).ok_or_else(|| format!("{name} is {text:?}; give {meaning}"))
}
