//! Operations on leases.

use crate::config::Permission;
use crate::interface::message_operations::{FOR, FROM, MAX, NOTHING, WAIT};
use crate::interface::operation::{
    Body, Content, Handler, Location, Method, Operation, Parameter, QUEUE, Value, query, reply,
};
use crate::path::parse::leases;

const LEASE_TOKEN: Parameter = Parameter {
    location: Location::Path,
    name: "lease_token",
    value: Value::Text,
    is_required: true,
    description: "The lease token that came with the message.",
    example: "0000000100000000000000070123456789abcdef0123456789abcdef",
};
const LEASE_TIME: Parameter = query(
    "lease",
    Value::Time(|limits| limits.lease, false),
    "Visibility timeout, from now on. Without it, the queue's own.",
    "30s",
);

pub(crate) const OPERATIONS: &[Operation] = &[
    Operation {
        method: Method::Post,
        path: "/v1/queues/{queue}/messages:receive",
        handler: Handler::Work(leases::receive),
        id: "receive",
        permission: Some(Permission::Receive),
        summary: "Receives the oldest message under a lease.",
        details: "The message is in flight until it is acknowledged. If the visibility timeout expires first, the message is redelivered.",
        parameters: &[QUEUE, FOR, FROM, MAX, WAIT, LEASE_TIME],
        body: Body::Nothing,
        replies: &[
            reply(
                200,
                Content::LeasedMessageOrJson("Messages"),
                "The oldest message as its bytes, with its lease token in a header. With `max`, a document with any number of messages.",
            ),
            NOTHING,
        ],
        problems: &["unknown-queue", "in-doubt"],
    },
    Operation {
        method: Method::Post,
        path: "/v1/leases/{lease_token}/acknowledge",
        handler: Handler::Work(leases::acknowledge),
        id: "acknowledge",
        permission: Some(Permission::Receive),
        summary: "Acknowledges a message, which deletes it.",
        details: "",
        parameters: &[LEASE_TOKEN],
        body: Body::Nothing,
        replies: &[reply(204, Content::Nothing, "It is gone.")],
        problems: &["lease-expired", "in-doubt"],
    },
    Operation {
        method: Method::Post,
        path: "/v1/leases/{lease_token}/extend",
        handler: Handler::Work(leases::extend),
        id: "extend",
        permission: Some(Permission::Receive),
        summary: "Extends the visibility timeout of a message in flight.",
        details: "",
        parameters: &[LEASE_TOKEN, LEASE_TIME],
        body: Body::Nothing,
        replies: &[reply(204, Content::Nothing, "The lease is extended.")],
        problems: &["lease-expired", "in-doubt"],
    },
    Operation {
        method: Method::Post,
        path: "/v1/leases/{lease_token}/nack",
        handler: Handler::Work(leases::nack),
        id: "nack",
        permission: Some(Permission::Receive),
        summary: "Nacks a message: ends its lease, so that it is redelivered.",
        details: "",
        parameters: &[
            LEASE_TOKEN,
            query(
                "delay",
                Value::Time(|limits| limits.delay, true),
                "The message is redelivered after this delay.",
                "10s",
            ),
        ],
        body: Body::Nothing,
        replies: &[reply(204, Content::Nothing, "The lease has ended.")],
        problems: &["lease-expired", "in-doubt"],
    },
    Operation {
        method: Method::Post,
        path: "/v1/leases:acknowledge",
        handler: Handler::Work(leases::acknowledge_batch),
        id: "acknowledgeBatch",
        permission: Some(Permission::Receive),
        summary: "Acknowledges several messages.",
        details: "Each lease succeeds or fails on its own.",
        parameters: &[],
        body: Body::Json(
            "LeaseTokens",
            r#"{"lease_tokens": ["0000000100000000000000070123456789abcdef0123456789abcdef"]}"#,
        ),
        replies: &[reply(200, Content::Json("NotAcknowledged"), "The lease tokens whose leases had expired.")],
        problems: &["in-doubt"],
    },
];
