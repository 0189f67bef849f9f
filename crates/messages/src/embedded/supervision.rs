//! Keeps a private server running: starts it again when it ends, and takes it over from a waystage that has ended.

use super::{Embedded, EmbeddedError};
use records::report;
use rustix::fs::{FlockOperation, flock};
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often the server, or the lock of the waystage that runs it, is checked.
const INTERVAL: Duration = Duration::from_millis(100);
/// The pause before the server is started again. It doubles with each further end.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(8);
/// A server that has run this long is started after the shortest pause again.
const STABLE: Duration = Duration::from_secs(60);
/// How long a takeover waits until the server of a killed waystage has stopped, before it tries again.
const TAKEOVER_STOP_SECONDS: u32 = 5;

/// A private server that a thread keeps running. It stops when the value is dropped.
#[derive(Debug)]
pub struct SupervisedServer {
    url: String,
    stopping: Arc<AtomicBool>,
    further_signals: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl SupervisedServer {
    /// The connection string.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The number of stop signals after the first one. Each makes the server stop sooner.
    pub fn further_signals(&self) -> Arc<AtomicUsize> {
        self.further_signals.clone()
    }
}

impl Drop for SupervisedServer {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // The thread fails only by a panic, which has been reported.
            let _ = thread.join();
        }
    }
}

impl Embedded {
    /// Keeps the server running from now on.
    ///
    /// # Errors
    ///
    /// When the thread cannot be started.
    pub fn supervise(self) -> Result<SupervisedServer, EmbeddedError> {
        let url = self.url();
        let (stopping, further_signals) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let is_owner = self.child.is_some();
        let supervision = Supervision {
            server: self,
            is_owner,
            is_starting: false,
            pause: PAUSE_MIN,
            left: Duration::ZERO,
            ran: Duration::ZERO,
        };
        let (stop, signals) = (stopping.clone(), further_signals.clone());
        let thread = std::thread::Builder::new()
            .name("postgres".into())
            .spawn(move || supervision.run(&stop, &signals))
            .map_err(|error| EmbeddedError::Program("postgres", error.to_string()))?;
        Ok(SupervisedServer { url, stopping, further_signals, thread: Some(thread) })
    }
}

struct Supervision {
    server: Embedded,
    /// Whether this waystage starts and stops the server: it has the lock.
    is_owner: bool,
    /// Whether the server was started again and is not ready yet.
    is_starting: bool,
    pause: Duration,
    /// What is left of the pause.
    left: Duration,
    /// How long the server has been running since it was started again.
    ran: Duration,
}

impl Supervision {
    fn run(mut self, stopping: &AtomicBool, further_signals: &AtomicUsize) {
        while !stopping.load(Ordering::Acquire) {
            self.check();
            std::thread::park_timeout(INTERVAL);
        }
        self.server.stop(further_signals);
    }

    fn check(&mut self) {
        match self.server.child.as_mut().map(std::process::Child::try_wait) {
            Some(Ok(Some(status))) => self.has_ended(status),
            // Waiting fails only for a process that is not our child.
            Some(_) => self.runs(),
            None if self.is_owner => self.start_after_pause(),
            None => self.take_over(),
        }
    }

    fn runs(&mut self) {
        if self.is_starting && self.server.is_ready() {
            self.is_starting = false;
            report(format_args!("waystage: messages: its PostgreSQL runs again"));
        }
        self.ran += INTERVAL;
        if self.ran >= STABLE {
            self.pause = PAUSE_MIN;
        }
    }

    fn has_ended(&mut self, status: ExitStatus) {
        self.server.child = None;
        let reason = if self.is_starting { format!(": {}", self.server.reason()) } else { String::new() };
        self.pause_after(&format!("its PostgreSQL ended ({status}){reason}"));
    }

    /// Logs what happened, and waits longer than the last time.
    fn pause_after(&mut self, what: &str) {
        let seconds = self.pause.as_secs_f64();
        report(format_args!("waystage: messages: {what}; starting it again in {seconds} s"));
        self.left = self.pause;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }

    fn start_after_pause(&mut self) {
        self.left = self.left.saturating_sub(INTERVAL);
        if self.left > Duration::ZERO {
            return;
        }
        (self.is_starting, self.ran) = (true, Duration::ZERO);
        if let Err(error) = self.server.stop_orphan(TAKEOVER_STOP_SECONDS).and_then(|()| self.server.spawn()) {
            self.pause_after(&format!("its PostgreSQL cannot be started: {error}"));
        }
    }

    /// The lock is free when the waystage that ran the server has ended.
    fn take_over(&mut self) {
        if flock(&self.server.handle, FlockOperation::NonBlockingLockExclusive).is_ok() {
            self.is_owner = true;
            self.server.keep_room();
            report(format_args!(
                "waystage: messages: the service that ran PostgreSQL has ended; this service runs it from now on"
            ));
        }
    }
}
