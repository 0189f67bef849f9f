//! The log: what an operator must hear of without asking. Event loops write no line themselves. They count, and put slow requests
//! into a queue with a limit; one thread compares the counters five times a second, and writes the lines.

pub(crate) mod event;
pub(crate) mod queue;
pub(crate) mod slow_log;
pub(crate) mod slow_request;
pub(crate) mod watch;
pub(crate) mod writer;

mod line;
