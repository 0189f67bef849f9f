//! A configuration file. It is read within limits, and every mistake is reported with its line, its key and the allowed values.

use crate::ConfigError;
use crate::error::{proposal, written_key};
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::Path;
use toml::de::{DeTable, DeValue};

/// The size limit. A configuration of this size would have thousands of entries; a larger file is not a configuration.
const BYTES_MAX: u64 = 1 << 20;
/// The number of characters of a wrong value that an error repeats, so that it stays on one line.
const MESSAGE_CHARACTERS_MAX: usize = 1000;

/// The start of the TOML parser's message for an unknown key.
const UNKNOWN_FIELD: &str = "unknown field ";

/// A configuration file that has been read.
#[derive(Clone, Debug)]
pub struct Document {
    /// The path as it was given.
    file: String,
    text: String,
}

/// A type that can be read from a document.
pub trait FromDocument: DeserializeOwned {
    /// The advice for a key that is unknown in the given tables but valid in another place.
    fn misplaced(_key: &str) -> Option<String> {
        None
    }
}

/// A mistake in a file, as one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FileError(String);

impl FileError {
    /// Keys and values may contain any characters. Those that would break the line are escaped.
    fn new(text: &str) -> FileError {
        let escaped = |character: char| match character.is_control() {
            true => character.escape_default().collect(),
            false => String::from(character),
        };
        FileError(text.chars().map(escaped).collect())
    }
}

/// A key or an element of a list.
struct Entry {
    key: String,
    /// The name of a key; `None` for an element of a list.
    name: Option<Range<usize>>,
    value: Range<usize>,
}

impl Document {
    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read, is not a regular file, is too large or is not UTF-8.
    pub fn read(path: &Path) -> Result<Document, FileError> {
        let file = path.display().to_string();
        let refuse = |problem: &str| FileError::new(&format!("{file}: {problem}"));
        let unreadable = |error: std::io::Error| refuse(&format!("cannot read the configuration: {error}"));
        // Opening a named pipe would block until another process writes to it.
        if !path.metadata().map_err(unreadable)?.is_file() {
            return Err(refuse("this is not a file; give the file with the configuration"));
        }
        let mut bytes = Vec::new();
        File::open(path).map_err(unreadable)?.take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        if bytes.len() as u64 > BYTES_MAX {
            return Err(refuse("larger than 1 MiB; is it a configuration file?"));
        }
        match String::from_utf8(bytes) {
            Ok(text) => Ok(Document { file, text }),
            Err(error) => {
                let at = error.utf8_error().valid_up_to();
                let line = 1 + error.as_bytes()[..at].iter().filter(|&&byte| byte == b'\n').count();
                Err(FileError::new(&format!("{file}:{line}: not UTF-8; write the file as UTF-8 text")))
            }
        }
    }

    /// A document from a text instead of a file.
    pub fn new(name: &str, text: &str) -> Document {
        Document { file: name.into(), text: text.into() }
    }

    /// Its text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Parses the document.
    ///
    /// # Errors
    /// The first mistake.
    pub fn settings<T: FromDocument>(&self) -> Result<T, FileError> {
        toml::from_str(&self.text).map_err(|error| self.syntax_or_key(&error, T::misplaced))
    }

    /// Adds the path and the line of this document to an error.
    pub fn locate(&self, error: &ConfigError) -> FileError {
        // If the key itself has no line, the line of its table is the best place to show.
        let entries = self.entries();
        let mut key = error.key.as_str();
        loop {
            if let Some(entry) = entries.iter().find(|entry| entry.key == key) {
                let start = entry.name.as_ref().map_or(entry.value.start, |name| name.start);
                return FileError::new(&format!("{}:{}: {error}", self.file, self.line(start)));
            }
            match key.rsplit_once('.') {
                Some((parent, _)) => key = parent,
                None => return FileError::new(&format!("{}: {error}", self.file)),
            }
        }
    }

    fn line(&self, at: usize) -> usize {
        1 + self.text.as_bytes()[..at.min(self.text.len())].iter().filter(|&&byte| byte == b'\n').count()
    }

    /// Every key and element, outer before inner; none if the document cannot be parsed.
    fn entries(&self) -> Vec<Entry> {
        let mut entries = Vec::new();
        if let Ok(table) = DeTable::parse(&self.text) {
            collect_table(table.get_ref(), "", &mut entries);
        }
        entries
    }

