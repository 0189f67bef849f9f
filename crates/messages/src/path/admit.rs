//! Step 3. Passes work to the dispatcher and waits for its result. A long poll that finds no message waits here and tries again.

use crate::database::cleanup::Cleanup;
use crate::database::peers::Peers;
use crate::database::redelivery::Redelivery;
use crate::http::problem::Problem;
use crate::observe::measurements::Measurements;
use crate::path::caller::Caller;
use crate::path::dispatch::Dispatcher;
use crate::path::failure::Failure;
use crate::path::long_polls::LongPolls;
use crate::path::memory::{Memory, Reservation};
use crate::path::work::{Answer, Job, JobResult, Work};
use clock::{Clock, Stage};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{oneshot, watch};

/// The way of requests to the dispatcher.
#[derive(Debug)]
pub(crate) struct Admission {
    pub(crate) dispatcher: Arc<Dispatcher>,
    pub(crate) memory: Arc<Memory>,
    pub(crate) long_polls: Arc<LongPolls>,
    pub(crate) peers: Arc<Peers>,
    pub(crate) cleanup: Cleanup,
    pub(crate) redelivery: Redelivery,
    pub(crate) clock: Clock,
    pub(crate) poll_interval: Duration,
    /// Becomes true when the service shuts down.
    pub(crate) shutdown: watch::Receiver<bool>,
}

/// An answer, and the memory reserved for its messages.
type Answered = (Answer, Option<Reservation>);

impl Admission {
    /// Passes work to the dispatcher and returns its answer. A pop or receive that finds no message is tried again until `wait` is over: at
    /// once when this service or a peer stores a message in its queue, and every `poll_interval` in case a notification was lost. It ends
    /// when its client leaves.
    pub(crate) async fn submit(
        &self,
        work: Work,
        wait: Duration,
        caller: Caller,
        bodies: Option<Reservation>,
        measurements: &mut Measurements,
    ) -> Result<Answered, Problem> {
        let queue = match &work {
            Work::Pop(fetch) | Work::Receive(fetch, _) if !wait.is_zero() => fetch.scope.queue.clone(),
            _ => return Ok(self.submit_once(work, caller, bodies, measurements).await?),
        };
        let poll = self.long_polls.enter(&queue).ok_or_else(Problem::too_many_polls)?;
        let deadline = self.clock.now() + wait;
        let mut shutdown = self.shutdown.clone();
        let parsed = *measurements;
        let mut was_admitted = false;
        loop {
            // Only the last attempt counts: an earlier one may have passed a stage that this one does not reach.
            *measurements = parsed;
            // Registered before the attempt, so that a message that is stored during the attempt is not missed.
            let mut woken = pin!(poll.waiters.notify.notified());
            woken.as_mut().enable();
            let answer = self.submit_once(work.clone(), caller.clone(), None, measurements).await;
            let left = deadline.after(self.clock.now());
            let is_over = left.is_zero() || *shutdown.borrow();
            // Many polls are woken together and can fill the queue of a lane themselves. They keep waiting.
            let keeps_waiting = match &answer {
                Ok((Answer::Messages(messages), _)) => messages.is_empty(),
                Err(Failure::Overloaded | Failure::OverQuota | Failure::OutOfMemory | Failure::OutOfShare) => {
                    was_admitted
                }
                _ => false,
            };
            if is_over || !keeps_waiting {
                return Ok(answer?);
            }
            // A poll for a deleted queue must not wait for a new queue of the same name.
            if poll.is_deleted() {
                return Err(Failure::UnknownQueue.into());
            }
            was_admitted = true;
            self.peers.announce_poll(&queue);
            tokio::select! {
                () = &mut woken => {}
                () = tokio::time::sleep(left.min(self.poll_interval)) => {}
                _ = shutdown.changed() => {}
                () = caller.socket.left() => return Err(Failure::ClientClosed.into()),
            }
            if poll.is_deleted() {
                return Err(Failure::UnknownQueue.into());
            }
        }
    }

    async fn submit_once(
        &self,
        work: Work,
        caller: Caller,
        bodies: Option<Reservation>,
        measurements: &mut Measurements,
    ) -> Result<Answered, Failure> {
        let changed = match &work {
            Work::Send(send) => Some((send.queue.clone(), false)),
            Work::DeleteQueue(name) => Some((name.clone(), true)),
            _ => None,
        };
        // Requests with a body wait for memory when the body is read. These have no body but can have large replies, so they wait here.
        if work.has_large_answer() {
            self.memory.wait_for_room(&caller.share).await?;
        }
        let is_due_soon = work.is_due_soon();
        let lost = if work.only_reads() { Failure::DatabaseDown } else { Failure::InDoubt };
        measurements.stamp(Stage::Enqueued, self.clock.now());
        let (back, receiver) = oneshot::channel();
        self.dispatcher.push(Job { work, measurements: *measurements, caller, _reservation: bodies, back });
        let JobResult { measurements: passed, result, reservation } = receiver.await.map_err(|_| lost)?;
        *measurements = passed;
        match (&result, changed) {
            (Ok(Answer::Returned(queue)), _) => self.peers.notify(queue),
            (Ok(_), Some((queue, true))) => {
                self.peers.notify_deleted(&queue);
                self.cleanup.wake();
            }
            (Ok(_), Some((queue, false))) => self.peers.notify(&queue),
            _ => {}
        }
        if is_due_soon && matches!(&result, Ok(answer) if !matches!(answer, Answer::Returned(_))) {
            self.redelivery.wake();
        }
        result.map(|answer| (answer, reservation))
    }
}
