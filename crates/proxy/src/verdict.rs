//! What a line or value from a backend means for the request that waits for it.

use records::Outcome;
use wire::Reply;

/// What kind of reply a request gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expect {
    /// One line.
    Line,
    /// Values, then END.
    Values,
    /// The `version` that a connection begins with.
    Probe,
}

/// What one line or value means for the request at the head.
pub(crate) enum Verdict {
    /// A value; more is to come.
    More,
    /// The reply is complete. When it `is_last`, what follows on this connection cannot be trusted.
    Done { outcome: Outcome, is_last: bool },
    /// No reply to such a request.
    OutOfStep,
}

/// Reads one line or value as the answer, or part of the answer, to the request at the head.
pub(crate) fn judge(expect: Expect, reply: &Reply<'_>) -> Verdict {
    let answered = Verdict::Done { outcome: Outcome::Answered, is_last: false };
    match (expect, reply) {
        (Expect::Probe, Reply::Version(_)) => answered,
        (Expect::Probe, _) => Verdict::OutOfStep,
        (_, Reply::ServerError(_)) => Verdict::Done { outcome: Outcome::ServerError, is_last: false },
        // The proxy sends only what it has checked: a backend that does not understand it is reading something else.
        (_, Reply::Error) => Verdict::Done { outcome: Outcome::ClientError, is_last: true },
        (_, Reply::ClientError(line)) => Verdict::Done {
            outcome: Outcome::ClientError,
            is_last: line.starts_with(b"bad ") || line.starts_with(b"line "),
        },
        (Expect::Values, Reply::Value(_)) => Verdict::More,
        (Expect::Values, Reply::End) => answered,
        (Expect::Values, _) | (Expect::Line, Reply::Value(_) | Reply::End | Reply::Stat { .. }) => Verdict::OutOfStep,
        (Expect::Line, _) => answered,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_answer_a_request_does() {
        let ends = |expect, reply| matches!(judge(expect, &reply), Verdict::Done { is_last: false, .. });
        let breaks = |expect, reply| matches!(judge(expect, &reply), Verdict::OutOfStep);
        assert!(ends(Expect::Line, Reply::Stored) && breaks(Expect::Values, Reply::Stored));
        assert!(ends(Expect::Values, Reply::End) && breaks(Expect::Line, Reply::End));
        assert!(ends(Expect::Line, Reply::ServerError(b"out of memory")));
        assert!(ends(Expect::Line, Reply::ClientError(b"cannot increment or decrement non-numeric value")));
        assert!(ends(Expect::Probe, Reply::Version(b"1.6.0")) && breaks(Expect::Probe, Reply::Error));
        let is_last = |reply| matches!(judge(Expect::Line, &reply), Verdict::Done { is_last: true, .. });
        assert!(is_last(Reply::Error) && is_last(Reply::ClientError(b"bad data chunk")));
    }
}
