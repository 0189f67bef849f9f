//! Properties: encoding and parsing are inverse, splitting makes no difference, and limits are enforced.

mod generate;

use generate::{RandomReply, RandomRequest, nonsense, reply, request};
use proptest::collection::vec;
use proptest::prelude::*;
use wire::{Limits, ParsedReply, ParsedRequest, parse_reply, parse_request};

/// Small enough for random bytes to reach every limit.
fn small() -> Limits {
    Limits { key_bytes: 10, line_bytes: 200, command_bytes: 60, value_bytes: 30 }
}

/// The messages that a server parses when it reads `stream` in `pieces`.
fn serve(stream: &[u8], pieces: &[usize], limits: &Limits) -> Vec<String> {
    let (mut seen, mut at, mut swallow, mut arrived) = (Vec::new(), 0, 0u64, 0);
    for &piece in pieces.iter().chain([&stream.len()]) {
        arrived = stream.len().min(arrived + piece);
        loop {
            let dropped = swallow.min((arrived - at) as u64);
            at += dropped as usize;
            swallow -= dropped;
            if swallow > 0 {
                break;
            }
            let parsed = parse_request(&stream[at..arrived], limits);
            match parsed {
                ParsedRequest::Incomplete => break,
                ParsedRequest::Request { consumed, .. } => at += consumed,
                ParsedRequest::Invalid { consumed, swallow: more, .. } => {
                    at += consumed;
                    swallow = more;
                }
                ParsedRequest::Close { .. } => {
                    seen.push(format!("{parsed:?}"));
                    return seen;
                }
            }
            seen.push(format!("{parsed:?}"));
        }
    }
    seen.push(format!("{} left, {swallow} to be dropped", stream.len() - at));
    seen
}

/// The units that a client parses when it reads `stream` in `pieces`.
fn listen(stream: &[u8], pieces: &[usize], limits: &Limits) -> Vec<String> {
    let (mut seen, mut at, mut arrived) = (Vec::new(), 0, 0);
    for &piece in pieces.iter().chain([&stream.len()]) {
        arrived = stream.len().min(arrived + piece);
        loop {
            let parsed = parse_reply(&stream[at..arrived], limits);
            match parsed {
                ParsedReply::Incomplete => break,
                ParsedReply::Reply { consumed, .. } => at += consumed,
                ParsedReply::Broken(_) => {
                    seen.push(format!("{parsed:?}"));
                    return seen;
                }
            }
            seen.push(format!("{parsed:?}"));
        }
    }
    seen.push(format!("{} left", stream.len() - at));
    seen
}

fn encoded(requests: &[RandomRequest]) -> Vec<u8> {
    let mut stream = Vec::new();
    requests.iter().for_each(|request| request.request().encode(&mut stream));
    stream
}

fn spoken(replies: &[RandomReply]) -> Vec<u8> {
    let mut stream = Vec::new();
    replies.iter().for_each(|reply| reply.reply().encode(&mut stream));
    stream
}

