//! Operations on leases.

use crate::interface::message_operations::{FOR, FROM, MAX, NOTHING, WAIT};
use crate::interface::operation::{
    Body, Content, Does, Method, Operation, Parameter, Place, QUEUE, Value, query, reply,
};
use crate::path::parse::leases;

const LEASE: Parameter = Parameter {
    place: Place::Path,
    name: "lease",
    value: Value::Word,
    is_required: true,
    says: "The word that came with the message.",
    example: "00000001-0000000000000007-0123456789abcdef0123456789abcdef",
};
const LEASE_TIME: Parameter = query(
    "lease",
    Value::Time(|limits| limits.lease, false),
    "How long the lease holds, from now on; without it, as long as the queue says.",
    "30s",
);

pub(crate) const OPERATIONS: &[Operation] = &[
    Operation {
        method: Method::Post,
        path: "/v1/queues/{queue}/messages:receive",
        does: Does::Work(leases::receive),
        id: "receive",
        says: "Reads the oldest message under a lease.",
        more: "Acknowledged, it is gone; otherwise it comes back when the lease ends.",
        takes: &[QUEUE, FOR, FROM, MAX, WAIT, LEASE_TIME],
        body: Body::Nothing,
        replies: &[
            reply(
                200,
                Content::LeasedOr("Messages"),
                "The oldest message as its bytes, with its lease in a header. With `max` a document, which may hold no message.",
            ),
            NOTHING,
        ],
        problems: &["unknown-queue", "in-doubt"],
    },
    Operation {
        method: Method::Post,
        path: "/v1/leases/{lease}/acknowledge",
        does: Does::Work(leases::acknowledge),
        id: "acknowledge",
        says: "Says that the message is done with.",
        more: "",
        takes: &[LEASE],
        body: Body::Nothing,
        replies: &[reply(204, Content::Nothing, "It is gone.")],
        problems: &["lease-expired", "in-doubt"],
    },
    Operation {
        method: Method::Post,
        path: "/v1/leases/{lease}/extend",
        does: Does::Work(leases::extend),
        id: "extend",
        says: "Makes the lease hold for longer.",
        more: "",
        takes: &[LEASE, LEASE_TIME],
        body: Body::Nothing,
        replies: &[reply(204, Content::Nothing, "It holds.")],
        problems: &["lease-expired", "in-doubt"],
    },
    Operation {
        method: Method::Post,
        path: "/v1/leases/{lease}/return",
        does: Does::Work(leases::give_back),
        id: "giveBack",
        says: "Gives the message back.",
        more: "",
        takes: &[LEASE, query("delay", Value::Time(|limits| limits.delay, true), "Nobody gets it before.", "10s")],
        body: Body::Nothing,
        replies: &[reply(204, Content::Nothing, "Others may have it.")],
        problems: &["lease-expired", "in-doubt"],
    },
    Operation {
        method: Method::Post,
        path: "/v1/leases:acknowledge",
        does: Does::Work(leases::acknowledge_batch),
        id: "acknowledgeBatch",
        says: "Says that several messages are done with.",
        more: "Each lease counts on its own.",
        takes: &[],
        body: Body::Json("Leases", r#"{"leases": ["00000001-0000000000000007-0123456789abcdef0123456789abcdef"]}"#),
        replies: &[reply(200, Content::Json("NotAcknowledged"), "Those that did not hold any more.")],
        problems: &["in-doubt"],
    },
];
