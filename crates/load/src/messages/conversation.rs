//! What the clients of one thread ask next, and what the answers mean. Knows no sockets and no schedule: it is asked when a
//! request is due, and told what came back.

use super::body::ANYONE;
use super::http::Response;
use super::ledger::Wish;
use super::mix::{MessageOperation, Mix};
use super::request::{Asked, Speaking};
use super::venue::Venue;
use crate::measure::request::{Ended, Operation};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use records::Outcome;
use std::time::Duration;

/// Bytes of an error that are kept.
const ERROR_BYTES_MAX: usize = 120;
/// What the type of a problem begins with.
const PROBLEM: &str = "urn:waystage:problem:";
/// Requests of D15's operation.
const D15_STEPS: u8 = 5;

/// The clients of one thread as the service sees them.
#[derive(Debug)]
pub(crate) struct Conversation<'v> {
    venue: &'v Venue,
    thread: usize,
    random: Xoshiro256PlusPlus,
    speakers: Vec<Speaker>,
}

/// One client.
#[derive(Debug, Default)]
struct Speaker {
    /// The request in flight.
    asked: Option<Asked>,
    /// Its own queues: those from the one number to the other are there.
    created: u32,
    deleted: u32,
    /// Where it is in D15's operation, and what of that has ended.
    step: u8,
    operations: u64,
    whole: Option<Ended>,
    /// A queue that was said to hold a message for it.
    waiting: Option<u32>,
    /// How long it was asked to be quiet.
    back_off: Duration,
}

/// What a response means.
#[derive(Debug)]
pub(crate) struct Heard {
    pub(crate) outcome: Outcome,
    /// Whether what was asked for was there.
    pub(crate) hits: u32,
    /// Under which line an error is counted.
    pub(crate) error: Option<String>,
}

impl Heard {
    fn done() -> Heard {
        Heard { outcome: Outcome::Answered, hits: 0, error: None }
    }

    fn found() -> Heard {
        Heard { hits: 1, ..Heard::done() }
    }

    fn failed(outcome: Outcome, error: String) -> Heard {
        Heard { outcome, hits: 0, error: Some(error) }
    }
}

impl<'v> Conversation<'v> {
    /// Of thread number `thread`.
    pub(crate) fn new(venue: &'v Venue, thread: usize) -> Conversation<'v> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(venue.seed);
        // Far from what is drawn of arrivals and think times.
        random.long_jump();
        random.long_jump();
        for _ in 0..thread {
            random.jump();
        }
        Conversation { venue, thread, random, speakers: Vec::new() }
    }

    /// Draws the next request of a client; says which operation it is counted under.
    pub(crate) fn ask(&mut self, client: usize) -> MessageOperation {
        let number = self.number(client);
        if client >= self.speakers.len() {
            self.speakers.resize_with(client + 1, Speaker::default);
        }
        let asked = match &self.venue.config.mix {
            Mix::D15 => self.d15(client, number),
            Mix::Drawn(drawn) => {
                let operation = pick(drawn, &mut self.random);
                self.drawn(operation, client, number)
            }
        };
        self.speakers[client].asked = Some(asked);
        asked.operation()
    }

    /// Appends the request that was drawn, to this server.
    pub(crate) fn write(&self, client: usize, server: u16, out: &mut Vec<u8>) {
        if let Some(asked) = self.speakers.get(client).and_then(|speaker| speaker.asked) {
            let host = &self.venue.hosts[usize::from(server)];
            Speaking { venue: self.venue, host, client: self.number(client) }.write(&asked, out);
        }
    }

    /// The number of a client within the run; connections are shared out to the threads in turn.
    fn number(&self, client: usize) -> u32 {
        (client * self.venue.threads + self.thread) as u32
    }

    fn drawn(&mut self, operation: MessageOperation, client: usize, number: u32) -> Asked {
        let queue = self.queue();
        match operation {
            MessageOperation::Send => self.send(number, queue, ANYONE),
            MessageOperation::SendTo => {
                let receiver = self.client();
                self.send(number, queue, receiver)
            }
            MessageOperation::Peek => Asked::Peek { queue },
            MessageOperation::PeekFrom => Asked::PeekFrom { sender: self.client() },
            MessageOperation::PopFrom => Asked::PopFrom { queue, sender: self.client() },
            MessageOperation::Waiting => Asked::Waiting,
            MessageOperation::Create => Asked::Create { number: self.speakers[client].created },
            MessageOperation::Delete => Asked::Delete { number: self.speakers[client].deleted },
            MessageOperation::Pop | MessageOperation::D15 => Asked::Pop { queue },
        }
    }

