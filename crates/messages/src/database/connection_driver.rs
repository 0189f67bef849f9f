//! The part of a connection that transfers bytes, and a count that shows whether it does. A network that drops packets stops the count; a slow
//! one does not.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

type Transfer = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Counts how often a connection could transfer more bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress(Arc<Wakes>);

/// The wakes of a connection. While its client waits for a reply, only the socket wakes it: bytes have arrived, or the other side has
/// acknowledged bytes, so that there is room for more.
#[derive(Debug, Default)]
struct Wakes {
    number: AtomicU64,
    /// The task that polls the connection.
    task: Mutex<Option<Waker>>,
}

/// A transfer whose wakes are counted.
struct Observed {
    transfer: Transfer,
    wakes: Arc<Wakes>,
    waker: Waker,
}

/// The part of a connection that transfers bytes. It does so only while it is driven. The task that waits for the reply drives it, so
/// that no other task has to be woken to send the statement or to receive the reply.
pub(crate) struct ConnectionDriver {
    /// None if the connection has ended.
    transfer: Option<Observed>,
    progress: Progress,
}

impl Progress {
    /// The count. Bytes have been transferred between two calls that return different numbers.
    pub(crate) fn count(&self) -> u64 {
        self.0.number.load(Ordering::Relaxed)
    }
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.number.fetch_add(1, Ordering::Relaxed);
        if let Some(task) = self.task.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
            task.wake_by_ref();
        }
    }
}

impl Wakes {
    /// Wakes this task from now on.
    fn wake_later(&self, waker: &Waker) {
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        match task.as_mut() {
            Some(known) => known.clone_from(waker),
            None => *task = Some(waker.clone()),
        }
    }
}

impl Future for Observed {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Observed { transfer, wakes, waker } = self.get_mut();
        wakes.wake_later(context.waker());
        transfer.as_mut().poll(&mut Context::from_waker(waker))
    }
}

fn observed(transfer: impl Future<Output = ()> + Send + 'static) -> Observed {
    let wakes = Arc::new(Wakes::default());
    Observed { transfer: Box::pin(transfer), waker: wakes.clone().into(), wakes }
}

/// A transfer for a task of its own, and its progress.
pub(super) fn observe(
    transfer: impl Future<Output = ()> + Send + 'static,
) -> (impl Future<Output = ()> + Send + 'static, Progress) {
    let observed = observed(transfer);
    let progress = Progress(observed.wakes.clone());
    (observed, progress)
}

impl ConnectionDriver {
    /// Drives this transfer.
    pub(super) fn new(transfer: impl Future<Output = ()> + Send + 'static) -> ConnectionDriver {
        let observed = observed(transfer);
        ConnectionDriver { progress: Progress(observed.wakes.clone()), transfer: Some(observed) }
    }

    /// The progress of the connection.
    pub(super) fn progress(&self) -> Progress {
        self.progress.clone()
    }

    /// Waits for some work that does not use the connection. Returns nothing if the connection ends before.
    pub(crate) async fn drive_until_closed<W: Future>(&mut self, work: W) -> Option<W::Output> {
        let mut work = pin!(work);
        poll_fn(|context| {
            if let Poll::Ready(done) = work.as_mut().poll(context) {
                return Poll::Ready(Some(done));
            }
            if self.transfer(context) { Poll::Ready(None) } else { Poll::Pending }
        })
        .await
    }

    /// Runs some work, and transfers bytes until it is done. If the connection ends, the client's calls fail.
    pub(crate) async fn drive<W: Future>(&mut self, work: W) -> W::Output {
        let mut work = pin!(work);
        poll_fn(|context| {
            let done = work.as_mut().poll(context);
            if done.is_pending() {
                self.transfer(context);
            }
            done
        })
        .await
    }

    /// Transfers bytes as far as possible. Returns whether the connection has ended.
    fn transfer(&mut self, context: &mut Context<'_>) -> bool {
        if self.transfer.as_mut().is_none_or(|transfer| Pin::new(transfer).poll(context).is_ready()) {
            self.transfer = None;
        }
        self.transfer.is_none()
    }
}
