//! The state that all sessions share, and the path of one request: parser, service, store and counters.
//!
//! A command is executed when it is read, at the virtual time at which its worker takes it. The queue is first in, first out,
//! so commands start in the order of their arrival and no client can observe the difference. Only the reply is delayed.

use crate::config::Config;
use crate::execute::{execute, refused_store};
use crate::expiry::Epoch;
use crate::journal::Journal;
use crate::operations::{Answer, outcome};
use crate::service::{Service, Slot};
use crate::statistics::{Counters, Surroundings, VERSION, general};
use crate::store::{ITEM_MAXIMUM_BYTES, Store};
use clock::{Clock, Nanos};
use net::Buffers;
use records::Outcome;
use wire::{Limits, MetaCode, ParsedRequest, Reply, Request, RequestError, Verb, parse_request};

/// The state that all sessions share.
#[derive(Debug)]
pub(crate) struct Handler {
    pub(crate) clock: Clock,
    pub(crate) service: Service,
    pub(crate) journal: Journal,
    pub(crate) buffers: Buffers,
    pub(crate) counters: Counters,
    /// The reply to the request that was just taken.
    pub(crate) reply: Vec<u8>,
    /// The number of connections, and its limit.
    pub(crate) connections: usize,
    pub(crate) connections_maximum: usize,
    workers: usize,
    epoch: Epoch,
    store: Store,
    limits: Limits,
}

/// A request that has been taken and executed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handled {
    /// The length of the request in bytes.
    pub(crate) consumed: usize,
    /// Bytes of the request that are still to arrive and to be discarded.
    pub(crate) swallow_bytes: u64,
    /// Whether it closes the connection.
    pub(crate) quits: bool,
    /// Whether its reply can be sent as soon as the replies before it have been.
    pub(crate) is_instant: bool,
    pub(crate) started: Nanos,
    pub(crate) served: Nanos,
    pub(crate) queue_length: u32,
    pub(crate) operation: u8,
    pub(crate) answer: Answer,
}

impl Handler {
    /// The handler of a configuration that has been checked.
    pub(crate) fn new(config: &Config, journal: Journal, clock: Clock) -> Handler {
        let epoch = Epoch::now(&clock);
        Handler {
            service: Service::new(config),
            journal,
            buffers: Buffers::default(),
            counters: Counters::default(),
            reply: Vec::new(),
            connections: 0,
            connections_maximum: config.connections_maximum,
            workers: config.workers,
            epoch,
            store: Store::new(config.memory_limit_bytes, epoch),
            limits: Limits { value_bytes: ITEM_MAXIMUM_BYTES, ..Limits::default() },
            clock,
        }
    }

    /// Takes the first request of `bytes`, which had arrived at `received`, and puts its reply into `reply`.
    /// `None` if the request is incomplete.
    pub(crate) fn take(&mut self, bytes: &[u8], received: Nanos, session: usize) -> Option<Handled> {
        self.reply.clear();
        let taken = match parse_request(bytes, &self.limits) {
            ParsedRequest::Incomplete => return None,
            ParsedRequest::Request { request, consumed } => self.carry_out(&request, consumed, received, session),
            ParsedRequest::Invalid { error, consumed, swallow } => {
                if error.reason() == RequestError::ValueTooLarge {
                    refused_store(&bytes[..consumed], &mut self.store);
                }
                self.refuse(error.line(), received, Handled { swallow_bytes: swallow, ..Handled::of(consumed) })
            }
            ParsedRequest::Close { error } => {
                let line = error.map_or(b"".as_slice(), |error| error.line());
                self.refuse(line, received, Handled { quits: true, ..Handled::of(bytes.len()) })
            }
        };
        self.counters.requests += 1;
        self.counters.bytes_read += taken.swallow_bytes.saturating_add(taken.consumed as u64);
        self.counters.bytes_written += self.reply.len() as u64;
        Some(taken)
    }

    fn carry_out(&mut self, request: &Request<'_>, consumed: usize, received: Nanos, session: usize) -> Handled {
        let slot = if is_local(request) { None } else { self.service.admit(received, session) };
        let Slot { started, served, queue_length } = slot.unwrap_or_else(|| self.instant(received));
        let answer = if is_local(request) {
            self.answer_locally(request)
        } else {
            self.store.advance(started);
            execute(request, &mut self.store, &mut self.counters, &mut self.reply)
        };
        Handled {
            quits: matches!(request, Request::Quit),
            is_instant: slot.is_none(),
            started,
            served,
            queue_length,
            operation: request.verb() as u8,
            answer,
            ..Handled::of(consumed)
        }
    }

    /// The slot of a request without service time: it starts and ends now.
    fn instant(&self, received: Nanos) -> Slot {
        let now = self.clock.now().max(received);
        let queue_length = u32::try_from(self.service.present()).unwrap_or(u32::MAX);
        Slot { started: now, served: now, queue_length }
    }

    /// Replies to a malformed request, which no worker serves.
    fn refuse(&mut self, line: &[u8], received: Nanos, taken: Handled) -> Handled {
        self.counters.invalid += 1;
        self.reply.extend_from_slice(line);
        let Slot { started, served, queue_length } = self.instant(received);
        let outcome = if line.starts_with(b"SERVER_ERROR") { Outcome::ServerError } else { Outcome::ClientError };
        Handled { started, served, queue_length, answer: Answer { outcome, ..Answer::default() }, ..taken }
    }

    fn answer_locally(&mut self, request: &Request<'_>) -> Answer {
        let reply = match *request {
            Request::Version => Reply::Version(VERSION.as_bytes()),
            Request::Verbosity { noreply: false } => Reply::Ok,
            Request::Noop => Reply::Meta { code: MetaCode::Noop, flags: b"" },
            Request::Stats { argument } => self.statistics(argument),
            _ => return Answer::default(),
        };
        reply.encode(&mut self.reply);
        Answer { outcome: outcome(&reply), ..Answer::default() }
    }

    /// Writes the statistics except the last line, which it returns.
    fn statistics(&mut self, argument: &[u8]) -> Reply<'static> {
        match argument {
            b"" => {
                let around = Surroundings {
                    started: self.epoch.clock,
                    unix_s: self.epoch.unix_s(self.clock.now()),
                    connections: self.connections,
                    connections_maximum: self.connections_maximum,
                    workers: self.workers,
                    present: self.service.present(),
                };
                general(&self.counters, &self.store, &around, &self.clock, &mut self.reply);
                Reply::End
            }
            b"reset" => {
                self.counters = Counters::default();
                Reply::Reset
            }
            b"settings" | b"items" | b"slabs" | b"sizes" | b"conns" => Reply::End,
            _ => Reply::Error,
        }
    }
}

impl Handled {
    /// A request of this length, with everything else unset.
    fn of(consumed: usize) -> Handled {
        Handled {
            consumed,
            swallow_bytes: 0,
            quits: false,
            is_instant: true,
            started: Nanos::UNSET,
            served: Nanos::UNSET,
            queue_length: 0,
            operation: Verb::Invalid as u8,
            answer: Answer::default(),
        }
    }
}

/// Whether a request is about the server itself: such requests have no service time.
fn is_local(request: &Request<'_>) -> bool {
    matches!(
        request,
        Request::Version | Request::Verbosity { .. } | Request::Stats { .. } | Request::Quit | Request::Noop
    )
}
