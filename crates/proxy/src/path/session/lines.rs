//! Lines of many keys. The session sends them on in parts, each a job, so that neither the line nor its reply must be held as a
//! whole. `line_reply` makes one reply of theirs.

use crate::path::command_groups::groups_of_verb;
use crate::path::core::{Arrival, Core};
use crate::path::job::JobId;
use crate::path::order::Access;
use crate::path::session::line_reply::LineReply;
use crate::path::session::open_line::{OpenLine, Rest};
use crate::path::session::{Session, Taken};
use records::Outcome;
use wire::{KeyPart, Keys, Request, RequestError, Verb, parse_key_line, parse_keys};

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
        self.rare.set_line(Some(OpenLine { verb, exptime, sequence, has_keys: false, admitted: 0, rest }));
        Some(Taken::Bytes(line.start))
    }

    /// Takes the next part of the open line.
    pub(super) fn take_part(&mut self, mut line: OpenLine, unread: &[u8], core: &mut Core) -> Taken {
        if line.rest == Rest::Taken && self.rare.is_over(line.sequence) {
            line.rest = Rest::Failed;
        }
        if line.rest != Rest::Taken {
            return self.drop_part(line, unread, core);
        }
        let mut keys_max = self.keys_with_room(line.verb, core);
        if core.rate_limits.is_some() {
            if line.admitted == 0 {
                match self.admit(line, unread, core) {
                    Admitted::Keys(count) => line.admitted = count,
                    Admitted::Incomplete => return Taken::Incomplete,
                    Admitted::Refused => return Taken::Bytes(0),
                }
                self.rare.set_line(Some(line));
            }
            // Without a key, spaces or the end of the line follow.
            keys_max = keys_max.min(line.admitted.max(1));
        }
        match parse_keys(unread, keys_max, &core.settings.wire) {
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
                    core.jobs.get(id).is_in_line = line.has_keys || !is_last;
                    if line.admitted > 0 {
                        line.admitted -= keys.count();
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

    /// Lets the rate limits decide about the rest of a line, so that they admit or refuse it as a whole. Of a long one, about its next
    /// keys only, because the rest need not be in memory.
    fn admit(&mut self, mut line: OpenLine, unread: &[u8], core: &mut Core) -> Admitted {
        let Some(keys) = next_keys(unread, core.settings.wire.line_bytes, core.jobs.clients.is_full(0)) else {
            return Admitted::Incomplete;
        };
        let count = keys.count();
        if count == 0 {
            return Admitted::Keys(0);
        }
        let request = Request::Get { verb: line.verb, exptime: line.exptime, keys };
        match core.refusal(&request, self.listener.pool()) {
            None => Admitted::Keys(count),
            Some(refusal) => {
                let arrival = Arrival { is_part: true, ..self.arrival_of(line.sequence, line.verb, false, 0) };
                self.end_with_error(arrival, Outcome::Overloaded, &refusal, core);
                line.rest = Rest::Failed;
                self.rare.set_line(Some(line));
                Admitted::Refused
            }
        }
    }

    /// Ends the replies of a line with an error, unless an earlier part has ended them.
    fn refuse_part(&mut self, sequence: u32, error: RequestError, consumed: usize, core: &mut Core) {
        let arrival = self.arrival_of(sequence, Verb::Invalid, false, consumed);
        self.end_with_error(arrival, Outcome::ClientError, error.line(), core);
    }

    fn end_with_error(&mut self, arrival: Arrival, outcome: Outcome, line: &[u8], core: &mut Core) {
        let id = core.begin(arrival);
        let job = core.jobs.get(id);
        (job.outcome, job.is_done, job.is_refusal) = (outcome, true, true);
        job.reply.extend_from_slice(line);
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
            Some(_) => core.submit_part(arrival, request),
            None => core.answer_end(arrival),
        };
        self.push(id, core);
        id
    }

    /// Makes the reply of a part what the client receives for it, after the parts before. The last part ends the line.
    pub(super) fn continue_line(&mut self, id: JobId, core: &mut Core) {
        let failure = core.settings.part_failure;
        let job = core.jobs.get(id);
        let reply = self.rare.change().reply.get_or_insert_with(|| LineReply::new(job.sequence, failure));
        reply.add(job, failure);
        if !job.is_part {
            self.send_held(core);
            self.rare.change().reply = None;
        }
    }

    /// Holds the values of a part, if an error of a later part must be able to take their place. Returns whether it does.
    pub(super) fn hold(&mut self, id: JobId, core: &mut Core) -> bool {
        let Some(reply) = self.rare.reply_mut() else { return false };
        if !reply.hold(&mut core.jobs.get(id).reply) {
            return false;
        }
        // The other half is for the next parts. A full proxy needs the bytes for others.
        if reply.held_bytes() > core.settings.client_buffer_bytes as usize / 2 || core.jobs.clients.is_full(0) {
            self.send_held(core);
        }
        true
    }

    /// Sends the values that are held, and holds none of this line any more.
    pub(super) fn send_held(&mut self, core: &Core) {
        let Some(held) = self.rare.reply_mut().and_then(LineReply::take_held) else { return };
        for reply in held.replies {
            core.journal.counters.replied_bytes.add(reply.len() as u64);
            self.connection.outbox.append_owned(reply);
        }
    }
}

/// What the rate limits have decided.
enum Admitted {
    /// The next keys of the line, of this number, are requested.
    Keys(usize),
    /// Nothing, until more has arrived.
    Incomplete,
    /// The line ends with an error.
    Refused,
}

/// The keys of a line up to its end; of a line of more than `bytes_max` bytes, the first ones. None if they have not all arrived, unless
/// the rest must not be waited for.
fn next_keys(unread: &[u8], bytes_max: usize, must_not_wait: bool) -> Option<Keys<'_>> {
    // Any number of spaces may come before the first key, which `parse_keys` finds behind them.
    let spaces = unread.iter().take_while(|&&byte| byte == b' ').count();
    let first = &unread[spaces..unread.len().min(spaces + bytes_max)];
    if let Some(end) = first.iter().position(|&byte| byte == b'\n') {
        let line = &first[..end];
        return Some(Keys::new(line.strip_suffix(b"\r").unwrap_or(line)));
    }
    // Spaces alone are taken at once, however many there are.
    let is_blank = spaces > 0 && first.is_empty();
    if first.len() < bytes_max && !must_not_wait && !is_blank {
        return None;
    }
    // The last key may go on.
    let end = first.iter().rposition(|&byte| byte == b' ');
    Some(Keys::new(&first[..end.unwrap_or(0)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_limits_decide_about_whole_lines_and_pieces_of_long_ones() {
        let count = |text: &str, full| next_keys(text.as_bytes(), 10, full).map(|keys| keys.count());
        assert_eq!(
            ["a b\r\nc d", " a  b \n", "\r\n", ""].map(|text| count(text, true)),
            [Some(2), Some(2), Some(0), Some(0)]
        );
        assert_eq!(["a b c", "a b c d e", "a b\r"].map(|text| count(text, false)), [None; 3]);
        assert_eq!(["a b c", "a b c "].map(|text| count(text, true)), [Some(2), Some(3)]);
        assert_eq!(
            ["a b c d ef", "a b c d e f", "aaaaaaaaaaaa"].map(|text| count(text, false)),
            [Some(4), Some(5), Some(0)]
        );
        // The keys may follow behind more spaces than a piece has bytes.
        assert_eq!(
            ["            a b\n", "            a", "            "].map(|text| count(text, true)),
            [Some(2), Some(0), Some(0)]
        );
        assert_eq!(["            a", "            "].map(|text| count(text, false)), [None, Some(0)]);
    }
}
