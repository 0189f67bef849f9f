//! Serves the metrics over HTTP on its own thread. For each scrape it requests the histograms of all event loops.

use crate::observe::histograms::StageHistograms;
use crate::observe::metrics::{Snapshot, Subject};
use crate::observe::metrics_text::classic;
use std::fmt::Display;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;
use tiny_http::{Header, Method, Request, Response, Server};

/// How long a loop may take to send its histograms. If it takes longer, its last copy is shown.
const PATIENCE: Duration = Duration::from_secs(1);

/// Sends one loop a request for a copy of its histograms. Returns whether the request was sent.
pub(crate) type RequestHistograms = Box<dyn Fn(SyncSender<StageHistograms>) -> bool + Send>;

/// The server and its thread.
pub(crate) struct MetricsServer {
    server: Arc<Server>,
    /// A duplicate of the socket, for a successor.
    copy: TcpListener,
    thread: JoinHandle<()>,
}

/// The state that is kept between scrapes.
struct Scraper {
    subject: Arc<Subject>,
    loops: Vec<LoopHistograms>,
    scrapes: u64,
    stale_loops: u64,
}

/// One loop, and the last copy of its histograms. Without the copy, the counts of a busy loop would drop to zero and rise again,
/// which looks like a restart.
struct LoopHistograms {
    request: RequestHistograms,
    last: StageHistograms,
}

impl MetricsServer {
    /// Starts to serve on `address`, with the inherited socket if it has this address.
    pub(crate) fn start(
        address: &str,
        handed: Option<OwnedFd>,
        subject: Subject,
        requests: Vec<RequestHistograms>,
    ) -> Result<MetricsServer, String> {
        let failed = |error: &dyn Display| format!("cannot serve metrics on {address}: {error}");
        let handed = handed.map(TcpListener::from).filter(|listener| is_at(listener, address));
        let listener = handed.map_or_else(|| TcpListener::bind(address), Ok).map_err(|error| failed(&error))?;
        let copy = listener.try_clone().map_err(|error| failed(&error))?;
        let listening = Server::from_listener(listener, None).map_err(|error| failed(&error))?;
        let server = Arc::new(listening);
        let serving = server.clone();
        let mut scraper = Scraper::new(subject, requests);
        let thread = std::thread::Builder::new()
            .name("metrics".into())
            .spawn(move || serve(&serving, &mut scraper))
            .map_err(|error| format!("cannot start the metrics thread: {error}"))?;
        Ok(MetricsServer { server, copy, thread })
    }

    /// The address.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.server.server_addr().to_ip()
    }

    /// A duplicate of the socket, for a successor.
    pub(crate) fn socket(&self) -> io::Result<TcpListener> {
        self.copy.try_clone()
    }

    /// Stops the server.
    pub(crate) fn stop(self) {
        self.server.unblock();
        // A panic of the metrics server does not fail the proxy's orderly end.
        let _ = self.thread.join();
    }
}

/// Whether a socket has this address. Port 0 stands for any port.
fn is_at(listener: &TcpListener, address: &str) -> bool {
    let wanted = address.to_socket_addrs().ok().and_then(|mut wanted| wanted.next());
    match (listener.local_addr(), wanted) {
        (Ok(own), Some(wanted)) => own.ip() == wanted.ip() && (wanted.port() == 0 || own.port() == wanted.port()),
        _ => false,
    }
}

fn serve(server: &Server, scraper: &mut Scraper) {
    for request in server.incoming_requests() {
        let path = request.url().split('?').next();
        let is_metrics = request.method() == &Method::Get && path == Some("/metrics");
        let response = if is_metrics {
            let text = scraper.snapshot(PATIENCE).render();
            let (text, kind) = if wants_open_metrics(&request) {
                (text, "application/openmetrics-text; version=1.0.0; charset=utf-8")
            } else {
                (classic(&text), "text/plain; version=0.0.4; charset=utf-8")
            };
            let header = Header::from_bytes("Content-Type", kind);
            header.into_iter().fold(Response::from_string(text), Response::with_header)
        } else {
            Response::from_string("the metrics are at /metrics\n").with_status_code(404)
        };
        // The client may have gone.
        let _ = request.respond(response);
    }
}

fn wants_open_metrics(request: &Request) -> bool {
    let mut accepted = request.headers().iter().filter(|header| header.field.equiv("Accept"));
    accepted.any(|header| header.value.as_str().contains("application/openmetrics-text"))
}

