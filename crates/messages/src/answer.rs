//! Station 6. Does a batch over one connection and tells every job its result: after the commit, never before.
//! The statements of a batch go out together and the server does them one after the other.

use crate::batch::{Batch, Wishes, hand_out};
use crate::connection::Session;
use crate::failure::Failure;
use crate::statement::Found;
use crate::work::{Answer, Job, Sending, Work};
use clock::{Clock, Nanos, Stage};
use tokio_postgres::Error;

/// How often a wish that found only messages that others have in their hands is tried again.
const TRIES: usize = 3;

/// Does everything in the batch; every job ends.
pub(crate) async fn serve(session: &Session, batch: Batch, clock: &Clock) {
    let worker = Worker { session, clock };
    let Batch {
        sends,
        pops: [pops, pops_by_sender, pops_everywhere],
        peeks: [peeks, peeks_by_sender],
        waiting,
        others,
    } = batch;
    // In this order they are sent. A pop sees what was sent in the same batch.
    tokio::join!(
        worker.send(sends),
        worker.pop(pops),
        worker.pop(pops_by_sender),
        worker.pop(pops_everywhere),
        worker.peek(peeks),
        worker.peek(peeks_by_sender),
        worker.waiting(waiting),
        worker.others(others),
    );
}

/// A connection while it does a batch.
struct Worker<'s> {
    session: &'s Session,
    clock: &'s Clock,
}

impl Worker<'_> {
    async fn send(&self, mut jobs: Vec<Job>) {
        if jobs.is_empty() {
            return;
        }
        let sent = self.clock.now();
        let sendings: Vec<&Sending> = jobs.iter().filter_map(sending).collect();
        let outcome = self.session.statements.send(&self.session.client, &sendings).await;
        self.stamp(jobs.iter_mut(), sent);
        match outcome {
            Ok(ids) => {
                for (job, ids) in jobs.into_iter().zip(ids) {
                    job.end(ids.map(Answer::Stored).ok_or(Failure::UnknownQueue));
                }
            }
            Err(error) => fail(jobs, &error),
        }
    }

    async fn pop(&self, mut wishes: Wishes) {
        for attempt in 1..=TRIES {
            if wishes.is_empty() {
                return;
            }
            let merged = wishes.merged(false);
            let sent = self.clock.now();
            let outcome = self.session.statements.pop(&self.session.client, &merged).await;
            let mut jobs = wishes.into_jobs();
            self.stamp(jobs.iter_mut().flatten(), sent);
            let all = match outcome {
                Ok(all) => all,
                Err(error) => return fail(jobs.into_iter().flatten(), &error),
            };
            wishes = Wishes::default();
            for (jobs, found) in jobs.into_iter().zip(all) {
                if found.is_contended && attempt < TRIES {
                    jobs.into_iter().for_each(|job| wishes.push(job));
                } else {
                    end_with(jobs, found);
                }
            }
        }
    }

    async fn peek(&self, wishes: Wishes) {
        if wishes.is_empty() {
            return;
        }
        let merged = wishes.merged(true);
        let sent = self.clock.now();
        let outcome = self.session.statements.peek(&self.session.client, &merged).await;
        let mut jobs = wishes.into_jobs();
        self.stamp(jobs.iter_mut().flatten(), sent);
        match outcome {
            Ok(all) => {
                for (jobs, found) in jobs.into_iter().zip(all) {
                    for job in jobs {
                        let messages = found.messages.iter().take(job.work.messages()).cloned().collect();
                        job.end(if found.is_unknown {
                            Err(Failure::UnknownQueue)
                        } else {
                            Ok(Answer::Messages(messages))
                        });
                    }
                }
            }
            Err(error) => fail(jobs.into_iter().flatten(), &error),
        }
    }

    async fn waiting(&self, mut jobs: Vec<Job>) {
        if jobs.is_empty() {
            return;
        }
        let sent = self.clock.now();
        let receivers: Vec<&str> = jobs.iter().filter_map(receiver).collect();
        let outcome = self.session.statements.waiting(&self.session.client, &receivers).await;
        self.stamp(jobs.iter_mut(), sent);
        match outcome {
            Ok(all) => jobs.into_iter().zip(all).for_each(|(job, queues)| job.end(Ok(Answer::Queues(queues)))),
            Err(error) => fail(jobs, &error),
        }
    }

    async fn others(&self, jobs: Vec<Job>) {
        for mut job in jobs {
            let sent = self.clock.now();
            let outcome = self.one(&job.work).await;
            self.stamp([&mut job].into_iter(), sent);
            match outcome {
                Ok(result) => job.end(result),
                Err(error) => fail([job], &error),
            }
        }
    }

    async fn one(&self, work: &Work) -> Result<Result<Answer, Failure>, Error> {
        let (client, statements) = (&self.session.client, &self.session.statements);
        let there = |is_there: bool, answer: Answer| if is_there { Ok(answer) } else { Err(Failure::UnknownQueue) };
        Ok(match work {
            Work::CreateQueue(name) => Ok(Answer::Created(statements.create_queue(client, name).await?)),
            Work::DeleteQueue(name) => there(statements.delete_queue(client, name).await?, Answer::Deleted),
            Work::ShowQueue(name) => there(statements.show_queue(client, name).await?, Answer::Shown),
            Work::ListQueues => Ok(Answer::Queues(statements.list_queues(client).await?)),
            Work::Probe => statements.show_queue(client, "").await.map(|_| Ok(Answer::Shown))?,
            Work::Send(_) | Work::Pop(_) | Work::Peek(_) | Work::Waiting(_) => {
                unreachable!("the batch has put these elsewhere")
            }
        })
    }

    /// Notes when the statement of these jobs was sent, and that it is answered now.
    fn stamp<'j>(&self, jobs: impl Iterator<Item = &'j mut Job>, sent: Nanos) {
        let now = self.clock.now();
        for job in jobs {
            job.clock.stamp(Stage::Sent, sent);
            job.clock.stamp(Stage::Answered, now);
        }
    }
}

fn sending(job: &Job) -> Option<&Sending> {
    if let Work::Send(sending) = &job.work { Some(sending) } else { None }
}

fn receiver(job: &Job) -> Option<&str> {
    if let Work::Waiting(name) = &job.work { Some(name) } else { None }
}

/// Hands out what was taken, in the order in which the jobs arrived.
fn end_with(jobs: Vec<Job>, found: Found) {
    let handed = hand_out(found.messages, jobs.iter().map(|job| job.work.messages()));
    for (job, messages) in jobs.into_iter().zip(handed) {
        job.end(if found.is_unknown { Err(Failure::UnknownQueue) } else { Ok(Answer::Messages(messages)) });
    }
}

/// Ends jobs whose statement failed. What only reads is never in doubt.
pub(crate) fn fail(jobs: impl IntoIterator<Item = Job>, error: &Error) {
    let failure = Failure::of_statement(error);
    for job in jobs {
        let changes = matches!(job.work, Work::Send(_) | Work::Pop(_) | Work::CreateQueue(_) | Work::DeleteQueue(_));
        job.end(Err(if failure == Failure::InDoubt && !changes { Failure::DatabaseDown } else { failure.clone() }));
    }
}
