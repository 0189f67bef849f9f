//! What a line or value from a backend means for the request that waits for it.

use records::Outcome;
use wire::{MetaCode, Reply, Verb};

/// What kind of reply a request gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expect {
    /// One line, of those that answer this command.
    Line(Verb),
    /// Values, then END.
    Values,
    /// The `version` that a connection begins with.
    Probe,
}

impl Expect {
    /// The kind of reply to this command.
    pub(crate) fn of(verb: Verb) -> Expect {
        match verb {
            Verb::Get | Verb::Gets | Verb::Gat | Verb::Gats => Expect::Values,
            verb => Expect::Line(verb),
        }
    }
}

/// What one line or value means for the request at the head.
pub(crate) enum ReplyMatch {
    /// A value; more is to come.
    More,
    /// The reply is complete. When it `closes`, what follows on this connection cannot be trusted.
    Done { outcome: Outcome, closes: bool },
    /// No reply to such a request.
    OutOfStep,
}

/// Reads one line or value as the answer, or part of the answer, to the request at the head.
pub(crate) fn match_reply(expect: Expect, reply: &Reply<'_>) -> ReplyMatch {
    let done = |outcome, closes| ReplyMatch::Done { outcome, closes };
    match (expect, reply) {
        (Expect::Probe, Reply::Version(_)) => done(Outcome::Answered, false),
        (Expect::Probe, _) => ReplyMatch::OutOfStep,
        (_, Reply::ServerError(_)) => done(Outcome::ServerError, false),
        // The proxy sends only what it has checked: a backend that does not understand it is reading something else.
        (_, Reply::Error) => done(Outcome::ClientError, true),
        (expect, Reply::ClientError(line)) => done(Outcome::ClientError, is_out_of_step(expect, line)),
        (Expect::Values, Reply::Value(_)) => ReplyMatch::More,
        (Expect::Values, Reply::End) => done(Outcome::Answered, false),
        (Expect::Line(verb), reply) if answers(verb, reply) => done(Outcome::Answered, false),
        _ => ReplyMatch::OutOfStep,
    }
}

/// Whether a server that says this has not read what the proxy has sent, which was checked.
fn is_out_of_step(expect: Expect, line: &[u8]) -> bool {
    match expect {
        // The flags of a meta command are not checked, and what is wrong with them is told in such words. The line's end and
        // the value's length are: the server has read the whole command.
        Expect::Line(Verb::Mg | Verb::Ms | Verb::Md | Verb::Ma | Verb::Me) => {
            line.starts_with(b"bad data chunk") || line.starts_with(b"line ")
        }
        _ => line.starts_with(b"bad ") || line.starts_with(b"line "),
    }
}

/// Whether a command can be answered like this.
fn answers(verb: Verb, reply: &Reply<'_>) -> bool {
    match verb {
        Verb::Set | Verb::Add | Verb::Replace | Verb::Append | Verb::Prepend | Verb::Cas => {
            matches!(reply, Reply::Stored | Reply::NotStored | Reply::Exists | Reply::NotFound)
        }
        Verb::Delete => matches!(reply, Reply::Deleted | Reply::NotFound),
        Verb::Incr | Verb::Decr => matches!(reply, Reply::Number(_) | Reply::NotFound),
        Verb::Touch => matches!(reply, Reply::Touched | Reply::NotFound),
        Verb::FlushAll => matches!(reply, Reply::Ok),
        Verb::Mg | Verb::Ms | Verb::Md | Verb::Ma | Verb::Me => answers_meta(verb, reply),
        _ => false,
    }
}

/// The same for a meta command that is not quiet.
fn answers_meta(verb: Verb, reply: &Reply<'_>) -> bool {
    use MetaCode::{Debug, Exists, Header, Miss, NotFound, NotStored};
    match (verb, reply) {
        (Verb::Mg | Verb::Ma, Reply::MetaValue { .. }) => true,
        (Verb::Mg, Reply::Meta { code, .. }) => matches!(code, Header | Miss),
        (Verb::Ms | Verb::Md | Verb::Ma, Reply::Meta { code, .. }) => {
            matches!(code, Header | NotFound | NotStored | Exists)
        }
        (Verb::Me, Reply::Meta { code, .. }) => matches!(code, Debug | Miss),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_answer_a_request_does() {
        let ends = |expect, reply| matches!(match_reply(expect, &reply), ReplyMatch::Done { closes: false, .. });
        let breaks = |expect, reply| matches!(match_reply(expect, &reply), ReplyMatch::OutOfStep);
        let set = Expect::Line(Verb::Set);
        assert!(ends(set, Reply::Stored) && breaks(Expect::Values, Reply::Stored));
        assert!(ends(Expect::Values, Reply::End) && breaks(set, Reply::End));
        assert!(ends(Expect::Line(Verb::Touch), Reply::Touched) && breaks(set, Reply::Touched));
        assert!(ends(set, Reply::ServerError(b"out of memory")));
        let not_a_number = b"cannot increment or decrement non-numeric value";
        assert!(ends(Expect::Line(Verb::Incr), Reply::ClientError(not_a_number)));
        assert!(ends(Expect::Probe, Reply::Version(b"1.6.0")) && breaks(Expect::Probe, Reply::Error));
        let header = Reply::Meta { code: MetaCode::Header, flags: b"kk" };
        let value = Reply::MetaValue { flags: b"", data: b"1" };
        for verb in [Verb::Mg, Verb::Ms, Verb::Md, Verb::Ma] {
            assert!(ends(Expect::Line(verb), header) && breaks(Expect::Line(verb), Reply::Stored));
        }
        assert!(ends(Expect::Line(Verb::Mg), value) && breaks(Expect::Line(Verb::Ms), value));
        assert!(breaks(Expect::Values, header) && breaks(set, header) && breaks(Expect::Line(Verb::Me), header));
        let bad_flag = Reply::ClientError(b"bad token in command line format");
        assert!(ends(Expect::Line(Verb::Ms), bad_flag));
        let closes = |reply| matches!(match_reply(set, &reply), ReplyMatch::Done { closes: true, .. });
        assert!(closes(Reply::Error) && closes(Reply::ClientError(b"bad data chunk")));
    }
}
