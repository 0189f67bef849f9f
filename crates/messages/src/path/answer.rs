//! Step 6. Runs a batch over one connection and answers every job: after the commit, never before. The statements of a batch are
//! pipelined, and the server runs them one after the other.

use crate::database::connection::DatabaseSession;
use crate::database::error::{explain, is_about_rows, is_about_tables, is_outdated_plan, one_line};
use crate::database::liveness::LockWait;
use crate::database::low_water::{LowWaterMarks, StartIds};
use crate::database::storage::StorageFault;
use crate::observe::limits::{Limit, LimitCounts};
use crate::path::batch::{FetchJobs, JobBatch, distribute};
use crate::path::failure::Failure;
use crate::path::lease::{LeaseAction, LeaseRequest};
use crate::path::memory::Memory;
use crate::path::statement::fetch::Fetched;
use crate::path::statement::leases::LeaseOutcome;
use crate::path::statement::send::Sent;
use crate::path::work::{Answer, Job, Scope, SendRequest, Work};
use clock::{Clock, Nanos, Stage};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;
use std::vec::IntoIter;
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

mod queues;

/// How often a fetch runs in all, if it found only messages that other transactions have locked.
const TRIES: usize = 3;
/// For this long, the jobs of a statement that waited for a lock are run one by one. Each may wait again.
const ONE_BY_ONE_MAX: Duration = Duration::from_secs(8);

/// How a batch ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Served {
    /// The connection has broken or will.
    pub(crate) is_over: bool,
    /// The server has cancelled a statement that took too long or waited too long for a lock.
    pub(crate) has_timed_out: bool,
    /// The lock of a table that sends with keys have waited for.
    pub(crate) table_lock: Option<LockWait>,
    /// Which privilege or table is missing, and what to do about it.
    pub(crate) refusal: Option<String>,
    /// What is wrong with the server's storage, and what to do about it.
    pub(crate) storage: Option<(StorageFault, String)>,
}

/// Statements that run at the same time.
type Running<'w> = Vec<Pin<Box<dyn Future<Output = ()> + Send + 'w>>>;

/// Runs everything in the batch and answers every job. Statements that wait too long for a lock are counted as `lock_limit`.
pub(crate) async fn serve(
    session: &DatabaseSession,
    low_water_marks: &LowWaterMarks,
    memory: &Arc<Memory>,
    batch: JobBatch,
    clock: &Clock,
    (limits, lock_limit): (&LimitCounts, Limit),
) -> Served {
    let (is_over, has_timed_out) = (AtomicBool::new(false), AtomicBool::new(false));
    let (table_lock, refusal, storage) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
    let worker = Worker {
        session,
        low_water_marks,
        memory,
        clock,
        limits,
        lock_limit,
        is_over,
        has_timed_out,
        table_lock,
        refusal,
        storage,
    };
    let mut running = worker.statements(batch);
    poll_fn(|context| {
        running.retain_mut(|statement| statement.as_mut().poll(context).is_pending());
        if running.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    let [is_over, has_timed_out] = [&worker.is_over, &worker.has_timed_out].map(|flag| flag.load(Ordering::Relaxed));
    drop(running);
    let Worker { table_lock, refusal, storage, .. } = worker;
    let (table_lock, refusal, storage) = (table_lock.into_inner(), refusal.into_inner(), storage.into_inner());
    Served { is_over, has_timed_out, table_lock, refusal, storage }
}

/// What happens to messages that are taken out of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taking {
    Pop,
    Lease,
}

/// A connection that runs a batch.
struct Worker<'s> {
    session: &'s DatabaseSession,
    low_water_marks: &'s LowWaterMarks,
    memory: &'s Arc<Memory>,
    clock: &'s Clock,
    limits: &'s LimitCounts,
    /// How a wait for a lock is counted.
    lock_limit: Limit,
    is_over: AtomicBool,
    has_timed_out: AtomicBool,
    table_lock: OnceLock<LockWait>,
    refusal: OnceLock<String>,
    storage: OnceLock<(StorageFault, String)>,
}

