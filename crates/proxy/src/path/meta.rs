//! What is particular about meta commands on their way through: who is asked what, and what a quiet one does not hear.
//! docs/decisions/0012-quiet-meta-commands.md says why.

use crate::path::job::{Job, LegCommand, ReturnedKey};
use records::Outcome;
use wire::{KEY_BYTES_MAXIMUM, Meta, MetaFlags, Request, Verb, encode_base64, is_hidden_when_quiet};

/// Flags that `mg` answers with a word each when it finds the key.
const TOLD_WHEN_FOUND: &[u8] = b"stcflhO";
/// And when it does not, besides the key.
const TOLD_WHEN_MISSING: &[u8] = b"O";
/// Flags with which `mg` only reads. Missing are those that touch (`T`), create (`N`) or win the right to renew (`R`), and those
/// that tell whether and when the value was last read (`h`, `l`).
const ONLY_READ: &[u8] = b"bkvqOstfcu";

/// Notes on the job what the way back must know of a meta command.
pub(crate) fn prepare(job: &mut Job, meta: &Meta<'_>) {
    job.is_quiet_meta = meta.is_quiet();
    if !must_tell_key(meta) {
        return;
    }
    let mut decoded = [0; KEY_BYTES_MAXIMUM];
    job.key_bytes.extend_from_slice(b" k");
    encode_base64(meta.stored_key(&mut decoded), &mut job.key_bytes);
    job.key_bytes.extend_from_slice(b" b");
    let before = || meta.flags.iter().take_while(|flag| flag[0] != b'k');
    let behind = |told: &[u8]| before().filter(|flag| told.contains(&flag[0])).count() as u8;
    let (behind_when_found, behind_when_missing) = (behind(TOLD_WHEN_FOUND), behind(TOLD_WHEN_MISSING));
    job.returned_key = Some(ReturnedKey { behind_when_found, behind_when_missing });
}

/// Whether the proxy puts the key into the reply itself, because the backend might tell it as several lines.
/// To ask for it twice is an error, which the backend tells.
fn must_tell_key(meta: &Meta<'_>) -> bool {
    meta.verb == Verb::Mg && meta.flags.count_of(b'k') == 1 && meta.key_holds_line_end()
}

/// Whether the key's primary alone is asked. A read that touches, creates or wins the right to renew changes the primary only.
pub(crate) fn reads_primary(verb: Verb) -> bool {
    matches!(verb, Verb::Mg | Verb::Me)
}

/// Whether the effect depends on what a server holds: such a command runs on the primary, and the copies are deleted.
pub(crate) fn depends_on_content(meta: &Meta<'_>) -> bool {
    match meta.verb {
        Verb::Ma => true,
        Verb::Ms => meta.flags.has(b'C') || !matches!(meta.flags.argument(b'M'), None | Some(b"S" | b"s")),
        Verb::Md => meta.flags.has(b'C'),
        _ => false,
    }
}

/// Whether it is an `mg` that changes nothing and tells nothing that other reads change. Such reads may overtake each other.
/// Letters that are not known here may mean anything.
pub(crate) fn only_reads(meta: &Meta<'_>) -> bool {
    meta.verb == Verb::Mg && meta.flags.iter().all(|flag| ONLY_READ.contains(&flag[0]))
}

/// Whether another backend than the key's primary may answer: it only reads, and does not ask for the cas token, which belongs
/// to one server.
pub(crate) fn may_read_replicas(meta: &Meta<'_>) -> bool {
    only_reads(meta) && !meta.flags.has(b'c')
}

/// What a backend is asked: never quietly, so that every request has its reply and the connection stays in step.
pub(crate) fn leg_request<'a>(meta: &Meta<'a>, command: LegCommand) -> Request<'a> {
    if command == LegCommand::Delete {
        let flags = MetaFlags::new(if meta.is_base64() { b"b" } else { b"" });
        return Request::Meta(Meta { verb: Verb::Md, key: meta.key, flags, left_out: b"", value: b"" });
    }
    if must_tell_key(meta) {
        return Request::Meta(Meta { left_out: b"qk", ..*meta });
    }
    Request::Meta(*meta).without_noreply()
}

