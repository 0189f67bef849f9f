//! Creates the queues and sends the messages of the prefill before the run, and deletes the queues after it.

use super::body::{self, ANYONE};
use super::context::MessagesContext;
use super::drain::drain;
use super::setup_connection::{Answer, SetupConnection, excerpt};
use super::summary::MessagesSummary;
use crate::LoadError;
use crate::progress::ProgressReporter;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clock::Clock;
use rand::SeedableRng;
use rand_xoshiro::SplitMix64;
use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Messages sent at once; docs/messages.md has the service's limit.
const BATCH: u64 = 100;
/// A failure to delete is not worth a longer wait.
const DELETE_TIMEOUT: Duration = Duration::from_secs(5);
const DELETE_TRIES: usize = 3;

/// The existing queues of a run. They are deleted however the run ends, unless they are to be kept.
#[derive(Debug)]
pub(crate) struct RunQueues {
    pub(crate) context: MessagesContext,
    addresses: Vec<SocketAddr>,
    /// The timeout of a response.
    timeout: Duration,
    are_there: bool,
}

impl RunQueues {
    /// Creates the queues and sends the prefill.
    pub(crate) fn create(
        context: MessagesContext,
        addresses: &[SocketAddr],
        timeout: Duration,
        stop: &AtomicBool,
        progress: &mut ProgressReporter<'_>,
    ) -> Result<RunQueues, LoadError> {
        let queues = RunQueues { context, addresses: addresses.to_vec(), timeout, are_there: true };
        let mut connection = SetupConnection::new(&queues.context, addresses, timeout);
        create_all(&queues.context, &mut connection, stop, progress)?;
        prefill(&queues.context, &mut connection, stop, progress)?;
        Ok(queues)
    }

    /// Ends the run: reads the messages that are left, accounts for all messages, and deletes the queues, including
    /// those that clients left behind. A failure to delete is returned as one line.
    pub(crate) fn finish(
        mut self,
        clock: &Clock,
        own: &[String],
        progress: &mut ProgressReporter<'_>,
    ) -> (MessagesSummary, Result<(), String>) {
        let summary = drain(&self.context, &self.addresses, self.timeout, clock, progress);
        self.are_there = false;
        let deleted = if self.context.config.keep { Ok(()) } else { delete(&self.context, &self.addresses, own) };
        (summary, deleted)
    }
}

impl Drop for RunQueues {
    fn drop(&mut self) {
        if self.are_there && !self.context.config.keep {
            // The error that ended the run matters more than this one.
            let _ = delete(&self.context, &self.addresses, &[]);
        }
    }
}

fn create_all(
    context: &MessagesContext,
    connection: &mut SetupConnection<'_>,
    stop: &AtomicBool,
    progress: &mut ProgressReporter<'_>,
) -> Result<(), LoadError> {
    let all = context.queues.len() as u64;
    let dead = context.dead_letter_queue();
    let settings = dead.as_ref().zip(context.config.attempts);
    let settings =
        settings.map(|(dead, attempts)| format!("{{\"attempts\":{attempts},\"dead_letter_queue\":\"{dead}\"}}"));
    // The queues refer to the dead-letter queue, so it comes first.
    let settings_of = |queue: &String| settings.clone().filter(|_| Some(queue) != dead.as_ref());
    for (done, queue) in (0..).zip(dead.iter().chain(&context.queues)) {
        go_on(stop)?;
        let settings = settings_of(queue);
        progress.report("create queues", done, all);
        let path = format!("/v1/queues/{queue}");
        let answer = connection.send(0, |writer, out| match &settings {
            Some(settings) => writer.document("PUT", &path, settings, out),
            None => writer.plain("PUT", &path, out),
        });
        match answer {
            Answer::Reply(201 | 204, _) => {}
            answer => return Err(LoadError::Queues(failure(connection, &answer, &format!("queue {queue}")))),
        }
    }
    Ok(())
}

/// Sends messages for any receiver, to each queue in turn.
fn prefill(
    context: &MessagesContext,
    connection: &mut SetupConnection<'_>,
    stop: &AtomicBool,
    progress: &mut ProgressReporter<'_>,
) -> Result<(), LoadError> {
    let (all, sender) = (context.config.prefill, context.prefiller());
    let mut random = SplitMix64::seed_from_u64(context.seed);
    let (mut done, mut body) = (0, Vec::new());
    for queue in (0..context.queues.len()).cycle() {
        if done >= all {
            break;
        }
        go_on(stop)?;
        progress.report("prefill", done, all);
        // The numbers of messages per queue differ by at most one.
        let share =
            if all >= BATCH * context.queues.len() as u64 { BATCH } else { all.div_ceil(context.queues.len() as u64) };
        let messages = share.clamp(1, BATCH).min(all - done);
        let mut document = String::from("{\"messages\":[");
        let mut numbers = Vec::new();
        for index in 0..messages {
            let label = context.issue(sender, queue as u32, ANYONE);
            body.clear();
            body::make(&label, context.size(&mut random), &mut body);
            // Writing to a String cannot fail.
            let comma = if index == 0 { "" } else { "," };
            let _ = write!(document, "{comma}{{\"body_base64\":\"{}\"}}", STANDARD.encode(&body));
            numbers.push(label.number);
        }
        document += "]}";
        let path = format!("/v1/queues/{}/messages:batch", context.queues[queue]);
        match connection.send(sender, |writer, out| writer.document("POST", &path, &document, out)) {
            Answer::Reply(201, _) => {}
            answer => return Err(LoadError::Queues(failure(connection, &answer, "the prefill"))),
        }
        if let Some(ledger) = &context.ledger {
            numbers.iter().for_each(|number| ledger.acknowledge(sender, queue as u32, *number));
        }
        done += messages;
    }
    Ok(())
}

/// Deletes the queues of the run, and those in `own`.
///
/// # Errors
/// Which queue could not be deleted, in one line.
fn delete(context: &MessagesContext, addresses: &[SocketAddr], own: &[String]) -> Result<(), String> {
    let mut connection = SetupConnection::new(context, addresses, DELETE_TIMEOUT);
    for queue in context.queues.iter().chain(&context.dead_letter_queue()).chain(own) {
        let path = format!("/v1/queues/{queue}");
        let mut tries = 0;
        loop {
            let answer = connection.send(0, |writer, out| writer.plain("DELETE", &path, out));
            tries += 1;
            if let Answer::Reply(204 | 404, _) = answer {
                break;
            }
            if tries == DELETE_TRIES * addresses.len() {
                return Err(format!("queues {}* are left: {}", context.prefix, failure(&connection, &answer, queue)));
            }
        }
    }
    Ok(())
}

fn go_on(stop: &AtomicBool) -> Result<(), LoadError> {
    if stop.load(Ordering::Relaxed) { Err(LoadError::Stopped) } else { Ok(()) }
}

/// The error message for a request that had to succeed.
fn failure(connection: &SetupConnection<'_>, answer: &Answer, what: &str) -> String {
    match answer {
        Answer::Reply(status, body) => {
            format!("{what}: {} answered with status {status}: {}", connection.host(), excerpt(body))
        }
        Answer::NotSent(line) => format!("{what}: cannot connect to {line}; is it running?"),
        Answer::InDoubt(line) => format!("{what}: {line}"),
    }
}
