//! The labels of samples, in one place: a dimension that all backends, queues or requests share is added here, and to the
//! lists of `catalogue.rs`.

use records::Outcome;
use std::borrow::Cow;
use wire::Verb;

/// Names and values, in the order of the catalogue.
pub(crate) type Labels<'s> = Vec<(&'static str, Cow<'s, str>)>;

/// Of what is told apart by operation.
pub(crate) fn operation(verb: Verb) -> Labels<'static> {
    vec![("operation", verb.name().into())]
}

/// Of a request that has ended.
pub(crate) fn request(verb: Verb, outcome: Outcome) -> Labels<'static> {
    vec![("operation", verb.name().into()), ("outcome", outcome.name().into())]
}

/// Of the time in one stage.
pub(crate) fn stage(kind: &'static str, stage: &'static str) -> Labels<'static> {
    vec![("operation", kind.into()), ("stage", stage.into())]
}

/// Of a pool.
pub(crate) fn pool(name: &str) -> Labels<'_> {
    vec![("pool", escaped(name))]
}

/// Of a backend, which may be one of several pools.
pub(crate) fn backend<'s>(pool_name: &'s str, name: &'s str) -> Labels<'s> {
    let mut labels = pool(pool_name);
    labels.push(("backend", escaped(name)));
    labels
}

/// The same, and one sort of it.
pub(crate) fn and<'s>(mut labels: Labels<'s>, label: &'static str, value: &'static str) -> Labels<'s> {
    labels.push((label, value.into()));
    labels
}

/// Of a queue of a loop.
pub(crate) fn queue(loop_index: usize, name: &str) -> Labels<'_> {
    vec![("loop", loop_index.to_string().into()), ("queue", escaped(name))]
}

/// Of the program that runs.
pub(crate) fn build(version: &'static str, dispatch: &'static str) -> Labels<'static> {
    vec![("version", version.into()), ("dispatch", dispatch.into())]
}

/// Of a key that has been made printable.
pub(crate) fn key(printable: &str) -> Labels<'_> {
    vec![("key", escaped(printable))]
}

/// The encoder writes values as they are; three characters must not stand in them so.
fn escaped(value: &str) -> Cow<'_, str> {
    if value.contains(['\\', '"', '\n']) {
        value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n").into()
    } else {
        value.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_cannot_break_out_of_their_quotes() {
        assert_eq!(key("a\"} 1\n\\x00")[0].1, "a\\\"} 1\\n\\\\x00");
        assert!(matches!(backend("main", "10.0.0.1:11211")[1].1, Cow::Borrowed(_)));
    }
}
