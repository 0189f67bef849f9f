//! The cas token in the reply to a write. Only the primary compares tokens, and each server counts its own. The token of another
//! server could therefore match a different value on the primary.

use crate::path::job::{FollowUp, Job, Join};
use crate::path::leg_request::own_limits;
use wire::{ParsedRequest, Request, Verb, parse_request};

/// A token that no server gives to a value: servers count from 1.
const NO_TOKEN: &[u8] = b"c18446744073709551615";

/// Whether the reply to a write returns the cas token of the value that it has stored.
pub(crate) fn returns_cas_token(job: &Job) -> bool {
    matches!(job.verb, Verb::Ms | Verb::Ma)
        && matches!(
            parse_request(&job.kept, &own_limits()),
            ParsedRequest::Request { request: Request::Meta(meta), .. } if meta.flags.has(b'c')
        )
}

/// Replaces the cas token in the chosen reply to a write if it is not the primary's token. The primary could have given the same
/// token to another value.
pub(crate) fn void_cas_token(job: &mut Job) {
    let Join::Chosen(chosen) = job.join else { return };
    let is_of_primary = match job.follow_up {
        FollowUp::ReplicatedWrite { .. } => chosen == job.first_counted,
        FollowUp::FailoverWrite { .. } => false,
        _ => true,
    };
    if is_of_primary || !returns_cas_token(job) {
        return;
    }
    replace_token(&mut job.leg(chosen).reply);
}

/// Replaces the token in the first line of a reply.
fn replace_token(reply: &mut Vec<u8>) {
    let line_bytes = reply.iter().position(|&byte| byte == b'\r').unwrap_or(reply.len());
    let is_token = |word: &[u8]| word.strip_prefix(b"c").is_some_and(|rest| rest.iter().all(u8::is_ascii_digit));
    let mut begin = 0;
    for word in reply[..line_bytes].split(|&byte| byte == b' ') {
        let end = begin + word.len();
        if is_token(word) {
            reply.splice(begin..end, NO_TOKEN.iter().copied());
            return;
        }
        begin = end + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_token_is_replaced() {
        for (reply, expected) in [
            ("HD c5\r\n", "HD c18446744073709551615\r\n"),
            ("HD kc5 c7 Oc6 b\r\n", "HD kc5 c18446744073709551615 Oc6 b\r\n"),
            ("VA 2 t0 c1\r\nc9\r\n", "VA 2 t0 c18446744073709551615\r\nc9\r\n"),
            ("NS\r\n", "NS\r\n"),
        ] {
            let mut bytes = reply.as_bytes().to_vec();
            replace_token(&mut bytes);
            assert_eq!(String::from_utf8(bytes).unwrap(), expected);
        }
    }
}
