//! Traces that have no hit ratio, or none that depends on the memory, are refused with one line.

#![allow(clippy::unwrap_used, reason = "tests")]

use hit_ratio::{Census, Operation, Request, SlabSettings};

/// Key, operation and size of the value.
type Row = (&'static str, Operation, u32);

fn refused(rows: &[Row]) -> Option<String> {
    let mut census = Census::new(SlabSettings::default(), None, usize::MAX);
    for (key, operation, value_bytes) in rows {
        census.add(&Request {
            key: key.as_bytes(),
            operation: *operation,
            value_bytes: *value_bytes,
            ttl_s: 0,
            at_s: 0,
        });
    }
    census.finish().err().map(|error| error.to_string())
}

#[test]
fn traces_without_an_answer_are_refused() {
    use Operation::{Get, Set};
    let cases: [(&[Row], &str); 4] = [
        (&[("a", Set, 5), ("b", Set, 5)], "there are 2 requests and no get"),
        (&[("a", Set, 0), ("b", Get, 0), ("a", Get, 0)], "no request has a value size"),
        (&[("a", Get, 5), ("a", Get, 5)], "all 2 requests are for one key"),
        (&[("a", Get, 5), ("b", Get, 5)], "no get is for a key that an earlier request named"),
    ];
    for (rows, line) in cases {
        let found = refused(rows).unwrap();
        assert!(found.starts_with(line) && !found.contains('\n'), "{found}");
    }
    assert_eq!(refused(&[("a", Set, 5), ("b", Get, 5), ("a", Get, 5)]), None);
}
