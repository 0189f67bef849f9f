//! Station 6. Does a batch over one connection and tells every job its result: after the commit, never before.
//! The statements of a batch go out together and the server does them one after the other.

use crate::database::connection::Session;
use crate::database::low_water::{Begin, LowWaters};
use crate::path::batch::{Batch, Wishes, hand_out};
use crate::path::failure::Failure;
use crate::path::lease::{Settlement, Settling};
use crate::path::memory::Memory;
use crate::path::statement::fetch::Found;
use crate::path::statement::send::Sent;
use crate::path::work::{Answer, Job, Scope, Sending, Work};
use clock::{Clock, Nanos, Stage};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio_postgres::Error;

/// How often a wish that found only messages that others have in their hands is tried again.
const TRIES: usize = 3;

/// Does everything in the batch; every job ends. Whether the connection is of no use any more.
pub(crate) async fn serve(
    session: &Session,
    low_waters: &LowWaters,
    memory: &Arc<Memory>,
    batch: Batch,
    clock: &Clock,
) -> bool {
    let worker = Worker { session, low_waters, memory, clock, is_over: AtomicBool::new(false) };
    let Batch {
        sends,
        sends_with,
        settles,
        pops: [pops, pops_by_sender, pops_everywhere],
        receives: [receives, receives_by_sender],
        peeks: [peeks, peeks_by_sender],
        waiting,
        others,
    } = batch;
    // In this order they are sent. A pop sees what was sent in the same batch.
    tokio::join!(
        worker.send(sends),
        worker.send_with(sends_with),
        worker.settle(settles),
        worker.take(pops, Taking::Pop),
        worker.take(pops_by_sender, Taking::Pop),
        worker.take(pops_everywhere, Taking::Pop),
        worker.take(receives, Taking::Lease),
        worker.take(receives_by_sender, Taking::Lease),
        worker.peek(peeks),
        worker.peek(peeks_by_sender),
        worker.waiting(waiting),
        worker.others(others),
    );
    worker.is_over.into_inner()
}

/// What happens to messages that are taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taking {
    Pop,
    Lease,
}