impl Worker<'_> {
    /// The statements of a batch. They are sent in this order, so a pop sees the messages that were sent in the same batch. Only the futures
    /// of statements that have jobs are made: together they have more than 20 kB, which would be copied for each batch.
    fn statements(&self, batch: JobBatch) -> Running<'_> {
        let JobBatch { sends, sends_with, lease_actions, pops, receives, peeks, about_queues } = batch;
        let mut running: Running<'_> = Vec::new();
        if !sends.is_empty() {
            running.push(Box::pin(self.send(sends)));
        }
        if !sends_with.is_empty() {
            running.push(Box::pin(self.send_with(sends_with)));
        }
        let actions = [LeaseAction::Acknowledge, LeaseAction::Extend, LeaseAction::Nack];
        for (action, jobs) in actions.into_iter().zip(lease_actions).filter(|(_, jobs)| !jobs.is_empty()) {
            running.push(Box::pin(self.apply_lease_action(action, jobs)));
        }
        let pops = pops.into_iter().map(|fetches| (fetches, Taking::Pop));
        let receives = receives.into_iter().map(|fetches| (fetches, Taking::Lease));
        for (fetches, taking) in pops.chain(receives).filter(|(fetches, _)| !fetches.is_empty()) {
            running.push(Box::pin(self.take(fetches, taking)));
        }
        for fetches in peeks.into_iter().filter(|fetches| !fetches.is_empty()) {
            running.push(Box::pin(self.peek(fetches)));
        }
        if !about_queues.is_empty() {
            running.push(Box::pin(self.about_queues(about_queues)));
        }
        running
    }

    async fn send(&self, mut jobs: Vec<Job>) {
        let sent = self.clock.now();
        let sends: Vec<&SendRequest> = jobs.iter().filter_map(send_request).collect();
        let outcome = self.session.statements.send(&self.session.client, &sends).await;
        self.finish(jobs.iter_mut(), sent, outcome.as_ref().err());
        match outcome {
            Ok(ids) => {
                for (job, ids) in jobs.into_iter().zip(ids) {
                    job.end(ids.map(Answer::Stored).ok_or(Failure::UnknownQueue));
                }
            }
            // One message that the database refuses must not fail the others.
            Err(error) if jobs.len() > 1 && is_about_rows(&error) => {
                for job in jobs {
                    Box::pin(self.send(vec![job])).await;
                }
            }
            Err(error) => self.fail(jobs, &error),
        }
    }

    async fn send_with(&self, mut jobs: Vec<Job>) {
        let sent = self.clock.now();
        let sends: Vec<&SendRequest> = jobs.iter().filter_map(send_request).collect();
        let outcome = self.session.statements.send_with(&self.session.client, &sends).await;
        self.finish(jobs.iter_mut(), sent, outcome.as_ref().err());
        if let Err(error) = &outcome
            && is_locked(error)
            && jobs.iter().all(has_key)
            && self.note_table_lock().await
        {
            // None of the sends can succeed.
            return self.fail(jobs, error);
        }
        match outcome {
            Ok(all) => {
                let mut unsure = Vec::new();
                for (job, sent) in jobs.into_iter().zip(all) {
                    if sent == Sent::NeverVisible && has_key(&job) {
                        unsure.push(job);
                        continue;
                    }
                    job.end(match sent {
                        Sent::Stored(ids) => Ok(Answer::Stored(ids)),
                        Sent::Replayed(ids) => Ok(Answer::Replayed(ids)),
                        Sent::KeyReused => Err(Failure::KeyReused),
                        Sent::UnknownQueue => Err(Failure::UnknownQueue),
                        Sent::NeverVisible => Err(Failure::NeverVisible),
                    });
                }
                for job in unsure {
                    Box::pin(self.repeat(job)).await;
                }
            }
            // Another transaction has locked one of the keys, or the database refuses a message. Only the send with this key or message fails.
            Err(error)
                if jobs.len() > 1 && (is_about_rows(&error) || is_locked(&error) && jobs.iter().all(has_key)) =>
            {
                let (began, mut jobs) = (self.clock.now(), jobs.into_iter());
                while let Some(job) = self.next_alone(&mut jobs, began, &error) {
                    Box::pin(self.send_with(vec![job])).await;
                }
            }
            Err(error) if is_locked(&error) && jobs.iter().all(has_key) => {
                jobs.into_iter().for_each(|job| job.end(Err(Failure::KeyLocked)));
            }
            Err(error) => self.fail(jobs, &error),
        }
    }

    /// Answers a send with a key whose delay is too long for its queue. It is refused unless it repeats an earlier send, which may have been
    /// in progress when it was looked up.
    async fn repeat(&self, job: Job) {
        let Some(send) = send_request(&job) else { return };
        let outcome = self.session.statements.is_key_used(&self.session.client, send).await;
        self.finish([], Nanos::UNSET, outcome.as_ref().err());
        match outcome {
            Ok(false) => job.end(Err(Failure::NeverVisible)),
            Ok(true) => self.send_with(vec![job]).await,
            Err(error) if is_locked(&error) => job.end(Err(Failure::KeyLocked)),
            Err(error) => self.fail([job], &error),
        }
    }

    /// Whether sends with keys wait for the lock of a table, and not for one of a key.
    async fn note_table_lock(&self) -> bool {
        match LockWait::of_tables(&self.session.client).await {
            Ok(Some(wait)) => {
                let _ = self.table_lock.set(wait);
                true
            }
            Ok(None) | Err(_) => false,
        }
    }

    async fn apply_lease_action(&self, action: LeaseAction, mut jobs: Vec<Job>) {
        let sent = self.clock.now();
        let requests: Vec<&LeaseRequest> = jobs.iter().filter_map(lease_request).collect();
        let (all, error) =
            self.session.statements.apply_lease_action(&self.session.client, action, &requests, self.limits).await;
        self.finish(jobs.iter_mut(), sent, error.as_ref());
        let mut undecided = Vec::new();
        for (job, outcome) in jobs.into_iter().zip(all) {
            match (&error, lease_request(&job)) {
                // A batch may be applied in part.
                (Some(error), _) if outcome.is_undecided && outcome.is_applied => {
                    job.end(Err(Failure::PartlyApplied(one_line(error))));
                }
                (Some(_), _) if outcome.is_undecided => undecided.push(job),
                (_, Some(request)) => {
                    let answer = lease_answer(request, outcome);
                    job.end(answer);
                }
                (_, None) => job.end(Err(Failure::LeaseExpired)),
            }
        }
        match error {
            // One message that the database refuses to move, or that another transaction has locked, must not fail the others.
            Some(error) if undecided.len() > 1 && (is_about_rows(&error) || is_locked(&error)) => {
                let (began, mut jobs) = (self.clock.now(), undecided.into_iter());
                while let Some(job) = self.next_alone(&mut jobs, began, &error) {
                    Box::pin(self.apply_lease_action(action, vec![job])).await;
                }
            }
            Some(error) => self.fail(undecided, &error),
            None => {}
        }
    }

    async fn take(&self, mut fetches: FetchJobs, taking: Taking) {
        for attempt in 1..=TRIES {
            if fetches.is_empty() {
                return;
            }
            let merged = fetches.merged(false);
            let leases_ms = (taking == Taking::Lease).then(|| fetches.leases_ms());
            let (connected, server) = (self.session.connected, self.session.process.server);
            let start = |(scope, _): &(&Scope, usize)| self.low_water_marks.start_ids(scope, connected, server);
            let starts: Vec<StartIds> = merged.iter().map(start).collect();
            let sent = self.clock.now();
            let (client, leases_ms) = (&self.session.client, leases_ms.as_deref());
            let outcome = self.session.statements.take(client, &merged, &starts, leases_ms).await;
            let mut jobs = fetches.into_jobs();
            self.finish(jobs.iter_mut().flatten(), sent, outcome.as_ref().err());
            let all = match outcome {
                Ok(all) => all,
                Err(error) if jobs.len() > 1 && is_about_rows(&error) => {
                    for jobs in jobs {
                        Box::pin(self.take(FetchJobs::of(jobs), taking)).await;
                    }
                    return;
                }
                Err(error) => return self.fail(jobs.into_iter().flatten(), &error),
            };
            fetches = FetchJobs::default();
            for (jobs, found) in jobs.into_iter().zip(all) {
                self.low_water_marks.count(&found.messages, self.clock.now());
                if found.is_contended && attempt < TRIES {
                    jobs.into_iter().for_each(|job| fetches.push(job));
                } else {
                    if found.is_contended {
                        self.limits.reach(Limit::FetchTries);
                    }
                    answer_jobs(jobs, found, self.memory);
                }
            }
        }
    }

    async fn peek(&self, fetches: FetchJobs) {
        let merged = fetches.merged(true);
        let sent = self.clock.now();
        let outcome = self.session.statements.peek(&self.session.client, &merged).await;
        let mut jobs = fetches.into_jobs();
        self.finish(jobs.iter_mut().flatten(), sent, outcome.as_ref().err());
        match outcome {
            Ok(all) => {
                for (jobs, found) in jobs.into_iter().zip(all) {
                    for job in jobs {
                        let messages = found.messages.iter().take(job.work.message_count()).cloned().collect();
                        match found.is_unknown {
                            true => job.end(Err(Failure::UnknownQueue)),
                            false => job.end_with(messages, self.memory),
                        }
                    }
                }
            }
            Err(error) if jobs.len() > 1 && is_about_rows(&error) => {
                for jobs in jobs {
                    Box::pin(self.peek(FetchJobs::of(jobs))).await;
                }
            }
            Err(error) => self.fail(jobs.into_iter().flatten(), &error),
        }
    }

    /// The next of the jobs whose statement failed, to run alone. If this has taken too long since `began`, because several of them wait for
    /// locks, the others fail with the same error.
    fn next_alone(&self, jobs: &mut IntoIter<Job>, began: Nanos, error: &Error) -> Option<Job> {
        if is_locked(error) && jobs.len() > 0 && self.clock.now().after(began) >= ONE_BY_ONE_MAX {
            self.limits.reach_for(Limit::LockWaits, jobs.len());
            self.fail(jobs, error);
            return None;
        }
        jobs.next()
    }

    /// Answers jobs whose statement failed. Work that only reads is never in doubt.
    fn fail(&self, jobs: impl IntoIterator<Item = Job>, error: &Error) {
        let failure = Failure::of_statement(error);
        // After a failover this server stays read-only, and a new connection may reach the one that is not.
        let is_read_only = error.code() == Some(&SqlState::READ_ONLY_SQL_TRANSACTION);
        // A new connection prepares the statements for the changed tables.
        let is_over = failure == Failure::InDoubt || is_read_only || is_outdated_plan(error);
        self.is_over.fetch_or(is_over, Ordering::Relaxed);
        if is_about_tables(error) {
            let _ = self.refusal.set(explain(error));
        }
        if let Some(fault) = StorageFault::of(error) {
            let _ = self.storage.set((fault, explain(error)));
        }
        let has_timed_out = is_locked(error) || error.code() == Some(&SqlState::QUERY_CANCELED);
        self.has_timed_out.fetch_or(has_timed_out, Ordering::Relaxed);
        for job in jobs {
            let reads = job.work.only_reads();
            job.end(Err(if failure == Failure::InDoubt && reads { Failure::DatabaseDown } else { failure.clone() }));
        }
    }

    /// A statement has ended, perhaps with an error. Records for its jobs when it was sent, and that it is answered now.
    fn finish<'j>(&self, jobs: impl IntoIterator<Item = &'j mut Job>, sent: Nanos, error: Option<&Error>) {
        match error.and_then(Error::code) {
            Some(&SqlState::LOCK_NOT_AVAILABLE) => self.limits.reach(self.lock_limit),
            Some(&SqlState::QUERY_CANCELED) => self.limits.reach(Limit::StatementTimeout),
            _ => {}
        }
        let now = self.clock.now();
        for job in jobs {
            job.measurements.stamp(Stage::Sent, sent);
            job.measurements.stamp(Stage::Answered, now);
        }
    }
}