proptest! {
    #[test]
    fn a_request_survives_the_wire(random in request(), after in nonsense()) {
        let request = random.request();
        let mut stream = Vec::new();
        request.encode(&mut stream);
        let consumed = stream.len();
        stream.extend_from_slice(&after);
        let limits = Limits { line_bytes: 4096, command_bytes: 4096, ..Limits::default() };
        prop_assert_eq!(parse_request(&stream, &limits), ParsedRequest::Request { request, consumed });
        for length in 0..consumed {
            prop_assert_eq!(parse_request(&stream[..length], &limits), ParsedRequest::Incomplete);
        }
        if let wire::Request::Get { .. } = request {
            let mut same = Vec::new();
            random.encode_keys(&mut same);
            prop_assert_eq!(&same[..], &stream[..consumed]);
        }
        let loud = request.without_noreply();
        prop_assert!(!loud.noreply() && !loud.is_quiet());
        let mut stream = Vec::new();
        loud.encode(&mut stream);
        let parsed = parse_request(&stream, &limits);
        let ParsedRequest::Request { request: again, .. } = parsed else { panic!("{parsed:?}") };
        prop_assert!(!again.noreply() && !again.is_quiet());
        prop_assert_eq!((loud.verb(), loud.key()), (request.verb(), request.key()));
    }

    #[test]
    fn a_reply_survives_the_wire(random in reply(), after in nonsense()) {
        let reply = random.reply();
        let mut stream = Vec::new();
        reply.encode(&mut stream);
        let consumed = stream.len();
        stream.extend_from_slice(&after);
        let limits = Limits::default();
        prop_assert_eq!(parse_reply(&stream, &limits), ParsedReply::Reply { reply, consumed });
        for length in 0..consumed {
            prop_assert_eq!(parse_reply(&stream[..length], &limits), ParsedReply::Incomplete);
        }
    }

    #[test]
    fn requests_in_any_pieces_are_the_same_requests(
        requests in vec(request(), 1..6), noise in nonsense(), pieces in vec(1usize..40, 0..40), tight in any::<bool>(),
    ) {
        let stream = [encoded(&requests), noise, encoded(&requests[..1])].concat();
        let limits = if tight { small() } else { Limits::default() };
        let at_once = serve(&stream, &[], &limits);
        prop_assert_eq!(&serve(&stream, &pieces, &limits), &at_once);
        prop_assert_eq!(&serve(&stream, &vec![1; stream.len()], &limits), &at_once);
        for split in 0..stream.len() {
            prop_assert_eq!(&serve(&stream, &[split], &limits), &at_once);
        }
    }

    #[test]
    fn replies_in_any_pieces_are_the_same_replies(
        replies in vec(reply(), 1..6), noise in nonsense(), pieces in vec(1usize..40, 0..40), tight in any::<bool>(),
    ) {
        let stream = [spoken(&replies), noise, spoken(&replies[..1])].concat();
        let limits = if tight { small() } else { Limits::default() };
        let at_once = listen(&stream, &[], &limits);
        prop_assert_eq!(&listen(&stream, &pieces, &limits), &at_once);
        prop_assert_eq!(&listen(&stream, &vec![1; stream.len()], &limits), &at_once);
        for split in 0..stream.len() {
            prop_assert_eq!(&listen(&stream, &[split], &limits), &at_once);
        }
    }

    #[test]
    fn limits_hold_for_any_bytes(bytes in nonsense()) {
        let limits = small();
        let bytes_max = limits.line_bytes + limits.value_bytes + 2;
        match parse_request(&bytes, &limits) {
            ParsedRequest::Incomplete => prop_assert!(bytes.len() < bytes_max),
            ParsedRequest::Request { request, consumed } => {
                prop_assert!((1..=bytes.len().min(bytes_max)).contains(&consumed));
                prop_assert!(request.key().is_none_or(|key| (1..=limits.key_bytes).contains(&key.len())));
                if let wire::Request::Get { keys, .. } = request {
                    prop_assert!(keys.count() > 0 && keys.iter().all(|key| key.len() <= limits.key_bytes));
                }
                if let wire::Request::Meta(meta) = request {
                    prop_assert!(meta.flags.count() <= 17 || meta.verb == wire::Verb::Me);
                    prop_assert!((1..=limits.key_bytes).contains(&meta.stored_key(&mut [0; 250]).len()));
                }
            }
            ParsedRequest::Invalid { error, consumed, swallow } => {
                prop_assert!((1..=bytes.len().min(bytes_max)).contains(&consumed));
                prop_assert!(swallow <= i32::MAX as u64);
                prop_assert!(error.line().is_empty() == error.noreply());
                prop_assert!(error.noreply() || error.line().ends_with(b"\r\n"));
            }
            ParsedRequest::Close { error } => prop_assert!(error.is_none_or(|error| !error.noreply())),
        }
        match parse_reply(&bytes, &limits) {
            ParsedReply::Incomplete => prop_assert!(bytes.len() < bytes_max),
            ParsedReply::Reply { consumed, .. } => prop_assert!((1..=bytes.len().min(bytes_max)).contains(&consumed)),
            ParsedReply::Broken(_) => (),
        }
    }
}
