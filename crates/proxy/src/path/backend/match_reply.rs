//! Matches a line or value from a backend with the request that it answers.

use records::Outcome;
use wire::{MetaCode, Reply, UNAUTHENTICATED, Verb};

/// The kind of reply that a request expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expect {
    /// One line that may answer this command.
    Line(Verb),
    /// Values, then END.
    Values,
    /// The reply to the authentication.
    Login,
    /// The reply to the `version` probe.
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

impl Expect {
    /// Whether the request consists of a line and a value.
    fn has_value(self) -> bool {
        use Verb::{Add, Append, Cas, Ms, Prepend, Replace, Set};
        matches!(self, Expect::Line(Set | Add | Replace | Append | Prepend | Cas | Ms))
    }
}

/// How one line or value matches the oldest request in flight.
pub(crate) enum ReplyMatch {
    /// It is a value, and more follows.
    More,
    /// The reply is complete. If it `closes`, later replies on this connection cannot be trusted.
    Done { outcome: Outcome, closes: bool },
    /// It is not a reply to such a request.
    OutOfStep,
    /// The server does not accept the authentication, or requires one.
    Unauthenticated,
}

/// Matches one line or value with the oldest request in flight.
pub(crate) fn match_reply(expect: Expect, reply: &Reply<'_>) -> ReplyMatch {
    let done = |outcome, closes| ReplyMatch::Done { outcome, closes };
    match (expect, reply) {
        (Expect::Login, Reply::Stored) => done(Outcome::Answered, false),
        (Expect::Login, Reply::ClientError(_) | Reply::ServerError(_)) => ReplyMatch::Unauthenticated,
        (Expect::Probe, Reply::ClientError(line)) if *line == UNAUTHENTICATED => ReplyMatch::Unauthenticated,
        (Expect::Login, _) => ReplyMatch::OutOfStep,
        (Expect::Probe, Reply::Version(_)) => done(Outcome::Answered, false),
        (Expect::Probe, _) => ReplyMatch::OutOfStep,
        (_, Reply::ServerError(_)) => done(Outcome::ServerError, false),
        // The server does not know the command. If a value followed it, the server reads the value as commands.
        (expect, Reply::Error) => done(Outcome::ClientError, expect.has_value()),
        (expect, Reply::ClientError(line)) => done(Outcome::ClientError, is_out_of_step(expect, line)),
        (Expect::Values, Reply::Value(_)) => ReplyMatch::More,
        (Expect::Values, Reply::End) => done(Outcome::Answered, false),
        (Expect::Line(verb), reply) if answers(verb, reply) => done(Outcome::Answered, false),
        _ => ReplyMatch::OutOfStep,
    }
}

/// Whether this CLIENT_ERROR shows that the server has not read the command that the proxy has checked and sent.
fn is_out_of_step(expect: Expect, line: &[u8]) -> bool {
    match expect {
        // The proxy does not check the flags of a meta command, so the server may refuse these. It has checked the line end and
        // the length of the value.
        Expect::Line(Verb::Mg | Verb::Ms | Verb::Md | Verb::Ma | Verb::Me) => {
            line.starts_with(b"bad data chunk") || line.starts_with(b"line ")
        }
        _ => line.starts_with(b"bad ") || line.starts_with(b"line "),
    }
}

/// Whether this reply can answer a command.
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

/// Whether this reply can answer a meta command without `q`.
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
    fn only_replies_that_can_answer_a_request_match_it() {
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
        assert!(ends(Expect::Login, Reply::Stored) && breaks(Expect::Login, Reply::Version(b"1.6.0")));
        let is_refused = |expect, reply| matches!(match_reply(expect, &reply), ReplyMatch::Unauthenticated);
        assert!(is_refused(Expect::Login, Reply::ClientError(b"authentication failure")));
        assert!(is_refused(Expect::Probe, Reply::ClientError(b"unauthenticated")));
        assert!(
            breaks(Expect::Probe, Reply::ClientError(b"bad"))
                && !is_refused(set, Reply::ClientError(b"unauthenticated"))
        );
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
        assert!(ends(Expect::Line(Verb::Mg), Reply::Error) && ends(Expect::Values, Reply::Error));
        let closes =
            |reply| matches!(match_reply(Expect::Line(Verb::Ms), &reply), ReplyMatch::Done { closes: true, .. });
        assert!(closes(Reply::Error));
    }
}
