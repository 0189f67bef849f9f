//! The life of a proxy process: serves, reloads the configuration on a signal or a change of the file, and stops.

use crate::proxy_command::changes::changes;
use crate::proxy_command::events::{Event, Events};
use crate::proxy_command::first_steps::first_steps;
use crate::proxy_command::overrides::{Overrides, shares};
use crate::proxy_command::source::Source;
use crate::proxy_command::{discipline_text, fit_into_descriptors, server};
use crate::ready::announce;
use crate::service_manager::{ServiceManager, StateReport, sign_interval};
use clock::Clock;
use net::Inherited;
use proxy::{ChangeRequest, ChangedServer, Config, FromManager, ProcessEvent, ProxyFile, Running, Totals, Watchdog};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::IsTerminal;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle, sleep};
use std::time::Duration;

/// The interval at which the configuration file is checked for a change.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);
/// The interval at which the process checks whether clients of earlier configurations are left.
const CLIENTS_POLL: Duration = Duration::from_millis(10);

/// Detects changes of the configuration file. Create it before the file is read for the first time: a change that comes between
/// the reading and the creation would be missed.
#[derive(Debug)]
pub(super) struct FileWatch {
    file: PathBuf,
    reported: Option<FileVersion>,
    last: Option<FileVersion>,
}

/// The inode, length and modification time (seconds, nanoseconds) of a file: one of them differs after a change.
type FileVersion = (u64, u64, i64, i64);

impl FileWatch {
    pub(super) fn new(file: PathBuf) -> FileWatch {
        let version = FileWatch::version(&file);
        FileWatch { file, reported: version, last: version }
    }

    /// Returns true once for each change, when two calls in a row have found the same new version: an editor may write the
    /// file in pieces.
    fn has_changed(&mut self) -> bool {
        let now = FileWatch::version(&self.file);
        let is_stable = now.is_some() && now == self.last;
        self.last = now;
        let is_new = is_stable && now != self.reported;
        if is_new {
            self.reported = now;
        }
        is_new
    }

    fn version(file: &Path) -> Option<FileVersion> {
        let metadata = file.metadata().ok()?;
        Some((metadata.ino(), metadata.len(), metadata.mtime(), metadata.mtime_nsec()))
    }
}

/// The state of the process.
struct Process {
    source: Source,
    /// The keys of the configuration in force.
    settings: ProxyFile,
    /// What operators have changed in it.
    overrides: Overrides,
    running: Running,
    clock: Clock,
    /// Receives reports about this process, if there is one.
    manager: Option<Arc<ServiceManager>>,
    events: Arc<Events>,
    /// Proxies with an earlier configuration, each until its last client has moved.
    retiring: Vec<JoinHandle<Result<Totals, String>>>,
    /// The requests of those that have ended.
    retired: Retired,
}

/// What proxies with an earlier configuration have done.
#[derive(Debug, Default)]
struct Retired {
    requests: u64,
    lost: u64,
    /// The first error with which one has ended.
    error: Option<String>,
}

impl Retired {
    /// Joins the thread of a proxy that ends, and adds what it has done.
    fn add(&mut self, thread: JoinHandle<Result<Totals, String>>) {
        match thread.join().unwrap_or_else(|_| Err("an earlier configuration ended by a bug".into())) {
            Ok(totals) => {
                self.requests += totals.requests;
                self.lost += totals.lost;
            }
            Err(error) => self.error = self.error.take().or(Some(error)),
        }
    }
}

/// Serves until SIGTERM or SIGINT, or until a successor has taken over. SIGHUP reads the configuration again; so does a
/// changed file, if it is watched.
pub(super) fn serve(
    (source, settings): (Source, ProxyFile),
    mut config: Config,
    activated: Vec<Inherited>,
    watch: Option<FileWatch>,
) -> Result<ExitCode, String> {
    let events = Arc::new(Events::default());
    let signals = Signals::new([SIGTERM, SIGINT, SIGHUP]);
    watch_signals(signals.map_err(|error| format!("cannot take over signals: {error}"))?, events.clone())?;
    fit_into_descriptors(&mut config)?;
    let (mut warnings, clock) = (Vec::new(), Clock::monotonic());
    let manager = ServiceManager::from_environment().unwrap_or_else(|line| {
        warnings.push(line);
        None
    });
    let manager = manager.map(Arc::new);
    let watchdog = watchdog(manager.as_ref()).unwrap_or_else(|line| {
        warnings.push(line);
        None
    });
    let from_manager = FromManager { sockets: activated, watchdog };
    let running = proxy::start_with(config, from_manager, clock.clone()).map_err(|error| error.to_string())?;
    if let Some(watch) = watch {
        watch_file(watch, events.clone())?;
    }
    announce_state(&running, "ready");
    if source.file.is_none() && std::io::stdout().is_terminal() {
        first_steps(&running, &source.flags).into_iter().for_each(|line| announce(&line));
    }
    running.log(ProcessEvent::Started { listening: listening(&running) });
    let (retiring, retired) = (Vec::new(), Retired::default());
    let overrides = Overrides::default();
    let process = Process { source, settings, overrides, running, clock, manager, events, retiring, retired };
    warnings.into_iter().for_each(|line| process.warn(line));
    process.watch_successor()?;
    process.report_ready(None);
    process.serve()
}

