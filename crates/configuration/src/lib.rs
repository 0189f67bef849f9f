//! How a program is told what to do by a file: TOML that is read within limits, and every mistake in it is one line with the file's line,
//! the key and what is allowed. Knows nothing of what the keys mean.

mod document;
mod error;
pub mod text;

pub use document::{Document, FileError, FromDocument, is_key_of};
pub use error::{ConfigError, proposal};
