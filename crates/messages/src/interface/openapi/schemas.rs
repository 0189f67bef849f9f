//! Schemas of what clients send: names, durations, counts, and the documents with them. They contain the limits of the service.

use crate::config::Limits;
use crate::interface::rules::{ATTEMPTS_MAX, BACKOFF_MAX, NAME_BYTES_MAX, NAME_PATTERN};
use serde_json::json;
use std::time::Duration;
use utoipa::openapi::schema::{
    AdditionalProperties, ArrayBuilder, ObjectBuilder, OneOfBuilder, Schema, SchemaType, Type,
};
use utoipa::openapi::{KnownFormat, Ref, RefOr, SchemaFormat};

/// Durations as the service parses them, and positive ones. The limit is in the description of the schema, because an expression for numbers
/// up to a limit in six units has several hundred characters.
const DURATION: &str = r"^([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|ms|s|m|h)$";
const POSITIVE_DURATION: &str = r"^([0-9]*[1-9][0-9]*\.?[0-9]*|[0-9]*\.[0-9]*[1-9][0-9]*)(ns|us|ms|s|m|h)$";

/// The documents by name.
pub(super) fn documents(limits: &Limits) -> Vec<(&'static str, RefOr<Schema>)> {
    vec![
        ("Batch", several("messages", Ref::from_schema_name("BatchMessage").into(), limits)),
        ("BatchMessage", batch_message(limits)),
        ("LeaseTokens", several("lease_tokens", text().into(), limits)),
        ("QueueSettings", settings(limits)),
    ]
}

/// Any text.
pub(super) fn text() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String)
}

/// The name of a queue, sender or receiver.
pub(super) fn name() -> ObjectBuilder {
    text().min_length(Some(1)).max_length(Some(NAME_BYTES_MAX)).pattern(Some(NAME_PATTERN))
}

/// A duration with its unit.
pub(super) fn time(longest: Duration, may_be_nothing: bool) -> ObjectBuilder {
    let about = format!("For example 200ms or 30s, at most {}.", quantity::duration_text(longest));
    text().pattern(Some(if may_be_nothing { DURATION } else { POSITIVE_DURATION })).description(Some(about))
}

/// Any bytes.
pub(super) fn bytes() -> ObjectBuilder {
    text().format(Some(SchemaFormat::KnownFormat(KnownFormat::Binary)))
}

/// A document with an array in this field, and no other field.
fn several(field: &str, item: RefOr<Schema>, limits: &Limits) -> RefOr<Schema> {
    let array = ArrayBuilder::new().items(item).min_items(Some(1)).max_items(Some(limits.batch_messages));
    closed(ObjectBuilder::new().property(field, array).required(field)).into()
}

fn batch_message(limits: &Limits) -> RefOr<Schema> {
    let base64 = text().format(Some(SchemaFormat::KnownFormat(KnownFormat::Byte))).content_encoding("base64");
    let with = |field: &str, body: ObjectBuilder| {
        let object = ObjectBuilder::new()
            .property("to", or_null(name()).description(Some("The receiver. Null or missing: anyone.")))
            .property("delay", or_null(time(limits.delay, true)))
            .property("expiry", or_null(time(limits.expiry, false)));
        closed(object.property(field, body).required(field))
    };
    OneOfBuilder::new()
        .description(Some("A message of a batch: `body` is text, `body_base64` any bytes."))
        .item(with("body", text()))
        .item(with("body_base64", base64))
        .into()
}

fn settings(limits: &Limits) -> RefOr<Schema> {
    let both = || {
        ObjectBuilder::new()
            .property("expiry", or_null(time(limits.expiry, false)))
            .property("lease", or_null(time(limits.lease, false)))
            .property("backoff", or_null(time(BACKOFF_MAX, false)))
    };
    let attempts = ObjectBuilder::new()
        .schema_type(SchemaType::Array(vec![Type::Integer, Type::Null]))
        .minimum(Some(1))
        .maximum(Some(ATTEMPTS_MAX))
        .description(Some(
            "How often a message can be received before it moves to the dead-letter queue. Null or missing: 20.",
        ));
    let other = name().description(Some("Another queue, which must exist."));
    let null = || ObjectBuilder::new().schema_type(Type::Null);
    OneOfBuilder::new()
        .description(Some("Settings of a queue. A missing or null field has its default."))
        .item(closed(
            both().property("attempts", attempts).property("dead_letter_queue", other).required("dead_letter_queue"),
        ))
        .item(closed(both().property("attempts", null()).property("dead_letter_queue", null())))
        .examples([json!({ "attempts": 5, "dead_letter_queue": "orders-dead", "expiry": "60m", "lease": "30s", "backoff": "1s" })])
        .into()
}

fn or_null(schema: ObjectBuilder) -> ObjectBuilder {
    schema.schema_type(SchemaType::Array(vec![Type::String, Type::Null]))
}

fn closed(object: ObjectBuilder) -> ObjectBuilder {
    object.schema_type(Type::Object).additional_properties(Some(AdditionalProperties::<Schema>::FreeForm(false)))
}
