//! Sends the request that a job has kept.

use crate::path::job::{FollowUp, JobId};
use crate::path::jobs::AnsweredJobs;
use crate::path::leg_request::own_limits;
use wire::{Keys, ParsedRequest, Request, parse_request};

/// Sends the legs that were added to a job, with the request that the job has kept.
pub(crate) fn send_kept(
    id: JobId,
    answered: &mut AnsweredJobs<'_>,
    send: &mut impl FnMut(JobId, &Request<'_>, &mut AnsweredJobs<'_>),
) {
    let job = answered.jobs.get(id);
    if job.follow_up == FollowUp::Parts {
        // The keys of each leg are those in `wanted`.
        return send(id, &Request::Get { verb: job.verb, exptime: 0, keys: Keys::new(b"") }, answered);
    }
    let kept = std::mem::take(&mut job.kept);
    match parse_request(&kept, &own_limits()) {
        ParsedRequest::Request { request, .. } => send(id, &request, answered),
        // The proxy can parse every request that it has encoded. If not, the legs fail, so that no client waits forever.
        other => {
            debug_assert!(false, "{other:?}");
            let legs = answered.jobs.get(id).legs().len() as u16;
            (0..legs).for_each(|leg| answered.jobs.get(id).leg(leg).is_withheld = true);
            send(id, &Request::Noop, answered);
        }
    }
    answered.jobs.get(id).kept = kept;
}
