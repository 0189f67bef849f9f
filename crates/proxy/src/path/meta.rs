//! The special treatment of meta commands: which backends receive what, and which replies a quiet command drops
//! (docs/decisions/0012-quiet-meta-commands.md).

use crate::path::job::{Job, LegCommand, ReturnedKey};
use records::Outcome;
use wire::{KEY_BYTES_MAXIMUM, Meta, MetaFlags, Request, Verb, encode_base64, is_hidden_when_quiet};

/// Flags for which the reply to `mg` has one word each when the key is found.
const RETURNED_WHEN_FOUND: &[u8] = b"stcflhO";
/// The same when the key is not found, apart from the key itself.
const RETURNED_WHEN_MISSING: &[u8] = b"O";
/// Flags with which `mg` only reads. It does more with `T` (touch), `N` (create) or `R` (win the right to recache), and with `h`
/// and `l` it returns whether and when the value was last read.
const ONLY_READ: &[u8] = b"bkvqOstfcu";
/// Flags of an `md` that make it more or less than a deletion, or quiet.
const NOT_IN_DELETE: &[u8] = b"qITCEx";

/// Records on the job what `finish_reply` needs to know of a meta command.
pub(crate) fn prepare(job: &mut Job, meta: &Meta<'_>) {
    job.is_quiet_meta = meta.is_quiet();
    if !must_return_key(meta) {
        return;
    }
    let mut decoded = [0; KEY_BYTES_MAXIMUM];
    let returned = &mut job.rare.change().key_bytes;
    returned.extend_from_slice(b" k");
    encode_base64(meta.stored_key(&mut decoded), returned);
    returned.extend_from_slice(b" b");
    let before = || meta.flags.iter().take_while(|flag| flag[0] != b'k');
    let count = |returned: &[u8]| before().filter(|flag| returned.contains(&flag[0])).count() as u8;
    let (flags_before_in_hit, flags_before_in_miss) = (count(RETURNED_WHEN_FOUND), count(RETURNED_WHEN_MISSING));
    job.returned_key = Some(ReturnedKey { flags_before_in_hit, flags_before_in_miss });
}

/// Whether the proxy inserts the key into the reply itself, because the backend might return it with a line end in it.
/// A command with two `k` flags is an error, which the backend reports.
fn must_return_key(meta: &Meta<'_>) -> bool {
    meta.verb == Verb::Mg && meta.flags.count_of(b'k') == 1 && meta.key_holds_line_end()
}

/// Whether the command goes to the key's primary only. A read that touches, creates or wins the right to recache changes only
/// the primary.
pub(crate) fn reads_primary(verb: Verb) -> bool {
    matches!(verb, Verb::Mg | Verb::Me)
}

/// Whether the effect of a write depends on the stored value. Such a write runs on the primary, and the other replicas are deleted.
pub(crate) fn depends_on_content(meta: &Meta<'_>) -> bool {
    match meta.verb {
        Verb::Ma => true,
        Verb::Ms => meta.flags.has(b'C') || !matches!(meta.flags.argument(b'M'), None | Some(b"S" | b"s")),
        Verb::Md => meta.flags.has(b'C'),
        _ => false,
    }
}

/// Whether this is an `mg` that changes nothing, and whose reply does not depend on other reads. Such reads may overtake each
/// other. Flags that are unknown here are assumed to change something.
pub(crate) fn only_reads(meta: &Meta<'_>) -> bool {
    meta.verb == Verb::Mg && meta.flags.iter().all(|flag| ONLY_READ.contains(&flag[0]))
}

/// Whether a write does not depend on the stored value, and leaves nothing of it.
pub(crate) fn overwrites(meta: &Meta<'_>) -> bool {
    matches!(meta.verb, Verb::Ms | Verb::Md)
        && !depends_on_content(meta)
        && !(meta.verb == Verb::Md && meta.flags.has(b'I'))
}

/// Whether the reply to an `mg` tells its client to replace a stale value. The server returns `W` to one client only, so such a
/// reply cannot be requested again.
pub(crate) fn wins(reply: &[u8]) -> bool {
    let line = reply.split(|&byte| byte == b'\r').next().unwrap_or_default();
    line.split(|&byte| byte == b' ').skip(1).any(|word| word == b"W")
}

/// Whether this is an `mg` that sets the expiry time of the value.
pub(crate) fn touches(meta: &Meta<'_>) -> bool {
    meta.verb == Verb::Mg && meta.flags.has(b'T')
}

