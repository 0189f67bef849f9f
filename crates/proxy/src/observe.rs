//! What an operator sees: counters, histograms, hot keys, metrics and `stats`. Knows no job and no connection.

mod continued;
pub(crate) mod counters;
pub(crate) mod ended_request;
pub(crate) mod health;
pub(crate) mod histograms;
pub(crate) mod hot_keys;
pub(crate) mod log;
pub(crate) mod process_counts;
mod space_saving;
pub(crate) mod tally;
pub(crate) mod traces;

mod catalogue;
mod labels;
mod metrics_text;

pub(crate) mod metrics;
pub(crate) mod metrics_server;
pub(crate) mod scrape_request;
pub(crate) mod scraper;
pub(crate) mod server_version;
pub(crate) mod stats;
pub(crate) mod watchdog;
