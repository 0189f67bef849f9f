//! What all sessions share: one request in, one reply out. Parser, service, store and counters meet here.
//!
//! A command is carried out when it is read, with the time at which its worker will take it: the queue is first in, first out,
//! so the order of arrival is the order of service starts, and no client can tell the difference. Only its reply has to wait.

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

/// What all sessions share.
#[derive(Debug)]
pub(crate) struct Desk {
    pub(crate) clock: Clock,
    pub(crate) service: Service,
    pub(crate) journal: Journal,
    pub(crate) buffers: Buffers,
    pub(crate) counters: Counters,
    /// The reply of the request just taken.
    pub(crate) reply: Vec<u8>,
    /// Connections there are now, and there may be.
    pub(crate) connections: usize,
    pub(crate) connections_maximum: usize,
    workers: usize,
    epoch: Epoch,
    store: Store,
    limits: Limits,
}

/// A request that has been taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    /// Its bytes.
    pub(crate) consumed: usize,
    /// Bytes to come that are to be dropped.
    pub(crate) swallow_bytes: u64,
    /// Whether it is the last of its connection.
    pub(crate) quits: bool,
    /// Whether its reply may leave as soon as those before it have.
    pub(crate) is_instant: bool,
    pub(crate) started: Nanos,
    pub(crate) served: Nanos,
    pub(crate) queue_length: u32,
    pub(crate) operation: u8,
    pub(crate) answer: Answer,
}

impl Desk {
    /// A desk for a configuration that has been checked.
    pub(crate) fn new(config: &Config, journal: Journal, clock: Clock) -> Desk {
        let epoch = Epoch::now(&clock);
        Desk {
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

    /// Takes the first request of `bytes`, which were complete at `received`, and leaves what it answers in `reply`.
    /// `None` when there is no complete request.
    pub(crate) fn take(&mut self, bytes: &[u8], received: Nanos, session: usize) -> Option<Taken> {
        self.reply.clear();
        let taken = match parse_request(bytes, &self.limits) {
            ParsedRequest::Incomplete => return None,
            ParsedRequest::Request { request, consumed } => self.carry_out(&request, consumed, received, session),
            ParsedRequest::Invalid { error, consumed, swallow } => {
                if error.reason() == RequestError::ValueTooLarge {
                    refused_store(&bytes[..consumed], &mut self.store);
                }
                self.refuse(error.line(), received, Taken { swallow_bytes: swallow, ..Taken::of(consumed) })
            }
            ParsedRequest::Close { error } => {
                let line = error.map_or(b"".as_slice(), |error| error.line());
                self.refuse(line, received, Taken { quits: true, ..Taken::of(bytes.len()) })
            }
        };
        self.counters.requests += 1;
        self.counters.bytes_read += taken.swallow_bytes.saturating_add(taken.consumed as u64);
        self.counters.bytes_written += self.reply.len() as u64;
        Some(taken)
    }

    fn carry_out(&mut self, request: &Request<'_>, consumed: usize, received: Nanos, session: usize) -> Taken {
        let slot = if is_local(request) { None } else { self.service.admit(received, session) };
        let Slot { started, served, queue_length } = slot.unwrap_or_else(|| self.instant(received));
        let answer = if is_local(request) {
            self.answer_locally(request)
        } else {
            self.store.advance(started);
            execute(request, &mut self.store, &mut self.counters, &mut self.reply)
        };
        Taken {
            quits: matches!(request, Request::Quit),
            is_instant: slot.is_none(),
            started,
            served,
            queue_length,
            operation: request.verb() as u8,
            answer,
            ..Taken::of(consumed)
        }
    }

    /// What takes no service time starts and ends here and now.
    fn instant(&self, received: Nanos) -> Slot {
        let now = self.clock.now().max(received);
        let queue_length = u32::try_from(self.service.present()).unwrap_or(u32::MAX);
        Slot { started: now, served: now, queue_length }
    }

    /// Answers what was no request: no worker ever sees it.
    fn refuse(&mut self, line: &[u8], received: Nanos, taken: Taken) -> Taken {
        self.counters.invalid += 1;
        self.reply.extend_from_slice(line);
        let Slot { started, served, queue_length } = self.instant(received);
        let outcome = if line.starts_with(b"SERVER_ERROR") { Outcome::ServerError } else { Outcome::ClientError };
        Taken { started, served, queue_length, answer: Answer { outcome, ..Answer::default() }, ..taken }
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

    /// Writes what was asked for, up to the last line, which it returns.
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

impl Taken {
    /// A request of so many bytes, with nothing else known yet.
    fn of(consumed: usize) -> Taken {
        Taken {
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

/// Whether a request is about the server itself: such requests take no service time.
fn is_local(request: &Request<'_>) -> bool {
    matches!(
        request,
        Request::Version | Request::Verbosity { .. } | Request::Stats { .. } | Request::Quit | Request::Noop
    )
}
