//! Invalid requests, and values that are refused: the session answers them itself.

use crate::path::core::Core;
use crate::path::order::Access;
use crate::path::session::{Session, Taken};
use records::Outcome;
use wire::{
    FirstBytes, Limits, Meta, MetaFlags, ParsedRequest, Request, RequestError, Verb, first_bytes, parse_request,
};

/// The text of the refusal of a client that speaks the binary protocol.
const NOT_BINARY: &str = "the binary protocol is not supported; configure the client for the text protocol";
/// The smallest request that is refused while it arrives, because the proxy holds as many bytes as it may.
const LARGE_BYTES: usize = 16 * 1024;

impl Session {
    /// Answers an invalid request. If a value must be deleted for it, the request waits like a write.
    pub(super) fn refuse_request(&mut self, error: &RequestError, line: &[u8], swallow: u64, core: &mut Core) -> Taken {
        if deletion(error, line).is_some() && !self.may_take(Access::Write, core) {
            return self.block(Access::Write, core);
        }
        self.refuse(error, line, core);
        if swallow > 0 {
            self.rare.change().swallow = swallow;
        }
        Taken::Bytes(line.len())
    }

    /// Refuses a value that is still arriving if the proxy holds as many bytes as it may.
    pub(super) fn refuse_large_value(&mut self, unread: &[u8], core: &mut Core) -> Taken {
        if unread.len() < LARGE_BYTES || !core.jobs.clients.is_full(0) {
            return Taken::Incomplete;
        }
        let limits = Limits { value_bytes: 0, ..core.settings.wire.clone() };
        let ParsedRequest::Invalid { error, consumed, swallow } = parse_request(unread, &limits) else {
            return Taken::Incomplete;
        };
        if error.reason() != RequestError::ValueTooLarge {
            return Taken::Incomplete;
        }
        let out_of_memory = &RequestError::OutOfMemory;
        let error = if error.noreply() { RequestError::Noreply(out_of_memory) } else { *out_of_memory };
        let taken = self.refuse_request(&error, &unread[..consumed], swallow, core);
        core.journal.counters.values_refused_memory.add(u64::from(taken != Taken::Blocked));
        taken
    }

    /// Refuses a client that speaks the binary protocol, in that protocol. Returns nothing if it speaks the text protocol.
    pub(super) fn refuse_binary(&mut self, unread: &[u8], core: &mut Core) -> Option<Taken> {
        let refusal = match first_bytes(unread, NOT_BINARY) {
            FirstBytes::Text => return None,
            FirstBytes::Incomplete => return Some(Taken::Incomplete),
            FirstBytes::Binary { refusal } => refusal,
        };
        core.journal.counters.clients_refused_binary.add(1);
        let id = core.begin(self.arrival(Verb::Invalid, false, unread.len()));
        let job = core.jobs.get(id);
        (job.outcome, job.is_done) = (Outcome::ClientError, true);
        job.reply.extend_from_slice(&refusal);
        self.push(id, core);
        self.is_ending = true;
        Some(Taken::Bytes(unread.len()))
    }

    /// Answers an invalid request with its error line.
    pub(super) fn refuse(&mut self, error: &RequestError, line: &[u8], core: &mut Core) {
        let id = core.begin(self.arrival(Verb::Invalid, error.noreply(), line.len()));
        let job = core.jobs.get(id);
        job.outcome = Outcome::ClientError;
        if let Some(deletion) = deletion(error, line) {
            job.reply_override = Some(error.line());
            let sequence = job.sequence;
            self.note_access(&deletion, Access::Write, sequence);
            core.send(id, &deletion);
            return self.push(id, core);
        }
        job.reply.extend_from_slice(error.line());
        job.is_done = true;
        self.push(id, core);
    }
}

/// The delete that must follow a refused value, if the command was a `set` (or an `ms` that sets) with a value that is too large.
/// memcached deletes the old value when it refuses a new one, so that no client reads a value that was meant to be replaced; a
/// proxy that refuses the new value itself must therefore send a delete. `line` is the command without its value.
fn deletion<'l>(error: &RequestError, line: &'l [u8]) -> Option<Request<'l>> {
    if !matches!(error.reason(), RequestError::ValueTooLarge | RequestError::OutOfMemory) {
        return None;
    }
    let mut words = line.split(|&byte| matches!(byte, b' ' | b'\r' | b'\n')).filter(|word| !word.is_empty());
    let (command, key) = (words.next()?, words.next()?);
    match command {
        b"set" => Some(Request::Delete { key, noreply: false }),
        b"ms" => {
            let sets = |word: &[u8]| !word.starts_with(b"M") || word.eq_ignore_ascii_case(b"MS");
            let mut is_base64 = false;
            for flag in words.skip(1) {
                is_base64 |= flag == b"b";
                if !sets(flag) {
                    return None;
                }
            }
            let flags = MetaFlags::new(if is_base64 { b"b" } else { b"" });
            Some(Request::Meta(Meta { verb: Verb::Md, key, flags, left_out: b"", value: b"" }))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_set_deletes_the_old_value() {
        let delete = |line: &[u8]| {
            let mut bytes = Vec::new();
            deletion(&RequestError::ValueTooLarge, line)?.encode(&mut bytes);
            Some(String::from_utf8(bytes).unwrap())
        };
        assert_eq!(delete(b"set k 0 0 99999999\r\n").as_deref(), Some("delete k\r\n"));
        assert_eq!(delete(b"set  k 0 0 99999999 noreply\r\n").as_deref(), Some("delete k\r\n"));
        assert_eq!(delete(b"ms k 99999999 T0 q\r\n").as_deref(), Some("md k\r\n"));
        assert_eq!(delete(b"ms a2s= 99999999 MS b\n").as_deref(), Some("md a2s= b\r\n"));
        for line in
            ["add k 0 0 99999999\r\n", "append k 0 0 99999999\r\n", "ms k 99999999 MA\r\n", "ms k 99999999 ME b\r\n"]
        {
            assert_eq!(delete(line.as_bytes()), None, "{line}");
        }
        assert_eq!(deletion(&RequestError::BadKey, b"set k 0 0 1\r\n"), None);
    }
}
