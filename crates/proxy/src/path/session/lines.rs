//! Lines of many keys. The session sends them on in parts, each a job, so that neither the line nor its reply must be held as a
//! whole. The replies follow each other without END; the last part ends with it. An error takes the place of END.

use crate::path::command_groups::groups_of_verb;
use crate::path::core::{Arrival, Core};
use crate::path::job::JobId;
use crate::path::order::Access;
use crate::path::session::open_line::{OpenLine, Rest};
use crate::path::session::{Session, Taken};
use records::Outcome;
use wire::{KeyPart, Request, RequestError, Verb, parse_key_line, parse_keys};

/// The most bytes of a line that are dropped after it was refused. Then the connection is closed.
const DROPPED_BYTES_MAX: usize = 8 << 20;

impl Session {
    /// Begins a line of keys that is taken in parts. Returns nothing if it is another line.
    pub(super) fn open_line(&mut self, unread: &[u8], core: &mut Core) -> Option<Taken> {
        let line = parse_key_line(unread)?;
        let (verb, exptime, sequence) = (line.verb, line.exptime, self.take_sequence());
        let is_allowed = self.listener.commands.contain(groups_of_verb(verb));
        if !is_allowed {
            let arrival = self.arrival_of(sequence, verb, false, line.start);
            self.answer_refused(arrival, false, core);
        }
        let rest = if is_allowed { Rest::Taken } else { Rest::Dropped(line.start) };
        self.rare.set_line(Some(OpenLine { verb, exptime, sequence, has_keys: false, rest }));
        Some(Taken::Bytes(line.start))
    }

    /// Takes the next part of the open line.
    pub(super) fn take_part(&mut self, mut line: OpenLine, unread: &[u8], core: &mut Core) -> Taken {
        if line.rest == Rest::Taken && self.rare.get().failed_line == Some(line.sequence) {
            line.rest = Rest::Failed;
        }
        if line.rest != Rest::Taken {
            return self.drop_part(line, unread, core);
        }
        match parse_keys(unread, self.keys_with_room(line.verb, core), &core.settings.wire) {
            KeyPart::Incomplete => Taken::Incomplete,
            KeyPart::Keys { keys, consumed, is_last } => {
                let is_empty = keys.first().is_none();
                if is_empty && !is_last {
                    return Taken::Bytes(consumed);
                }
                if is_empty && !line.has_keys {
                    self.refuse_part(line.sequence, RequestError::WrongWordCount, consumed, core);
                } else {
                    let request = Request::Get { verb: line.verb, exptime: line.exptime, keys };
                    let access = if is_empty { Access::Local } else { self.access_of(&request, false, core) };
                    if !self.may_take(access, core) {
                        return self.block(access, core);
                    }
                    let id = self.submit_part(line.sequence, &request, access, (consumed, is_last), core);
                    let job = core.jobs.get(id);
                    job.is_in_line = line.has_keys || !is_last;
                    // A rate limit has refused it: the rest of the line must not be sent.
                    if job.is_done && job.outcome != Outcome::Answered {
                        line.rest = Rest::Failed;
                    }
                }
                line.has_keys = true;
                self.rare.set_line((!is_last).then_some(line));
                Taken::Bytes(consumed)
            }
            KeyPart::BadKey { consumed, is_last } => {
                self.refuse_part(line.sequence, RequestError::BadKey, consumed, core);
                line.rest = Rest::Dropped(consumed);
                self.rare.set_line((!is_last).then_some(line));
                Taken::Bytes(consumed)
            }
        }
    }

    /// Ends the replies of a line with an error, unless an earlier part fails.
    fn refuse_part(&mut self, sequence: u32, error: RequestError, consumed: usize, core: &mut Core) {
        let id = core.begin(self.arrival_of(sequence, Verb::Invalid, false, consumed));
        let job = core.jobs.get(id);
        (job.outcome, job.is_done) = (Outcome::ClientError, true);
        job.reply.extend_from_slice(error.line());
        self.push(id, core);
    }

    /// Drops the rest of a line that has failed.
    fn drop_part(&mut self, mut line: OpenLine, unread: &[u8], core: &mut Core) -> Taken {
        let end = unread.iter().position(|&byte| byte == b'\n');
        let consumed = end.map_or(unread.len(), |end| end + 1);
        if let Rest::Dropped(bytes) = &mut line.rest {
            *bytes += consumed;
            self.is_ending |= *bytes > DROPPED_BYTES_MAX;
        }
        self.rare.set_line(end.is_none().then_some(line));
        if end.is_some() && line.rest == Rest::Failed {
            let last = core.begin(self.arrival_of(line.sequence, line.verb, true, consumed));
            core.jobs.get(last).is_done = true;
            self.push(last, core);
        }
        Taken::Bytes(consumed)
    }

    fn submit_part(
        &mut self,
        sequence: u32,
        request: &Request<'_>,
        access: Access,
        (consumed, is_last): (usize, bool),
        core: &mut Core,
    ) -> JobId {
        let arrival = self.arrival_of(sequence, request.verb(), false, consumed);
        let arrival = Arrival { is_part: !is_last, is_bulk: access == Access::BulkRead, ..arrival };
        self.note_access(request, access, sequence);
        let id = match request.key() {
            Some(_) => core.submit(arrival, request),
            None => core.answer_end(arrival),
        };
        self.push(id, core);
        id
    }

    /// Removes END from the reply of a part that others follow. Returns whether the reply must be sent: after a failed part it
    /// must not.
    pub(super) fn continue_line(&mut self, id: JobId, core: &mut Core) -> bool {
        let job = core.jobs.get(id);
        if self.rare.get().failed_line == Some(job.sequence) {
            return false;
        }
        if job.is_part {
            match without_end(&job.reply) {
                Some(length) => job.reply.truncate(length),
                None => self.rare.change().failed_line = Some(job.sequence),
            }
        }
        true
    }
}

/// The length of the values in a reply that ends with END; none if it ends with an error.
fn without_end(reply: &[u8]) -> Option<usize> {
    let values = reply.strip_suffix(b"END\r\n").or_else(|| reply.strip_suffix(b"END\n"))?;
    (values.is_empty() || values.ends_with(b"\n")).then_some(values.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_line_of_a_reply_is_its_end() {
        assert_eq!(without_end(b"END\r\n"), Some(0));
        assert_eq!(without_end(b"VALUE a 0 3\r\nEND\r\nEND\r\n"), Some(18));
        assert_eq!(without_end(b"VALUE a 0 1\r\nx\r\nSERVER_ERROR END\r\n"), None);
        assert_eq!(without_end(b"SERVER_ERROR no\r\n"), None);
    }
}
