//! The arguments of a replay.

use clap::Args;
use load::trace::{Timing, TraceConfig, WithinSecond};
use std::path::PathBuf;

/// Which trace, how much of it, and how fast.
#[derive(Clone, Debug, Args)]
pub(crate) struct TraceArguments {
    /// Replay a recorded trace instead of drawing requests: seven columns, plain or zstd (docs/traces.md).
    #[arg(long, value_name = "FILE", conflicts_with_all = ["rate", "arrivals", "requests", "think_time", "key_pattern", "data_size"])]
    trace: Option<PathBuf>,
    /// When its rows are due: as recorded, so many times as fast (scaled:10), or as fast as the server answers.
    #[arg(long, value_name = "original|scaled:FACTOR|max", default_value = "original", value_parser = Timing::parse, requires = "trace")]
    trace_timing: Timing,
    /// Keep all rows of a second at its beginning, as recorded, instead of spreading them over it.
    #[arg(long, requires = "trace")]
    trace_bunched: bool,
    /// Leave out so many broken lines, and end at the next; 0 refuses the first.
    #[arg(long, value_name = "N", default_value_t = 0, requires = "trace")]
    trace_errors_max: u64,
    /// Stop after so many rows.
    #[arg(long, value_name = "N", requires = "trace")]
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
