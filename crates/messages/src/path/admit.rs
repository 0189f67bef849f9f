//! Station 3. Lets work into the dispatch and waits for what comes back; an empty pop may wait here for messages.

use crate::database::cleanup::Sweeper;
use crate::database::peers::Neighbours;
use crate::database::redelivery::Mover;
use crate::http::problem::Problem;
use crate::observe::measurements::Journey;
use crate::path::dispatch::Dispatcher;
use crate::path::failure::Failure;
use crate::path::long_polls::Waiting;
use crate::path::memory::{Held, Memory};
use crate::path::work::{Answer, Job, Outcome, Work};
use clock::{Clock, Stage};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{oneshot, watch};

/// The way into the dispatch.
#[derive(Debug)]
pub(crate) struct Admission {
    pub(crate) dispatcher: Arc<Dispatcher>,
    pub(crate) memory: Arc<Memory>,
    pub(crate) waiting: Arc<Waiting>,
    pub(crate) neighbours: Arc<Neighbours>,
    pub(crate) sweeper: Sweeper,
    pub(crate) mover: Mover,
    pub(crate) clock: Clock,
    pub(crate) poll_interval: Duration,
    /// Becomes true when the service ends.
    pub(crate) ending: watch::Receiver<bool>,
}

/// An answer, and what its messages take.
type Answered = (Answer, Option<Held>);

impl Admission {
    /// Has work done. A pop that finds nothing is tried again until `wait` is over: at once when something was sent to its queue
    /// through this service or another says so, and now and then because not everybody says it.
    pub(crate) async fn ask(
        &self,
        work: Work,
        wait: Duration,
        bodies: Option<Held>,
        journey: &mut Journey,
    ) -> Result<Answered, Problem> {
        let queue = match &work {
            Work::Pop(wish) | Work::Receive(wish, _) if !wait.is_zero() => wish.scope.queue.clone(),
            _ => return Ok(self.once(work, bodies, journey).await?),
        };
        let place = self.waiting.enter(&queue).ok_or_else(Problem::too_many_polls)?;
        let deadline = self.clock.now() + wait;
        let mut ending = self.ending.clone();
        let parsed = *journey;
        let mut is_let_in = false;
        loop {
            // Only the last attempt is told: of the one before, a stage may have been passed that this one does not reach.
            *journey = parsed;
            // Before the attempt, so that what is sent while it is under way is not missed.
            let mut woken = pin!(place.notify.notified());
            woken.as_mut().enable();
            let answer = self.once(work.clone(), None, journey).await;
            let left = deadline.after(self.clock.now());
            let is_over = left.is_zero() || *ending.borrow();
            // Many who poll are woken together, and may fill the queue of a lane themselves: they go on waiting.
            let is_for_later = match &answer {
                Ok((Answer::Messages(messages), _)) => messages.is_empty(),
                Err(Failure::Overloaded | Failure::OutOfMemory) => is_let_in,
                _ => false,
            };
            if is_over || !is_for_later {
                return Ok(answer?);
            }
            is_let_in = true;
            self.neighbours.wants(&queue);
            tokio::select! {
                () = &mut woken => {}
                () = tokio::time::sleep(left.min(self.poll_interval)) => {}
                _ = ending.changed() => {}
            }
        }
    }

    async fn once(&self, work: Work, bodies: Option<Held>, journey: &mut Journey) -> Result<Answered, Failure> {
        let changed = match &work {
            Work::Send(sending) => Some((sending.queue.clone(), false)),
            Work::DeleteQueue(name) => Some((name.clone(), true)),
            _ => None,
        };
        // What brings no bodies may be answered with some.
        if work.hands_out() && !self.memory.becomes_free().await {
            return Err(Failure::OutOfMemory);
        }
        let is_due_soon = work.is_due_soon();
        let lost = if work.only_reads() { Failure::DatabaseDown } else { Failure::InDoubt };
        journey.stamp(Stage::Enqueued, self.clock.now());
        let (back, receiver) = oneshot::channel();
        self.dispatcher.push(Job { work, journey: *journey, _held: bodies, back });
        let Outcome { journey: passed, result, held } = receiver.await.map_err(|_| lost)?;
        *journey = passed;
        if is_due_soon && result.is_ok() {
            self.mover.wake();
        }
        if let (Some((queue, is_deleted)), Ok(_)) = (changed, &result) {
            self.neighbours.changed(&queue);
            if is_deleted {
                self.sweeper.wake();
            }
        }
        result.map(|answer| (answer, held))
    }
}
