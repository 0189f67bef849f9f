//! For any bytes of a client, the parser enforces its limits, and encoding a parsed request restores it.
//! The first byte chooses where the bytes are split: a part parses like the whole, or is incomplete.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::{Limits, ParsedRequest, parse_request};

fuzz_target!(|input: &[u8]| {
    let Some((&cut, bytes)) = input.split_first() else { return };
    for limits in [Limits::default(), Limits { key_bytes: 10, line_bytes: 200, command_bytes: 60, value_bytes: 30 }] {
        check(bytes, usize::from(cut), &limits);
    }
});

fn check(bytes: &[u8], cut: usize, limits: &Limits) {
    let whole = parse_request(bytes, limits);
    let part = parse_request(&bytes[..cut.min(bytes.len())], limits);
    assert!(part == whole || part == ParsedRequest::Incomplete);
    let bytes_max = limits.line_bytes + limits.value_bytes + 2;
    match whole {
        ParsedRequest::Incomplete => assert!(bytes.len() < bytes_max),
        ParsedRequest::Request { request, consumed } => {
            assert!((1..=bytes.len().min(bytes_max)).contains(&consumed));
            assert!(request.key().is_none_or(|key| (1..=limits.key_bytes).contains(&key.len())));
            let mut encoded = Vec::new();
            request.encode(&mut encoded);
            // A number may have been written shorter than it is encoded.
            let roomy = Limits { line_bytes: 1 << 20, command_bytes: 1 << 20, ..limits.clone() };
            assert_eq!(parse_request(&encoded, &roomy), ParsedRequest::Request { request, consumed: encoded.len() });
        }
        ParsedRequest::Invalid { error, consumed, swallow } => {
            assert!((1..=bytes.len().min(bytes_max)).contains(&consumed));
            assert!(swallow <= i32::MAX as u64);
            assert_eq!(error.line().is_empty(), error.noreply());
        }
        ParsedRequest::Close { error } => assert!(error.is_none_or(|error| !error.noreply())),
    }
}
