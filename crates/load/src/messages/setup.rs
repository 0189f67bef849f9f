//! Before the run: creates the queues and sends the messages of the prefill. After it: deletes the queues.

use super::account::MessagesSummary;
use super::body::{self, ANYONE};
use super::drain::drain;
use super::plain::{Answer, Plain, excerpt};
use super::venue::Venue;
use crate::LoadError;
use crate::progress::Told;
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
/// The queues are not worth more after a run.
const DELETE_PATIENCE: Duration = Duration::from_secs(5);
const DELETE_TRIES: usize = 3;

/// The queues of a run while they are there. However the run ends, they are deleted with it, unless they are to be kept.
#[derive(Debug)]
pub(crate) struct Queues {
    pub(crate) venue: Venue,
    addresses: Vec<SocketAddr>,
    /// An answer may take so long.
    patience: Duration,
    are_there: bool,
}

impl Queues {
    /// Creates the queues and sends the prefill.
    pub(crate) fn create(
        venue: Venue,
        addresses: &[SocketAddr],
        patience: Duration,
        stop: &AtomicBool,
        told: &mut Told<'_>,
    ) -> Result<Queues, LoadError> {
        let queues = Queues { venue, addresses: addresses.to_vec(), patience, are_there: true };
        let mut plain = Plain::new(&queues.venue, addresses, patience);
        create_all(&queues.venue, &mut plain, stop, told)?;
        prefill(&queues.venue, &mut plain, stop, told)?;
        Ok(queues)
    }

    /// What is left to do after the run: reads what is left, weighs, and deletes the queues and those that clients left behind.
    /// Also what could not be deleted, in one line.
    pub(crate) fn settle(
        mut self,
        clock: &Clock,
        own: &[String],
        told: &mut Told<'_>,
    ) -> (MessagesSummary, Result<(), String>) {
        let summary = drain(&self.venue, &self.addresses, self.patience, clock, told);
        self.are_there = false;
        let deleted = if self.venue.config.keep { Ok(()) } else { delete(&self.venue, &self.addresses, own) };
        (summary, deleted)
    }
}

impl Drop for Queues {
    fn drop(&mut self) {
        if self.are_there && !self.venue.config.keep {
            // Why the run did not come to its end is what matters.
            let _ = delete(&self.venue, &self.addresses, &[]);
        }
    }
}

fn create_all(venue: &Venue, plain: &mut Plain<'_>, stop: &AtomicBool, told: &mut Told<'_>) -> Result<(), LoadError> {
    let all = venue.queues.len() as u64;
    for (done, queue) in (0..).zip(&venue.queues) {
        go_on(stop)?;
        told.tell("create queues", done, all);
        let path = format!("/v1/queues/{queue}");
        match plain.ask(0, |speaking, out| speaking.plain("PUT", &path, out)) {
            Answer::Reply(201 | 204, _) => {}
            answer => return Err(LoadError::Queues(said(plain, &answer, &format!("queue {queue}")))),
        }
    }
    Ok(())
}

/// Sends messages to anyone, to each queue in turn.
fn prefill(venue: &Venue, plain: &mut Plain<'_>, stop: &AtomicBool, told: &mut Told<'_>) -> Result<(), LoadError> {
    let (all, sender) = (venue.config.prefill, venue.prefiller());
    let mut random = SplitMix64::seed_from_u64(venue.seed);
    let (mut done, mut body) = (0, Vec::new());
    for queue in (0..venue.queues.len()).cycle() {
        if done >= all {
            break;
        }
        go_on(stop)?;
        told.tell("prefill", done, all);
        // The queues have as many, or one more.
        let share =
            if all >= BATCH * venue.queues.len() as u64 { BATCH } else { all.div_ceil(venue.queues.len() as u64) };
        let messages = share.clamp(1, BATCH).min(all - done);
        let mut document = String::from("{\"messages\":[");
        let mut numbers = Vec::new();
        for index in 0..messages {
            let label = venue.issue(sender, queue as u32, ANYONE);
            body.clear();
            body::make(&label, venue.size(&mut random), &mut body);
            // Writing to a String cannot fail.
            let comma = if index == 0 { "" } else { "," };
            let _ = write!(document, "{comma}{{\"body_base64\":\"{}\"}}", STANDARD.encode(&body));
            numbers.push(label.number);
        }
        document += "]}";
        let path = format!("/v1/queues/{}/messages:batch", venue.queues[queue]);
        match plain.ask(sender, |speaking, out| speaking.document(&path, &document, out)) {
            Answer::Reply(201, _) => {}
            answer => return Err(LoadError::Queues(said(plain, &answer, "the prefill"))),
        }
        if let Some(ledger) = &venue.ledger {
            numbers.iter().for_each(|number| ledger.acknowledge(sender, queue as u32, *number));
        }
        done += messages;
    }
    Ok(())
}

/// Deletes the queues of the run, and these.
///
/// # Errors
/// What could not be deleted, in one line.
fn delete(venue: &Venue, addresses: &[SocketAddr], own: &[String]) -> Result<(), String> {
    let mut plain = Plain::new(venue, addresses, DELETE_PATIENCE);
    for queue in venue.queues.iter().chain(own) {
        let path = format!("/v1/queues/{queue}");
        let mut tries = 0;
        loop {
            let answer = plain.ask(0, |speaking, out| speaking.plain("DELETE", &path, out));
            tries += 1;
            if let Answer::Reply(204 | 404, _) = answer {
                break;
            }
            if tries == DELETE_TRIES * addresses.len() {
                return Err(format!("queues {}* are left: {}", venue.prefix, said(&plain, &answer, queue)));
            }
        }
    }
    Ok(())
}

fn go_on(stop: &AtomicBool) -> Result<(), LoadError> {
    if stop.load(Ordering::Relaxed) { Err(LoadError::Stopped) } else { Ok(()) }
}

/// What became of a request that had to succeed.
fn said(plain: &Plain<'_>, answer: &Answer, what: &str) -> String {
    match answer {
        Answer::Reply(status, body) => {
            format!("{what}: {} answered with status {status}: {}", plain.host(), excerpt(body))
        }
        Answer::NotAsked(line) => format!("{what}: cannot connect to {line}; is it running?"),
        Answer::Doubt(line) => format!("{what}: {line}"),
    }
}
