//! The requests to send and their times: keys, sizes, values, arrivals, think times and traces, all drawn from the
//! seed. Knows no connections.

pub(crate) mod arrivals;
pub(crate) mod keys;
pub(crate) mod replay;
pub(crate) mod schedule;
pub(crate) mod sizes;
pub(crate) mod think_time;
pub mod trace;
pub(crate) mod value;
pub(crate) mod versions;
