//! The programs of a keeper: each in its own process group, killed by the kernel if the keeper is.

use crate::message::Part;
use rustix::process::{Pid, Signal, getppid, kill_process_group, set_parent_process_death_signal};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The most that one reply contains of what a program printed.
const PART_BYTES: u64 = 1 << 16;
/// A connected generator starts its load at once, so it must be stopped before it sends much.
const CONNECTED_POLL: Duration = Duration::from_millis(2);

/// A program that was started, and perhaps has ended.
struct Running {
    child: Child,
    output: [PathBuf; 2],
}

/// All programs that were started, by process id.
#[derive(Default)]
pub(crate) struct Children(BTreeMap<u32, Running>);

impl Children {
    /// Starts a program through [`become_program`] of this executable; its output is in the folder's `logs`.
    pub(crate) fn start(
        &mut self,
        folder: &Path,
        name: &str,
        command: &[String],
        environment: &BTreeMap<String, String>,
    ) -> io::Result<u32> {
        let logs = folder.join("logs");
        std::fs::create_dir_all(&logs)?;
        let output = ["stdout", "stderr"].map(|stream| logs.join(format!("{name}.{stream}")));
        let child = Command::new(std::env::current_exe()?)
            .args(["keeper", "--run-for", &std::process::id().to_string(), "--"])
            .args(command)
            .envs(environment)
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(File::create(&output[0])?)
            .stderr(File::create(&output[1])?)
            .process_group(0)
            .spawn()?;
        let pid = child.id();
        self.0.insert(pid, Running { child, output });
        Ok(pid)
    }

    /// Sends a signal to the group of a program after a time. A program that has ended receives none, but its
    /// descendants do.
    pub(crate) fn signal(&self, pid: u32, number: i32, wait: Duration) -> Result<(), String> {
        let signal = Signal::from_named_raw(number).ok_or_else(|| format!("signal {number} does not exist"))?;
        if !self.0.contains_key(&pid) {
            return Err(format!("process {pid} was not started here"));
        }
        if wait.is_zero() {
            signal_group(pid, signal);
            return Ok(());
        }
        let waits = std::thread::Builder::new().name("signal".into());
        let spawned = waits.spawn(move || {
            std::thread::sleep(wait);
            signal_group(pid, signal);
        });
        spawned.map(|_| ()).map_err(|error| error.to_string())
    }

    /// Stops a program as soon as it has so many sockets: it sends its load once all of its clients are connected.
    pub(crate) fn pause_when_connected(
        &mut self,
        pid: u32,
        sockets: usize,
        in_time: impl Fn() -> bool,
    ) -> Result<(), String> {
        let running = self.0.get_mut(&pid).ok_or_else(|| format!("process {pid} was not started here"))?;
        while in_time() {
            if count_sockets(pid) >= sockets {
                signal_group(pid, Signal::STOP);
                return Ok(());
            }
            if running.child.try_wait().map_err(|error| error.to_string())?.is_some() {
                return Err("it ended before it was connected".into());
            }
            std::thread::sleep(CONNECTED_POLL);
        }
        Err("it did not connect in time".into())
    }

    /// Returns how a program ended, if it has, and what it printed beyond the given positions.
    pub(crate) fn status(&mut self, pid: u32, positions: [u64; 2]) -> Result<(Option<i32>, [Part; 2]), String> {
        let running = self.0.get_mut(&pid).ok_or_else(|| format!("process {pid} was not started here"))?;
        let ended = running.child.try_wait().map_err(|error| error.to_string())?;
        let code = ended.map(|status| status.code().unwrap_or_else(|| -status.signal().unwrap_or(0)));
        // Read after its end was noticed, so that nothing is missing.
        let parts = [0, 1].map(|index| printed(&running.output[index], positions[index]));
        Ok((code, parts))
    }

    /// Kills every program with its group, and waits for them.
    pub(crate) fn end(&mut self) {
        for pid in self.0.keys() {
            signal_group(*pid, Signal::KILL);
        }
        for running in self.0.values_mut() {
            let _ = running.child.wait();
        }
    }
}

/// Becomes a program that the kernel kills together with its parent. Returns only if that failed.
pub fn become_program(parent: u32, command: &[String]) -> String {
    let Some((program, arguments)) = command.split_first() else {
        return "there is no program to run".into();
    };
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        return format!("{program}: cannot be tied to its keeper: {error}");
    }
    // The keeper may have ended before the line above.
    let now = getppid().map(Pid::as_raw_nonzero);
    if now.map(|pid| pid.get().cast_unsigned()) != Some(parent) {
        return format!("{program}: its keeper has ended");
    }
    let error = Command::new(program).args(arguments).exec();
    format!("{program}: cannot be started: {error}")
}

fn count_sockets(pid: u32) -> usize {
    let Ok(entries) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return 0 };
    let is_socket =
        |path: PathBuf| std::fs::read_link(path).is_ok_and(|target| target.to_string_lossy().starts_with("socket:"));
    entries.flatten().filter(|entry| is_socket(entry.path())).count()
}

fn signal_group(pid: u32, signal: Signal) {
    if let Some(group) = Pid::from_raw(pid.cast_signed()) {
        // It fails if nothing is left of the group.
        let _ = kill_process_group(group, signal);
    }
}

/// The next part of a file. An error is the same as nothing, because the file always exists.
fn printed(path: &Path, position: u64) -> Part {
    let mut bytes = Vec::new();
    let read = || -> io::Result<()> {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(position))?;
        file.take(PART_BYTES).read_to_end(&mut bytes).map(|_| ())
    };
    if { read }().is_err() {
        return Part { text: String::new(), end: position };
    }
    let end = position + bytes.len() as u64;
    Part { text: String::from_utf8_lossy(&bytes).into_owned(), end }
}
