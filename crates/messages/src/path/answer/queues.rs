//! The part of step 6 about queues: lists, shows, creates and deletes them, with one statement for equal requests.

use super::Worker;
use crate::observe::limits::Limit;
use crate::path::failure::Failure;
use crate::path::work::{Answer, COUNT_MAX, Job, Page, Work};
use std::collections::HashMap;
use tokio_postgres::Error;

impl Worker<'_> {
    pub(super) async fn about_queues(&self, all: Vec<Vec<Job>>) {
        for mut jobs in all {
            let Some(work) = jobs.first().map(|job| job.work.clone()) else { continue };
            if let Work::WaitingQueues(_, page) = &work {
                self.waiting_queues(jobs, page).await;
                continue;
            }
            let sent = self.clock.now();
            let outcome = self.one(&work).await;
            self.finish(jobs.iter_mut(), sent, outcome.as_ref().err());
            match outcome {
                Ok(result) => jobs.into_iter().for_each(|job| job.end(result.clone())),
                Err(error) => self.fail(jobs, &error),
            }
        }
    }

    /// Lists for several receivers in one statement, with each receiver once.
    async fn waiting_queues(&self, mut jobs: Vec<Job>, page: &Page) {
        let sent = self.clock.now();
        let mut receivers: Vec<String> = jobs.iter().map(|job| job.work.party().to_string()).collect();
        receivers.sort_unstable();
        receivers.dedup();
        let outcome = self.session.statements.waiting_queues(&self.session.client, &receivers, page).await;
        self.finish(jobs.iter_mut(), sent, outcome.as_ref().err());
        let answers: HashMap<String, Answer> = match outcome {
            Ok(answers) => receivers.into_iter().zip(answers).collect(),
            Err(error) => return self.fail(jobs, &error),
        };
        let is_cut =
            |answer: &&Answer| matches!(answer, Answer::Queues { names, next: Some(_) } if names.len() < page.max);
        self.limits.reach_for(Limit::QueueLookups, answers.values().filter(is_cut).count());
        for job in jobs {
            let none = Answer::Queues { names: Vec::new(), next: None };
            let answer = answers.get(job.work.party()).cloned().unwrap_or(none);
            job.end(Ok(answer));
        }
    }

    async fn one(&self, work: &Work) -> Result<Result<Answer, Failure>, Error> {
        let (client, statements) = (&self.session.client, &self.session.statements);
        Ok(match work {
            Work::CreateQueue(name, settings) => {
                let created = statements.create_queue(client, name, settings.as_ref()).await?;
                created.map(Answer::Created).ok_or(Failure::UnknownDeadLetterQueue)
            }
            Work::DeleteQueue(name) => match statements.delete_queue(client, name).await? {
                true => Ok(Answer::Deleted),
                false => Err(Failure::UnknownQueue),
            },
            Work::ShowQueue(name) => {
                let state = statements.show_queue(client, name).await?;
                if state.as_ref().is_some_and(|state| state.visible.max(state.invisible) >= COUNT_MAX) {
                    self.limits.reach(Limit::QueueCount);
                }
                state.map(Answer::Queue).ok_or(Failure::UnknownQueue)
            }
            Work::ListQueues(page) => Ok(statements.list_queues(client, page).await?),
            Work::Send(_)
            | Work::Pop(_)
            | Work::Receive(..)
            | Work::Lease(_)
            | Work::Peek(_)
            | Work::WaitingQueues(..) => {
                unreachable!("the batch has sorted these into other vectors")
            }
        })
    }
}
