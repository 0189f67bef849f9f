//! The labels of all samples. A label that all backends, queues or requests share is added here, and to the lists of `catalogue`.

use records::Outcome;
use std::borrow::Cow;
use wire::Verb;

/// Names and values, in the order of the catalogue.
pub(crate) type Labels<'s> = Vec<(&'static str, Cow<'s, str>)>;

/// The labels of a count by operation.
pub(crate) fn operation(verb: Verb) -> Labels<'static> {
    vec![("operation", verb.name().into())]
}

/// The labels of a request that has ended.
pub(crate) fn request(verb: Verb, outcome: Outcome) -> Labels<'static> {
    vec![("operation", verb.name().into()), ("outcome", outcome.name().into())]
}

/// The labels of the time in one stage.
pub(crate) fn stage(kind: &'static str, stage: &'static str) -> Labels<'static> {
    vec![("operation", kind.into()), ("stage", stage.into())]
}

/// The labels of a pool.
pub(crate) fn pool(name: &str) -> Labels<'_> {
    vec![("pool", escaped(name))]
}

/// The labels of a backend, which may belong to several pools.
pub(crate) fn backend<'s>(pool_name: &'s str, name: &'s str) -> Labels<'s> {
    let mut labels = pool(pool_name);
    labels.push(("backend", escaped(name)));
    labels
}

/// These labels, and one more.
pub(crate) fn and<'s>(mut labels: Labels<'s>, label: &'static str, value: &'static str) -> Labels<'s> {
    labels.push((label, value.into()));
    labels
}

/// The labels of a queue of one loop.
pub(crate) fn queue(loop_index: usize, name: &str) -> Labels<'_> {
    vec![("loop", loop_index.to_string().into()), ("queue", escaped(name))]
}

/// The label of a reason.
pub(crate) fn reason(reason: &'static str) -> Labels<'static> {
    vec![("reason", reason.into())]
}

/// The labels of the build.
pub(crate) fn build(version: &'static str, dispatch: &'static str) -> Labels<'static> {
    vec![("version", version.into()), ("dispatch", dispatch.into())]
}

/// The label of a key in printable form.
pub(crate) fn key(printable: &str) -> Labels<'_> {
    vec![("key", escaped(printable))]
}

/// Escapes three characters in a value, which the encoder would write unchanged.
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
