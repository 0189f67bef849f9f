//! Spans of sampled requests for a collector of OpenTelemetry. An event loop copies a sampled request when it ends, and puts it into
//! a queue with a limit. One thread makes the spans and sends them. Without the feature `otlp` there is no such thread.

pub(crate) mod counters;
#[cfg(feature = "otlp")]
pub(crate) mod exporter;
pub(crate) mod sampler;

#[cfg(feature = "otlp")]
mod post;
#[cfg(feature = "otlp")]
pub(crate) mod spans;
