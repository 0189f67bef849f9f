//! Station 0. Takes connections, as many as are allowed, and serves HTTP on each until it ends, the client's time is up or the service
//! ends. Knows nothing of what is asked.

use crate::config::Clients;
use crate::http::client_connection::Client;
use crate::http::stream::Told;
use crate::observe::client_connections::{Connections, HEAD, Open};
use crate::observe::journal::Journal;
use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response};
use clock::{Clock, Nanos};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
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

/// Pause after an error of accept, such as having no descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Bytes of a connection that hyper holds in either direction, about; a head that is much larger is refused.
const BUFFER_BYTES: usize = 64 << 10;
/// Longer than anything waits.
const FAR: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// Connections over the limit that are told so at the same time.
const REFUSALS: usize = 100;
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);
const REFUSAL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\nretry-after: 1\r\n\
connection: close\r\ncontent-length: 118\r\n\r\n\
{\"type\":\"urn:waystage:problem:overloaded\",\"title\":\"Overloaded\",\"status\":503,\"detail\":\"there are too many connections\"}";

/// What every connection is served with.
#[derive(Clone)]
pub(crate) struct Accepting {
    pub(crate) router: Router,
    pub(crate) journal: Arc<Journal>,
    pub(crate) clock: Clock,
    pub(crate) clients: Clients,
    pub(crate) connections: Arc<Connections>,
    /// With it, TLS is spoken.
    pub(crate) tls: Option<TlsAcceptor>,
    /// Becomes true when the service ends.
    pub(crate) ending: watch::Receiver<bool>,
}

/// What a request is told of where it came from.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) client: Arc<Client>,
    pub(crate) sequence: u32,
}

impl Drop for Origin {
    /// The request is over, whoever answered it.
    fn drop(&mut self) {
        self.client.rest();
    }
}

/// Marks every request with its connection.
struct Marking {
    inner: TowerToHyperService<Router>,
    client: Arc<Client>,
}

impl Service<Request<Incoming>> for Marking {
    type Response = Response<Body>;
    type Error = std::convert::Infallible;
    type Future = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Future;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        let sequence = self.client.begin();
        request.extensions_mut().insert(Arc::new(Origin { client: self.client.clone(), sequence }));
        self.inner.call(request)
    }
}

impl Accepting {
    /// Accepts until the service ends, then waits for every connection to end.
    pub(crate) async fn run(self, listener: TcpListener) {
        let mut tasks = JoinSet::new();
        let mut ending = self.ending.clone();
        let refusals = Arc::new(Semaphore::new(REFUSALS));
        let mut number: u32 = 0;
        while !*ending.borrow_and_update() {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, address)) => {
                        match self.connections.enter() {
                            Some(open) => {
                                tasks.spawn(self.clone().serve(stream, address, number, open));
                                number = number.wrapping_add(1);
                            }
                            // Who speaks TLS is not told: a handshake costs more than a request.
                            None if self.tls.is_some() => drop(stream),
                            None => {
                                if let Ok(permit) = refusals.clone().try_acquire_owned() {
                                    tasks.spawn(refuse(stream, permit));
                                }
                            }
                        }
                    }
                    Err(_) => {
                        self.connections.note_accept_pause();
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
                Some(_) = tasks.join_next() => {}
                _ = ending.changed() => {}
            }
        }
        drop(listener);
        while tasks.join_next().await.is_some() {}
    }

    async fn serve(self, stream: TcpStream, address: SocketAddr, number: u32, open: Open) {
        // Replies are small and complete: to wait for more of them only costs time.
        let _ = stream.set_nodelay(true);
        let client = Arc::new(Client::new(number, address.port(), self.clock.clone(), self.journal.clone()));
        match &self.tls {
            None => self.converse(stream, client).await,
            Some(tls) => match tokio::time::timeout(self.clients.head_timeout, tls.accept(stream)).await {
                Ok(Ok(stream)) => self.converse(stream, client).await,
                Ok(Err(_)) => self.connections.note_tls_failure(),
                Err(_) => self.connections.note_late(HEAD),
            },
        }
        drop(open);
    }

    async fn converse<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: S, client: Arc<Client>) {
        let told = Told { stream, client: client.clone() };
        let service = Marking { inner: TowerToHyperService::new(self.router.clone()), client: client.clone() };
        let mut builder = http1::Builder::new();
        builder.header_read_timeout(None).max_buf_size(BUFFER_BYTES);
        let mut connection = pin!(builder.serve_connection(TokioIo::new(told), service));
        let mut ending = self.ending.clone();
        let mut is_ending = *ending.borrow_and_update();
        let mut watch = Watch { armed: Nanos::NEVER, sleep: Box::pin(tokio::time::sleep(FAR)) };
        loop {
            if is_ending {
                connection.as_mut().graceful_shutdown();
            }
            // Errors of single connections are theirs.
            let served = poll_fn(|context| match connection.as_mut().poll(context) {
                Poll::Ready(_) => Poll::Ready(None),
                Poll::Pending => watch.poll(context, &client, &self.clients, &self.clock).map(Some),
            });
            tokio::select! {
                biased;
                late = served => {
                    late.into_iter().for_each(|what| self.connections.note_late(what));
                    return;
                }
                _ = ending.changed(), if !is_ending => is_ending = *ending.borrow_and_update(),
            }
        }
    }
}

/// Looks at a client's time. The timer is set when the time that is left becomes shorter, and not when it becomes longer: then it finds
/// out when it fires.
struct Watch {
    armed: Nanos,
    sleep: Pin<Box<Sleep>>,
}

impl Watch {
    /// Ready when the client's time is up: for what.
    fn poll(&mut self, context: &mut Context<'_>, client: &Client, clients: &Clients, clock: &Clock) -> Poll<usize> {
        loop {
            let (at, what) = client.deadline(clients).unwrap_or((Nanos::NEVER, 0));
            if at < self.armed {
                self.armed = at;
                // Timers are not exact, and one that comes too early would only have to wait again.
                let left = at.after(clock.now()) + Duration::from_millis(1);
                self.sleep.set(tokio::time::sleep(left));
            }
            ready!(self.sleep.as_mut().poll(context));
            if at <= clock.now() {
                return Poll::Ready(what);
            }
            self.armed = Nanos::NEVER;
            self.sleep.set(tokio::time::sleep(FAR));
        }
    }
}

/// Says that there are too many connections, and waits until it was heard.
async fn refuse(mut stream: TcpStream, permit: OwnedSemaphorePermit) {
    let told = async {
        stream.write_all(REFUSAL).await?;
        stream.shutdown().await?;
        let mut unread = [0; 1024];
        while stream.read(&mut unread).await? > 0 {}
        std::io::Result::Ok(())
    };
    // Whoever does not listen is not told.
    let _ = tokio::time::timeout(REFUSAL_TIMEOUT, told).await;
    drop(permit);
}
