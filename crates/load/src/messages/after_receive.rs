//! What a client does with a received message, drawn by weights parsed from `acknowledge:8,nack:1,abandon:1`.

use super::mix::parse_weights;
use std::fmt;
use std::str::FromStr;

/// What a client does next with the lease of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaseStep {
    /// Deletes the message.
    Acknowledge,
    /// Restarts the visibility timeout, and draws again.
    Extend,
    /// Returns the message.
    Nack,
    /// Sends nothing more, so that the lease ends.
    Abandon,
}

const ALL: [(LeaseStep, &str); 4] = [
    (LeaseStep::Acknowledge, "acknowledge"),
    (LeaseStep::Extend, "extend"),
    (LeaseStep::Nack, "nack"),
    (LeaseStep::Abandon, "abandon"),
];

/// The steps with their weights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AfterReceive(pub(crate) Vec<(LeaseStep, u32)>);

impl Default for AfterReceive {
    /// Every message is acknowledged.
    fn default() -> AfterReceive {
        AfterReceive(vec![(LeaseStep::Acknowledge, 1)])
    }
}

impl LeaseStep {
    fn name(self) -> &'static str {
        ALL.iter().find(|(step, _)| *step == self).map_or("", |(_, name)| name)
    }
}

impl FromStr for AfterReceive {
    type Err = String;

    /// Parses `NAME[:WEIGHT],...`.
    fn from_str(text: &str) -> Result<AfterReceive, String> {
        let steps = parse_weights(text, &ALL, "")?;
        if steps.iter().all(|(step, _)| *step == LeaseStep::Extend) {
            return Err("extend alone would hold every message for ever; add acknowledge, nack or abandon".into());
        }
        Ok(AfterReceive(steps))
    }
}

impl fmt::Display for AfterReceive {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self.0.iter().map(|(step, weight)| format!("{}:{weight}", step.name())).collect();
        formatter.write_str(&parts.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_have_weights() {
        let steps: AfterReceive = "acknowledge:8,abandon".parse().unwrap();
        assert_eq!(steps.0, [(LeaseStep::Acknowledge, 8), (LeaseStep::Abandon, 1)]);
        assert_eq!(steps.to_string(), "acknowledge:8,abandon:1");
    }

    #[test]
    fn malformed_steps_are_one_line() {
        for (text, expected) in [
            ("ack", "\"ack\" is not an operation; give one of acknowledge, extend, nack, abandon"),
            ("nack:0", "a weight is"),
            ("nack,nack", "named twice"),
            ("extend", "for ever"),
        ] {
            let line = text.parse::<AfterReceive>().unwrap_err();
            assert!(line.contains(expected) && !line.contains('\n'), "{text}: {line}");
        }
    }
}
