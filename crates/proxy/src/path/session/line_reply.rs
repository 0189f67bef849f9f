//! The reply to the keys of one line, which are read in parts: the values of all parts, and then one END or one error. Which one it
//! is depends on `part-failure`, as if the line had been one request.

use crate::config::PartFailure;
use crate::path::job::{Job, Join};
use records::Outcome;

const END: &[u8] = b"END\r\n";

/// The reply to a line, some parts of which are delivered.
#[derive(Debug)]
pub(super) struct LineReply {
    sequence: u32,
    /// Whether a backend has answered a part.
    has_answer: bool,
    /// The line and the outcome of the first part that has failed, or of the refusal that ends the line.
    error: Option<Box<[u8]>>,
    outcome: Outcome,
    /// The error that ends the line is sent: the replies to its other parts are not.
    is_over: bool,
    /// The values of earlier parts, as long as an error must be able to take their place.
    held: Option<HeldValues>,
}

/// Values that are not sent yet.
#[derive(Debug, Default)]
pub(super) struct HeldValues {
    pub(super) replies: Vec<Vec<u8>>,
    bytes: usize,
}

impl LineReply {
    /// The reply to the line with this sequence number.
    pub(super) fn new(sequence: u32, failure: PartFailure) -> LineReply {
        let held = (failure == PartFailure::Error).then(HeldValues::default);
        LineReply { sequence, has_answer: false, error: None, outcome: Outcome::Answered, is_over: false, held }
    }

    /// Whether it is the reply to this line.
    pub(super) fn is_to(&self, sequence: u32) -> bool {
        self.sequence == sequence
    }

    /// Whether it is the reply to this line, and complete although parts of the line may follow.
    pub(super) fn is_over(&self, sequence: u32) -> bool {
        self.is_over && self.is_to(sequence)
    }

    /// The bytes of the values that are not sent yet.
    pub(super) fn held_bytes(&self) -> usize {
        self.held.as_ref().map_or(0, |held| held.bytes)
    }

    /// Holds the values of a part, if an error of a later part must be able to take their place. Returns whether it does.
    pub(super) fn hold(&mut self, values: &mut Vec<u8>) -> bool {
        let Some(held) = &mut self.held else { return false };
        held.bytes += values.len();
        held.replies.push(std::mem::take(values));
        true
    }

    /// Takes the values that are held, and holds none any more.
    pub(super) fn take_held(&mut self) -> Option<HeldValues> {
        self.held.take()
    }

    /// Makes the reply of the next part what the client receives for it.
    pub(super) fn add(&mut self, job: &mut Job, failure: PartFailure) {
        // A refusal is what the client receives, whatever has failed before.
        if job.is_refusal || self.outcome == Outcome::Answered {
            self.outcome = job.outcome;
        }
        if !job.is_part {
            job.outcome = self.outcome;
        }
        if self.is_over {
            job.is_quiet = true;
            return;
        }
        let mut values = values_bytes(&job.reply);
        let last_line = &job.reply[values..];
        let has_failed = !matches!(last_line, b"END\r\n" | b"END\n");
        if has_failed && (job.is_refusal || self.error.is_none()) {
            self.error = Some(last_line.into());
        }
        if has_failed && job.join != Join::KeyOrder {
            // An error invalidates all values of its backend's reply, as in `KeyOrder`.
            values = 0;
        }
        // The last part of a line may have no keys.
        self.has_answer |= values > 0 || (!has_failed && job.keys > 0);
        if self.error.is_some() && (job.is_refusal || failure == PartFailure::Error) {
            self.is_over = true;
            self.held = None;
        }
        job.reply.truncate(values);
        match &self.error {
            Some(error) if self.is_over => {
                job.reply.clear();
                job.reply.extend_from_slice(error);
            }
            _ if job.is_part => {}
            Some(error) if failure == PartFailure::Partial || !self.has_answer => job.reply.extend_from_slice(error),
            _ => job.reply.extend_from_slice(END),
        }
    }
}

/// The bytes of the values in a reply, before its last line.
fn values_bytes(reply: &[u8]) -> usize {
    let before_end = &reply[..reply.len().saturating_sub(1)];
    before_end.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_line_of_a_reply_is_its_end() {
        let bytes = |reply: &str| values_bytes(reply.as_bytes());
        assert_eq!(["END\r\n", "END\n", "SERVER_ERROR no\r\n", ""].map(bytes), [0; 4]);
        assert_eq!(bytes("VALUE a 0 3\r\nEND\r\nEND\r\n"), 18);
        assert_eq!(bytes("VALUE a 0 1\r\nx\r\nSERVER_ERROR END\r\n"), 16);
    }

    /// What a client receives for parts with these replies, each with the number of keys, the last one behind `|`.
    fn received(failure: PartFailure, parts: &str) -> (String, Outcome) {
        let mut line = LineReply::new(7, failure);
        let count = parts.split('|').count();
        let mut received = String::new();
        let mut outcome = Outcome::Answered;
        for (index, part) in parts.split('|').enumerate() {
            let mut job = Job::default();
            (job.is_part, job.keys, job.join) = (index + 1 < count, u16::from(part != "-"), Join::KeyOrder);
            (job.reply, job.outcome) = match part {
                "value" => (b"V\r\nEND\r\n".to_vec(), Outcome::Answered),
                "some" => (b"V\r\nE1\r\n".to_vec(), Outcome::Timeout),
                "none" => (b"E2\r\n".to_vec(), Outcome::BackendDown),
                "refused" => (b"E3\r\n".to_vec(), Outcome::Overloaded),
                _ => (b"END\r\n".to_vec(), Outcome::Answered),
            };
            job.is_refusal = part == "refused";
            line.add(&mut job, failure);
            if !job.is_quiet {
                received += std::str::from_utf8(&job.reply).unwrap();
            }
            outcome = job.outcome;
        }
        (received.replace("\r\n", " "), outcome)
    }

    #[test]
    fn the_end_of_a_line_depends_on_all_of_its_parts() {
        use PartFailure::{Error, Miss, Partial};
        for (failure, parts, expected, outcome) in [
            (Miss, "value|miss", "V END ", Outcome::Answered),
            (Miss, "none|miss", "END ", Outcome::BackendDown),
            (Miss, "none|value|none", "V END ", Outcome::BackendDown),
            // A last part without keys is no answer.
            (Miss, "none|none|-", "E2 ", Outcome::BackendDown),
            (Miss, "value|-", "V END ", Outcome::Answered),
            (Miss, "none|refused|value", "E3 ", Outcome::Overloaded),
            (Partial, "some|value|none", "V V E1 ", Outcome::Timeout),
            (Partial, "miss|none", "E2 ", Outcome::BackendDown),
            // Values that were held before it are dropped.
            (Error, "miss|none|value|miss", "E2 ", Outcome::BackendDown),
            (Error, "miss|refused|miss", "E3 ", Outcome::Overloaded),
        ] {
            assert_eq!(received(failure, parts), (expected.to_string(), outcome), "{failure:?}: {parts}");
        }
    }
}
