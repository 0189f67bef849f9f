//! The arguments of a replay.

use clap::Args;
use load::trace::{Timing, TraceConfig, WithinSecond};
use std::path::PathBuf;

/// The trace to replay, how much of it, and how fast.
#[derive(Clone, Debug, Args)]
pub(crate) struct TraceArguments {
    /// Replay a recorded trace instead of random requests: seven columns, plain or zstd (docs/traces.md).
    #[arg(help_heading = "Traces", long, value_name = "FILE", conflicts_with_all = ["rate", "arrivals", "requests", "think_time", "key_pattern", "data_size"])]
    trace: Option<PathBuf>,
    /// When the rows are due: as recorded, faster by a factor (scaled:10), or as fast as the server replies.
    #[arg(help_heading = "Traces", long, value_name = "original|scaled:FACTOR|max", default_value = "original", value_parser = Timing::parse, requires = "trace")]
    trace_timing: Timing,
    /// Send all rows of a second at its start, as recorded, instead of spreading them over it.
    #[arg(help_heading = "Traces", long, requires = "trace")]
    trace_bunched: bool,
    /// Skip up to N malformed lines; one more ends the replay.
    #[arg(help_heading = "Traces", long, value_name = "N", default_value_t = 0, requires = "trace")]
    trace_errors_max: u64,
    /// Stop after N rows.
    #[arg(help_heading = "Traces", long, value_name = "N", requires = "trace")]
    trace_rows: Option<u64>,
}

impl TraceArguments {
    /// The trace to replay, if there is one.
    pub(crate) fn config(&self) -> Option<TraceConfig> {
        let path = self.trace.clone()?;
        Some(TraceConfig {
            timing: self.trace_timing,
            within_second: if self.trace_bunched { WithinSecond::AsRecorded } else { WithinSecond::Spread },
            errors_max: self.trace_errors_max,
            rows_max: self.trace_rows,
            ..TraceConfig::new(path)
        })
    }
}
