//! Operations on messages.

use crate::config::Permission;
use crate::interface::operation::{
    Body, Content, Handler, Location, Method, Operation, Parameter, QUEUE, Reply, SENDER, Value, query, reply,
};
use crate::path::parse::messages;

const TO: Parameter = query("to", Value::Name, "The receiver. Without it, anyone can receive the message.", "bob");
pub(crate) const FOR: Parameter = query(
    "for",
    Value::Name,
    "The receiver: returns messages to it and those to anyone. Without it, only those to anyone.",
    "bob",
);
pub(crate) const FROM: Parameter = query("from", Value::Name, "Returns only messages of this sender.", "alice");
const FROM_REQUIRED: Parameter = Parameter { is_required: true, ..FROM };
pub(crate) const MAX: Parameter = query(
    "max",
    Value::Count(|limits| limits.batch_messages),
    "Returns up to this many messages, as a JSON document. Without it, one message as its bytes.",
    "10",
);
pub(crate) const WAIT: Parameter =
    query("wait", Value::Time(|limits| limits.long_poll, true), "How long to wait if there is no message.", "20s");

const DELAY: Parameter = query(
    "delay",
    Value::Time(|limits| limits.delay, true),
    "The message is invisible until then. Must be shorter than the expiry of the queue.",
    "10s",
);
const EXPIRY: Parameter = query(
    "expiry",
    Value::Time(|limits| limits.expiry, false),
    "The message is deleted then. Must be longer than the delay.",
    "60m",
);
const KEY: Parameter = Parameter {
    location: Location::Header,
    name: "Idempotency-Key",
    value: Value::Key,
    is_required: false,
    description: "Sends with the same key store their messages once; each reply has the ids of the first.",
    example: "8e03978e-40d5-43e8-bc93-6894a57f9324",
};

const FOUND: Reply = reply(
    200,
    Content::MessageOrJson("Messages"),
    "The oldest message as its bytes, with its attributes in headers. With `max`, a document with any number of messages.",
);
pub(crate) const NOTHING: Reply = reply(204, Content::Nothing, "There is no message (not with `max`).");

pub(crate) const OPERATIONS: &[Operation] = &[
    Operation {
        method: Method::Post,
        path: "/v1/queues/{queue}/messages",
        handler: Handler::Work(messages::send),
        id: "send",
        permission: Some(Permission::Send),
        summary: "Sends the body as a message.",
        details: "The message is committed before the reply. The media type is ignored and not stored.",
        parameters: &[QUEUE, SENDER, TO, DELAY, EXPIRY, KEY],
        body: Body::Bytes,
        replies: &[reply(201, Content::Json("Stored"), "The message is stored.")],
        problems: &["unknown-queue", "never-visible", "idempotency-key-reused", "in-doubt"],
    },
    Operation {
        method: Method::Post,
        path: "/v1/queues/{queue}/messages:batch",
        handler: Handler::Work(messages::send_batch),
        id: "sendBatch",
        permission: Some(Permission::Send),
        summary: "Sends several messages, all or none.",
        details: "",
        parameters: &[QUEUE, SENDER, KEY],
        body: Body::Json("Batch", r#"{"messages": [{"to": "bob", "body": "two apples"}, {"body_base64": "AP8="}]}"#),
        replies: &[reply(201, Content::Json("StoredBatch"), "The messages are stored.")],
        problems: &["unknown-queue", "never-visible", "idempotency-key-reused", "in-doubt"],
    },
    Operation {
        method: Method::Get,
        path: "/v1/queues/{queue}/messages/head",
        handler: Handler::Work(messages::peek),
        id: "peek",
        permission: Some(Permission::Receive),
        summary: "Peeks at the oldest message and leaves it in the queue.",
        details: "",
        parameters: &[QUEUE, FOR, FROM, MAX],
        body: Body::Nothing,
        replies: &[FOUND, NOTHING],
        problems: &["unknown-queue"],
    },
    Operation {
        method: Method::Post,
        path: "/v1/queues/{queue}/messages:pop",
        handler: Handler::Work(messages::pop),
        id: "pop",
        permission: Some(Permission::Receive),
        summary: "Pops the oldest message: returns and deletes it.",
        details: "Delivery is at most once: if the reply does not arrive, the message is lost.",
        parameters: &[QUEUE, FOR, FROM, MAX, WAIT],
        body: Body::Nothing,
        replies: &[FOUND, NOTHING],
        problems: &["unknown-queue", "in-doubt"],
    },
    Operation {
        method: Method::Get,
        path: "/v1/messages/head",
        handler: Handler::Work(messages::peek_everywhere),
        id: "peekEverywhere",
        permission: Some(Permission::Receive),
        summary: "Peeks at the oldest message of a sender over all queues.",
        details: "",
        parameters: &[FROM_REQUIRED, FOR, MAX],
        body: Body::Nothing,
        replies: &[FOUND, NOTHING],
        problems: &[],
    },
    Operation {
        method: Method::Post,
        path: "/v1/messages:pop",
        handler: Handler::Work(messages::pop_everywhere),
        id: "popEverywhere",
        permission: Some(Permission::Receive),
        summary: "Pops the oldest message of a sender over all queues.",
        details: "Delivery is at most once: if the reply does not arrive, the message is lost.",
        parameters: &[FROM_REQUIRED, FOR, MAX],
        body: Body::Nothing,
        replies: &[FOUND, NOTHING],
        problems: &["in-doubt"],
    },
];
