//! After the run: pops the messages that are left, so that every acknowledged message has been received or is known to
//! be lost.

use super::body::ANYONE;
use super::context::MessagesContext;
use super::leases::RequestTimes;
use super::ledger::{Ledger, ReadRequest, locked};
use super::setup_connection::{Answer, SetupConnection};
use super::summary::MessagesSummary;
use crate::progress::ProgressReporter;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clock::Clock;
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

/// Messages popped at once; docs/messages.md has the service's limit.
const AT_ONCE: u64 = 100;
/// A statement of a killed service may still change messages. It is finished or rolled back within this time.
const GRACE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(50);
/// Requests in flight at once. One after the other, the requests for hundreds of receivers would take longer than a short
/// run whenever the service is far away or slow.
const LANES: usize = 16;

/// The result of the drain.
#[derive(Clone, Copy, Debug, Default)]
struct Drained {
    messages: u64,
    /// Whether the queues were empty at the end, instead of the time being up.
    is_complete: bool,
}

/// A list of messages in a response.
#[derive(Deserialize)]
struct Document {
    messages: Vec<Message>,
}

#[derive(Deserialize)]
struct Names {
    queues: Vec<String>,
}

#[derive(Deserialize)]
struct Message {
    body_base64: String,
    #[serde(default)]
    dead_letter: Option<DeadLetter>,
}

#[derive(Deserialize)]
struct DeadLetter {
    attempts: u32,
}

/// Reads the messages that are left, and accounts for every message.
pub(crate) fn drain(
    context: &MessagesContext,
    addresses: &[SocketAddr],
    timeout: Duration,
    clock: &Clock,
    progress: &mut ProgressReporter<'_>,
) -> MessagesSummary {
    let drained = read_all(context, addresses, timeout, clock, progress);
    MessagesSummary::new(context, drained.messages, drained.is_complete)
}

/// Pops the messages for any receiver, and for each receiver with messages left, until none is missing or none arrives.
fn read_all(
    context: &MessagesContext,
    addresses: &[SocketAddr],
    timeout: Duration,
    clock: &Clock,
    progress: &mut ProgressReporter<'_>,
) -> Drained {
    let Some(ledger) = &context.ledger else { return Drained::default() };
    let until = clock.now() + context.config.drain;
    let mut lanes: Vec<_> = (0..LANES).map(|_| SetupConnection::new(context, addresses, timeout)).collect();
    let mut unexpected = waiting(context, &mut lanes, || clock.now() < until);
    let (all, dead) = (ledger.outstanding(), context.dead_letter_queue());
    let mut drained = Drained { messages: 0, is_complete: true };
    let mut last_progress = clock.now();
    loop {
        let before = drained.messages;
        let mut all_receivers = vec![ANYONE];
        let mut queues = Vec::new();
        for (number, queue) in (0..).zip(&context.queues) {
            let mut receivers = vec![ANYONE];
            receivers.extend(ledger.receivers(number));
            receivers.extend(unexpected.remove(&number).unwrap_or_default());
            all_receivers.extend(&receivers);
            queues.push((number, queue, receivers));
        }
        let mut note = |messages| {
            drained.messages += messages;
            progress.report("read what is left", drained.messages, all);
        };
        // One lane reads all of a queue, so the messages of a sender keep their order.
        let mut is_empty =
            each_in_lanes(&mut lanes, &queues, &mut note, |connection, (number, queue, receivers), came| {
                receivers.iter().all(|receiver| {
                    let request = ReadRequest { receiver: *receiver, queue: Some(*number), sender: None };
                    empty(context, ledger, connection, &request, queue, clock, &mut |messages| {
                        came(messages);
                        clock.now() < until
                    })
                })
            });
        all_receivers.sort_unstable();
        all_receivers.dedup();
        for (receiver, queue) in all_receivers.into_iter().rev().filter_map(|receiver| Some((receiver, dead.as_ref()?)))
        {
            let request = ReadRequest { receiver, queue: None, sender: None };
            is_empty = is_empty
                && empty(context, ledger, &mut lanes[0], &request, queue, clock, &mut |messages| {
                    note(messages);
                    clock.now() < until
                });
        }
        if !is_empty {
            return Drained { is_complete: ledger.outstanding() == 0, ..drained };
        }
        let now = clock.now();
        if drained.messages > before {
            last_progress = now;
        } else if ledger.outstanding() == 0 || ledger.returned_by().max(last_progress + GRACE) <= now {
            return drained;
        } else {
            thread::sleep(PAUSE);
        }
        if now >= until {
            return Drained { is_complete: ledger.outstanding() == 0, ..drained };
        }
    }
}