/// A connection while it does a batch.
struct Worker<'s> {
    session: &'s Session,
    low_waters: &'s LowWaters,
    memory: &'s Arc<Memory>,
    clock: &'s Clock,
    /// Whether the connection has ended, or will.
    is_over: AtomicBool,
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
            Err(error) => self.fail(jobs, &error),
        }
    }

    async fn send_with(&self, mut jobs: Vec<Job>) {
        if jobs.is_empty() {
            return;
        }
        let sent = self.clock.now();
        let sendings: Vec<&Sending> = jobs.iter().filter_map(sending).collect();
        let outcome = self.session.statements.send_with(&self.session.client, &sendings).await;
        self.stamp(jobs.iter_mut(), sent);
        match outcome {
            Ok(all) => {
                for (job, sent) in jobs.into_iter().zip(all) {
                    job.end(match sent {
                        Sent::Stored(ids) => Ok(Answer::Stored(ids)),
                        Sent::Replayed(ids) => Ok(Answer::Replayed(ids)),
                        Sent::KeyReused => Err(Failure::KeyReused),
                        Sent::UnknownQueue => Err(Failure::UnknownQueue),
                    });
                }
            }
            Err(error) => self.fail(jobs, &error),
        }
    }

    /// Acknowledgements, extensions and returns, in this order.
    async fn settle(&self, [acknowledged, extended, returned]: [Vec<Job>; 3]) {
        tokio::join!(
            self.settle_alike(Settlement::Acknowledge, acknowledged),
            self.settle_alike(Settlement::Extend, extended),
            self.settle_alike(Settlement::Return, returned),
        );
    }

    async fn settle_alike(&self, how: Settlement, mut jobs: Vec<Job>) {
        if jobs.is_empty() {
            return;
        }
        let sent = self.clock.now();
        let settlings: Vec<&Settling> = jobs.iter().filter_map(settling).collect();
        let outcome = self.session.statements.settle(&self.session.client, how, &settlings).await;
        self.stamp(jobs.iter_mut(), sent);
        match outcome {
            Ok(all) => {
                for (job, unsettled) in jobs.into_iter().zip(all) {
                    let result =
                        settling(&job).map_or(Err(Failure::LeaseExpired), |settling| told(settling, &unsettled));
                    job.end(result);
                }
            }
            Err(error) => self.fail(jobs, &error),
        }
    }

    async fn take(&self, mut wishes: Wishes, how: Taking) {
        for attempt in 1..=TRIES {
            if wishes.is_empty() {
                return;
            }
            let merged = wishes.merged(false);
            let leases_ms = (how == Taking::Lease).then(|| wishes.leases_ms());
            let begin = |(scope, _): &(&Scope, usize)| self.low_waters.begin(scope, self.session.connected);
            let begins: Vec<Begin> = merged.iter().map(begin).collect();
            let sent = self.clock.now();
            let (client, leases_ms) = (&self.session.client, leases_ms.as_deref());
            let outcome = self.session.statements.take(client, &merged, &begins, leases_ms).await;
            let mut jobs = wishes.into_jobs();
            self.stamp(jobs.iter_mut().flatten(), sent);
            let all = match outcome {
                Ok(all) => all,
                Err(error) => return self.fail(jobs.into_iter().flatten(), &error),
            };
            wishes = Wishes::default();
            for (jobs, found) in jobs.into_iter().zip(all) {
                self.low_waters.count(&found.messages, self.clock.now());
                if found.is_contended && attempt < TRIES {
                    jobs.into_iter().for_each(|job| wishes.push(job));
                } else {
                    end_with(jobs, found, self.memory);
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
                        match found.is_unknown {
                            true => job.end(Err(Failure::UnknownQueue)),
                            false => job.end_with(messages, self.memory),
                        }
                    }
                }
            }
            Err(error) => self.fail(jobs.into_iter().flatten(), &error),
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
            Err(error) => self.fail(jobs, &error),
        }
    }

    async fn others(&self, jobs: Vec<Job>) {
        for mut job in jobs {
            let sent = self.clock.now();
            let outcome = self.one(&job.work).await;
            self.stamp([&mut job].into_iter(), sent);
            match outcome {
                Ok(result) => job.end(result),
                Err(error) => self.fail([job], &error),
            }
        }
    }

    async fn one(&self, work: &Work) -> Result<Result<Answer, Failure>, Error> {
        let (client, statements) = (&self.session.client, &self.session.statements);
        Ok(match work {
            Work::CreateQueue(name, settings) => {
                let created = statements.create_queue(client, name, settings.as_ref()).await?;
                created.map(Answer::Created).ok_or(Failure::UnknownDeadLetters)
            }
            Work::DeleteQueue(name) => match statements.delete_queue(client, name).await? {
                true => Ok(Answer::Deleted),
                false => Err(Failure::UnknownQueue),
            },
            Work::ShowQueue(name) => {
                statements.show_queue(client, name).await?.map(Answer::Queue).ok_or(Failure::UnknownQueue)
            }
            Work::ListQueues => Ok(Answer::Queues(statements.list_queues(client).await?)),
            Work::Probe => statements.show_queue(client, "").await.map(|_| Ok(Answer::Present))?,
            Work::Send(_) | Work::Pop(_) | Work::Receive(..) | Work::Settle(_) | Work::Peek(_) | Work::Waiting(_) => {
                unreachable!("the batch has put these elsewhere")
            }
        })
    }

    /// Ends jobs whose statement failed. What only reads is never in doubt.
    fn fail(&self, jobs: impl IntoIterator<Item = Job>, error: &Error) {
        let failure = Failure::of_statement(error);
        self.is_over.fetch_or(failure == Failure::InDoubt, Ordering::Relaxed);
        for job in jobs {
            let reads = job.work.only_reads();
            job.end(Err(if failure == Failure::InDoubt && reads { Failure::DatabaseDown } else { failure.clone() }));
        }
    }

    /// Notes when the statement of these jobs was sent, and that it is answered now.
    fn stamp<'j>(&self, jobs: impl Iterator<Item = &'j mut Job>, sent: Nanos) {
        let now = self.clock.now();
        for job in jobs {
            job.journey.stamp(Stage::Sent, sent);
            job.journey.stamp(Stage::Answered, now);
        }
    }
}

fn sending(job: &Job) -> Option<&Sending> {
    if let Work::Send(sending) = &job.work { Some(sending) } else { None }
}

fn receiver(job: &Job) -> Option<&str> {
    if let Work::Waiting(name) = &job.work { Some(name) } else { None }
}

fn settling(job: &Job) -> Option<&Settling> {
    if let Work::Settle(settling) = &job.work { Some(settling) } else { None }
}

fn told(settling: &Settling, unsettled: &[usize]) -> Result<Answer, Failure> {
    if settling.is_single && !unsettled.is_empty() {
        return Err(Failure::LeaseExpired);
    }
    Ok(Answer::Settled(unsettled.iter().map(|place| settling.words[*place].clone()).collect()))
}

/// Hands out what was taken, in the order in which the jobs arrived.
fn end_with(jobs: Vec<Job>, found: Found, memory: &Arc<Memory>) {
    let handed = hand_out(found.messages, jobs.iter().map(|job| job.work.messages()));
    for (job, messages) in jobs.into_iter().zip(handed) {
        match found.is_unknown {
            true => job.end(Err(Failure::UnknownQueue)),
            false => job.end_with(messages, memory),
        }
    }
}
