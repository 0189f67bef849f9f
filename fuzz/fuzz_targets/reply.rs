//! For any bytes of a backend, the parser enforces its limits, and encoding a parsed reply restores it.
//! The first byte chooses where the bytes are split: a part parses like the whole, or is incomplete.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::{Limits, ParsedReply, parse_reply};

fuzz_target!(|input: &[u8]| {
    let Some((&cut, bytes)) = input.split_first() else { return };
    for limits in [Limits::default(), Limits { key_bytes: 10, line_bytes: 200, command_bytes: 60, value_bytes: 30 }] {
        check(bytes, usize::from(cut), &limits);
    }
});

fn check(bytes: &[u8], cut: usize, limits: &Limits) {
    let whole = parse_reply(bytes, limits);
    let part = parse_reply(&bytes[..cut.min(bytes.len())], limits);
    assert!(part == whole || part == ParsedReply::Incomplete);
    let bytes_max = limits.line_bytes + limits.value_bytes + 2;
    match whole {
        ParsedReply::Incomplete => assert!(bytes.len() < bytes_max),
        ParsedReply::Reply { reply, consumed } => {
            assert!((1..=bytes.len().min(bytes_max)).contains(&consumed));
            let mut encoded = Vec::new();
            reply.encode(&mut encoded);
            let roomy = Limits { line_bytes: 1 << 20, ..limits.clone() };
            assert_eq!(parse_reply(&encoded, &roomy), ParsedReply::Reply { reply, consumed: encoded.len() });
        }
        ParsedReply::Broken(_) => (),
    }
}
