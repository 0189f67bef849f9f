//! Before the steps. Accepts client connections up to the limit and serves HTTP on each of them, until the client closes it, a client
//! timeout expires or the service shuts down. Knows nothing about operations.

use crate::config::ClientLimits;
use crate::http::client_connection::{ClientConnection, UNSENT_BYTES};
use crate::http::origin::Origin;
use crate::http::routes::Routes;
use crate::http::stream::{ObservedStream, SharedStream};
use crate::observe::client_connections::{ClientConnections, HEAD, OpenConnection};
use crate::observe::journal::Journal;
use crate::observe::limits::{Limit, LimitCounts};
use crate::path::caller::{AddressShares, Caller};
use crate::path::client_socket::ClientSocket;
use clock::{Clock, Nanos};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::Sleep;
use tokio_rustls::TlsAcceptor;

/// Pause after `accept` failed, for example because no file descriptor was left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Approximate bytes that hyper buffers in each direction of a connection. A much larger request head is refused.
const BUFFER_BYTES: usize = 64 << 10;
/// Longer than any timeout.
const FAR: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// Connections over the limit that receive the 503 reply at the same time. Further ones are closed without a reply.
const REFUSALS: usize = 100;
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);
const REFUSAL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\nretry-after: 1\r\n\
connection: close\r\ncontent-length: 118\r\n\r\n\
{\"type\":\"urn:waystage:problem:overloaded\",\"title\":\"Overloaded\",\"status\":503,\"detail\":\"there are too many connections\"}";

/// What every client connection needs.
#[derive(Clone)]
pub(crate) struct Acceptor {
    pub(crate) routes: Routes,
    pub(crate) journal: Arc<Journal>,
    pub(crate) clock: Clock,
    pub(crate) clients: ClientLimits,
    pub(crate) connections: Arc<ClientConnections>,
    pub(crate) shares: Arc<AddressShares>,
    /// If set, clients must use TLS. The certificate can be replaced while the service runs.
    pub(crate) tls: Option<watch::Receiver<Arc<ServerConfig>>>,
    /// Becomes true when the service shuts down.
    pub(crate) shutdown: watch::Receiver<bool>,
}

impl Acceptor {
    /// Accepts connections until shutdown, then waits until all of them have closed.
    pub(crate) async fn run(self, listener: TcpListener) {
        let mut tasks = JoinSet::new();
        let mut shutdown = self.shutdown.clone();
        let refusals = Arc::new(Semaphore::new(REFUSALS));
        let mut number: u32 = 0;
        while !*shutdown.borrow_and_update() {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, address)) => {
                        match self.connections.enter() {
                            Some(open) => {
                                tasks.spawn(self.clone().serve(stream, address, number, open));
                                number = number.wrapping_add(1);
                            }
                            // A TLS client gets no reply, because the handshake would cost more than serving a request.
                            None if self.tls.is_some() => drop(stream),
                            None => match refusals.clone().try_acquire_owned() {
                                Ok(permit) => drop(tasks.spawn(refuse(stream, permit, self.journal.limits.clone()))),
                                Err(_) => self.journal.limits.reach(Limit::RefusalReplies),
                            },
                        }
                    }
                    Err(_) => {
                        self.connections.note_accept_pause();
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
                Some(_) = tasks.join_next() => {}
                _ = shutdown.changed() => {}
            }
        }
        drop(listener);
        while tasks.join_next().await.is_some() {}
    }

    async fn serve(self, stream: TcpStream, address: SocketAddr, number: u32, open: OpenConnection) {
        // Replies are small and complete, so waiting to coalesce them only adds latency.
        let _ = stream.set_nodelay(true);
        let _ = net::limit_unsent_bytes(&stream, UNSENT_BYTES);
        let stream = Arc::new(stream);
        let caller = Caller { socket: ClientSocket::new(stream.clone()), share: self.shares.of(address.ip()) };
        let (clock, journal) = (self.clock.clone(), self.journal.clone());
        let client = Arc::new(ClientConnection::new(number, address.port(), caller, clock, journal));
        let stream = SharedStream(stream);
        match self.tls.as_ref().map(|tls| TlsAcceptor::from(tls.borrow().clone())) {
            None => self.serve_http(stream, client).await,
            Some(tls) => match tokio::time::timeout(self.clients.head_timeout, tls.accept(stream)).await {
                Ok(Ok(stream)) => self.serve_http(stream, client).await,
                Ok(Err(_)) => self.connections.note_tls_failure(),
                Err(_) => self.connections.note_timeout(HEAD),
            },
        }
        drop(open);
    }

    async fn serve_http<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: S, client: Arc<ClientConnection>) {
        let observed = ObservedStream { stream, client: client.clone(), refusal: None };
        let service = service_fn(|request| self.routes.handle(Arc::new(Origin::of(&client, &request)), request));
        let mut builder = http1::Builder::new();
        // A request is not abandoned when the client closes its side: `ClientSocket` decides that for each type of work.
        builder.header_read_timeout(None).max_buf_size(BUFFER_BYTES).half_close(true);
        let mut connection = pin!(builder.serve_connection(TokioIo::new(observed), service));
        let mut shutdown = self.shutdown.clone();
        let mut is_shutting_down = *shutdown.borrow_and_update();
        let mut watch = DeadlineTimer { armed: Nanos::NEVER, sleep: Box::pin(tokio::time::sleep(FAR)) };
        loop {
            if is_shutting_down {
                connection.as_mut().graceful_shutdown();
            }
            // The error of one connection concerns only its client.
            let served = poll_fn(|context| match connection.as_mut().poll(context) {
                Poll::Ready(_) => Poll::Ready(None),
                Poll::Pending => watch.poll(context, &client, &self.clients, &self.clock).map(Some),
            });
            tokio::select! {
                biased;
                timed_out = served => {
                    timed_out.into_iter().for_each(|timeout| self.connections.note_timeout(timeout));
                    return;
                }
                _ = shutdown.changed(), if !is_shutting_down => is_shutting_down = *shutdown.borrow_and_update(),
            }
        }
    }
}