    fn syntax_or_key(&self, error: &toml::de::Error, misplaced: fn(&str) -> Option<String>) -> FileError {
        let span = error.span().unwrap_or(0..0);
        let line = self.line(span.start);
        let covers = |range: &Range<usize>| range.start <= span.start && span.end <= range.end;
        let entries = self.entries();
        let contains = |entry: &&Entry| covers(&entry.value) || entry.name.as_ref().is_some_and(covers);
        let entry = entries.iter().filter(contains).min_by_key(|entry| match &entry.name {
            Some(name) if covers(name) => name.len(),
            _ => entry.value.len(),
        });
        let message = match entry {
            Some(entry) => {
                let is_unknown = error.message().starts_with(UNKNOWN_FIELD);
                is_unknown.then(|| misplaced(&entry.key)).flatten().unwrap_or_else(|| in_words(error.message()))
            }
            None => not_toml(error.message(), self.text.get(span).unwrap_or_default()),
        };
        let message: String = message.chars().take(MESSAGE_CHARACTERS_MAX).collect();
        let key = entry.map(|entry| format!("{}: ", written_key(&entry.key))).unwrap_or_default();
        FileError::new(&format!("{}:{line}: {key}{message}", self.file))
    }
}

fn collect_table(table: &DeTable<'_>, above: &str, entries: &mut Vec<Entry>) {
    for (name, value) in table {
        let key = format!("{above}{}", name.get_ref());
        entries.push(Entry { key: key.clone(), name: Some(name.span()), value: value.span() });
        collect_value(value.get_ref(), &key, entries);
    }
}

fn collect_value(value: &DeValue<'_>, key: &str, entries: &mut Vec<Entry>) {
    match value {
        DeValue::Table(table) => collect_table(table, &format!("{key}."), entries),
        DeValue::Array(array) => {
            for (index, element) in array.iter().enumerate() {
                let key = format!("{key}.{index}");
                entries.push(Entry { key: key.clone(), name: None, value: element.span() });
                collect_value(element.get_ref(), &key, entries);
            }
        }
        _ => {}
    }
}

/// The error line of a text that is not TOML.
fn not_toml(message: &str, at: &str) -> String {
    let message = match message {
        "duplicate key" => format!("the key {at} is given twice"),
        _ if message.starts_with("string values must be quoted") => "a value is missing, or text has no quotes".into(),
        _ if message.starts_with("cannot recurse") => "lists or tables are nested too deeply".into(),
        other => other.replace(['\n', '\r'], " "),
    };
    format!("not TOML: {message}")
}

/// Whether a table of this type has this key, whatever its value.
pub fn is_key_of<T: DeserializeOwned>(name: &str) -> bool {
    let outcome = toml::from_str::<T>(&format!("{name:?} = 0"));
    outcome.map_or_else(|error| !error.message().starts_with(UNKNOWN_FIELD), |_| true)
}

/// The parser's message without names of Rust types.
fn in_words(message: &str) -> String {
    let message = message.replace(['\n', '\r'], " ");
    for (kind, what) in [(UNKNOWN_FIELD, "there is no such key"), ("unknown variant ", "is not known")] {
        if let Some(rest) = message.strip_prefix(kind) {
            let mut names = rest.split('`').skip(1).step_by(2);
            let given = names.next().unwrap_or_default();
            let known: Vec<&str> = names.collect();
            let given = if kind == "unknown variant " { format!("{given:?} ") } else { String::new() } + what;
            return format!("{given}{}", proposal(rest.split('`').nth(1).unwrap_or_default(), &known));
        }
    }
    let wrong = message.strip_prefix("invalid type: ").or_else(|| message.strip_prefix("invalid value: "));
    if let Some((given, expected)) = wrong.and_then(|rest| rest.rsplit_once(", expected ")) {
        return format!("give {}, not {}", kind_in_words(expected), given_in_words(given));
    }
    if let Some(field) = message.strip_prefix("missing field ") {
        return format!("{} is missing", field.trim_matches('`'));
    }
    message
}

fn kind_in_words(expected: &str) -> &str {
    match expected {
        "u32" => "a whole number from 0 to 4294967295",
        "usize" | "u64" => "a whole number of at least 0",
        "f64" => "a number",
        "a boolean" => "true or false",
        "a string" => "text in quotes",
        "path string" => "a path in quotes",
        "a sequence" => "a list in [ ]",
        other => other,
    }
}

fn given_in_words(given: &str) -> String {
    match given.split_once(' ') {
        Some(("string", text)) => format!("the text {text}"),
        // A number of more than 64 bits has its type behind it.
        Some(("integer" | "boolean", value)) => value.split('`').nth(1).unwrap_or(value).into(),
        Some(("floating", value)) => value.trim_start_matches("point ").trim_matches('`').into(),
        _ => given.replace("sequence", "a list").replace("map", "a table"),
    }
}
