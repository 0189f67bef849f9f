//! Record files: one row of fields and time stamps for each request. The lab reads them.
//! Knows no protocol and no program. docs/record-format.md defines the format.

mod header;
mod reader;
mod row;
mod sampling;
mod standard_error;
mod writer;

pub use header::{FORMAT, Header, Program};
pub use reader::{ReadError, Reader};
pub use row::{FIELDS, NO_BACKEND, Outcome, PARENT, Row};
pub use sampling::is_sampled;
pub use standard_error::report;
pub use writer::{RowSender, Writer, WriterTotals};
