//! What is written about each request: one row of fields and stamps, in files that the lab reads.
//! Knows no protocol and no program; docs/record-format.md is its contract.

mod header;
mod reader;
mod row;
mod sampling;
mod writer;

pub use header::{FORMAT, Header, Program};
pub use reader::{ReadError, Reader};
pub use row::{FIELDS, NO_BACKEND, Outcome, PARENT, Row};
pub use sampling::is_sampled;
pub use writer::{RowSender, Writer, WriterTotals};
