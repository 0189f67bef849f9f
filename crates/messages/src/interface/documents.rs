//! The JSON documents that clients send and receive, with the schemas of those that they receive. openapi/schemas.rs has the schemas of
//! those that they send, which contain limits. Knows neither HTTP nor SQL.

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;
use std::marker::PhantomData;
use utoipa::ToSchema;

/// A JSON object. Without this type, a structure is also read from an array with the values of its fields.
#[derive(Debug)]
pub(crate) struct Object<T>(pub(crate) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Object<T>, D::Error> {
        struct ObjectVisitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
            type Value = Object<T>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<Object<T>, M::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }
        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

/// The messages of a batch, in their order; all are stored, or none.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Batch {
    pub(crate) messages: Vec<Object<BatchMessage>>,
}

/// A message of a batch, with exactly one of the two bodies.
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

/// Settings of a queue; a missing or null field has its default.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct QueueSettingsDocument {
    #[serde(default, deserialize_with = "whole")]
    pub(crate) attempts: Option<i32>,
    pub(crate) dead_letter_queue: Option<String>,
    pub(crate) expiry: Option<String>,
    pub(crate) lease: Option<String>,
    pub(crate) backoff: Option<String>,
}

/// Leases that are acknowledged together, each on its own.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LeaseTokens {
    pub(crate) lease_tokens: Vec<String>,
}

/// The stored message.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Stored {
    /// Ids increase, with gaps.
    pub(crate) id: i64,
}

/// The stored messages, in the order of the request.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct StoredBatch<'s> {
    /// Ids increase, with gaps.
    pub(crate) ids: &'s [i64],
}

/// Messages, the oldest first; possibly none.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Messages<'m> {
    pub(crate) messages: Vec<MessageDocument<'m>>,
}

/// A message.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Message)]
pub(crate) struct MessageDocument<'m> {
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
    /// Present only in messages of a dead-letter queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) dead_letter: Option<&'m DeadLetter>,
    /// Only of a received message: acknowledges, extends or nacks it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) lease_token: Option<String>,
    /// Only of a received message: how often it was received; the first time is 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) attempt: Option<i32>,
}

/// The origin of a dead letter, and the reason for its move.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct DeadLetter {
    /// The queue in which it was received.
    pub(crate) queue: String,
    /// Number of times it was received there.
    pub(crate) attempts: i32,
    /// Microseconds since 1970.
    pub(crate) first_received_unix_us: Option<i64>,
    /// Microseconds since 1970.
    pub(crate) last_received_unix_us: Option<i64>,
    /// How its last lease ended: `nacked` or `lease-expired`.
    pub(crate) reason: String,
}

/// A queue with its settings and counts.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Queue)]
pub(crate) struct QueueDocument<'q> {
    pub(crate) name: &'q str,
    /// How often a message can be received before it moves to the dead-letter queue; null: unlimited.
    #[schema(required = true)]
    pub(crate) attempts: Option<i32>,
    /// The dead-letter queue; null: none.
    #[schema(required = true)]
    pub(crate) dead_letter_queue: Option<&'q str>,
    /// Expiry of messages that are sent without one; null: never.
    #[schema(required = true)]
    pub(crate) expiry: Option<String>,
    /// Visibility timeout of receives without one; null: 30s.
    #[schema(required = true)]
    pub(crate) lease: Option<String>,
    /// First pause before a message is redelivered; it doubles with each attempt, up to an hour. Null: none.
    #[schema(required = true)]
    pub(crate) backoff: Option<String>,
    /// Messages that can be received.
    pub(crate) visible: i64,
    /// Messages in flight (leased) or delayed.
    pub(crate) invisible: i64,
    /// Where both counts stop.
    pub(crate) counted_up_to: i64,
}

/// The lease tokens of a batch whose leases had expired.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct NotAcknowledged {
    pub(crate) not_acknowledged: Vec<String>,
}

/// A page of names of queues in alphabetical order.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Queues<'q> {
    pub(crate) queues: &'q [String],
    /// There may be more queues: request them with `after`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) next: Option<&'q str>,
}

/// In JSON 5 and 5.0 are the same number.
fn whole<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i32>, D::Error> {
    let Some(number) = Option::<f64>::deserialize(deserializer)? else { return Ok(None) };
    if number.fract() == 0.0 && (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&number) {
        return Ok(Some(number as i32));
    }
    Err(serde::de::Error::custom(format!("attempts: {number} is not an integer of 32 bits")))
}

/// A field that can be missing but not null.
fn not_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    String::deserialize(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_a_batch_matches_its_schema() {
        let read = |text: &str| serde_json::from_str::<Object<BatchMessage>>(text);
        assert!(read(r#"{"body": "x"}"#).is_ok());
        assert!(read(r#"{"to": null, "body_base64": "AA=="}"#).is_ok());
        for text in [
            r#"{"body": null}"#,
            r#"{"body": "x", "body": "x"}"#,
            r#"{"body": "x", "more": 1}"#,
            "[]",
            r#"[null, "x", "", null, null]"#,
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