    /// The next request of D15's operation.
    fn d15(&mut self, client: usize, number: u32) -> Asked {
        let (step, operations) = (self.speakers[client].step, self.speakers[client].operations);
        let queue = self.queue();
        match step {
            0 => {
                let receiver = if operations % 2 == 0 { ANYONE } else { self.client() };
                self.send(number, queue, receiver)
            }
            1 => Asked::Waiting,
            2 => Asked::Peek { queue: self.speakers[client].waiting.unwrap_or(queue) },
            3 => Asked::PeekFrom { sender: self.client() },
            _ => Asked::Pop { queue: self.speakers[client].waiting.unwrap_or(queue) },
        }
    }

    fn send(&mut self, number: u32, queue: u32, receiver: u32) -> Asked {
        let size_bytes = self.venue.size(&mut self.random);
        Asked::Send { label: self.venue.issue(number, queue, receiver), size_bytes }
    }

    fn queue(&mut self) -> u32 {
        self.random.random_range(0..self.venue.queues.len()) as u32
    }

    fn client(&mut self) -> u32 {
        self.random.random_range(0..self.venue.clients) as u32
    }

    /// What a response means for the client's request; none when it is no response to that.
    pub(crate) fn hear(&mut self, client: usize, response: &Response<'_>) -> Option<Heard> {
        let asked = self.speakers.get(client)?.asked?;
        let number = self.number(client);
        if response.status >= 400 && !(response.status == 404 && matches!(asked, Asked::Delete { .. })) {
            let heard = self.refused(&asked, number, response);
            let speaker = &mut self.speakers[client];
            speaker.asked = None;
            speaker.back_off = response.retry_after.unwrap_or_default();
            return Some(heard);
        }
        let receiver = number;
        let ledger = self.venue.ledger.as_ref();
        let heard = match (asked, response.status) {
            (Asked::Create { number }, 201 | 204) => {
                self.speakers[client].created = number + 1;
                Heard::done()
            }
            (Asked::Delete { .. }, 404) => Heard::done(),
            (Asked::Delete { number }, 204) => {
                self.speakers[client].deleted = number + 1;
                Heard::found()
            }
            (Asked::Send { label, .. }, 201) => {
                if let Some(ledger) = ledger {
                    ledger.acknowledge(label.sender, label.queue, label.number);
                }
                Heard::done()
            }
            (Asked::Waiting, 200) => {
                let found = self.waiting(response.body);
                self.speakers[client].waiting = found;
                if has_names(response.body) { Heard::found() } else { Heard::done() }
            }
            (Asked::Peek { .. } | Asked::PeekFrom { .. } | Asked::Pop { .. } | Asked::PopFrom { .. }, 204) => {
                Heard::done()
            }
            (Asked::Peek { .. } | Asked::PeekFrom { .. } | Asked::Pop { .. } | Asked::PopFrom { .. }, 200) => {
                if let Some(ledger) = ledger {
                    let wish = wish(&asked, receiver);
                    if is_pop(&asked) {
                        ledger.receive(&wish, response.body);
                    } else {
                        ledger.peek(&wish, response.body);
                    }
                }
                Heard::found()
            }
            _ => return None,
        };
        self.speakers[client].asked = None;
        Some(heard)
    }

    /// A response that says that it was not done, or that nobody knows.
    fn refused(&self, asked: &Asked, number: u32, response: &Response<'_>) -> Heard {
        let kind = problem(response.body);
        // Whoever else answers with 5xx, such as a proxy, does not know what the service has done.
        let is_in_doubt = response.status >= 500 && kind.is_none_or(|kind| kind == "in-doubt");
        self.settle(asked, number, is_in_doubt);
        if response.status == 503
            && let Some(ledger) = &self.venue.ledger
            && !is_in_doubt
        {
            ledger.note_refusal();
        }
        let outcome = match response.status {
            500.. => Outcome::ServerError,
            _ => Outcome::ClientError,
        };
        Heard::failed(outcome, format!("{} {}", response.status, kind.unwrap_or("without a problem document")))
    }

    /// The request of a client will not be answered; `was_sent` if the service may have it.
    pub(crate) fn give_up(&mut self, client: usize, was_sent: bool) {
        let number = self.number(client);
        if let Some(asked) = self.speakers.get_mut(client).and_then(|speaker| speaker.asked.take()) {
            if was_sent && let Asked::Create { number } = asked {
                // Whatever became of it, the next is another one, and it is deleted after the run if it is there.
                self.speakers[client].created = number + 1;
            }
            self.settle(&asked, number, was_sent);
        }
    }

    /// Tells the ledger of a request that was not acknowledged.
    fn settle(&self, asked: &Asked, number: u32, is_in_doubt: bool) {
        let Some(ledger) = &self.venue.ledger else { return };
        match asked {
            Asked::Send { label, .. } if is_in_doubt => ledger.doubt_send(label.sender, label.queue, label.number),
            Asked::Send { label, .. } => ledger.refuse(label.sender, label.queue, label.number),
            Asked::Pop { queue } | Asked::PopFrom { queue, .. } if is_in_doubt => ledger.doubt_pop(*queue, number, 1),
            _ => {}
        }
    }

