//! Threads that are prepared before the proxy serves and begin together, so that a start that fails leaves none of them.

use std::io;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};

/// A thread that first waits for the order to begin. If it is dropped before, the thread ends without having worked.
#[derive(Debug)]
pub(crate) struct Worker<T> {
    /// Set until the thread begins.
    order: Option<SyncSender<()>>,
    /// Set until the thread is joined.
    thread: Option<JoinHandle<io::Result<T>>>,
}

impl<T: Send + 'static> Worker<T> {
    /// Starts a thread for this work.
    pub(crate) fn prepare(
        name: impl Into<String>,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<Worker<T>> {
        let (order, orders) = sync_channel(1);
        let thread = Builder::new().name(name.into()).spawn(move || match orders.recv() {
            Ok(()) => work(),
            Err(_) => Err(io::Error::other("the start of the proxy failed")),
        })?;
        Ok(Worker { order: Some(order), thread: Some(thread) })
    }

    /// Lets the thread begin.
    pub(crate) fn begin(&mut self) {
        if let Some(order) = self.order.take() {
            // The thread waits for nothing but this order, so it is there to receive it.
            let _ = order.send(());
        }
    }

    /// Whether the thread has ended.
    pub(crate) fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for the end of the work. Returns its result, or what it panicked with.
    pub(crate) fn join(mut self) -> std::thread::Result<io::Result<T>> {
        match self.thread.take() {
            Some(thread) => thread.join(),
            None => Ok(Err(io::Error::other("the thread has been joined already"))),
        }
    }
}

impl<T> Drop for Worker<T> {
    fn drop(&mut self) {
        // Without the order the thread ends at once.
        if let (Some(order), Some(thread)) = (self.order.take(), self.thread.take()) {
            drop(order);
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn a_thread_works_when_it_is_ordered_to_and_otherwise_drops_its_work() {
        let count = Arc::new(AtomicUsize::new(0));
        let prepare = || {
            let count = count.clone();
            Worker::prepare("test", move || Ok(count.fetch_add(1, Ordering::SeqCst))).unwrap()
        };
        let (first, mut second) = (prepare(), prepare());
        assert_eq!(Arc::strong_count(&count), 3);
        drop(first);
        assert_eq!((Arc::strong_count(&count), count.load(Ordering::SeqCst)), (2, 0));
        second.begin();
        assert_eq!(second.join().unwrap().unwrap(), 0);
        assert_eq!((Arc::strong_count(&count), count.load(Ordering::SeqCst)), (1, 1));
    }
}
