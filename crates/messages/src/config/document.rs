//! A configuration file: every mistake in it is told in one line with file, line, key and what is known.

use super::settings::{SettingError, Settings};
use std::path::Path;
use toml::de::{DeTable, DeValue};

const BYTES_MAX: u64 = 1 << 20;
/// What is repeated of a mistake, so that a line stays a line.
const MESSAGE_CHARACTERS_MAX: usize = 800;

/// A configuration file that has been read.
#[derive(Clone, Debug)]
pub struct Document {
    /// The path as it was given.
    file: String,
    text: String,
}

/// What is wrong with a file: one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FileError(String);

impl Document {
    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read, is no file, is too large or not UTF-8.
    pub fn read(path: &Path) -> Result<Document, FileError> {
        let file = path.display().to_string();
        let refuse = |problem: &str| FileError(format!("{file}: {problem}"));
        let unreadable = |error: std::io::Error| refuse(&format!("cannot read the configuration: {error}"));
        let metadata = path.metadata().map_err(unreadable)?;
        // Opening a pipe would wait for somebody to write.
        if !metadata.is_file() {
            return Err(refuse("this is not a file; give the file with the configuration"));
        }
        if metadata.len() > BYTES_MAX {
            return Err(refuse("more than 1 MiB; this is no configuration"));
        }
        let text = std::fs::read_to_string(path).map_err(unreadable)?;
        Ok(Document { file, text })
    }

    /// A document that is not in a file.
    pub fn new(name: &str, text: &str) -> Document {
        Document { file: name.into(), text: text.into() }
    }

    /// What it says.
    ///
    /// # Errors
    /// The first mistake.
    pub fn settings(&self) -> Result<Settings, FileError> {
        toml::from_str(&self.text).map_err(|error| {
            let start = error.span().map_or(0, |span| span.start);
            let key = self.key_at(start).map(|key| format!("{key}: ")).unwrap_or_default();
            let message: String = in_words(error.message()).chars().take(MESSAGE_CHARACTERS_MAX).collect();
            FileError(format!("{}:{}: {key}{message}", self.file, self.line(start)))
        })
    }

    /// An error in what this document says, with its line; none when it does not say it.
    pub fn told(&self, error: &SettingError) -> Option<FileError> {
        let entries = self.entries();
        // Where nothing is said about a key, what it belongs to is the place to look at.
        let mut key = error.key.as_str();
        loop {
            if let Some((_, start, _)) = entries.iter().find(|(name, _, _)| name == key) {
                let name = error.key.rsplit('.').next().unwrap_or(&error.key);
                return Some(FileError(format!("{}:{}: {name}: {}", self.file, self.line(*start), error.problem)));
            }
            key = key.rsplit_once('.')?.0;
        }
    }

    fn line(&self, at: usize) -> usize {
        1 + self.text.as_bytes()[..at.min(self.text.len())].iter().filter(|&&byte| byte == b'\n').count()
    }

    /// The last key that stands at or before this place in its line.
    fn key_at(&self, at: usize) -> Option<String> {
        let covering = self.entries().into_iter().filter(|(_, start, end)| *start <= at && at <= *end);
        let (key, _, _) = covering.max_by_key(|(_, start, _)| *start)?;
        key.rsplit('.').next().filter(|name| name.parse::<usize>().is_err()).map(String::from)
    }

    /// Every key with its place; none when the document cannot be parsed.
    fn entries(&self) -> Vec<(String, usize, usize)> {
        let mut entries = Vec::new();
        if let Ok(table) = DeTable::parse(&self.text) {
            collect(table.get_ref(), "", &mut entries);
        }
        entries
    }
}

fn collect(table: &DeTable<'_>, above: &str, entries: &mut Vec<(String, usize, usize)>) {
    for (name, value) in table {
        let key = format!("{above}{}", name.get_ref());
        entries.push((key.clone(), name.span().start, value.span().end.max(name.span().end)));
        match value.get_ref() {
            DeValue::Table(table) => collect(table, &format!("{key}."), entries),
            DeValue::Array(array) => {
                for (place, element) in array.iter().enumerate() {
                    if let DeValue::Table(table) = element.get_ref() {
                        entries.push((format!("{key}.{place}"), element.span().start, element.span().end));
                        collect(table, &format!("{key}.{place}."), entries);
                    }
                }
            }
            _ => {}
        }
    }
}

/// The parser's message without the names of Rust.
fn in_words(message: &str) -> String {
    let message = message.replace(['\n', '\r'], " ");
    for (kind, what) in [("unknown field ", "there is no such key"), ("unknown variant ", "is not known")] {
        if let Some(rest) = message.strip_prefix(kind) {
            let mut names = rest.split('`').skip(1).step_by(2);
            let given = names.next().unwrap_or_default();
            let known: Vec<&str> = names.collect();
            let said = if kind == "unknown variant " { format!("{given:?} {what}") } else { what.to_string() };
            return format!("{said}{}", proposal(given, &known));
        }
    }
    let wrong = message.strip_prefix("invalid type: ").or_else(|| message.strip_prefix("invalid value: "));
    if let Some((given, expected)) = wrong.and_then(|rest| rest.rsplit_once(", expected ")) {
        let expected = match expected {
            "usize" | "u32" => "a whole number of at least 0",
            "a boolean" => "true or false",
            "a string" => "text in quotes",
            "path string" => "a path in quotes",
            "a sequence" => "a list in [ ]",
            other => other,
        };
        return format!("give {expected}, not {}", given.replace("string", "the text").replace('`', ""));
    }
    match message.strip_prefix("missing field ") {
        Some(field) => format!("{} is missing", field.trim_matches('`')),
        None => message,
    }
}

/// What to write instead of a name that is not known.
fn proposal(given: &str, known: &[&str]) -> String {
    let distance = |name: &&&str| strsim::osa_distance(given, name);
    match known.iter().min_by_key(distance) {
        Some(nearest) if distance(&nearest) <= 1 + given.len() / 4 => format!("; did you mean {nearest}?"),
        _ => format!("; known: {}", known.join(", ")),
    }
}
