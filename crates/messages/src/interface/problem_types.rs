//! Every type of problem that clients may be told, with its status. The description of the interface is made from this list, and a
//! problem that is not in it cannot be made.

/// A type of problem.
#[derive(Debug)]
pub(crate) struct Kind {
    /// The last word of the `type`.
    pub(crate) name: &'static str,
    pub(crate) status: u16,
    pub(crate) says: &'static str,
}

/// All of them.
pub(crate) const KINDS: &[Kind] = &[
    kind("unreadable", 400, "a parameter, a header or the document makes no sense"),
    kind("no-token", 401, "the service asks for a bearer token, and there is none or an unknown one"),
    kind("not-allowed", 403, "the token does not allow this; nothing was done"),
    kind("no-such-path", 404, "there is nothing at this path"),
    kind("unknown-queue", 404, "there is no queue of this name"),
    kind("method-not-allowed", 405, "the path has other methods, which the header `Allow` lists"),
    kind("too-slow", 408, "the body did not come in time; nothing was done"),
    kind("lease-expired", 410, "the lease has ended, or there was never one"),
    kind("body-too-large", 413, "the body is over the limit"),
    kind("not-json", 415, "the body is announced as something else than JSON"),
    kind("name-not-allowed", 422, "the name of a queue, a sender or a receiver is not allowed"),
    kind("unknown-dead-letters", 422, "the queue for dead letters is not there"),
    kind("idempotency-key-reused", 422, "the key was used for other bodies or receivers; nothing was done"),
    kind("unexpected", 500, "this should not happen; nothing was done"),
    kind("overloaded", 503, "too much waits already; nothing was done"),
    kind("ending", 503, "the service is about to end; nothing was done"),
    kind("database-down", 503, "the database cannot be reached; nothing was done"),
    kind("database-refuses", 503, "the database is full, read-only or too slow; nothing was done"),
    kind("in-doubt", 503, "the connection to the database broke meanwhile: it may or may not have been done"),
];

/// What every operation may say that asks the database.
pub(crate) const COMMON: &[&str] = &[
    "unreadable",
    "too-slow",
    "body-too-large",
    "unexpected",
    "overloaded",
    "ending",
    "database-down",
    "database-refuses",
];

const fn kind(name: &'static str, status: u16, says: &'static str) -> Kind {
    Kind { name, status, says }
}

/// What every operation may say that asks for a token.
pub(crate) const GUARDED: &[&str] = &["no-token", "not-allowed"];

/// A type by its name.
pub(crate) fn find(name: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.name == name)
}
