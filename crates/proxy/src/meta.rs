//! What is particular about meta commands on their way through: who is asked what, and what a quiet one does not hear.
//! docs/decisions/0012-quiet-meta-commands.md says why.

use crate::job::Job;
use records::Outcome;
use wire::{Meta, MetaFlags, Request, Verb, is_hidden_when_quiet};

/// Whether the key's primary alone is asked. A read that touches, creates or wins the right to renew changes the primary only.
pub(crate) fn asks_primary_only(verb: Verb) -> bool {
    matches!(verb, Verb::Mg | Verb::Me)
}

/// Whether the effect depends on what a server holds: such a command runs on the primary, and the copies are deleted.
pub(crate) fn changes_unlike_copies(meta: &Meta<'_>) -> bool {
    match meta.verb {
        Verb::Ma => true,
        Verb::Ms => meta.flags.has(b'C') || !matches!(meta.flags.argument(b'M'), None | Some(b"S" | b"s")),
        Verb::Md => meta.flags.has(b'C'),
        _ => false,
    }
}

/// What a backend is asked: never quietly, so that every request has its reply and the connection stays in step.
pub(crate) fn asked_of<'a>(meta: &Meta<'a>, is_copy: bool) -> Request<'a> {
    if !is_copy || !changes_unlike_copies(meta) {
        return Request::Meta(*meta).without_noreply();
    }
    let flags = MetaFlags::new(if meta.is_base64() { b"b" } else { b"" });
    Request::Meta(Meta { verb: Verb::Md, key: meta.key, flags, is_quiet: false, value: b"" })
}

/// Counts what was found, and drops the reply that a quiet client does not want to hear. An error is always said.
pub(crate) fn conclude(job: &mut Job) {
    if job.outcome != Outcome::Answered {
        return;
    }
    if job.verb == Verb::Mg {
        job.hits = u16::from(!job.reply.starts_with(b"EN"));
    }
    job.is_quiet |= job.is_quiet_meta && is_hidden_when_quiet(job.verb, &job.reply);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta<'a>(verb: Verb, flags: &'a [u8]) -> Meta<'a> {
        let flags = MetaFlags::new(flags);
        Meta { verb, key: b"Zm9v", flags, is_quiet: flags.has(b'q'), value: b"" }
    }

    fn asked(verb: Verb, flags: &[u8], is_copy: bool) -> String {
        let mut bytes = Vec::new();
        asked_of(&meta(verb, flags), is_copy).encode(&mut bytes);
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn what_depends_on_the_content_runs_on_the_primary_and_copies_are_deleted() {
        for flags in ["", "q T30", "MS c", "I"] {
            assert!(!changes_unlike_copies(&meta(Verb::Ms, flags.as_bytes())), "{flags}");
        }
        for flags in ["ME", "MA q", "MP", "MR", "C5", "MS C5", "MX", "M"] {
            assert!(changes_unlike_copies(&meta(Verb::Ms, flags.as_bytes())), "{flags}");
        }
        assert!(changes_unlike_copies(&meta(Verb::Ma, b"")) && changes_unlike_copies(&meta(Verb::Md, b"C1")));
        assert!(!changes_unlike_copies(&meta(Verb::Md, b"I T30")));
    }

    #[test]
    fn nobody_is_asked_quietly() {
        assert_eq!(asked(Verb::Ms, b"b T30 q", false), "ms Zm9v 0 b T30\r\n\r\n");
        assert_eq!(asked(Verb::Ms, b"b T30 q", true), "ms Zm9v 0 b T30\r\n\r\n");
        assert_eq!(asked(Verb::Ma, b"b q N0 O1", true), "md Zm9v b\r\n");
        assert_eq!(asked(Verb::Ms, b"q ME", true), "md Zm9v\r\n");
        assert_eq!(asked(Verb::Md, b"q I k", true), "md Zm9v I k\r\n");
    }
}