    /// How long a client was asked to be quiet.
    pub(crate) fn take_back_off(&mut self, client: usize) -> Duration {
        self.speakers.get_mut(client).map(|speaker| std::mem::take(&mut speaker.back_off)).unwrap_or_default()
    }

    /// Takes a request into the operation that it is a part of; the whole, when that has ended.
    pub(crate) fn whole(&mut self, client: usize, part: &Ended) -> Option<Ended> {
        if self.venue.config.mix != Mix::D15 {
            return None;
        }
        let speaker = self.speakers.get_mut(client)?;
        let sum = match speaker.whole.take() {
            None => Ended { operation: Operation::Set, hits: 0, message: Some(MessageOperation::D15), ..*part },
            Some(before) => Ended {
                completed: part.completed,
                request_bytes: before.request_bytes + part.request_bytes,
                reply_bytes: before.reply_bytes + part.reply_bytes,
                failed: before.failed || part.failed,
                ..before
            },
        };
        speaker.step += 1;
        if speaker.step < D15_STEPS {
            speaker.whole = Some(sum);
            return None;
        }
        (speaker.step, speaker.waiting) = (0, None);
        speaker.operations += 1;
        Some(sum)
    }

    /// The queues that clients created and have not deleted.
    pub(crate) fn own_queues(&self) -> Vec<String> {
        let of = |(client, speaker): (usize, &Speaker)| {
            let number = self.number(client);
            // The last may be there although nobody heard of it.
            (speaker.deleted..=speaker.created).map(move |queue| (number, queue)).collect::<Vec<_>>()
        };
        let has_own = |speaker: &Speaker| speaker.created > 0;
        let owners = self.speakers.iter().enumerate().filter(|(_, speaker)| has_own(speaker));
        owners.flat_map(of).map(|(client, queue)| self.venue.scratch(client, queue)).collect()
    }

    /// One of the queues of this run that a list of names has, each with the same probability.
    fn waiting(&mut self, document: &[u8]) -> Option<u32> {
        let prefix = self.venue.prefix.as_bytes();
        let (mut rest, mut found, mut seen) = (document, None, 0);
        while let Some(at) = memchr::memmem::find(rest, prefix) {
            rest = &rest[at + prefix.len()..];
            let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
            let queue = std::str::from_utf8(&rest[..digits]).ok().and_then(|digits| digits.parse::<u32>().ok());
            let is_name = rest.get(digits) == Some(&b'"');
            if let Some(queue) = queue.filter(|queue| is_name && (*queue as usize) < self.venue.queues.len()) {
                seen += 1;
                if self.random.random_range(0..seen) == 0 {
                    found = Some(queue);
                }
            }
        }
        found
    }
}

/// One of the operations, with its weight.
fn pick(drawn: &[(MessageOperation, u32)], random: &mut impl Rng) -> MessageOperation {
    let all: u64 = drawn.iter().map(|(_, weight)| u64::from(*weight)).sum();
    let mut at = random.random_range(0..all.max(1));
    for (operation, weight) in drawn {
        match at.checked_sub(u64::from(*weight)) {
            Some(left) => at = left,
            None => return *operation,
        }
    }
    MessageOperation::Pop
}

fn is_pop(asked: &Asked) -> bool {
    matches!(asked, Asked::Pop { .. } | Asked::PopFrom { .. })
}

fn wish(asked: &Asked, receiver: u32) -> Wish {
    let (queue, sender) = match *asked {
        Asked::Peek { queue } | Asked::Pop { queue } => (Some(queue), None),
        Asked::PopFrom { queue, sender } => (Some(queue), Some(sender)),
        Asked::PeekFrom { sender } => (None, Some(sender)),
        _ => (None, None),
    };
    Wish { receiver, queue, sender }
}

/// Whether a list of names has one: `{"queues":["a"]}`.
fn has_names(document: &[u8]) -> bool {
    let at = memchr::memchr(b'[', document).unwrap_or(document.len());
    document[at..].contains(&b'"')
}

/// The last word of the type of a problem document.
fn problem(body: &[u8]) -> Option<&str> {
    let at = memchr::memmem::find(body, PROBLEM.as_bytes())? + PROBLEM.len();
    let rest = &body[at..];
    let end = rest.iter().position(|byte| !(byte.is_ascii_alphanumeric() || *byte == b'-')).unwrap_or(rest.len());
    std::str::from_utf8(&rest[..end.min(ERROR_BYTES_MAX)]).ok().filter(|kind| !kind.is_empty())
}

#[cfg(test)]
mod tests;
