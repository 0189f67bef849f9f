//! The output of a run: the summary with its verdict, as JSON, as text, in the formats of other tools and as metrics.

pub(crate) mod hdr_text;
pub(crate) mod memtier;
pub(crate) mod merge;
pub(crate) mod metrics;
pub(crate) mod print;
pub(crate) mod printable;
pub(crate) mod second_line;
pub(crate) mod settings;
pub(crate) mod summarise;
pub(crate) mod summary;
pub(crate) mod verdict;
