//! Operations on queues.

use crate::config::Permission;
use crate::interface::operation::{
    Body, Content, Handler, Location, Method, Operation, Parameter, QUEUE, Value, query, reply,
};
use crate::interface::rules::NAMES_MAX;
use crate::path::parse::queues;

const RECEIVER: Parameter = Parameter {
    location: Location::Path,
    name: "receiver",
    value: Value::Name,
    is_required: true,
    description: "The receiver.",
    example: "bob",
};

const AFTER: Parameter =
    query("after", Value::Name, "Lists the names after this one. Give the `next` of the previous page.", "orders");
const PAGE: Parameter = query(
    "max",
    Value::Count(|_| NAMES_MAX),
    "Number of names to list. By default, the largest allowed number.",
    "100",
);

pub(crate) const OPERATIONS: &[Operation] = &[
    Operation {
        method: Method::Get,
        path: "/v1/queues",
        handler: Handler::Work(queues::list_queues),
        id: "listQueues",
        permission: None,
        summary: "Lists the names of all queues.",
        details: "The list contains `next` if there may be more names.",
        parameters: &[AFTER, PAGE],
        body: Body::Nothing,
        replies: &[reply(200, Content::Json("Queues"), "The names.")],
        problems: &[],
    },
    Operation {
        method: Method::Put,
        path: "/v1/queues/{queue}",
        handler: Handler::Work(queues::create_queue),
        id: "createQueue",
        permission: Some(Permission::Admin),
        summary: "Creates a queue, or changes its settings.",
        details: "Without a document, an existing queue keeps its settings.",
        parameters: &[QUEUE],
        body: Body::JsonOrNothing("QueueSettings", r#"{"expiry": "60m", "lease": "30s"}"#),
        replies: &[
            reply(201, Content::Nothing, "The queue is new."),
            reply(204, Content::Nothing, "The queue existed."),
        ],
        problems: &["unknown-dead-letter-queue", "in-doubt"],
    },
    Operation {
        method: Method::Get,
        path: "/v1/queues/{queue}",
        handler: Handler::Work(queues::show_queue),
        id: "showQueue",
        permission: None,
        summary: "Shows a queue: its settings, and the counts of its messages.",
        details: "",
        parameters: &[QUEUE],
        body: Body::Nothing,
        replies: &[reply(200, Content::Json("Queue"), "The queue exists.")],
        problems: &["unknown-queue"],
    },
    Operation {
        method: Method::Delete,
        path: "/v1/queues/{queue}",
        handler: Handler::Work(queues::delete_queue),
        id: "deleteQueue",
        permission: Some(Permission::Admin),
        summary: "Deletes a queue with its messages, leases and idempotency keys.",
        details: "Waiting polls get 404, even if a queue of this name is created at once.",
        parameters: &[QUEUE],
        body: Body::Nothing,
        replies: &[reply(204, Content::Nothing, "It is gone.")],
        problems: &["unknown-queue", "in-doubt"],
    },
    Operation {
        method: Method::Get,
        path: "/v1/receivers/{receiver}/queues",
        handler: Handler::Work(queues::waiting_queues),
        id: "waitingQueues",
        permission: Some(Permission::Receive),
        summary: "Lists the queues that have messages addressed to this receiver.",
        details: "The list contains `next` if there may be more names, even if it is empty: one request examines at most 10 000 queues.",
        parameters: &[RECEIVER, AFTER, PAGE],
        body: Body::Nothing,
        replies: &[reply(200, Content::Json("Queues"), "The names; possibly none.")],
        problems: &[],
    },
];
