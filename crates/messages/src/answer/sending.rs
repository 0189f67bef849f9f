//! Sends with a key, a delay or an expiry: all of a batch as one statement.

use super::{Worker, sending};
use crate::failure::Failure;
use crate::statement::Sent;
use crate::work::{Answer, Job, Sending};

impl Worker<'_> {
    pub(super) async fn send_with(&self, mut jobs: Vec<Job>) {
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
}
