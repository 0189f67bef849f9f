//! Serves the metrics over HTTP in a thread of its own, and asks the loops for their histograms when somebody asks it.

use crate::counters::{AcceptCounters, LoopCounters, NameCounters};
use crate::event_loop::Message;
use crate::histograms::StageHistograms;
use crate::metrics::Snapshot;
use net::Post;
use std::fmt::Display;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;
use std::time::Duration;
use tiny_http::{Header, Method, Response, Server};

/// A loop answers between two turns; one that takes longer is left out of this answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// The server and its thread.
pub(crate) struct MetricsServer {
    server: Arc<Server>,
    /// For a successor.
    copy: TcpListener,
    thread: JoinHandle<()>,
}

/// Where the numbers come from.
pub(crate) struct Sources {
    pub(crate) posts: Vec<Post<Message>>,
    pub(crate) loops: Vec<Arc<LoopCounters>>,
    pub(crate) accept: Arc<AcceptCounters>,
    pub(crate) names: Arc<NameCounters>,
    pub(crate) servers: Vec<String>,
    pub(crate) queues: Vec<String>,
}

impl MetricsServer {
    /// Starts to serve on `address`, on a socket that was handed over if it is there.
    pub(crate) fn start(address: &str, handed: Option<OwnedFd>, sources: Sources) -> Result<MetricsServer, String> {
        let failed = |error: &dyn Display| format!("cannot serve metrics on {address}: {error}");
        let handed = handed.map(TcpListener::from).filter(|listener| is_at(listener, address));
        let listener = handed.map_or_else(|| TcpListener::bind(address), Ok).map_err(|error| failed(&error))?;
        let copy = listener.try_clone().map_err(|error| failed(&error))?;
        let listening = Server::from_listener(listener, None).map_err(|error| failed(&error))?;
        let server = Arc::new(listening);
        let serving = server.clone();
        let thread = std::thread::Builder::new()
            .name("metrics".into())
            .spawn(move || serve(&serving, &sources))
            .map_err(|error| format!("cannot start the metrics thread: {error}"))?;
        Ok(MetricsServer { server, copy, thread })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.server.server_addr().to_ip()
    }

    /// The socket, for a successor.
    pub(crate) fn socket(&self) -> io::Result<TcpListener> {
        self.copy.try_clone()
    }

    /// Ends it.
    pub(crate) fn stop(self) {
        self.server.unblock();
        // A panic in the metrics is no reason to fail the proxy's orderly end.
        let _ = self.thread.join();
    }
}

/// Whether a socket listens where this address says; port 0 is anywhere.
fn is_at(listener: &TcpListener, address: &str) -> bool {
    let wanted = address.to_socket_addrs().ok().and_then(|mut wanted| wanted.next());
    match (listener.local_addr(), wanted) {
        (Ok(own), Some(wanted)) => own.ip() == wanted.ip() && (wanted.port() == 0 || own.port() == wanted.port()),
        _ => false,
    }
}

fn serve(server: &Server, sources: &Sources) {
    for request in server.incoming_requests() {
        let is_metrics = request.method() == &Method::Get && request.url() == "/metrics";
        let response = if is_metrics {
            let text = snapshot(sources).render();
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            let header = Header::from_bytes("Content-Type", kind);
            header.into_iter().fold(Response::from_string(text), Response::with_header)
        } else {
            Response::from_string("the metrics are at /metrics\n").with_status_code(404)
        };
        // The reader may have gone away.
        let _ = request.respond(response);
    }
}

/// Everything as it is now.
fn snapshot(sources: &Sources) -> Snapshot {
    Snapshot {
        loops: sources.loops.clone(),
        accept: sources.accept.clone(),
        names: sources.names.clone(),
        servers: sources.servers.clone(),
        queues: sources.queues.clone(),
        histograms: histograms(&sources.posts),
    }
}

/// All loops' histograms, added up.
fn histograms(loops: &[Post<Message>]) -> StageHistograms {
    let (sender, receiver) = sync_channel(loops.len());
    let asked = loops.iter().filter(|post| post.send(Message::Histograms(sender.clone())).is_ok()).count();
    let mut sum = StageHistograms::default();
    for _ in 0..asked {
        if let Ok(one) = receiver.recv_timeout(PATIENCE) {
            sum.add(&one);
        }
    }
    sum
}