/// Whether another replica than the primary may answer: the command only reads, and does not return the cas token, which is valid
/// on one server only.
pub(crate) fn may_read_replicas(meta: &Meta<'_>) -> bool {
    only_reads(meta) && !meta.flags.has(b'c')
}

/// The request for a leg with this command. The proxy never forwards `q`, so that every request has a reply.
pub(crate) fn leg_request<'a>(meta: &Meta<'a>, command: LegCommand) -> Request<'a> {
    if command == LegCommand::Delete && meta.verb == Verb::Md {
        // Its reply can be the client's, so it returns what the client wants returned.
        return Request::Meta(Meta { left_out: NOT_IN_DELETE, ..*meta });
    }
    if command == LegCommand::Delete {
        let flags = MetaFlags::new(if meta.is_base64() { b"b" } else { b"" });
        return Request::Meta(Meta { verb: Verb::Md, key: meta.key, flags, left_out: b"", value: b"" });
    }
    if must_return_key(meta) {
        return Request::Meta(Meta { left_out: b"qk", ..*meta });
    }
    Request::Meta(*meta).without_noreply().into_owned()
}

/// The flags of the same command with expiry times reduced by `cap`: `T` sets the expiry time, and `N` that of a created value.
pub(crate) fn capped_flags(meta: &Meta<'_>, cap: impl Fn(i64) -> i64) -> Vec<u8> {
    let mut capped = Vec::new();
    for flag in meta.flags.iter() {
        match (flag[0], number_in(&flag[1..])) {
            (letter @ (b'T' | b'N'), Some(seconds)) => {
                capped.push(letter);
                capped.extend_from_slice(cap(seconds).to_string().as_bytes());
            }
            // The server refuses an argument that is not a number.
            _ => capped.extend_from_slice(flag),
        }
        capped.push(b' ');
    }
    if meta.verb == Verb::Ms && !meta.flags.has(b'T') {
        capped.extend_from_slice(format!("T{}", cap(0)).as_bytes());
    }
    capped
}

/// The number that memcached reads in an argument: white space may precede it, and ends it.
fn number_in(argument: &[u8]) -> Option<i64> {
    let is_space = |byte: &u8| matches!(byte, b'\t'..=b'\r');
    let start = argument.iter().take_while(|byte| is_space(byte)).count();
    let number = argument[start..].split(is_space).next()?;
    std::str::from_utf8(number).ok()?.parse().ok()
}

/// Finishes the reply to a meta command: counts the hit, inserts the key if the backend did not return it, and drops a reply that
/// `q` suppresses. An error is always sent.
pub(crate) fn finish_reply(job: &mut Job) {
    if job.outcome != Outcome::Answered {
        return;
    }
    if job.verb == Verb::Mg {
        job.hits = u16::from(!job.reply.starts_with(b"EN"));
    }
    if let Some(ReturnedKey { flags_before_in_hit, flags_before_in_miss }) = job.returned_key {
        let words = if job.reply.starts_with(b"EN") { flags_before_in_miss } else { flags_before_in_hit };
        let at = end_of_flag(&job.reply, words);
        job.reply.splice(at..at, job.rare.get().key_bytes.iter().copied());
    }
    job.is_quiet |= job.is_quiet_meta && is_hidden_when_quiet(job.verb, &job.reply);
}

