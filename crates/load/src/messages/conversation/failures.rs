//! Requests that were refused, or that will not be answered.

use super::{Conversation, MatchedResponse};
use crate::messages::http::Response;
use crate::messages::leases::RequestTimes;
use crate::messages::request::MessageRequest;
use clock::Nanos;
use records::Outcome;

/// Bytes of an error that are kept.
const ERROR_BYTES_MAX: usize = 120;
/// The prefix of a problem type.
const PROBLEM: &str = "urn:waystage:problem:";
/// Problems that mean that the database did not answer, or not in time.
const DATABASE_PROBLEMS: [&str; 4] = ["in-doubt", "database-down", "database-error", "not-ready"];

/// A request that was not acknowledged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Failure {
    /// The service may have executed it.
    pub(super) is_in_doubt: bool,
    /// Repeating it may help.
    pub(super) is_repeated: bool,
    pub(super) at: Nanos,
}

impl Conversation<'_> {
    /// Handles an error response: the request was refused, or its outcome is unknown.
    pub(super) fn refused(
        &mut self,
        client: usize,
        request: &MessageRequest,
        response: &Response<'_>,
        now: Nanos,
    ) -> MatchedResponse {
        let kind = problem(response.body);
        // A 5xx response from another program, such as a proxy, leaves open what the service has done.
        let is_in_doubt = response.status >= 500 && kind.is_none_or(|kind| kind == "in-doubt");
        let failure = Failure { is_in_doubt, is_repeated: response.status >= 500, at: now };
        self.record_failure(client, request, failure);
        if response.status == 503
            && let Some(ledger) = &self.context.ledger
        {
            if !is_in_doubt {
                ledger.note_refusal();
            }
            if kind.is_none_or(|kind| DATABASE_PROBLEMS.contains(&kind)) {
                ledger.availability.failed();
            }
        }
        let outcome = match response.status {
            500.. => Outcome::ServerError,
            _ => Outcome::ClientError,
        };
        MatchedResponse::failed(
            outcome,
            format!("{} {}", response.status, kind.unwrap_or("without a problem document")),
        )
    }

    /// Handles a request that will not be answered. `was_sent` means that the service may have received it.
    pub(crate) fn give_up(&mut self, client: usize, was_sent: bool, is_timeout: bool, now: Nanos) {
        let Some(request) = self.clients.get_mut(client).and_then(|client_state| client_state.request.take()) else {
            return;
        };
        if was_sent && let MessageRequest::Create { number } = request {
            // The queue may exist. Use another number for the next one; this queue is deleted after the run.
            self.clients[client].created = number + 1;
        }
        if is_timeout && let Some(ledger) = &self.context.ledger {
            ledger.availability.failed();
        }
        self.record_failure(client, &request, Failure { is_in_doubt: was_sent, is_repeated: true, at: now });
    }

    /// Records in the ledger that a request was not acknowledged. An acknowledgement is repeated if that may help.
    fn record_failure(&mut self, client: usize, request: &MessageRequest, failure: Failure) {
        let Failure { is_in_doubt, at, .. } = failure;
        let number = self.number(client);
        if let Some(ledger) = &self.context.ledger {
            match request {
                MessageRequest::Send { label, .. } if is_in_doubt => {
                    ledger.record_send_in_doubt(label.sender, label.queue, label.number)
                }
                MessageRequest::Send { label, .. } => ledger.refuse(label.sender, label.queue, label.number),
                MessageRequest::Pop { queue } | MessageRequest::PopFrom { queue, .. } if is_in_doubt => {
                    ledger.record_pop_in_doubt(*queue, number)
                }
                MessageRequest::Receive { queue } if is_in_doubt => ledger.record_receive_in_doubt(*queue, number, at),
                _ => {}
            }
        }
        self.lease_failed(client, request, failure);
        self.ends(client, request, None, RequestTimes { issued: self.clients[client].issued, completed: at });
    }
}

/// The last part of the type of a problem document.
pub(super) fn problem(body: &[u8]) -> Option<&str> {
    let at = memchr::memmem::find(body, PROBLEM.as_bytes())? + PROBLEM.len();
    let rest = &body[at..];
    let end = rest.iter().position(|byte| !(byte.is_ascii_alphanumeric() || *byte == b'-')).unwrap_or(rest.len());
    std::str::from_utf8(&rest[..end.min(ERROR_BYTES_MAX)]).ok().filter(|kind| !kind.is_empty())
}
