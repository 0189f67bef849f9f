//! The life of a proxy process: serves, reloads the configuration on a signal or a change of the file, and stops.

use crate::proxy_command::changes::changes;
use crate::proxy_command::events::{Event, Events};
use crate::proxy_command::file_watch::FileWatch;
use crate::proxy_command::first_steps::first_steps;
use crate::proxy_command::list_watch::ListWatch;
use crate::proxy_command::lists::Lists;
use crate::proxy_command::names::Names;
use crate::proxy_command::overrides::{Overrides, shares};
use crate::proxy_command::source::Source;
use crate::proxy_command::{counted, discipline_text, fit_into_descriptors, server};
use crate::ready::announce;
use crate::service_manager::{ServiceManager, StateReport, sign_interval};
use clock::Clock;
use net::Inherited;
use proxy::{
    ChangeRequest, ChangedServer, Config, Document, FromManager, ProcessEvent, ProxyFile, Running, Totals, Watchdog,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle, sleep};
use std::time::Duration;

/// The interval at which the configuration file is checked for a change.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);
/// The interval at which the process checks whether clients of earlier configurations are left.
const CLIENTS_POLL: Duration = Duration::from_millis(10);

/// The configuration with which the process starts.
#[derive(Debug)]
pub(super) struct Given {
    pub(super) source: Source,
    pub(super) document: Option<Document>,
    pub(super) settings: ProxyFile,
    pub(super) lists: Lists,
    pub(super) names: Names,
}

/// The state of the process.
struct Process {
    source: Source,
    /// The file of the configuration in force.
    document: Option<Document>,
    /// The keys of the configuration in force.
    settings: ProxyFile,
    /// Their servers that come from files and names.
    lists: Lists,
    list_watch: ListWatch,
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

/// The configuration that a reload puts in force.
struct Wanted {
    document: Option<Document>,
    overrides: Overrides,
    /// Whether it is also reloaded if no key has changed: files that it names may have changed.
    is_needed: bool,
}

/// A proxy that a reload has started; none if nothing has changed.
struct Started {
    running: Option<Running>,
    settings: ProxyFile,
    overrides: Overrides,
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
    given: Given,
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
    let Given { source, document, settings, lists, names } = given;
    if source.file.is_none() && std::io::stdout().is_terminal() {
        first_steps(&running, &source.flags).into_iter().for_each(|line| announce(&line));
    }
    running.log(ProcessEvent::Started { listening: listening(&running) });
    let (retiring, retired) = (Vec::new(), Retired::default());
    let overrides = Overrides::default();
    let list_watch = ListWatch::new(names, events.clone());
    let mut process = Process {
        source,
        document,
        settings,
        lists,
        list_watch,
        overrides,
        running,
        clock,
        manager,
        events,
        retiring,
        retired,
    };
    warnings.into_iter().for_each(|line| process.warn(line));
    process.watch_successor()?;
    process.watch_lists();
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
                Event::Servers => self.reload_servers(),
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
        self.lists.look_up_again();
        let outcome = self.source.document().and_then(|document| self.reload_with(&self.wanted(document)));
        self.log_failure(outcome);
    }

    /// Reloads the configuration in force with the lists of servers as they are now. Whatever else its file has now is not used: an
    /// error there must not keep a pool from getting its servers.
    fn reload_servers(&mut self) {
        let wanted = Wanted { is_needed: false, ..self.wanted(self.document.clone()) };
        let outcome = self.reload_with(&wanted);
        self.log_failure(outcome);
    }

    /// This configuration, with the changes in force.
    fn wanted(&self, document: Option<Document>) -> Wanted {
        Wanted { document, overrides: self.overrides.clone(), is_needed: true }
    }

    fn log_failure(&self, outcome: Result<(), String>) {
        if let Err(reason) = outcome {
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
        let document = self.source.document()?;
        let (_, file) = self.source.settings(document.as_ref(), &mut self.lists.for_attempt(None), |_| {})?;
        let found = overrides.add(changed, &file)?;
        let before = shares(changed, &self.settings);
        self.reload_with(&Wanted { overrides, ..self.wanted(document) })?;
        let has_moved_keys = shares(changed, &self.settings) != before;
        Ok(server::sentence(changed.change, &found, has_moved_keys))
    }

    /// Reloads this configuration. If it is invalid, it changes nothing. If only a list of servers is at fault, the pools keep their last
    /// lists.
    fn reload_with(&mut self, wanted: &Wanted) -> Result<(), String> {
        self.join_retired();
        self.lists.forget_other_names();
        self.report(StateReport::Reloading(self.clock.now().0 / 1000));
        let mut lists = self.lists.for_attempt(None);
        let outcome = self.start(wanted, &mut lists).or_else(|reason| {
            if self.lists.is_empty() {
                return Err(reason);
            }
            let refused = std::mem::replace(&mut lists, self.lists.for_attempt(Some(reason.clone())));
            let started = self.start(wanted, &mut lists).map_err(|_| reason);
            lists.add_hosts(refused.into_hosts());
            started
        });
        match outcome {
            Ok(Started { running, settings, overrides }) => {
                if let Some(running) = running {
                    self.replace(running, settings);
                    lists.changed_pools(&self.lists).into_iter().for_each(|pool| self.running.count_list_change(pool));
                    (self.document, self.overrides) = (wanted.document.clone(), overrides);
                }
                lists
                    .new_failures(&self.lists)
                    .for_each(|(pool, reason)| self.running.report_list_failure(pool, reason));
                self.lists = lists;
                self.watch_lists();
                self.report_ready(None);
                Ok(())
            }
            Err(reason) => {
                self.report_ready(Some(&reason));
                Err(reason)
            }
        }
    }

    /// Starts a proxy with this configuration and the servers of these lists, unless nothing has changed and none is needed.
    fn start(&mut self, wanted: &Wanted, lists: &mut Lists) -> Result<Started, String> {
        let mut overrides = wanted.overrides.clone();
        let document = wanted.document.as_ref();
        let (mut config, settings) = self.source.settings(document, lists, |settings| overrides.apply(settings))?;
        let is_same = !wanted.is_needed && settings == self.settings;
        let running = (!is_same).then(|| {
            fit_into_descriptors(&mut config)?;
            self.running.reload(config).map_err(|error| error.to_string())
        });
        Ok(Started { running: running.transpose()?, settings, overrides })
    }

    /// Lets a new proxy replace the one in force, which ends when its last client has moved.
    fn replace(&mut self, new: Running, settings: ProxyFile) {
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
    }

    /// Watches the files and names in force.
    fn watch_lists(&mut self) {
        let every = self.running.config().transport.resolve_every;
        if let Err(line) = self.list_watch.set(&self.lists, every) {
            self.warn(line);
        }
    }

    /// Reports that the process serves, and why it serves with an earlier configuration if it does.
    fn report_ready(&self, failure: Option<&str>) {
        let mut status = format!("listening on {}", listening(&self.running).join(" and "));
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
        "waystage proxy {what} on {} ({}, {}, {}, {})",
        listening(running).join(" and "),
        counted(config.backends().count(), "backend"),
        counted(config.pools[0].replicas, "replica"),
        counted(config.loops, "loop"),
        discipline_text(config.discipline)
    ));
}

/// The addresses that clients connect to.
fn listening(running: &Running) -> Vec<String> {
    running.listening.iter().map(ToString::to_string).collect()
}
