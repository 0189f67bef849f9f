//! The error of a configuration that cannot be converted.

/// The number of characters of an error. Values in it come from the file and may be long.
const CHARACTERS_MAX: usize = 800;

/// One line: where the mistake is, what it is, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConvertError(String);

impl ConvertError {
    /// An error without a place.
    pub(crate) fn new(problem: impl AsRef<str>) -> ConvertError {
        ConvertError(one_line(problem.as_ref()))
    }

    /// An error on this line.
    pub(crate) fn at_line(line: usize, problem: impl AsRef<str>) -> ConvertError {
        ConvertError(one_line(&format!("{line}: {}", problem.as_ref())))
    }

    /// An error at this place inside nested objects, for example `route.children.1`.
    pub(crate) fn at_path(path: &str, problem: impl AsRef<str>) -> ConvertError {
        ConvertError(one_line(&format!("{}: {}", if path.is_empty() { "the top" } else { path }, problem.as_ref())))
    }

    /// The error with the name of the file in front.
    pub(crate) fn in_file(self, file: &str) -> ConvertError {
        let has_line = self.0.split_once(':').is_some_and(|(line, _)| line.bytes().all(|byte| byte.is_ascii_digit()));
        let colon = if has_line { ":" } else { ": " };
        ConvertError(one_line(&format!("{file}{colon}{}", self.0)))
    }
}

/// The text on one line: characters that would break it, or hide a part of it, are escaped.
pub(crate) fn one_line(text: &str) -> String {
    let escaped = |character: char| match character.is_control() || matches!(character, '\u{2028}' | '\u{2029}') {
        true => character.escape_default().collect(),
        false => String::from(character),
    };
    text.chars().take(CHARACTERS_MAX).map(escaped).collect()
}
