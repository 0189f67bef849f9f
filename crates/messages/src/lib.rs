//! The message service: queues of messages over HTTP, stored in PostgreSQL. The process can be killed at any time, because PostgreSQL stores
//! all state. docs/life-of-a-message.md follows one send through the numbered steps:
//!
//! ```text
//!  client -> 1 handle -> 2 parse -> 3 admit -> 4 dispatch -> 5 lane -> 6 answer -> 7 statement -> PostgreSQL
//!  client <- 8 client_connection <- handle <- reply <--------------------- answer <-------------- PostgreSQL
//! ```
//! `http` knows no SQL. `interface` is the table of operations. `path` is what every request passes. `database` has connections and schema,
//! and the tasks beside the path, each over its own connection. `observe` counts, times and records requests.

mod config;
mod embedded;
mod migrate;
mod start;

mod http {
    pub(crate) mod accept;
    pub(crate) mod active_request;
    pub(crate) mod browsers;
    pub(crate) mod client_connection;
    pub(crate) mod handle;
    pub(crate) mod message_list;
    pub(crate) mod origin;
    mod pipelined;
    pub(crate) mod problem;
    mod refusals;
    pub(crate) mod reply;
    pub(crate) mod router;
    pub(crate) mod routes;
    pub(crate) mod stream;
    pub(crate) mod tokens;
}

mod interface {
    pub(crate) mod documents;
    pub(crate) mod lease_operations;
    pub(crate) mod message_operations;
    pub(crate) mod openapi;
    pub(crate) mod operation;
    pub(crate) mod page;
    pub(crate) mod problem_types;
    pub(crate) mod queue_operations;
    pub(crate) mod rules;
    pub(crate) mod table;
}

mod path {
    pub(crate) mod admit;
    pub(crate) mod answer;
    pub(crate) mod batch;
    pub(crate) mod caller;
    pub(crate) mod client_socket;
    pub(crate) mod dispatch;
    pub(crate) mod failure;
    pub(crate) mod health;
    pub(crate) mod lane;
    pub(crate) mod lane_connections;
    pub(crate) mod lease;
    pub(crate) mod long_polls;
    pub(crate) mod memory;
    pub(crate) mod null_database;
    pub(crate) mod queue;
    pub(crate) mod work;

    pub(crate) mod parse {
        pub(crate) mod leases;
        pub(crate) mod messages;
        mod options;
        pub(crate) mod queues;
        pub(crate) mod request;
    }

    pub(crate) mod statement {
        pub(crate) mod fetch;
        pub(crate) mod leases;
        pub(crate) mod prepare;
        pub(crate) mod queues;
        pub(crate) mod send;
        mod standby;
    }
}

mod database {
    pub(crate) mod background_client;
    pub(crate) mod cleanup;
    pub(crate) mod connection;
    pub(crate) mod connection_driver;
    pub(crate) mod connector;
    mod environment;
    pub(crate) mod error;
    mod hosts;
    pub(crate) mod liveness;
    pub(crate) mod low_water;
    pub(crate) mod low_water_reader;
    pub(crate) mod monitor;
    pub(crate) mod peers;
    #[cfg(test)]
    mod plans;
    pub(crate) mod redelivery;
    pub(crate) mod schema;
    mod set_aside;
    pub(crate) mod storage;
    mod table_state;
    pub(crate) mod tls;
}

mod observe {
    pub(crate) mod client_connections;
    pub(crate) mod journal;
    pub(crate) mod limits;
    pub(crate) mod measurements;
    pub(crate) mod metrics;
    pub(crate) mod record_file;
    pub(crate) mod stage_times;
}

pub use config::{
    BrowserConfig, ClientLimits, Config, ConfigError, Discipline, DispatchConfig, Document, FileError, IdentityFiles,
    Limits, Permission, RecordsConfig, ServiceFile, TokenConfig, TokenFile,
};
pub use embedded::{Embedded, EmbeddedError, SupervisedServer};
pub use migrate::{SchemaState, migrate};
pub use start::{MessagesError, RunningService, check, start};