/// The flags of the same command when what it stores or touches must live no longer than `cap` allows: `T` sets the expiry time,
/// and so does `N` of what is created.
pub(crate) fn capped_flags(meta: &Meta<'_>, cap: impl Fn(i64) -> i64) -> Vec<u8> {
    let mut capped = Vec::new();
    for flag in meta.flags.iter() {
        let seconds = std::str::from_utf8(&flag[1..]).ok().and_then(|text| text.parse().ok());
        match (flag[0], seconds) {
            (letter @ (b'T' | b'N'), Some(seconds)) => {
                capped.push(letter);
                capped.extend_from_slice(cap(seconds).to_string().as_bytes());
            }
            // What is no number is for the server to refuse.
            _ => capped.extend_from_slice(flag),
        }
        capped.push(b' ');
    }
    if meta.verb == Verb::Ms && !meta.flags.has(b'T') {
        capped.extend_from_slice(format!("T{}", cap(0)).as_bytes());
    }
    capped
}

/// Counts what was found, puts in the key if the backend was not asked for it, and drops the reply that a quiet client does
/// not want to hear. An error is always said.
pub(crate) fn conclude(job: &mut Job) {
    if job.outcome != Outcome::Answered {
        return;
    }
    if job.verb == Verb::Mg {
        job.hits = u16::from(!job.reply.starts_with(b"EN"));
    }
    if let Some(ReturnedKey { behind_when_found, behind_when_missing }) = job.returned_key {
        let words = if job.reply.starts_with(b"EN") { behind_when_missing } else { behind_when_found };
        let at = end_of_flag(&job.reply, words);
        job.reply.splice(at..at, job.key_bytes.iter().copied());
    }
    job.is_quiet |= job.is_quiet_meta && is_hidden_when_quiet(job.verb, &job.reply);
}

/// Where so many flags of a reply end, or its line if it has fewer.
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

    fn asked(verb: Verb, flags: &[u8], command: LegCommand) -> String {
        let mut bytes = Vec::new();
        leg_request(&meta(verb, flags), command).encode(&mut bytes);
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn what_depends_on_the_content_runs_on_the_primary_and_copies_are_deleted() {
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
    fn nobody_is_asked_quietly() {
        assert_eq!(asked(Verb::Ms, b"b T30 q", LegCommand::AsReceived), "ms Zm9v 0 b T30\r\n\r\n");
        assert_eq!(asked(Verb::Ms, b"b T30 q", LegCommand::Delete), "md Zm9v b\r\n");
        assert_eq!(asked(Verb::Ma, b"b q N0 O1", LegCommand::Delete), "md Zm9v b\r\n");
        assert_eq!(asked(Verb::Ms, b"q ME", LegCommand::Delete), "md Zm9v\r\n");
        assert_eq!(asked(Verb::Md, b"q I k", LegCommand::AsReceived), "md Zm9v I k\r\n");
    }

    #[test]
    fn an_expiry_time_is_capped_wherever_it_stands() {
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
        ] {
            let capped = capped_flags(&meta(verb, flags.as_bytes()), cap);
            assert_eq!(String::from_utf8(capped).unwrap(), expected, "{flags}");
        }
    }

    #[test]
    fn a_key_with_a_line_end_is_told_by_the_proxy() {
        for (flags, reply, expected) in [
            ("b k", "EN\r\n", "EN kYQpi b\r\n"),
            ("b v k", "VA 5\r\nx\r\ny \r\n", "VA 5 kYQpi b\r\nx\r\ny \r\n"),
            ("s O1 k t b", "HD s5 O1 t-1 Z\r\n", "HD s5 O1 kYQpi b t-1 Z\r\n"),
            ("s O1 k t b", "EN O1\r\n", "EN O1 kYQpi b\r\n"),
            ("k O1 b v", "VA 1 O1 W\r\n \r\n", "VA 1 kYQpi b O1 W\r\n \r\n"),
            ("q T30 b s v k", "VA 1 s1\r\n \r\n", "VA 1 s1 kYQpi b\r\n \r\n"),
        ] {
            let meta = Meta { key: b"YQpi", ..meta(Verb::Mg, flags.as_bytes()) };
            let mut asked = Vec::new();
            leg_request(&meta, LegCommand::AsReceived).encode(&mut asked);
            assert!(!asked.windows(2).any(|word| word == b" k" || word == b" q"), "{flags}");
            let mut job = Job::default();
            (job.verb, job.reply) = (Verb::Mg, reply.into());
            prepare(&mut job, &meta);
            conclude(&mut job);
            assert_eq!(String::from_utf8_lossy(&job.reply), expected, "{flags}");
        }
        assert_eq!(asked(Verb::Mg, b"b k", LegCommand::AsReceived), "mg Zm9v b k\r\n", "this one holds none");
        let twice = Meta { key: b"YQpi", ..meta(Verb::Mg, b"b k q k") };
        let mut asked = Vec::new();
        leg_request(&twice, LegCommand::AsReceived).encode(&mut asked);
        assert_eq!(asked, b"mg YQpi b k k\r\n");
    }
}
