//! Operations on queues.

use crate::interface::operation::{Body, Content, Does, Method, Operation, Parameter, Place, QUEUE, Value, reply};
use crate::path::parse::queues;

const RECEIVER: Parameter = Parameter {
    place: Place::Path,
    name: "receiver",
    value: Value::Name,
    is_required: true,
    says: "The receiver.",
    example: "bob",
};

pub(crate) const OPERATIONS: &[Operation] = &[
    Operation {
        method: Method::Get,
        path: "/v1/queues",
        does: Does::Work(queues::list_queues),
        id: "listQueues",
        says: "Lists the names of all queues.",
        more: "",
        takes: &[],
        body: Body::Nothing,
        replies: &[reply(200, Content::Json("Queues"), "The names.")],
        problems: &[],
    },
    Operation {
        method: Method::Put,
        path: "/v1/queues/{queue}",
        does: Does::Work(queues::create_queue),
        id: "createQueue",
        says: "Creates a queue, or changes its settings.",
        more: "Without a document, a queue that is there stays as it is.",
        takes: &[QUEUE],
        body: Body::JsonOrNothing("Settings", r#"{"expiry": "60m", "lease": "30s"}"#),
        replies: &[reply(201, Content::Nothing, "It is new."), reply(204, Content::Nothing, "It was there already.")],
        problems: &["unknown-dead-letters", "in-doubt"],
    },
    Operation {
        method: Method::Get,
        path: "/v1/queues/{queue}",
        does: Does::Work(queues::show_queue),
        id: "showQueue",
        says: "Shows a queue: its settings, and how many messages are in it.",
        more: "",
        takes: &[QUEUE],
        body: Body::Nothing,
        replies: &[reply(200, Content::Json("Queue"), "It is there.")],
        problems: &["unknown-queue"],
    },
    Operation {
        method: Method::Delete,
        path: "/v1/queues/{queue}",
        does: Does::Work(queues::delete_queue),
        id: "deleteQueue",
        says: "Deletes a queue with its messages, leases and keys.",
        more: "Whoever polls it is told at once.",
        takes: &[QUEUE],
        body: Body::Nothing,
        replies: &[reply(204, Content::Nothing, "It is gone.")],
        problems: &["unknown-queue", "in-doubt"],
    },
    Operation {
        method: Method::Get,
        path: "/v1/receivers/{receiver}/queues",
        does: Does::Work(queues::waiting_queues),
        id: "waitingQueues",
        says: "Lists the queues that hold a message addressed to this receiver.",
        more: "",
        takes: &[RECEIVER],
        body: Body::Nothing,
        replies: &[reply(200, Content::Json("Queues"), "The names; possibly none.")],
        problems: &[],
    },
];
