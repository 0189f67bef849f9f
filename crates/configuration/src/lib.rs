//! Configuration files: TOML that is read within limits. Every mistake is one line with the file, the line, the key and the
//! allowed values. Knows no meaning of any key.

mod document;
mod error;
pub mod text;

pub use document::{Document, FileError, FromDocument, is_key_of};
pub use error::{ConfigError, proposal};
