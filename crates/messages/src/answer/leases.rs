//! Leases are settled: all of a batch that end in the same way as one statement.

use super::Worker;
use crate::failure::Failure;
use crate::lease::{Settlement, Settling};
use crate::work::{Answer, Job, Work};

impl Worker<'_> {
    /// Acknowledgements, extensions and returns, in this order.
    pub(super) async fn settle(&self, [acknowledged, extended, returned]: [Vec<Job>; 3]) {
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
