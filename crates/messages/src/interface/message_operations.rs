//! Operations on messages.

use crate::interface::operation::{
    Body, Content, Does, Method, Operation, Parameter, Place, QUEUE, Reply, SENDER, Value, query, reply,
};
use crate::path::parse::messages;

const TO: Parameter = query("to", Value::Name, "The only receiver; without it, anyone.", "bob");
pub(crate) const FOR: Parameter = query(
    "for",
    Value::Name,
    "Who asks: messages for this receiver and those for anyone. Without it, only those for anyone.",
    "bob",
);
pub(crate) const FROM: Parameter = query("from", Value::Name, "Only messages of this sender.", "alice");
const FROM_REQUIRED: Parameter = Parameter { is_required: true, ..FROM };
pub(crate) const MAX: Parameter = query(
    "max",
    Value::Count(|limits| limits.batch_messages),
    "Up to so many messages, as a JSON document. Without it one message, as its bytes.",
    "10",
);
pub(crate) const WAIT: Parameter = query(
    "wait",
    Value::Time(|limits| limits.long_poll, true),
    "How long to wait for a message if there is none.",
    "20s",
);

const DELAY: Parameter =
    query("delay", Value::Time(|limits| limits.delay, true), "Nobody gets the message before.", "10s");
const EXPIRY: Parameter = query(
    "expiry",
    Value::Time(|limits| limits.expiry, false),
    "Nobody gets the message afterwards; longer than the delay.",
    "60m",
);
const KEY: Parameter = Parameter {
    place: Place::Header,
    name: "Idempotency-Key",
    value: Value::Key,
    is_required: false,
    says: "Repeated with the same key, the send is done once; the reply is that of the first time.",
    example: "8e03978e-40d5-43e8-bc93-6894a57f9324",
};

const FOUND: Reply = reply(
    200,
    Content::MessageOr("Messages"),
    "The oldest message as its bytes, with what is known of it in headers. With `max` a document, which may hold no message.",
);
pub(crate) const NOTHING: Reply = reply(204, Content::Nothing, "There is no message. (Not with `max`.)");

pub(crate) const OPERATIONS: &[Operation] = &[
    Operation {
        method: Method::Post,
        path: "/v1/queues/{queue}/messages",
        does: Does::Work(messages::send),
        id: "send",
        says: "Sends the body as it is.",
        more: "When the reply comes, the message is committed. Any media type is taken, and none is kept.",
        takes: &[QUEUE, SENDER, TO, DELAY, EXPIRY, KEY],
        body: Body::Bytes,
        replies: &[reply(201, Content::Json("Stored"), "It is stored.")],
        problems: &["unknown-queue", "idempotency-key-reused", "in-doubt"],
    },
    Operation {
        method: Method::Post,
        path: "/v1/queues/{queue}/messages:batch",
        does: Does::Work(messages::send_batch),
        id: "sendBatch",
        says: "Sends several messages, all or none.",
        more: "",
        takes: &[QUEUE, SENDER, KEY],
        body: Body::Json("Batch", r#"{"messages": [{"to": "bob", "body": "two apples"}, {"body_base64": "AP8="}]}"#),
        replies: &[reply(201, Content::Json("StoredBatch"), "They are stored.")],
        problems: &["unknown-queue", "idempotency-key-reused", "in-doubt"],
    },
    Operation {
        method: Method::Get,
        path: "/v1/queues/{queue}/messages/head",
        does: Does::Work(messages::head),
        id: "peek",
        says: "Reads the oldest message and leaves it.",
        more: "",
        takes: &[QUEUE, FOR, FROM, MAX],
        body: Body::Nothing,
        replies: &[FOUND, NOTHING],
        problems: &["unknown-queue"],
    },
    Operation {
        method: Method::Post,
        path: "/v1/queues/{queue}/messages:pop",
        does: Does::Work(messages::pop),
        id: "pop",
        says: "Reads the oldest message and removes it.",
        more: "A message is handed out once at most: if the reply does not arrive, it is lost.",
        takes: &[QUEUE, FOR, FROM, MAX, WAIT],
        body: Body::Nothing,
        replies: &[FOUND, NOTHING],
        problems: &["unknown-queue", "in-doubt"],
    },
    Operation {
        method: Method::Get,
        path: "/v1/messages/head",
        does: Does::Work(messages::head_everywhere),
        id: "peekEverywhere",
        says: "Reads the oldest message of a sender over all queues, and leaves it.",
        more: "",
        takes: &[FROM_REQUIRED, FOR, MAX],
        body: Body::Nothing,
        replies: &[FOUND, NOTHING],
        problems: &[],
    },
    Operation {
        method: Method::Post,
        path: "/v1/messages:pop",
        does: Does::Work(messages::pop_everywhere),
        id: "popEverywhere",
        says: "Reads the oldest message of a sender over all queues, and removes it.",
        more: "A message is handed out once at most: if the reply does not arrive, it is lost.",
        takes: &[FROM_REQUIRED, FOR, MAX],
        body: Body::Nothing,
        replies: &[FOUND, NOTHING],
        problems: &["in-doubt"],
    },
];