/// The offset at which the first `flags` flags of a reply end, or its line if it has fewer.
fn end_of_flag(reply: &[u8], flags: u8) -> usize {
    let words = usize::from(flags) + usize::from(reply.starts_with(b"VA"));
    let line_bytes = reply.windows(2).position(|end| end == b"\r\n").unwrap_or(reply.len());
    let mut spaces = (0..line_bytes).filter(|&at| reply[at] == b' ');
    spaces.nth(words).unwrap_or(line_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta<'a>(verb: Verb, flags: &'a [u8]) -> Meta<'a> {
        let flags = MetaFlags::new(flags);
        Meta { verb, key: b"Zm9v", flags, left_out: b"", value: b"" }
    }

    fn sent(verb: Verb, flags: &[u8], command: LegCommand) -> String {
        let mut bytes = Vec::new();
        leg_request(&meta(verb, flags), command).encode(&mut bytes);
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn writes_that_depend_on_the_stored_value_are_recognised() {
        for flags in ["", "q T30", "MS c", "I"] {
            assert!(!depends_on_content(&meta(Verb::Ms, flags.as_bytes())), "{flags}");
        }
        for flags in ["ME", "MA q", "MP", "MR", "C5", "MS C5", "MX", "M"] {
            assert!(depends_on_content(&meta(Verb::Ms, flags.as_bytes())), "{flags}");
        }
        assert!(depends_on_content(&meta(Verb::Ma, b"")) && depends_on_content(&meta(Verb::Md, b"C1")));
        assert!(!depends_on_content(&meta(Verb::Md, b"I T30")));
    }

    #[test]
    fn quiet_flags_are_never_forwarded() {
        assert_eq!(sent(Verb::Ms, b"b T30 q", LegCommand::AsReceived), "ms Zm9v 0 b T30\r\n\r\n");
        assert_eq!(sent(Verb::Ms, b"b T30 q", LegCommand::Delete), "md Zm9v b\r\n");
        assert_eq!(sent(Verb::Ma, b"b q N0 O1", LegCommand::Delete), "md Zm9v b\r\n");
        assert_eq!(sent(Verb::Ms, b"q ME", LegCommand::Delete), "md Zm9v\r\n");
        assert_eq!(sent(Verb::Md, b"q I k", LegCommand::AsReceived), "md Zm9v I k\r\n");
        assert_eq!(sent(Verb::Md, b"q I k T30 b O7", LegCommand::Delete), "md Zm9v k b O7\r\n");
    }

    #[test]
    fn an_expiry_time_is_capped_in_every_flag() {
        let cap = |seconds: i64| if seconds == 0 { 60 } else { seconds.min(60) };
        for (verb, flags, expected) in [
            (Verb::Ms, "", "T60"),
            (Verb::Ms, "b O1", "b O1 T60"),
            (Verb::Ms, "T0 b", "T60 b "),
            (Verb::Ms, "MA N900 T30", "MA N60 T30 "),
            (Verb::Ms, "T-1", "T-1 "),
            (Verb::Ms, "Tx", "Tx "),
            (Verb::Ma, "N0 D2", "N60 D2 "),
            (Verb::Md, "I T90", "I T60 "),
            // memcached reads 0, 0 and 7, and refuses the others.
            (Verb::Ms, "T0\tx", "T60 "),
            (Verb::Ms, "T\t+0\x0b", "T60 "),
            (Verb::Ma, "N\r7", "N7 "),
            (Verb::Ms, "T", "T "),
            (Verb::Ms, "T\t", "T\t "),
            (Verb::Ms, "T\tx", "T\tx "),
            (Verb::Ms, "T\t5x", "T\t5x "),
            (Verb::Ma, "N99999999999999999999", "N99999999999999999999 "),
        ] {
            let capped = capped_flags(&meta(verb, flags.as_bytes()), cap);
            assert_eq!(String::from_utf8(capped).unwrap(), expected, "{flags}");
        }
    }

    #[test]
    fn the_proxy_inserts_a_key_with_a_line_end() {
        for (flags, reply, expected) in [
            ("b k", "EN\r\n", "EN kYQpi b\r\n"),
            ("b v k", "VA 5\r\nx\r\ny \r\n", "VA 5 kYQpi b\r\nx\r\ny \r\n"),
            ("s O1 k t b", "HD s5 O1 t-1 Z\r\n", "HD s5 O1 kYQpi b t-1 Z\r\n"),
            ("s O1 k t b", "EN O1\r\n", "EN O1 kYQpi b\r\n"),
            ("k O1 b v", "VA 1 O1 W\r\n \r\n", "VA 1 kYQpi b O1 W\r\n \r\n"),
            ("q T30 b s v k", "VA 1 s1\r\n \r\n", "VA 1 s1 kYQpi b\r\n \r\n"),
        ] {
            let meta = Meta { key: b"YQpi", ..meta(Verb::Mg, flags.as_bytes()) };
            let mut encoded = Vec::new();
            leg_request(&meta, LegCommand::AsReceived).encode(&mut encoded);
            assert!(!encoded.windows(2).any(|word| word == b" k" || word == b" q"), "{flags}");
            let mut job = Job::default();
            (job.verb, job.reply) = (Verb::Mg, reply.into());
            prepare(&mut job, &meta);
            finish_reply(&mut job);
            assert_eq!(String::from_utf8_lossy(&job.reply), expected, "{flags}");
        }
        assert_eq!(sent(Verb::Mg, b"b k", LegCommand::AsReceived), "mg Zm9v b k\r\n", "this key has no line end");
        let twice = Meta { key: b"YQpi", ..meta(Verb::Mg, b"b k q k") };
        let mut encoded = Vec::new();
        leg_request(&twice, LegCommand::AsReceived).encode(&mut encoded);
        assert_eq!(encoded, b"mg YQpi b k k\r\n");
    }
}
