//! Starts the private server again if it ends while the service runs, for example because the kernel has killed it to free memory. No service
//! manager would do so: it only sees the service.

use super::Embedded;
use records::report;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Pause after a start that failed.
const START_AGAIN_AFTER: Duration = Duration::from_secs(5);

/// A private server that is started again if it ends. It stops when the value is dropped.
#[derive(Debug)]
pub struct WatchedServer {
    /// Stops the thread when it is dropped.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Embedded {
    /// Starts the server again whenever it ends. A server of another waystage is not started again.
    pub fn watch(self) -> WatchedServer {
        let (stop, stopped) = channel();
        let thread = std::thread::spawn(move || watch(self, &stopped));
        WatchedServer { stop: Some(stop), thread: Some(thread) }
    }

    /// Why the server that this process has started has ended; none while it runs.
    fn ended(&mut self) -> Option<String> {
        let status = self.child.as_mut()?.try_wait();
        status.map_or_else(|error| Some(error.to_string()), |status| Some(status?.to_string()))
    }
}

fn watch(mut server: Embedded, stopped: &Receiver<()>) {
    let mut failure = None;
    loop {
        let pause = if failure.is_some() { START_AGAIN_AFTER } else { LOOK_EVERY };
        if stopped.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
            return;
        }
        if let Some(status) = server.ended() {
            report(format_args!("waystage: messages: its PostgreSQL has ended ({status}); starting it again"));
        } else if failure.is_none() {
            continue;
        }
        let error = server.restart().err().map(|error| error.to_string());
        match &error {
            None => report(format_args!("waystage: messages: its PostgreSQL runs again")),
            Some(text) if error != failure => {
                report(format_args!("waystage: messages: trying again later to start its PostgreSQL: {text}"));
            }
            Some(_) => {}
        }
        failure = error;
    }
}

impl Drop for WatchedServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // The server stops with the thread, also if it has panicked.
            let _ = thread.join();
        }
    }
}
