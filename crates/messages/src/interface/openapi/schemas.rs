//! Schemas of what clients send: names, durations, counts, and the documents with them. They contain the limits of the service.

use crate::config::Limits;
use crate::interface::rules::{ATTEMPTS_MAX, BACKOFF_MAX, NAME_BYTES_MAX, NAME_PATTERN};
use serde_json::json;
use std::time::Duration;
use utoipa::openapi::schema::{
    AdditionalProperties, ArrayBuilder, ObjectBuilder, OneOfBuilder, Schema, SchemaType, Type,
};
use utoipa::openapi::{KnownFormat, Ref, RefOr, SchemaFormat};

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
    text().pattern(Some(duration_pattern(longest, may_be_nothing))).description(Some(about))
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

/// Durations up to the limit, as a regular expression. The service also accepts more digits and the units `us` and `ns`.
pub(super) fn duration_pattern(longest: Duration, may_be_nothing: bool) -> String {
    let longest_ms = u64::try_from(longest.as_millis()).unwrap_or(u64::MAX);
    let units = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000)].map(|(unit, unit_ms)| {
        let most = longest_ms / unit_ms;
        let whole = number_up_to(most, if may_be_nothing || most == 0 { '0' } else { '1' });
        // With a fraction, the number before the point is below the limit.
        let fraction = most.checked_sub(1).map(|below| format!("|({})\\.[0-9]?[1-9]", number_up_to(below, '0')));
        let is_possible = most > 0 || may_be_nothing;
        is_possible.then(|| format!("({whole}{}){unit}", fraction.unwrap_or_default()))
    });
    let units: Vec<String> = units.into_iter().flatten().collect();
    format!("^({})$", units.join("|"))
}

/// A regular expression for the numbers from 0 or 1 to `most`, without leading zeros.
pub(super) fn number_up_to(most: u64, from: char) -> String {
    let digits = most.to_string();
    let mut choices = Vec::new();
    if from == '0' {
        choices.push("0".to_string());
    }
    if digits.len() > 1 {
        choices.push(format!("[1-9][0-9]{{0,{}}}", digits.len() - 2));
    }
    for (index, digit) in digits.char_indices() {
        let lowest = if index == 0 { '1' } else { '0' };
        if digit > lowest {
            let below = char::from(u8::try_from(digit).unwrap_or(b'1') - 1);
            choices.push(format!("{}[{lowest}-{below}][0-9]{{{}}}", &digits[..index], digits.len() - index - 1));
        }
    }
    if most > 0 {
        choices.push(digits);
    }
    choices.join("|")
}
