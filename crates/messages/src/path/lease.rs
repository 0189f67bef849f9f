//! Leases: the word that a client gets with a message and gives back when it has done its work. It says where the message lies, and
//! has a secret of 122 random bits that nobody can guess. Knows neither HTTP nor SQL.

use std::fmt;

/// Hexadecimal digits of its three parts.
const DIGITS: [usize; 3] = [8, 16, 32];

/// A lease, as the database knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    /// Zero when the word was no lease: no queue has this number.
    pub(crate) queue_id: i32,
    pub(crate) id: i64,
    /// Hexadecimal.
    pub(crate) secret: String,
}

/// How a message was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Leased {
    pub(crate) lease: Lease,
    /// The first has number 1.
    pub(crate) attempt: i32,
}

/// How a lease ends, or goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settlement {
    /// The message is done with.
    Acknowledge,
    /// It holds for so long from now on.
    Extend,
    /// The message goes back, after a while.
    Return,
}

/// Leases that are settled together, each on its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settling {
    pub(crate) how: Settlement,
    pub(crate) leases: Vec<Lease>,
    /// As the client wrote them.
    pub(crate) words: Vec<String>,
    /// Of an extension (0: the queue's own), or the delay of a return.
    pub(crate) time_ms: i64,
    /// Whether one that does not hold is a failure; otherwise it is told.
    pub(crate) is_single: bool,
}

impl Lease {
    /// The lease of a message.
    pub(crate) fn new(queue_id: i32, id: i64, secret: String) -> Lease {
        Lease { queue_id, id, secret }
    }

    /// Reads a word; what is none becomes a lease that nothing has.
    pub(crate) fn read(word: &str) -> Lease {
        Lease::parse(word).unwrap_or_else(|| Lease::new(0, 0, "0".repeat(DIGITS[2])))
    }

    fn parse(word: &str) -> Option<Lease> {
        let is_hexadecimal = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if word.len() != DIGITS.iter().sum::<usize>() || !word.bytes().all(is_hexadecimal) {
            return None;
        }
        let (queue_id, rest) = word.split_at(DIGITS[0]);
        let (id, secret) = rest.split_at(DIGITS[1]);
        let queue_id = i32::from_str_radix(queue_id, 16).ok()?;
        Some(Lease::new(queue_id, i64::from_str_radix(id, 16).ok()?, secret.to_string()))
    }
}

impl fmt::Display for Lease {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:08x}{:016x}{}", self.queue_id, self.id, self.secret)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_read_as_it_was_written_and_nonsense_is_nobody() {
        let lease = Lease::new(7, i64::MAX, "0123456789abcdef0123456789abcdef".into());
        assert_eq!(Lease::read(&lease.to_string()), lease);
        let word = lease.to_string();
        for nonsense in
            ["", "x", &word[1..], &word.to_uppercase(), &format!("{word}0"), &"f".repeat(56), &"ä".repeat(28)]
        {
            assert_eq!(Lease::read(nonsense).queue_id, 0, "{nonsense}");
        }
    }
}
