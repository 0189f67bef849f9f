//! What every request passes, in this order.

pub(crate) mod accept;
pub(crate) mod messages;

pub(crate) mod session;

pub(crate) mod job;
pub(crate) mod jobs;
pub(crate) mod leg_request;
pub(crate) mod meta;
pub(crate) mod order;

pub(crate) mod route;

pub(crate) mod dispatch;

pub(crate) mod backend;

pub(crate) mod join;
pub(crate) mod journal;

pub(crate) mod core;
pub(crate) mod event_loop;
