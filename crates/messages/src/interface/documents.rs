//! The JSON documents that clients send and get, and the schemas of those that they get; openapi/schemas.rs has those of the others,
//! which have limits. Knows neither HTTP nor SQL.

use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

/// The messages of a batch, in their order; all are stored, or none.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Batch {
    pub(crate) messages: Vec<BatchMessage>,
}

/// A message of a batch, with either body.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BatchMessage {
    pub(crate) to: Option<String>,
    #[serde(default, deserialize_with = "not_null")]
    pub(crate) body: Option<String>,
    #[serde(default, deserialize_with = "not_null")]
    pub(crate) body_base64: Option<String>,
    pub(crate) delay: Option<String>,
    pub(crate) expiry: Option<String>,
}

/// Settings of a queue; what is missing or null is as for a new queue.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settings {
    #[serde(default, deserialize_with = "whole")]
    pub(crate) attempts: Option<i32>,
    pub(crate) dead_letters: Option<String>,
    pub(crate) expiry: Option<String>,
    pub(crate) lease: Option<String>,
}

/// Leases that are acknowledged together, each on its own.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Leases {
    pub(crate) leases: Vec<String>,
}

/// The stored message.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Stored {
    /// Ids grow, but not by one.
    pub(crate) id: i64,
}

/// The stored messages, in the order in which they came.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct StoredBatch<'s> {
    /// Ids grow, but not by one.
    pub(crate) ids: &'s [i64],
}

/// Messages, the oldest first; possibly none.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Messages<'m> {
    pub(crate) messages: Vec<Message<'m>>,
}

/// A message.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Message<'m> {
    pub(crate) id: i64,
    pub(crate) queue: &'m str,
    pub(crate) sender: &'m str,
    /// Null: anyone.
    #[schema(required = true)]
    pub(crate) receiver: Option<&'m str>,
    /// Microseconds since 1970.
    pub(crate) sent_unix_us: i64,
    #[schema(content_encoding = "base64")]
    pub(crate) body_base64: String,
    /// Of a message that was received: the word with which it is acknowledged.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) lease: Option<String>,
    /// Of a message that was received: the first has number 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) attempt: Option<i32>,
}

/// A queue with its settings.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Queue<'q> {
    pub(crate) name: &'q str,
    /// How often a message may be received before it is a dead letter; null: as often as needed.
    #[schema(required = true)]
    pub(crate) attempts: Option<i32>,
    /// The queue for dead letters.
    #[schema(required = true)]
    pub(crate) dead_letters: Option<&'q str>,
    /// How long a message lives that does not say it; null: for ever.
    #[schema(required = true)]
    pub(crate) expiry: Option<String>,
    /// How long a lease holds that does not say it; null: 30s.
    #[schema(required = true)]
    pub(crate) lease: Option<String>,
    /// Messages that somebody may have.
    pub(crate) waiting: i64,
    /// Messages under a lease, or delayed.
    pub(crate) held: i64,
    /// Where both counts end.
    pub(crate) counted_up_to: i64,
}

/// Leases of a batch that did not hold any more.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct NotAcknowledged {
    pub(crate) not_acknowledged: Vec<String>,
}

/// Names of queues, in the order of their letters.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Queues<'q> {
    pub(crate) queues: &'q [String],
}

/// In JSON 5 and 5.0 are the same number.
fn whole<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i32>, D::Error> {
    let Some(number) = Option::<f64>::deserialize(deserializer)? else { return Ok(None) };
    if number.fract() == 0.0 && (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&number) {
        return Ok(Some(number as i32));
    }
    Err(serde::de::Error::custom(format!("attempts: {number} is not a whole number, or much too large")))
}

/// A field that may be missing but not null.
fn not_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    String::deserialize(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_a_batch_is_what_its_schema_says() {
        let read = |text: &str| serde_json::from_str::<BatchMessage>(text);
        assert!(read(r#"{"body": "x"}"#).is_ok());
        assert!(read(r#"{"to": null, "body_base64": "AA=="}"#).is_ok());
        for text in [r#"{"body": null}"#, r#"{"body": "x", "body": "x"}"#, r#"{"body": "x", "more": 1}"#, "[]"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
