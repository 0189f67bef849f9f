//! Chooses the next request of each client of a thread, and matches responses with requests. Knows no sockets and no
//! schedule: its caller knows when a request is due.

mod failures;
mod holding;

use holding::HeldLease;

use super::body::ANYONE;
use super::context::MessagesContext;
use super::http::Response;
use super::leases::RequestTimes;
use super::ledger::ReadRequest;
use super::mix::{MessageOperation, Mix};
use super::request::{MessageRequest, RequestWriter};
use crate::measure::request::{EndedRequest, Operation};
use clock::Nanos;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use records::Outcome;
use std::time::Duration;

/// The number of requests in D15's operation.
const D15_STEPS: u8 = 5;

/// The clients of one thread, as the service sees them.
#[derive(Debug)]
pub(crate) struct Conversation<'v> {
    context: &'v MessagesContext,
    thread: usize,
    random: Xoshiro256PlusPlus,
    clients: Vec<ClientState>,
}

/// One client.
#[derive(Debug, Default)]
struct ClientState {
    /// The request in flight.
    request: Option<MessageRequest>,
    /// Its own queues have the numbers from `deleted` up to `created`.
    created: u32,
    deleted: u32,
    /// Its step in D15's operation, the operations completed, and the sum of the steps so far.
    step: u8,
    operations: u64,
    whole: Option<EndedRequest>,
    /// A queue that has a message for it, according to the service.
    waiting: Option<u32>,
    /// The back-off that the service requested.
    back_off: Duration,
    /// When its request was issued.
    issued: Nanos,
    /// The lease that it holds.
    lease: Option<HeldLease>,
}

/// What a response means for its request.
#[derive(Debug)]
pub(crate) struct MatchedResponse {
    pub(crate) outcome: Outcome,
    /// Whether something was found.
    pub(crate) hits: u32,
    /// The line under which an error is counted.
    pub(crate) error: Option<String>,
}

impl MatchedResponse {
    fn done() -> MatchedResponse {
        MatchedResponse { outcome: Outcome::Answered, hits: 0, error: None }
    }

    fn found() -> MatchedResponse {
        MatchedResponse { hits: 1, ..MatchedResponse::done() }
    }

    fn failed(outcome: Outcome, error: String) -> MatchedResponse {
        MatchedResponse { outcome, hits: 0, error: Some(error) }
    }
}

impl<'v> Conversation<'v> {
    /// The clients of thread number `thread`.
    pub(crate) fn new(context: &'v MessagesContext, thread: usize) -> Conversation<'v> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(context.seed);
        // This part of the random sequence is far from the parts for arrivals and think times.
        random.long_jump();
        random.long_jump();
        for _ in 0..thread {
            random.jump();
        }
        Conversation { context, thread, random, clients: Vec::new() }
    }

    /// Draws the next request of a client. Returns the operation under which it is counted.
    pub(crate) fn choose(&mut self, client: usize, issued: Nanos) -> MessageOperation {
        let number = self.number(client);
        if client >= self.clients.len() {
            self.clients.resize_with(client + 1, ClientState::default);
        }
        let next = self.clients[client].lease.as_ref().map(HeldLease::request);
        let request = match (next, &self.context.config.mix) {
            (Some(request), _) => request,
            (None, Mix::D15) => self.d15(client, number),
            (None, Mix::Drawn(drawn)) => {
                let operation = pick(drawn, &mut self.random).unwrap_or(MessageOperation::Pop);
                self.drawn(operation, client, number)
            }
        };
        self.clients[client].request = Some(request);
        self.clients[client].issued = issued;
        self.begins(client, &request, issued);
        request.operation()
    }

    /// Appends the drawn request, for this server.
    pub(crate) fn write(&self, client: usize, server: u16, out: &mut Vec<u8>) {
        if let Some(request) = self.clients.get(client).and_then(|client_state| client_state.request) {
            let host = &self.context.hosts[usize::from(server)];
            RequestWriter { context: self.context, host, client: self.number(client) }.write(&request, out);
        }
    }

    /// The number of a client within the run. Connections are distributed over the threads in turn.
    fn number(&self, client: usize) -> u32 {
        (client * self.context.threads + self.thread) as u32
    }

