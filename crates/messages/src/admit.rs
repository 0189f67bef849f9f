//! Station 3. Lets work into the dispatch and waits for what comes back; an empty pop may wait here for messages.

use crate::dispatch::Dispatcher;
use crate::failure::Failure;
use crate::problem::Problem;
use crate::sweep::Sweeper;
use crate::waiting::Waiting;
use crate::work::{Answer, Job, Outcome, Work};
use clock::{Clock, Stage, StageClock};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{oneshot, watch};

/// The way into the dispatch.
#[derive(Debug)]
pub(crate) struct Admission {
    pub(crate) dispatcher: Arc<Dispatcher>,
    pub(crate) waiting: Arc<Waiting>,
    pub(crate) sweeper: Sweeper,
    pub(crate) clock: Clock,
    pub(crate) poll_interval: Duration,
    /// Becomes true when the service ends.
    pub(crate) ending: watch::Receiver<bool>,
}

impl Admission {
    /// Has work done. A pop that finds nothing is tried again until `wait` is over: at once when something was sent to its queue
    /// through this service, and now and then because it may have been sent through another.
    pub(crate) async fn ask(&self, work: Work, wait: Duration, clock: &mut StageClock) -> Result<Answer, Problem> {
        let queue = match &work {
            Work::Pop(wish) if !wait.is_zero() => wish.scope.queue.clone(),
            _ => return Ok(self.once(work, clock).await?),
        };
        let place = self.waiting.enter(&queue).ok_or_else(Problem::too_many_polls)?;
        let deadline = self.clock.now() + wait;
        let mut ending = self.ending.clone();
        let parsed = *clock;
        loop {
            // Only the last attempt is told: of the one before, a stage may have been passed that this one does not reach.
            *clock = parsed;
            // Before the attempt, so that what is sent while it is under way is not missed.
            let mut woken = pin!(place.notify.notified());
            woken.as_mut().enable();
            let answer = self.once(work.clone(), clock).await?;
            let left = deadline.after(self.clock.now());
            let is_over = left.is_zero() || *ending.borrow();
            if is_over || !matches!(&answer, Answer::Messages(messages) if messages.is_empty()) {
                return Ok(answer);
            }
            tokio::select! {
                () = &mut woken => {}
                () = tokio::time::sleep(left.min(self.poll_interval)) => {}
                _ = ending.changed() => {}
            }
        }
    }

    async fn once(&self, work: Work, clock: &mut StageClock) -> Result<Answer, Failure> {
        let changed = match &work {
            Work::Send(sending) => Some((sending.queue.clone(), false)),
            Work::DeleteQueue(name) => Some((name.clone(), true)),
            _ => None,
        };
        clock.stamp(Stage::Enqueued, self.clock.now());
        let (back, receiver) = oneshot::channel();
        self.dispatcher.push(Job { work, clock: *clock, back });
        let Outcome { clock: passed, result } = receiver.await.map_err(|_| Failure::Ending)?;
        *clock = passed;
        if let (Some((queue, is_deleted)), Ok(_)) = (changed, &result) {
            self.waiting.wake(&queue);
            if is_deleted {
                self.sweeper.wake();
            }
        }
        result
    }
}