/// The watchdog of the service manager, if it has one.
fn watchdog(manager: Option<&Arc<ServiceManager>>) -> Result<Option<Watchdog>, String> {
    let Some(manager) = manager.cloned() else { return Ok(None) };
    Ok(sign_interval()?.map(|interval| Watchdog::new(interval, move || manager.show_life())))
}

impl Process {
    fn serve(mut self) -> Result<ExitCode, String> {
        loop {
            match self.events.next() {
                Event::Reload => self.reload(),
                Event::Change => {
                    if let Some(request) = self.events.take_change() {
                        self.change_server(request);
                    }
                }
                Event::TakenOver => {
                    announce("waystage proxy is taken over: it serves the clients it has");
                    self.running.log(ProcessEvent::TakenOver);
                    break;
                }
                Event::End => {
                    self.running.log(ProcessEvent::Stopping);
                    self.report(StateReport::Stopping);
                    break;
                }
            }
        }
        // A signal ends the wait.
        let Process { mut running, events, retiring, mut retired, .. } = self;
        let is_moving = || retiring.iter().any(|thread| !thread.is_finished());
        running.wait_for_all_clients(is_moving, || events.is_ending());
        // After a take-over, clients of earlier configurations still read their replies. They need this one to move to.
        while is_moving() && !events.is_ending() {
            sleep(CLIENTS_POLL);
        }
        let mut totals = running.stop().map_err(|error| error.to_string())?;
        retiring.into_iter().for_each(|thread| retired.add(thread));
        if let Some(error) = retired.error {
            return Err(error);
        }
        totals.requests += retired.requests;
        totals.lost += retired.lost;
        if let Some(records) = totals.records {
            announce(&format!("waystage proxy records written {} dropped {}", records.written, records.dropped));
        }
        announce(&format!("waystage proxy stopped after {} requests, {} lost", totals.requests, totals.lost));
        Ok(if totals.lost == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Reloads the configuration. If it is invalid, logs the error and changes nothing.
    fn reload(&mut self) {
        if let Err(reason) = self.reload_with(self.overrides.clone()) {
            self.running.log(ProcessEvent::ReloadFailed { reason });
        }
    }

    /// Changes a server as an operator requests it, by a reload of the configuration with this change. Replies when the new
    /// configuration serves.
    fn change_server(&mut self, request: ChangeRequest) {
        let outcome = self.changed_with(&request.changed);
        request.reply(outcome);
    }

    fn changed_with(&mut self, changed: &ChangedServer) -> Result<String, String> {
        let mut overrides = self.overrides.clone();
        // The change remembers what the file has, and not what an earlier change has made of it.
        let (_, file) = self.source.read()?;
        let found = overrides.add(changed, &file)?;
        let before = shares(changed, &self.settings);
        self.reload_with(overrides)?;
        let has_moved_keys = shares(changed, &self.settings) != before;
        Ok(server::sentence(changed.change, &found, has_moved_keys))
    }

    /// Reloads the configuration with these changes. If it is invalid, it changes nothing.
    fn reload_with(&mut self, mut overrides: Overrides) -> Result<(), String> {
        self.join_retired();
        self.report(StateReport::Reloading(self.clock.now().0 / 1000));
        let read = self.source.read_with(|settings| overrides.apply(settings));
        let outcome = read.and_then(|(mut config, settings)| {
            fit_into_descriptors(&mut config)?;
            let new = self.running.reload(config).map_err(|error| error.to_string())?;
            Ok((new, settings))
        });
        match outcome {
            Ok((new, settings)) => {
                self.overrides = overrides;
                let mut old = std::mem::replace(&mut self.running, new);
                let events = self.events.clone();
                let retire = move || {
                    old.wait_for_clients(|| events.is_ending());
                    old.stop().map_err(|error| error.to_string())
                };
                match Builder::new().name("retiring".into()).spawn(retire) {
                    Ok(thread) => self.retiring.push(thread),
                    Err(error) => self.warn(format!("cannot end the earlier configuration: {error}")),
                }
                announce_state(&self.running, "reloaded");
                let changes = changes(&self.settings, &settings);
                self.running.log(ProcessEvent::Reloaded { listening: listening(&self.running), changes });
                self.settings = settings;
                if let Err(line) = self.watch_successor() {
                    self.warn(line);
                }
                self.report_ready(None);
                Ok(())
            }
            Err(reason) => {
                self.report_ready(Some(&reason));
                Err(reason)
            }
        }
    }

    /// Reports that the process serves, and why it serves with an earlier configuration if it does.
    fn report_ready(&self, failure: Option<&str>) {
        let mut status = format!("serves on {}", listening(&self.running).join(" and "));
        if let Some(reason) = failure {
            status += &format!("; the last reload failed: {reason}");
        }
        self.report(StateReport::Ready(&status));
    }

    /// Reports to the service manager. A report that fails is a line of the log.
    fn report(&self, report: StateReport<'_>) {
        if let Some(Err(line)) = self.manager.as_ref().map(|manager| manager.report(report)) {
            self.warn(line);
        }
    }

    fn warn(&self, text: String) {
        self.running.log(ProcessEvent::Warning { text });
    }

    /// Joins the threads of proxies that have ended, so that reloads do not pile them up.
    fn join_retired(&mut self) {
        let (ended, retiring) = std::mem::take(&mut self.retiring).into_iter().partition(JoinHandle::is_finished);
        self.retiring = retiring;
        Vec::into_iter(ended).for_each(|thread| self.retired.add(thread));
    }

    /// Waits for what arrives on the control socket of this configuration: a successor, or requests to change a server.
    fn watch_successor(&self) -> Result<(), String> {
        if let Some(requests) = self.running.change_requests() {
            let events = self.events.clone();
            // Ends with the control socket of this configuration.
            spawn("changes", move || requests.into_iter().for_each(|request| events.add_change(request)))?;
        }
        let Some(notice) = self.running.handed_over() else { return Ok(()) };
        let events = self.events.clone();
        spawn("successor", move || {
            if notice.recv().is_ok() {
                events.add(Event::TakenOver);
            }
        })
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), String> {
    let spawned = Builder::new().name(name.into()).spawn(work);
    spawned.map(|_| ()).map_err(|error| format!("cannot start the thread {name}: {error}"))
}

fn watch_signals(mut signals: Signals, events: Arc<Events>) -> Result<(), String> {
    spawn("signals", move || {
        for signal in signals.forever() {
            events.add(if signal == SIGHUP { Event::Reload } else { Event::End });
        }
    })
}

fn watch_file(mut watch: FileWatch, events: Arc<Events>) -> Result<(), String> {
    spawn("watch", move || {
        loop {
            sleep(WATCH_INTERVAL);
            if watch.has_changed() {
                events.add(Event::Reload);
            }
        }
    })
}

fn announce_state(running: &Running, what: &str) {
    for warning in &running.warnings {
        running.log(ProcessEvent::Warning { text: warning.clone() });
    }
    if let Some(address) = running.metrics_address {
        announce(&format!("waystage proxy metrics on {address}"));
    }
    let config = running.config();
    announce(&format!(
        "waystage proxy {what} on {} ({} backends, {} replicas, {} loops, {})",
        listening(running).join(" and "),
        config.backends().count(),
        config.pools[0].replicas,
        config.loops,
        discipline_text(config.discipline)
    ));
}

/// The addresses that clients connect to.
fn listening(running: &Running) -> Vec<String> {
    running.listening.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{remove_file, write};

    #[test]
    fn a_change_is_reported_once_when_the_file_has_stopped_changing() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("proxy.toml");
        write(&file, "a").unwrap();
        let mut watch = FileWatch::new(file.clone());
        assert!(!watch.has_changed());
        write(&file, "ab").unwrap();
        let pieces = watch.has_changed();
        write(&file, "abc").unwrap();
        let next = watch.has_changed();
        assert_eq!((pieces, next, watch.has_changed(), watch.has_changed()), (false, false, true, false));
        remove_file(&file).unwrap();
        assert!(!watch.has_changed() && !watch.has_changed(), "a missing file is not a new configuration");
        write(&file, "abcd").unwrap();
        assert_eq!((watch.has_changed(), watch.has_changed()), (false, true));
    }

    #[test]
    fn a_change_before_the_first_check_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("proxy.toml");
        write(&file, "a").unwrap();
        let mut watch = FileWatch::new(file.clone());
        write(&file, "changed while the proxy started").unwrap();
        assert_eq!((watch.has_changed(), watch.has_changed()), (false, true));
    }
}
