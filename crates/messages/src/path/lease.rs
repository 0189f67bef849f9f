//! Leases and their tokens. A client gets a lease token with a message that it receives, and acknowledges, extends or nacks with it. The
//! token contains where the message is stored and a secret of 122 random bits. Knows neither HTTP nor SQL.

use std::fmt;

/// Hexadecimal digits of the three parts of a token.
const DIGITS: [usize; 3] = [8, 16, 32];

/// A lease token, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeaseToken {
    /// Zero if the text was not a lease token: no queue has this number.
    pub(crate) queue_id: i32,
    pub(crate) id: i64,
    /// Hexadecimal.
    pub(crate) secret: String,
}

/// The lease of a message that was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    pub(crate) token: LeaseToken,
    /// The first attempt has number 1.
    pub(crate) attempt: i32,
}

/// What a client does with a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaseAction {
    /// The message has been processed and is deleted.
    Acknowledge,
    /// The visibility timeout starts again.
    Extend,
    /// The message was not processed and becomes visible again, after a delay.
    Nack,
}

/// Leases with the same action. Each succeeds or fails on its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeaseRequest {
    pub(crate) action: LeaseAction,
    pub(crate) tokens: Vec<LeaseToken>,
    /// The tokens as the client wrote them.
    pub(crate) written: Vec<String>,
    /// The visibility timeout of an extension (0: the queue's own), or the delay of a nack (below 0: the queue's backoff).
    pub(crate) time_ms: i64,
    /// Whether an expired lease is a failure; otherwise the answer lists it.
    pub(crate) is_single: bool,
}

impl LeaseToken {
    pub(crate) fn new(queue_id: i32, id: i64, secret: String) -> LeaseToken {
        LeaseToken { queue_id, id, secret }
    }

    /// Parses a lease token. Any other text becomes a token that no lease has.
    pub(crate) fn read(text: &str) -> LeaseToken {
        LeaseToken::parse(text).unwrap_or_else(|| LeaseToken::new(0, 0, "0".repeat(DIGITS[2])))
    }

    fn parse(text: &str) -> Option<LeaseToken> {
        let is_hexadecimal = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if text.len() != DIGITS.iter().sum::<usize>() || !text.bytes().all(is_hexadecimal) {
            return None;
        }
        let (queue_id, rest) = text.split_at(DIGITS[0]);
        let (id, secret) = rest.split_at(DIGITS[1]);
        let queue_id = i32::from_str_radix(queue_id, 16).ok()?;
        Some(LeaseToken::new(queue_id, i64::from_str_radix(id, 16).ok()?, secret.to_string()))
    }
}

impl fmt::Display for LeaseToken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:08x}{:016x}{}", self.queue_id, self.id, self.secret)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_token_is_parsed_back_and_a_malformed_one_matches_no_lease() {
        let lease = LeaseToken::new(7, i64::MAX, "0123456789abcdef0123456789abcdef".into());
        assert_eq!(LeaseToken::read(&lease.to_string()), lease);
        let text = lease.to_string();
        for nonsense in
            ["", "x", &text[1..], &text.to_uppercase(), &format!("{text}0"), &"f".repeat(56), &"ä".repeat(28)]
        {
            assert_eq!(LeaseToken::read(nonsense).queue_id, 0, "{nonsense}");
        }
    }
}
