//! Serves the metrics over HTTP on a thread of its own. Knows nothing of their meaning.

use super::{RunCounts, SharedCounts, Snapshot, lock};
use crate::config::Config;
use crate::measure::part::Part;
use crate::measure::seconds::Second;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use tiny_http::{Header, Method, Response, Server};

/// Metrics that are served until this is dropped.
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

    /// The address on which it listens.
    pub fn address(&self) -> Option<SocketAddr> {
        self.server.server_addr().to_ip()
    }

    /// Adds the counts that a thread handed over.
    pub fn add(&self, part: &Part) {
        lock(&self.shared).add(part);
    }

    /// Sets the rate of the last second.
    pub fn second(&self, second: &Second) {
        lock(&self.shared).second(second);
    }
}

impl Drop for Metrics {
    fn drop(&mut self) {
        self.server.unblock();
        if let Some(thread) = self.thread.take() {
            // A panic in the metrics does not make the run fail.
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
        // The client may have disconnected.
        let _ = request.respond(response);
    }
}
