//! For any bytes after the name of a meta command: the parser enforces its limits, the key can be found, the flags are
//! interpreted or refused, and a command forwarded without its `q` has none. The first byte chooses the command and limits.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::{Limits, Options, ParsedRequest, Request, Verb, parse_request};

const NAMES: [&[u8]; 6] = [b"mg ", b"ms ", b"md ", b"ma ", b"me ", b"mn "];

fuzz_target!(|input: &[u8]| {
    let Some((&choice, rest)) = input.split_first() else { return };
    let bytes = [NAMES[usize::from(choice) % NAMES.len()], rest].concat();
    let tight = Limits { key_bytes: 10, line_bytes: 200, command_bytes: 60, value_bytes: 30 };
    check(&bytes, &if choice < 128 { Limits::default() } else { tight });
});

fn check(bytes: &[u8], limits: &Limits) {
    let ParsedRequest::Request { request, consumed } = parse_request(bytes, limits) else { return };
    assert!(consumed <= bytes.len());
    let Request::Meta(meta) = request else { return };
    assert!((1..=limits.key_bytes).contains(&meta.stored_key(&mut [0; 250]).len()));
    if let Err(error) = Options::parse(&meta) {
        assert!(error.line().starts_with(b"CLIENT_ERROR ") && error.line().ends_with(b"\r\n"));
    }
    let mut loud = Vec::new();
    request.without_noreply().encode(&mut loud);
    let roomy = Limits { line_bytes: 1 << 20, command_bytes: 1 << 20, ..limits.clone() };
    let ParsedRequest::Request { request: Request::Meta(again), consumed } = parse_request(&loud, &roomy) else {
        panic!("a request stays one without its q")
    };
    assert_eq!((consumed, again.is_quiet(), again.verb, again.key, again.value), {
        (loud.len(), false, meta.verb, meta.key, meta.value)
    });
    let is_kept = |flag: &&[u8]| meta.verb == Verb::Me || flag[0] != b'q';
    assert!(again.flags.iter().eq(meta.flags.iter().filter(is_kept)));
    assert_eq!(again.is_base64(), meta.is_base64());
}
