//! What a client does with the message that it holds under a lease, until it has acknowledged, nacked or abandoned it.

use super::failures::Failure;
use super::{Conversation, pick};
use crate::messages::after_receive::LeaseStep;
use crate::messages::http::{LeaseToken, Response};
use crate::messages::leases::RequestTimes;
use crate::messages::ledger::{LeasedMessage, ReadRequest, Received};
use crate::messages::request::MessageRequest;
use clock::Nanos;

/// A lease, and what the client does next with it.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeldLease {
    token: LeaseToken,
    step: LeaseStep,
    /// Known to the ledger; none without verification.
    message: Option<LeasedMessage>,
}

impl HeldLease {
    /// The client's next request.
    pub(super) fn request(&self) -> MessageRequest {
        let lease = self.token;
        match self.step {
            LeaseStep::Extend => MessageRequest::Extend { lease },
            LeaseStep::Nack => MessageRequest::Nack { lease },
            LeaseStep::Acknowledge | LeaseStep::Abandon => MessageRequest::Acknowledge { lease },
        }
    }
}

impl Conversation<'_> {
    /// Records a message that a client has received, and draws what it does next. Returns none if the reply has no
    /// lease.
    pub(super) fn hold(
        &mut self,
        client: usize,
        read: &ReadRequest,
        response: &Response<'_>,
        at: RequestTimes,
    ) -> Option<()> {
        let token = response.lease_token?;
        let received = Received { id: response.id, attempt: response.attempt };
        let message = match &self.context.ledger {
            // A message that should not have come is left alone.
            Some(ledger) => match ledger.lease(read, response.body, received, at) {
                None => return Some(()),
                message => message,
            },
            None => None,
        };
        self.continue_with(client, HeldLease { token, step: LeaseStep::Abandon, message });
        Some(())
    }

    /// Draws the next step.
    fn continue_with(&mut self, client: usize, lease: HeldLease) {
        let step = pick(&self.context.config.after_receive.0, &mut self.random);
        let step = step.filter(|step| *step != LeaseStep::Abandon);
        self.clients[client].lease = step.map(|step| HeldLease { step, ..lease });
    }

    /// Handles the answer to an acknowledgement, an extension or a nack.
    pub(super) fn lease_answered(&mut self, client: usize, is_done: bool, at: RequestTimes) {
        let Some(lease) = self.clients[client].lease.take() else { return };
        if let Some((ledger, message)) = self.context.ledger.as_ref().zip(lease.message.as_ref()) {
            match lease.step {
                _ if !is_done => ledger.lease_lost(message, at),
                LeaseStep::Extend => ledger.lease_extended(message, at),
                LeaseStep::Nack => ledger.lease_nacked(message, at),
                LeaseStep::Acknowledge | LeaseStep::Abandon => ledger.lease_acknowledged(message, at),
            }
        }
        if is_done && lease.step == LeaseStep::Extend {
            self.continue_with(client, lease);
        }
    }

    /// Handles an acknowledgement, an extension or a nack that failed. An acknowledgement is repeated until its outcome
    /// is known; after an extension the next step is drawn; a nack is not repeated.
    pub(super) fn lease_failed(&mut self, client: usize, request: &MessageRequest, failure: Failure) {
        let Failure { is_in_doubt, is_repeated, at } = failure;
        let Some(lease) = self.clients[client].lease.take() else { return };
        let known = self.context.ledger.as_ref().zip(lease.message.as_ref());
        match request {
            MessageRequest::Acknowledge { .. } => {
                if let Some((ledger, message)) = known.filter(|_| is_in_doubt) {
                    ledger.lease_acknowledgement_in_doubt(message);
                }
                self.clients[client].lease = Some(lease).filter(|_| is_repeated);
            }
            MessageRequest::Extend { .. } => {
                if let Some((ledger, message)) = known.filter(|_| is_in_doubt) {
                    ledger.lease_extension_in_doubt(message, at);
                }
                if is_repeated {
                    self.continue_with(client, lease);
                }
            }
            _ => {}
        }
    }

    /// Tells the ledger that a request is about to be sent.
    pub(super) fn begins(&self, client: usize, request: &MessageRequest, issued: Nanos) {
        let Some(ledger) = &self.context.ledger else { return };
        match (request, self.clients[client].lease.and_then(|lease| lease.message)) {
            (
                MessageRequest::Receive { queue }
                | MessageRequest::Pop { queue }
                | MessageRequest::PopFrom { queue, .. },
                _,
            ) => ledger.fetch_begins(*queue, self.number(client), issued),
            (MessageRequest::Nack { .. }, Some(message)) => ledger.nack_begins(&message, issued),
            _ => {}
        }
    }

    /// Tells the ledger that a request has ended, with this response or without one.
    pub(super) fn ends(
        &self,
        client: usize,
        request: &MessageRequest,
        response: Option<&Response<'_>>,
        at: RequestTimes,
    ) {
        let Some(ledger) = &self.context.ledger else { return };
        let number = self.number(client);
        if response.is_some() {
            ledger.availability.succeeded(at.completed);
        }
        if let (MessageRequest::Receive { queue } | MessageRequest::Pop { queue }, Some(response)) = (request, response)
            && (response.status == 204 || response.id.is_some())
        {
            ledger.fetched(*queue, number, response.id, at.issued);
        }
        if let MessageRequest::Receive { queue }
        | MessageRequest::Pop { queue }
        | MessageRequest::PopFrom { queue, .. } = request
        {
            ledger.fetch_ends(*queue, number, at.issued);
        }
    }
}
