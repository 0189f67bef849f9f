//! Commands that need a value which only the warm-up pool may have. On a miss, the value is fetched from the warm-up pool, stored on
//! the primary with `add`, and the command is sent again. A command that creates a missing value fetches first.
//!
//! ```text
//!   command ──miss──▶ fetch ──found──▶ fill ──▶ command again        add, ms ME, ma N, mg N:  fetch ──found──▶ fill ──▶ command
//!                       └──missing──▶ the miss is the reply                                     └──missing──▶ command
//! ```

use crate::path::job::{Candidate, Job, NextStep, WarmUpStep};
use crate::path::leg_request::own_limits;
use crate::path::meta;
use crate::replication::replicas::{Replicas, is_answered, may_linger};
use clock::Nanos;
use wire::{
    Limits, Meta, MetaFlags, ParsedReply, ParsedRequest, Reply, Request, Verb, encode_get, parse_reply, parse_request,
};

/// The longest relative expiry time. memcached reads a larger number as a Unix time.
const RELATIVE_MAX: u32 = 60 * 60 * 24 * 30;

/// Whether a write keeps the value and changes only its expiry time or state. In a pool with a warm-up pool it must find the value.
pub(crate) fn keeps_value(request: &Request<'_>) -> bool {
    match request {
        Request::Meta(meta) => meta.verb == Verb::Md && meta.flags.has(b'I'),
        _ => request.verb() == Verb::Touch,
    }
}

/// Whether a command creates the value if it is missing, without overwriting it if not.
fn creates(request: &Request<'_>) -> bool {
    match request {
        Request::Meta(meta) => match meta.verb {
            // With `N`, newer versions of memcached let `append` and `prepend` create the value.
            Verb::Ms => {
                meta.flags.has(b'N') || matches!(meta.flags.argument(b'M'), Some(b"E" | b"e" | b"add" | b"ADD"))
            }
            Verb::Ma | Verb::Mg => meta.flags.has(b'N'),
            _ => false,
        },
        _ => request.verb() == Verb::Add,
    }
}

impl Replicas {
    /// Prepares a command that needs the value: it may have to be fetched from the warm-up pool. Returns whether that is the
    /// first step, so that the command itself must not be sent yet. The job has kept the request.
    pub(crate) fn begin_warm_up(&self, job: &mut Job, pool: usize, request: &Request<'_>) -> bool {
        if self.policies[pool].warm_up.is_none() || job.returned_key.is_some() {
            return false;
        }
        job.warm_up = WarmUpStep::IfMissing;
        creates(request) && self.fetch(job, pool)
    }

    /// The step that follows when a leg of such a command has answered; none if the reply is that of the command itself.
    pub(crate) fn after_warm_up(&self, job: &mut Job, pool: usize, limits: &Limits, now: Nanos) -> Option<NextStep> {
        let last = job.legs().len() - 1;
        match job.warm_up {
            WarmUpStep::None => None,
            WarmUpStep::IfMissing => {
                let leg = &job.legs()[last];
                let is_missing = is_answered(leg) && is_missing(job.verb, leg.hits, &leg.reply);
                (is_missing && self.fetch(job, pool)).then_some(NextStep::SendLegs)
            }
            WarmUpStep::Fetching => {
                if is_answered(&job.legs()[last]) && self.fill(job, pool, limits) {
                    return Some(NextStep::SendLegs);
                }
                end_warm_up(job);
                // Without a miss before, the command was not sent yet.
                (last == 0).then(|| self.send_command(job, pool))
            }
            WarmUpStep::Filling => {
                end_warm_up(job);
                let leg = &job.legs()[last];
                if is_answered(leg) {
                    let is_stored = leg.reply == b"STORED\r\n" || leg.reply.starts_with(b"HD");
                    self.counters.pools[pool].warm_up_fills.add(u64::from(is_stored));
                    return Some(self.send_command(job, pool));
                }
                if may_linger(leg) {
                    self.invalidate_failed_leg(leg, job.key(), now);
                }
                job.first_counted = last as u16;
                None
            }
        }
    }

