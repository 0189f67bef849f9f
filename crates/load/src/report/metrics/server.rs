//! Serves the metrics over HTTP in a thread of its own. Knows nothing of what they mean.

use super::{RunCounts, SharedCounts, Snapshot, lock};
use crate::config::Config;
use crate::measure::part::Part;
use crate::measure::seconds::Second;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use tiny_http::{Header, Method, Response, Server};

/// Metrics that are served until they are dropped.
pub struct Metrics {
    shared: SharedCounts,
    server: Arc<Server>,
    thread: Option<JoinHandle<()>>,
}

impl Metrics {
    /// Serves `/metrics` on `address`, HOST:PORT.
    ///
    /// # Errors
    /// Why it cannot, in one line.
    pub fn start(address: &str, config: &Config) -> Result<Metrics, String> {
        let failed = |error: &dyn fmt::Display| format!("--metrics: cannot serve on {address}: {error}");
        let server = Arc::new(Server::http(address).map_err(|error| failed(&error))?);
        let shared = Arc::new(Mutex::new(RunCounts::new(config)));
        let (serving, counts) = (server.clone(), shared.clone());
        let thread = std::thread::Builder::new().name("metrics".into()).spawn(move || serve(&serving, &counts));
        Ok(Metrics { shared, server, thread: Some(thread.map_err(|error| failed(&error))?) })
    }

    /// Where it listens.
    pub fn address(&self) -> Option<SocketAddr> {
        self.server.server_addr().to_ip()
    }

    /// Adds what a thread has handed over.
    pub fn add(&self, part: &Part) {
        lock(&self.shared).add(part);
    }

    /// Takes note of a second that is over.
    pub fn second(&self, second: &Second) {
        lock(&self.shared).second(second);
    }
}

impl Drop for Metrics {
    fn drop(&mut self) {
        self.server.unblock();
        if let Some(thread) = self.thread.take() {
            // A panic in the metrics is no reason to fail the run.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Metrics").field("address", &self.address()).finish_non_exhaustive()
    }
}

fn serve(server: &Server, shared: &SharedCounts) {
    for request in server.incoming_requests() {
        let path = request.url().split('?').next();
        let response = if request.method() == &Method::Get && path == Some("/metrics") {
            let snapshot = Snapshot::of(&lock(shared));
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            let header = Header::from_bytes("Content-Type", kind);
            header.into_iter().fold(Response::from_string(snapshot.render()), Response::with_header)
        } else {
            Response::from_string("the metrics are at /metrics\n").with_status_code(404)
        };
        // The reader may have gone away.
        let _ = request.respond(response);
    }
}