/// Enforces a client's deadlines with one timer. The timer is set again when the deadline moves closer. When the deadline moves away, the
/// timer fires early and is set again then, so that a request usually sets no timer.
struct DeadlineTimer {
    armed: Nanos,
    sleep: Pin<Box<Sleep>>,
}

impl DeadlineTimer {
    /// Ready when a deadline has passed, with the index of the timeout in `TIMEOUTS`.
    fn poll(
        &mut self,
        context: &mut Context<'_>,
        client: &ClientConnection,
        clients: &ClientLimits,
        clock: &Clock,
    ) -> Poll<usize> {
        loop {
            let (at, timeout) = client.deadline(clients).unwrap_or((Nanos::NEVER, 0));
            if at < self.armed {
                self.armed = at;
                // Timers are imprecise; one that fires early would only have to be set again.
                let left = at.after(clock.now()) + Duration::from_millis(1);
                self.sleep.set(tokio::time::sleep(left));
            }
            ready!(self.sleep.as_mut().poll(context));
            if at <= clock.now() {
                return Poll::Ready(timeout);
            }
            self.armed = Nanos::NEVER;
            self.sleep.set(tokio::time::sleep(FAR));
        }
    }
}

/// Replies that there are too many connections, and waits until the client has read the reply.
async fn refuse(mut stream: TcpStream, permit: OwnedSemaphorePermit, limits: Arc<LimitCounts>) {
    let observed = async {
        stream.write_all(REFUSAL).await?;
        stream.shutdown().await?;
        let mut unread = [0; 1024];
        while stream.read(&mut unread).await? > 0 {}
        std::io::Result::Ok(())
    };
    // A client that does not read within the timeout misses the reply.
    if tokio::time::timeout(REFUSAL_TIMEOUT, observed).await.is_err() {
        limits.reach(Limit::RefusalReplies);
    }
    drop(permit);
}
