//! What is wrong with a text, in one line.

use thiserror::Error;

/// Why a text describes no distribution or no popularity: one line that names the bad part and gives an example.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{text:?}: {problem}; for example {example}")]
pub struct VariateError {
    text: String,
    problem: String,
    example: String,
}

impl VariateError {
    pub(crate) fn new(text: &str, problem: impl Into<String>, example: impl Into<String>) -> VariateError {
        VariateError { text: text.to_owned(), problem: problem.into(), example: example.into() }
    }
}
