//! The life of a proxy process: serves, goes on with another configuration when it is told to, and ends.

use crate::proxy_command::source::Source;
use crate::proxy_command::{discipline_text, fit_into_descriptors};
use crate::ready::announce;
use clock::Clock;
use net::Inherited;
use proxy::{Config, Running, Totals};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle, sleep};
use std::time::Duration;

/// How often the configuration file is looked at.
const WATCH_EVERY: Duration = Duration::from_secs(1);

/// What has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    End,
    Reload,
    TakenOver,
}

/// What the process works with.
struct Process {
    source: Source,
    running: Running,
    events: Receiver<Event>,
    sender: SyncSender<Event>,
    /// Proxies with an earlier configuration, each until its last client has gone over.
    retiring: Vec<JoinHandle<Result<Totals, String>>>,
    /// Nobody is waited for any more.
    is_ending: Arc<AtomicBool>,
}

/// Serves until SIGTERM or SIGINT, or until a successor has taken over. SIGHUP reads the configuration again; so does a
/// changed file, if it is watched.
pub(super) fn serve(
    source: Source,
    mut config: Config,
    activated: Vec<Inherited>,
    is_watched: bool,
) -> Result<ExitCode, String> {
    let (sender, events) = sync_channel(16);
    let signals = Signals::new([SIGTERM, SIGINT, SIGHUP]);
    watch_signals(signals.map_err(|error| format!("cannot take over signals: {error}"))?, sender.clone())?;
    fit_into_descriptors(&mut config)?;
    let running = proxy::start_with(config, activated, Clock::monotonic()).map_err(|error| error.to_string())?;
    if let (true, Some(file)) = (is_watched, source.file.clone()) {
        watch_file(file, sender.clone())?;
    }
    tell(&running, "ready");
    let process = Process { source, running, events, sender, retiring: Vec::new(), is_ending: Arc::default() };
    process.watch_successor()?;
    process.serve()
}

impl Process {
    fn serve(mut self) -> Result<ExitCode, String> {
        loop {
            match self.events.recv() {
                Ok(Event::Reload) => self.reload(),
                Ok(Event::TakenOver) => {
                    announce("waystage proxy is taken over: it serves the clients it has");
                    break;
                }
                _ => break,
            }
        }
        // A signal cuts it short.
        let Process { mut running, events, retiring, is_ending, .. } = self;
        running.linger(|| events.try_recv() == Ok(Event::End));
        is_ending.store(true, Ordering::Relaxed);
        let mut totals = running.stop().map_err(|error| error.to_string())?;
        for earlier in retiring {
            let earlier = earlier.join().map_err(|_| "an earlier configuration ended by a bug".to_string())??;
            totals.requests += earlier.requests;
            totals.lost += earlier.lost;
        }
        if let Some(records) = totals.records {
            announce(&format!("waystage proxy records written {} dropped {}", records.written, records.dropped));
        }
        announce(&format!("waystage proxy stopped after {} requests, {} lost", totals.requests, totals.lost));
        Ok(if totals.lost == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Goes on with what the configuration says now. What cannot work is told, and changes nothing.
    fn reload(&mut self) {
        let outcome = self.source.config().and_then(|mut config| {
            fit_into_descriptors(&mut config)?;
            self.running.reload(config).map_err(|error| error.to_string())
        });
        match outcome {
            Ok(new) => {
                let mut old = std::mem::replace(&mut self.running, new);
                let is_ending = self.is_ending.clone();
                let retire = move || {
                    old.linger(|| is_ending.load(Ordering::Relaxed));
                    old.stop().map_err(|error| error.to_string())
                };
                match Builder::new().name("retiring".into()).spawn(retire) {
                    Ok(thread) => self.retiring.push(thread),
                    Err(error) => eprintln!("waystage: cannot end the earlier configuration: {error}"),
                }
                tell(&self.running, "reloaded");
                if let Err(line) = self.watch_successor() {
                    eprintln!("waystage: {line}");
                }
            }
            Err(line) => eprintln!("waystage: {line}; the configuration stays as it was"),
        }
    }

    fn watch_successor(&self) -> Result<(), String> {
        let Some(notice) = self.running.handed_over() else { return Ok(()) };
        let sender = self.sender.clone();
        spawn("successor", move || {
            if notice.recv().is_ok() {
                let _ = sender.try_send(Event::TakenOver);
            }
        })
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), String> {
    let spawned = Builder::new().name(name.into()).spawn(work);
    spawned.map(|_| ()).map_err(|error| format!("cannot start the thread {name}: {error}"))
}

fn watch_signals(mut signals: Signals, sender: SyncSender<Event>) -> Result<(), String> {
    spawn("signals", move || {
        for signal in signals.forever() {
            let _ = sender.try_send(if signal == SIGHUP { Event::Reload } else { Event::End });
        }
    })
}

/// Tells when the file has changed and has then stayed the same for a while: an editor may write it in pieces.
fn watch_file(file: PathBuf, sender: SyncSender<Event>) -> Result<(), String> {
    spawn("watch", move || {
        let (mut used, mut last) = (stamp(&file), stamp(&file));
        loop {
            sleep(WATCH_EVERY);
            let now = stamp(&file);
            if now.is_some() && now == last && now != used {
                used = now;
                let _ = sender.try_send(Event::Reload);
            }
            last = now;
        }
    })
}

/// What changes when a file does: its number, length and time of change.
fn stamp(file: &Path) -> Option<(u64, u64, i64, i64)> {
    let metadata = file.metadata().ok()?;
    Some((metadata.ino(), metadata.len(), metadata.mtime(), metadata.mtime_nsec()))
}

fn tell(running: &Running, what: &str) {
    for warning in &running.warnings {
        eprintln!("waystage: {warning}");
    }
    if let Some(address) = running.metrics_address {
        announce(&format!("waystage proxy metrics on {address}"));
    }
    let config = running.config();
    let listening: Vec<String> = running.listening.iter().map(ToString::to_string).collect();
    announce(&format!(
        "waystage proxy {what} on {} ({} backends, {} replicas, {} loops, {})",
        listening.join(" and "),
        config.backends().count(),
        config.pools[0].replicas,
        config.loops,
        discipline_text(config.discipline)
    ));
}