    fn drawn(&mut self, operation: MessageOperation, client: usize, number: u32) -> MessageRequest {
        let queue = self.queue();
        match operation {
            MessageOperation::Send => self.send(number, queue, ANYONE),
            MessageOperation::SendTo => {
                let receiver = self.client();
                self.send(number, queue, receiver)
            }
            MessageOperation::Peek => MessageRequest::Peek { queue },
            MessageOperation::PeekFrom => MessageRequest::PeekFrom { sender: self.client() },
            MessageOperation::PopFrom => MessageRequest::PopFrom { queue, sender: self.client() },
            MessageOperation::Waiting => MessageRequest::Waiting,
            MessageOperation::Create => MessageRequest::Create { number: self.clients[client].created },
            MessageOperation::Delete => MessageRequest::Delete { number: self.clients[client].deleted },
            MessageOperation::Receive => MessageRequest::Receive { queue },
            // Those that follow a receive are not drawn.
            _ => MessageRequest::Pop { queue },
        }
    }

    /// The next request of D15's operation.
    fn d15(&mut self, client: usize, number: u32) -> MessageRequest {
        let (step, operations) = (self.clients[client].step, self.clients[client].operations);
        let queue = self.queue();
        match step {
            0 => {
                let receiver = if operations % 2 == 0 { ANYONE } else { self.client() };
                self.send(number, queue, receiver)
            }
            1 => MessageRequest::Waiting,
            2 => MessageRequest::Peek { queue: self.clients[client].waiting.unwrap_or(queue) },
            3 => MessageRequest::PeekFrom { sender: self.client() },
            _ => MessageRequest::Pop { queue: self.clients[client].waiting.unwrap_or(queue) },
        }
    }

    fn send(&mut self, number: u32, queue: u32, receiver: u32) -> MessageRequest {
        let size_bytes = self.context.size(&mut self.random);
        MessageRequest::Send { label: self.context.issue(number, queue, receiver), size_bytes }
    }

    fn queue(&mut self) -> u32 {
        self.random.random_range(0..self.context.queues.len()) as u32
    }

    fn client(&mut self) -> u32 {
        self.random.random_range(0..self.context.clients) as u32
    }

    /// Matches a response with the client's request. Returns none if it cannot be a response to that request.
    pub(crate) fn match_response(
        &mut self,
        client: usize,
        response: &Response<'_>,
        completed: Nanos,
    ) -> Option<MatchedResponse> {
        let request = self.clients.get(client)?.request?;
        let number = self.number(client);
        let at = RequestTimes { issued: self.clients[client].issued, completed };
        let is_expected = matches!(
            (request, response.status),
            (MessageRequest::Delete { .. }, 404)
                | (
                    MessageRequest::Acknowledge { .. } | MessageRequest::Extend { .. } | MessageRequest::Nack { .. },
                    410
                )
        );
        if response.status >= 400 && !is_expected {
            let matched = self.refused(client, &request, response, completed);
            let client_state = &mut self.clients[client];
            client_state.request = None;
            client_state.back_off = response.retry_after.unwrap_or_default();
            return Some(matched);
        }
        let receiver = number;
        let ledger = self.context.ledger.as_ref();
        let matched = match (request, response.status) {
            (MessageRequest::Create { number }, 201 | 204) => {
                self.clients[client].created = number + 1;
                MatchedResponse::done()
            }
            (MessageRequest::Delete { .. }, 404) => MatchedResponse::done(),
            (MessageRequest::Delete { number }, 204) => {
                self.clients[client].deleted = number + 1;
                MatchedResponse::found()
            }
            (MessageRequest::Send { label, .. }, 201) => {
                if let Some(ledger) = ledger {
                    ledger.acknowledge(label.sender, label.queue, label.number);
                }
                MatchedResponse::done()
            }
            (MessageRequest::Waiting, 200) => {
                let found = self.waiting(response.body);
                self.clients[client].waiting = found;
                if has_names(response.body) { MatchedResponse::found() } else { MatchedResponse::done() }
            }
            (
                MessageRequest::Peek { .. }
                | MessageRequest::PeekFrom { .. }
                | MessageRequest::Pop { .. }
                | MessageRequest::PopFrom { .. },
                204,
            ) => MatchedResponse::done(),
            (
                MessageRequest::Peek { .. }
                | MessageRequest::PeekFrom { .. }
                | MessageRequest::Pop { .. }
                | MessageRequest::PopFrom { .. },
                200,
            ) => {
                if let Some(ledger) = ledger {
                    let read = read_request(&request, receiver);
                    if is_pop(&request) {
                        ledger.receive(&read, response.body, at);
                    } else {
                        ledger.peek(&read, response.body);
                    }
                }
                MatchedResponse::found()
            }
            (MessageRequest::Receive { queue }, 200) => {
                let read = ReadRequest { receiver, queue: Some(queue), sender: None };
                self.hold(client, &read, response, at)?;
                MatchedResponse::found()
            }
            (MessageRequest::Receive { .. }, 204) => MatchedResponse::done(),
            (
                MessageRequest::Acknowledge { .. } | MessageRequest::Extend { .. } | MessageRequest::Nack { .. },
                status @ (204 | 410),
            ) => {
                self.lease_answered(client, status == 204, at);
                if status == 204 { MatchedResponse::found() } else { MatchedResponse::done() }
            }
            _ => return None,
        };
        self.ends(client, &request, Some(response), at);
        self.clients[client].request = None;
        Some(matched)
    }