/// The receivers with messages in each queue, according to the service. They may be unexpected. A service that does not reply is asked
/// for no further receivers when the time is up.
fn waiting(
    context: &MessagesContext,
    lanes: &mut [SetupConnection<'_>],
    has_time: impl Fn() -> bool + Sync,
) -> BTreeMap<u32, Vec<u32>> {
    if !context.config.mix.is_addressing() {
        return BTreeMap::new();
    }
    let numbers: HashMap<&str, u32> = context.queues.iter().map(String::as_str).zip(0..).collect();
    let receivers = Mutex::new(BTreeMap::<u32, Vec<u32>>::new());
    let clients: Vec<u32> = (0..context.clients as u32).collect();
    each_in_lanes(lanes, &clients, &mut |_| {}, |connection, receiver, _| {
        let path = format!("/v1/receivers/{}/queues", context.name(*receiver));
        if let Answer::Reply(200, body) = connection.send(*receiver, |writer, out| writer.plain("GET", &path, out)) {
            let names = serde_json::from_slice::<Names>(&body).map(|names| names.queues).unwrap_or_default();
            for queue in names.iter().filter_map(|name| numbers.get(name.as_str())) {
                locked(&receivers).entry(*queue).or_default().push(*receiver);
            }
        }
        has_time()
    });
    receivers.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Does the work for every item, several at once: each connection serves every n-th item, in their order, until the work
/// for one returns false. `note` receives what the work reports. Returns whether all work returned true.
fn each_in_lanes<'v, T: Sync>(
    lanes: &mut [SetupConnection<'v>],
    items: &[T],
    note: &mut dyn FnMut(u64),
    work: impl Fn(&mut SetupConnection<'v>, &T, &dyn Fn(u64)) -> bool + Sync,
) -> bool {
    let (reports, reported) = mpsc::channel();
    let (count, work) = (lanes.len(), &work);
    thread::scope(|scope| {
        let running: Vec<_> = (lanes.iter_mut().take(items.len()).enumerate())
            .map(|(lane, connection)| {
                let reports = reports.clone();
                scope.spawn(move || {
                    // The receiver is there until every lane has ended.
                    let report = |messages| {
                        let _ = reports.send(messages);
                    };
                    items.iter().skip(lane).step_by(count).all(|item| work(connection, item, &report))
                })
            })
            .collect();
        drop(reports);
        reported.iter().for_each(note);
        // The scope waits for the lanes behind the first that has stopped.
        running.into_iter().all(|lane| lane.join().unwrap_or_else(|panic| resume_unwind(panic)))
    })
}

/// Pops until the queue is empty; without a queue in the request, it is the dead-letter queue. Returns false if `go_on`, which receives the number of messages popped, stops it.
fn empty(
    context: &MessagesContext,
    ledger: &Ledger,
    connection: &mut SetupConnection<'_>,
    request: &ReadRequest,
    queue: &str,
    clock: &Clock,
    go_on: &mut dyn FnMut(u64) -> bool,
) -> bool {
    let of =
        if request.receiver == ANYONE { String::new() } else { format!("for={}&", context.name(request.receiver)) };
    let path = format!("/v1/queues/{queue}/messages:pop?{of}max={AT_ONCE}");
    let client = if request.receiver == ANYONE { context.prefiller() } else { request.receiver };
    loop {
        let issued = clock.now();
        let came = match connection.send(client, |writer, out| writer.plain("POST", &path, out)) {
            Answer::Reply(200, body) => take(ledger, request, &body, RequestTimes { issued, completed: clock.now() }),
            Answer::Reply(204, _) => 0,
            Answer::Reply(..) | Answer::NotSent(_) => {
                ledger.availability.failed();
                thread::sleep(PAUSE);
                if go_on(0) {
                    continue;
                }
                return false;
            }
            Answer::InDoubt(_) => {
                ledger.availability.failed();
                ledger.record_drain_in_doubt(request.queue.unwrap_or_default(), request.receiver, AT_ONCE);
                thread::sleep(PAUSE);
                if go_on(0) {
                    continue;
                }
                return false;
            }
        };
        ledger.availability.succeeded(clock.now());
        if !go_on(came) {
            return false;
        }
        if came == 0 {
            if let Some(queue) = request.queue {
                ledger.fetched(queue, request.receiver, None, issued);
            }
            return true;
        }
    }
}

/// Records every message of a document, and returns their number.
fn take(ledger: &Ledger, request: &ReadRequest, body: &[u8], at: RequestTimes) -> u64 {
    let Ok(document) = serde_json::from_slice::<Document>(body) else {
        // A document that cannot be parsed counts as one torn message.
        ledger.receive(request, &[], at);
        return 0;
    };
    for message in &document.messages {
        let body = STANDARD.decode(&message.body_base64).unwrap_or_default();
        if request.queue.is_some() {
            ledger.receive(request, &body, at);
        } else {
            let attempts = message.dead_letter.as_ref().map(|dead_letter| dead_letter.attempts);
            ledger.receive_dead(request, &body, attempts, at);
        }
    }
    document.messages.len() as u64
}
