//! The path of a request, in this order. docs/life-of-a-request.md numbers the steps: 1 event loop, 2 session, 3 core,
//! 4 dispatcher and route, 5 discipline, 6 and 7 backend connection, 8 core and join, 9 session, 10 journal.

pub(crate) mod accept;
pub(crate) mod addresses;
pub(crate) mod auth;
pub(crate) mod listeners;
pub(crate) mod messages;

pub(crate) mod session;

pub(crate) mod clients;
pub(crate) mod command_groups;
pub(crate) mod job;
pub(crate) mod jobs;
pub(crate) mod key_versions;
pub(crate) mod late;
pub(crate) mod leg_request;
pub(crate) mod meta;
pub(crate) mod near_cache;
pub(crate) mod order;

pub(crate) mod rate_limits;
pub(crate) mod rewrite;
pub(crate) mod route;

pub(crate) mod dispatch;

pub(crate) mod backend;

pub(crate) mod join;
pub(crate) mod journal;

pub(crate) mod core;
pub(crate) mod event_loop;