    /// The back-off that the service requested of a client. Resets the value.
    pub(crate) fn take_back_off(&mut self, client: usize) -> Duration {
        self.clients.get_mut(client).map(|client_state| std::mem::take(&mut client_state.back_off)).unwrap_or_default()
    }

    /// Adds a request to the operation that it is a part of. Returns the operation when it is complete.
    pub(crate) fn whole(&mut self, client: usize, part: &EndedRequest) -> Option<EndedRequest> {
        if self.context.config.mix != Mix::D15 {
            return None;
        }
        let client_state = self.clients.get_mut(client)?;
        let sum = match client_state.whole.take() {
            None => EndedRequest { operation: Operation::Set, hits: 0, message: Some(MessageOperation::D15), ..*part },
            Some(before) => EndedRequest {
                completed: part.completed,
                request_bytes: before.request_bytes + part.request_bytes,
                reply_bytes: before.reply_bytes + part.reply_bytes,
                failed: before.failed || part.failed,
                ..before
            },
        };
        client_state.step += 1;
        if client_state.step < D15_STEPS {
            client_state.whole = Some(sum);
            return None;
        }
        (client_state.step, client_state.waiting) = (0, None);
        client_state.operations += 1;
        Some(sum)
    }

    /// The queues that clients created and did not delete.
    pub(crate) fn own_queues(&self) -> Vec<String> {
        let of = |(client, client_state): (usize, &ClientState)| {
            let number = self.number(client);
            // The last queue may exist although its creation was not acknowledged.
            (client_state.deleted..=client_state.created).map(move |queue| (number, queue)).collect::<Vec<_>>()
        };
        let has_own = |client_state: &ClientState| client_state.created > 0;
        let owners = self.clients.iter().enumerate().filter(|(_, client_state)| has_own(client_state));
        owners.flat_map(of).map(|(client, queue)| self.context.scratch(client, queue)).collect()
    }

    /// Picks one of this run's queues from a list of names, each with the same probability.
    fn waiting(&mut self, document: &[u8]) -> Option<u32> {
        let prefix = self.context.prefix.as_bytes();
        let (mut rest, mut found, mut seen) = (document, None, 0);
        while let Some(at) = memchr::memmem::find(rest, prefix) {
            rest = &rest[at + prefix.len()..];
            let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
            let queue = std::str::from_utf8(&rest[..digits]).ok().and_then(|digits| digits.parse::<u32>().ok());
            let is_name = rest.get(digits) == Some(&b'"');
            if let Some(queue) = queue.filter(|queue| is_name && (*queue as usize) < self.context.queues.len()) {
                seen += 1;
                if self.random.random_range(0..seen) == 0 {
                    found = Some(queue);
                }
            }
        }
        found
    }
}

/// Draws an operation by its weight.
fn pick<T: Copy>(drawn: &[(T, u32)], random: &mut impl Rng) -> Option<T> {
    let all: u64 = drawn.iter().map(|(_, weight)| u64::from(*weight)).sum();
    let mut at = random.random_range(0..all.max(1));
    for (operation, weight) in drawn {
        match at.checked_sub(u64::from(*weight)) {
            Some(left) => at = left,
            None => return Some(*operation),
        }
    }
    None
}

fn is_pop(request: &MessageRequest) -> bool {
    matches!(request, MessageRequest::Pop { .. } | MessageRequest::PopFrom { .. })
}

fn read_request(request: &MessageRequest, receiver: u32) -> ReadRequest {
    let (queue, sender) = match *request {
        MessageRequest::Peek { queue } | MessageRequest::Pop { queue } => (Some(queue), None),
        MessageRequest::PopFrom { queue, sender } => (Some(queue), Some(sender)),
        MessageRequest::PeekFrom { sender } => (None, Some(sender)),
        _ => (None, None),
    };
    ReadRequest { receiver, queue, sender }
}

/// Whether a list of names is not empty: `{"queues":["a"]}`.
fn has_names(document: &[u8]) -> bool {
    let at = memchr::memchr(b'[', document).unwrap_or(document.len());
    document[at..].contains(&b'"')
}

#[cfg(test)]
mod tests;
