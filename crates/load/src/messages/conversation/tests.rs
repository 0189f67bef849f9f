//! Requests and responses without a service.

use super::failures::problem;
use super::*;
use crate::config::Config;
use crate::config::messages::MessagesConfig;

fn context(operations: &str) -> MessagesContext {
    let messages = MessagesConfig {
        mix: operations.parse().unwrap(),
        queue_prefix: Some("q-".into()),
        ..MessagesConfig::default()
    };
    MessagesContext::new(&Config { messages: Some(messages), clients: 4, ..Config::default() }, 1).unwrap()
}

fn response(status: u16, body: &[u8]) -> Response<'_> {
    Response { status, body, consumed: 0, closes: false, retry_after: None, lease_token: None, id: None, attempt: None }
}

#[test]
fn operations_follow_their_weights() {
    let context = context("send:3,pop:1");
    let mut conversation = Conversation::new(&context, 0);
    let sends = (0..10_000).filter(|_| conversation.choose(0, clock::Nanos(1)) == MessageOperation::Send).count();
    assert!((7_300..7_700).contains(&sends), "{sends} sends of 10000 at 3:1");
}

#[test]
fn a_waiting_queue_belongs_to_the_run() {
    let context = context("waiting");
    let mut conversation = Conversation::new(&context, 0);
    let mut found = |document: &str| conversation.waiting(document.as_bytes());
    assert_eq!(found("{\"queues\":[\"other-3\",\"q-own-1-2\",\"q-99\",\"q-7\"]}"), Some(7));
    assert_eq!((found("{\"queues\":[]}"), found("q-"), found("\"q-1x\"")), (None, None, None));
    let both: std::collections::HashSet<_> = (0..100).map(|_| found("[\"q-1\",\"q-2\"]")).collect();
    assert_eq!(both, [Some(1), Some(2)].into());
    assert!(has_names(b"{\"queues\":[\"a\"]}") && !has_names(b"{\"queues\":[]}"));
}

#[test]
fn a_problem_is_known_by_its_type() {
    assert_eq!(problem(b"{\"type\":\"urn:waystage:problem:in-doubt\",\"status\":503}"), Some("in-doubt"));
    assert_eq!((problem(b"Bad gateway"), problem(b"urn:waystage:problem:\"")), (None, None));
}

#[test]
fn the_five_requests_are_sent_in_turn_and_end_together() {
    let context = context("d15");
    let mut conversation = Conversation::new(&context, 0);
    for operation in 0..2 {
        let mut request = Vec::new();
        for step in 0..5 {
            request.push(conversation.choose(1, clock::Nanos(1)).name());
            let replied = match step {
                0 => response(201, b"{}"),
                1 => response(200, b"{\"queues\":[\"q-4\"]}"),
                _ => response(204, b""),
            };
            let matched = conversation.match_response(1, &replied, clock::Nanos(2)).unwrap();
            let part = EndedRequest {
                operation: Operation::Get,
                intended: clock::Nanos(100 * step),
                sent: clock::Nanos(100 * step + 1),
                completed: clock::Nanos(100 * step + 50),
                keys: 1,
                hits: matched.hits,
                request_bytes: 10,
                reply_bytes: 1,
                failed: false,
                message: None,
            };
            let whole = conversation.whole(1, &part);
            assert_eq!(whole.is_some(), step == 4);
            if let Some(whole) = whole {
                assert_eq!((whole.response_ns(), whole.request_bytes, whole.misses()), (450, 50, 0));
            }
            if step == 1 {
                assert_eq!(conversation.clients[1].waiting, Some(4));
            }
        }
        let send = if operation == 0 { "send" } else { "send-to" };
        assert_eq!(request, [send, "waiting", "peek", "peek-from", "pop"]);
    }
}

#[test]
fn a_response_that_matches_no_request_is_not_a_reply() {
    let context = context("send");
    let mut conversation = Conversation::new(&context, 0);
    conversation.choose(0, clock::Nanos(1));
    assert!(conversation.match_response(0, &response(200, b""), clock::Nanos(2)).is_none());
    assert!(conversation.match_response(0, &response(201, b""), clock::Nanos(2)).is_some());
    assert!(conversation.match_response(0, &response(201, b""), clock::Nanos(2)).is_none(), "nothing is in flight");
}

#[test]
fn errors_of_other_programs_leave_doubt() {
    let context = context("send");
    let ledger = context.ledger.as_ref().unwrap();
    let mut conversation = Conversation::new(&context, 0);
    for (status, body, doubtful) in [
        (502, "Bad gateway", 1),
        (503, "urn:waystage:problem:overloaded", 1),
        (500, "urn:waystage:problem:internal-error", 1),
        (404, "urn:waystage:problem:unknown-queue", 1),
        (503, "urn:waystage:problem:in-doubt", 2),
    ] {
        conversation.choose(0, clock::Nanos(1));
        assert!(
            conversation
                .match_response(0, &response(status, body.as_bytes()), clock::Nanos(2))
                .unwrap()
                .error
                .is_some()
        );
        assert_eq!(ledger.remainder(true).sends_in_doubt, doubtful, "{status} {body}");
    }
    assert_eq!(ledger.outstanding(), 0);
}
