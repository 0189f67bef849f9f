//! Commands that the client's listener does not allow: the session answers them itself, and drops their values.

use crate::config::{CommandGroup, Commands};
use crate::path::command_groups::{groups_of, groups_of_verb};
use crate::path::core::{Arrival, Core};
use crate::path::session::{Session, Taken};
use records::Outcome;
use wire::{Limits, ParsedRequest, Request, RequestError, Verb, parse_request};

const WRITE: Commands = Commands::NONE.with(CommandGroup::Write);

impl Session {
    /// Refuses a request that the listener does not allow. Returns nothing if it allows it.
    pub(super) fn refuse_command(&mut self, request: &Request<'_>, consumed: usize, core: &mut Core) -> Option<Taken> {
        if self.listener.commands.contain(groups_of(request)) {
            return None;
        }
        let verb = request.verb();
        let are_flags_refused = self.listener.commands.contain(groups_of_verb(verb));
        let arrival = self.arrival(verb, request.noreply(), consumed);
        self.answer_refused(arrival, are_flags_refused, core);
        Some(Taken::Bytes(consumed))
    }

    /// Refuses a value that is still arriving, so that it is dropped and not held.
    pub(super) fn refuse_arriving(&mut self, unread: &[u8], core: &mut Core) -> Option<Taken> {
        if self.listener.commands.contain(WRITE) {
            return None;
        }
        let limits = Limits { value_bytes: 0, ..core.settings.wire.clone() };
        let ParsedRequest::Invalid { error, consumed, swallow } = parse_request(unread, &limits) else { return None };
        self.refuse_value(&error, &unread[..consumed], swallow, core)
    }

    /// Refuses a value that is too large, if the listener does not allow the command. (Otherwise it would be deleted.)
    pub(super) fn refuse_value(
        &mut self,
        error: &RequestError,
        line: &[u8],
        swallow: u64,
        core: &mut Core,
    ) -> Option<Taken> {
        if error.reason() != RequestError::ValueTooLarge || self.listener.commands.contain(WRITE) {
            return None;
        }
        let mut words = line.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
        let verb = words.next().and_then(Verb::of).unwrap_or_default();
        let arrival = self.arrival(verb, error.noreply(), line.len());
        self.answer_refused(arrival, false, core);
        if swallow > 0 {
            self.rare.change().swallow = swallow;
        }
        Some(Taken::Bytes(line.len()))
    }

    /// Answers a request that the listener does not allow, and counts it.
    pub(super) fn answer_refused(&mut self, arrival: Arrival, are_flags_refused: bool, core: &mut Core) {
        let name = arrival.verb.name();
        let what = if are_flags_refused { " with these flags" } else { "" };
        let id = core.begin(arrival);
        let job = core.jobs.get(id);
        (job.outcome, job.is_done) = (Outcome::ClientError, true);
        for part in ["CLIENT_ERROR ", name, what, " is not allowed on this listener\r\n"] {
            job.reply.extend_from_slice(part.as_bytes());
        }
        core.journal.counters.commands_refused.add(1);
        self.push(id, core);
    }
}