impl Scraper {
    fn new(subject: Subject, requests: Vec<RequestHistograms>) -> Scraper {
        let with_none = |request| LoopHistograms { request, last: StageHistograms::default() };
        let loops = requests.into_iter().map(with_none).collect();
        Scraper { subject: Arc::new(subject), loops, scrapes: 0, stale_loops: 0 }
    }

    /// The data of one scrape.
    fn snapshot(&mut self, patience: Duration) -> Snapshot {
        let histograms = self.histograms(patience);
        self.scrapes += 1;
        let subject = self.subject.clone();
        Snapshot { subject, histograms, scrapes: self.scrapes, stale_loops: self.stale_loops }
    }

    /// The sum of all loops' histograms. All loops get the request before the first is waited for, so that they work in parallel.
    fn histograms(&mut self, patience: Duration) -> StageHistograms {
        let ask = |one: &LoopHistograms| {
            let (sender, receiver) = sync_channel(1);
            (one.request)(sender).then_some(receiver)
        };
        let answers: Vec<_> = self.loops.iter().map(ask).collect();
        let (mut sum, mut patience) = (StageHistograms::default(), patience);
        for (one, answer) in self.loops.iter_mut().zip(answers) {
            let answer = answer.map_or(Err(RecvTimeoutError::Disconnected), |receiver| receiver.recv_timeout(patience));
            if matches!(answer, Err(RecvTimeoutError::Timeout)) {
                // The other loops have had the same time.
                patience = Duration::ZERO;
            }
            match answer {
                Ok(fresh) => one.last = fresh,
                Err(_) => self.stale_loops += 1,
            }
            sum.add(&one.last);
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::counters::{LoopCounters, NameCounters};
    use clock::{Nanos, Stage, StageClock};
    use net::{Poller, Post, Token, mailbox};
    use wire::Verb;

    #[test]
    fn a_loop_that_does_not_answer_keeps_its_last_histograms_and_is_counted() {
        let pollers = [Poller::new().unwrap(), Poller::new().unwrap()];
        let (quick_post, mut quick) = mailbox(&pollers[0], Token(1)).unwrap();
        let (slow_post, mut slow) = mailbox(&pollers[1], Token(2)).unwrap();
        let subject = Subject {
            loops: vec![Arc::new(LoopCounters::new(0, 0, 0))],
            accept: Arc::default(),
            names: Arc::new(NameCounters::new(0)),
            pools: Vec::new(),
            servers: Vec::new(),
            invalidations_pending: Vec::new(),
            queues: Vec::new(),
            clients_max: 1,
            dispatch: "pipelined",
            started_unix_ns: 0,
            hot_keys: None,
        };
        let mut scraper = Scraper::new(subject, [slow_post, quick_post].map(request).into());
        let mut histograms = StageHistograms::default();
        let mut clock = StageClock::started(Nanos(1000));
        clock.stamp(Stage::Replied, Nanos(3000));
        clock.finish();
        // Each loop has one more request at every scrape. In the second scrape, the slow loop does not answer.
        for (slow_answers, requests, stale_loops) in [(true, 2, 0), (false, 3, 1), (true, 6, 1)] {
            histograms.record(Verb::Get, &clock);
            histograms.record_batch();
            let snapshot = std::thread::scope(|scope| {
                let (quick, slow, copy) = (&mut quick, &mut slow, &histograms);
                scope.spawn(move || {
                    answer(quick, Some(copy));
                    answer(slow, Some(copy).filter(|_| slow_answers));
                });
                scraper.snapshot(Duration::from_secs(60))
            });
            let total = snapshot.histograms.series().find(|series| series.1 == "total").unwrap().2.len();
            assert_eq!((total, snapshot.stale_loops), (requests, stale_loops));
        }
        assert_eq!(scraper.scrapes, 3);
    }

    fn request(post: Post<SyncSender<StageHistograms>>) -> RequestHistograms {
        Box::new(move |sender| post.send(sender).is_ok())
    }

    /// Sends a copy as a loop does, or without a copy drops the request.
    fn answer(mailbox: &mut net::Mailbox<SyncSender<StageHistograms>>, copy: Option<&StageHistograms>) {
        loop {
            match mailbox.take() {
                Some(sender) => {
                    return copy.into_iter().for_each(|copy| sender.try_send(copy.clone()).unwrap());
                }
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }
}
