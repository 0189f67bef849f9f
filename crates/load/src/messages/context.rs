//! What all clients of a run with messages share: names, sizes, tokens, and the ledger.

use super::body::{self, ANYONE};
use super::leases::LeaseRules;
use super::ledger::Ledger;
use crate::config::Config;
use crate::config::messages::MessagesConfig;
use rand::Rng;
use std::fmt::Write;
use variates::Variate;

/// The largest body that is drawn.
const DRAWN_BYTES_MAX: usize = 1 << 20;

/// The shared state of a run with messages.
#[derive(Debug)]
pub(crate) struct MessagesContext {
    pub(crate) config: MessagesConfig,
    /// Identifies the run in every body, and by default in the names of queues.
    pub(crate) run: u64,
    pub(crate) prefix: String,
    pub(crate) queues: Vec<String>,
    /// HOST:PORT of each service.
    pub(crate) hosts: Vec<String>,
    pub(crate) clients: usize,
    pub(crate) threads: usize,
    pub(crate) seed: u64,
    sizes: Variate,
    fixed_bytes: Option<usize>,
    /// Present if messages are verified.
    pub(crate) ledger: Option<Ledger>,
}

impl MessagesContext {
    /// The context of a run that started at this time; none for a run without messages.
    pub(crate) fn new(config: &Config, now_unix_ns: u64) -> Option<MessagesContext> {
        let messages = config.messages.clone()?;
        // Generators that start in the same nanosecond have different seeds.
        let run = now_unix_ns ^ config.seed.rotate_left(48);
        let prefix = messages.queue_prefix.clone().unwrap_or_else(|| format!("load-{run:016x}-"));
        Some(MessagesContext {
            run,
            queues: (0..messages.queues).map(|queue| format!("{prefix}{queue}")).collect(),
            prefix,
            hosts: config.servers.clone(),
            clients: config.clients,
            threads: config.threads,
            seed: config.seed,
            fixed_bytes: config.data_size.fixed_value().map(|bytes| bytes.max(0.0).round() as usize),
            sizes: config.data_size.clone(),
            ledger: messages.verify.then(|| {
                let rules = LeaseRules {
                    lease: messages.lease,
                    redelivery: messages.redelivery_time,
                    attempts: messages.attempts,
                    reply_timeout: config.reply_timeout,
                };
                Ledger::new(run, config.clients, messages.queues, rules, messages.mix.is_leasing())
            }),
            config: messages,
        })
    }

    /// The sender number of the prefill.
    pub(crate) fn prefiller(&self) -> u32 {
        self.clients as u32
    }

    /// Whether the messages of a sender in a queue must arrive in order. docs/messages.md promises that for a single
    /// service, unless fetches with and without a sender remove messages at the same time.
    pub(crate) fn is_order_promised(&self) -> bool {
        self.hosts.len() == 1 && !self.config.any_order && !self.config.mix.is_fetching_in_two_ways()
    }

    /// Draws the size of a body.
    pub(crate) fn size(&self, random: &mut impl Rng) -> usize {
        let smallest = if self.ledger.is_some() { body::BYTES_MIN } else { 0 };
        self.fixed_bytes.unwrap_or_else(|| self.sizes.draw_size(random, smallest, DRAWN_BYTES_MAX))
    }

    /// Starts a send: returns the label of the message, with its number.
    pub(crate) fn issue(&self, sender: u32, queue: u32, receiver: u32) -> body::Label {
        let number = self.ledger.as_ref().map_or(0, |ledger| ledger.issue(sender, queue, receiver));
        body::Label { run: self.run, sender, queue, receiver, number }
    }

    /// The token of a client.
    pub(crate) fn token(&self, client: u32) -> Option<&str> {
        let tokens = &self.config.tokens;
        tokens.get(client as usize % tokens.len().max(1)).map(String::as_str)
    }

    /// The name of a client in paths and headers.
    pub(crate) fn name(&self, client: u32) -> String {
        let mut name = String::new();
        if client != ANYONE {
            let _ = write!(name, "c{client}");
        }
        name
    }

    /// The name of the dead-letter queue, if there is one.
    pub(crate) fn dead_letter_queue(&self) -> Option<String> {
        self.config.attempts.map(|_| format!("{}dead", self.prefix))
    }

    /// The name of a queue that a client creates and deletes during the run.
    pub(crate) fn scratch(&self, client: u32, number: u32) -> String {
        format!("{}own-{client}-{number}", self.prefix)
    }
}