fn send_request(job: &Job) -> Option<&SendRequest> {
    if let Work::Send(send) = &job.work { Some(send) } else { None }
}

fn has_key(job: &Job) -> bool {
    send_request(job).is_some_and(|send| !send.key.is_empty())
}

fn lease_request(job: &Job) -> Option<&LeaseRequest> {
    if let Work::Lease(request) = &job.work { Some(request) } else { None }
}

/// Whether the statement has waited too long for a lock.
fn is_locked(error: &Error) -> bool {
    error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE)
}

fn lease_answer(request: &LeaseRequest, outcome: LeaseOutcome) -> Result<Answer, Failure> {
    if request.is_single && !outcome.failed.is_empty() {
        return Err(Failure::LeaseExpired);
    }
    if let Some(queue) = outcome.returned_to {
        return Ok(Answer::Returned(queue));
    }
    Ok(Answer::ExpiredLeases(outcome.failed.iter().map(|place| request.written[*place].clone()).collect()))
}

/// Distributes the messages among the jobs in their order of arrival.
fn answer_jobs(jobs: Vec<Job>, found: Fetched, memory: &Arc<Memory>) {
    let distributed = distribute(found.messages, jobs.iter().map(|job| job.work.message_count()));
    for (job, messages) in jobs.into_iter().zip(distributed) {
        match found.is_unknown {
            true => job.end(Err(Failure::UnknownQueue)),
            false => job.end_with(messages, memory),
        }
    }
}