    /// Adds a leg that fetches the value, unless it must not be read there. The command is deferred.
    fn fetch(&self, job: &mut Job, pool: usize) -> bool {
        let Some(backend) = self.warm_up_source(pool, job.key()) else { return false };
        let deferred = &mut job.rare.change().deferred;
        deferred.clear();
        std::mem::swap(&mut job.kept, deferred);
        match parse_request(&job.rare.get().deferred, &own_limits()) {
            ParsedRequest::Request { request: Request::Meta(meta), .. } => {
                let flags = MetaFlags::new(if meta.is_base64() { b"v f b" } else { b"v f" });
                Request::Meta(Meta { verb: Verb::Mg, flags, value: b"", left_out: b"", ..meta }).encode(&mut job.kept);
            }
            _ => encode_get(Verb::Get, 0, std::iter::once(&job.rare.get().key_bytes[..]), &mut job.kept),
        }
        job.warm_up = WarmUpStep::Fetching;
        let leg = job.add_leg(backend);
        // A read that fails has changed nothing, so it invalidates nothing.
        (job.leg(leg).candidate, job.leg(leg).is_invalidated) = (Candidate::WarmUp, true);
        true
    }

    /// Encodes the request that stores the fetched value, and adds its leg. Returns false if there is no value.
    fn fill(&self, job: &mut Job, pool: usize, limits: &Limits) -> bool {
        let Some((_, seconds)) = self.policies[pool].warm_up else { return false };
        let seconds = seconds.min(RELATIVE_MAX);
        let mut request = job.take_scratch();
        let fetched = job.legs().last().map_or(&b""[..], |leg| &leg.reply);
        match (parse_reply(fetched, limits), parse_request(&job.rare.get().deferred, &own_limits())) {
            (ParsedReply::Reply { reply: Reply::Value(value), .. }, _) => {
                let (key, flags, value) = (value.key, value.flags, value.data);
                let exptime = i64::from(seconds);
                Request::Store { verb: Verb::Add, key, flags, exptime, value, cas: 0, noreply: false }
                    .encode(&mut request);
            }
            (
                ParsedReply::Reply { reply: Reply::MetaValue { flags, data }, .. },
                ParsedRequest::Request { request: Request::Meta(meta), .. },
            ) => {
                let client_flags = MetaFlags::new(flags).argument(b'f').unwrap_or(b"0");
                let mut flags = format!("ME T{seconds} F{}", String::from_utf8_lossy(client_flags));
                flags.push_str(if meta.is_base64() { " b" } else { "" });
                let flags = MetaFlags::new(flags.as_bytes());
                Request::Meta(Meta { verb: Verb::Ms, flags, value: data, left_out: b"", ..meta }).encode(&mut request);
            }
            _ => {}
        }
        let has_value = !request.is_empty();
        if has_value {
            self.counters.pools[pool].warm_up_hits.add(1);
            std::mem::swap(&mut job.kept, &mut request);
            job.warm_up = WarmUpStep::Filling;
            let leg = self.add_primary(job, pool);
            job.leg(leg).is_invalidated = true;
        }
        job.return_scratch(request);
        has_value
    }

    /// Adds the leg of the command itself, whose reply counts.
    fn send_command(&self, job: &mut Job, pool: usize) -> NextStep {
        job.first_counted = self.add_primary(job, pool);
        NextStep::SendLegs
    }

    fn add_primary(&self, job: &mut Job, pool: usize) -> u16 {
        let choice = self.primary(pool, job.key());
        let leg = job.add_leg(choice.backend);
        job.leg(leg).is_withheld = choice.is_withheld;
        leg
    }
}

/// Makes the job's request the command again.
fn end_warm_up(job: &mut Job) {
    job.warm_up = WarmUpStep::None;
    job.first_error = None;
    std::mem::swap(&mut job.kept, &mut job.rare.change().deferred);
}

/// Whether a reply reports that the key is missing.
fn is_missing(verb: Verb, hits: u16, reply: &[u8]) -> bool {
    match verb {
        Verb::Gets | Verb::Gat | Verb::Gats => hits == 0,
        Verb::Ms => reply.starts_with(b"NS") || reply.starts_with(b"NF"),
        Verb::Mg => reply.starts_with(b"EN"),
        Verb::Md | Verb::Ma => reply.starts_with(b"NF"),
        _ => reply == b"NOT_FOUND\r\n" || reply == b"NOT_STORED\r\n",
    }
}

/// Whether a command that reads on the primary has set the expiry time of the value it has read.
pub(crate) fn has_touched(job: &Job, hits: u16, reply: &[u8]) -> bool {
    match parse_request(&job.kept, &own_limits()) {
        ParsedRequest::Request { request: Request::Meta(meta), .. } => {
            meta::touches(&meta) && !reply.starts_with(b"EN")
        }
        _ => matches!(job.verb, Verb::Gat | Verb::Gats) && hits > 0,
    }
}
