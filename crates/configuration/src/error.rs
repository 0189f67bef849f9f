//! The error of a setting that cannot work: its key, the value that was given, and the remedy.

use std::fmt;

/// A setting that cannot work. The caller adds the file and line, or the argument, that it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The key from the top of the file, with list positions from zero, for example `pools.0.servers.2.weight`.
    pub key: String,
    /// The given value, unless it is missing or long.
    pub value: Option<String>,
    /// The reason and the remedy.
    pub problem: String,
}

impl ConfigError {
    /// The error of a setting that is missing, or whose value is too long to repeat.
    pub fn at(key: impl Into<String>, problem: impl Into<String>) -> ConfigError {
        ConfigError { key: key.into(), value: None, problem: problem.into() }
    }

    /// The error of a setting with a value that cannot work.
    pub fn value(key: impl Into<String>, value: impl fmt::Display, problem: impl Into<String>) -> ConfigError {
        ConfigError { value: Some(value.to_string()), ..ConfigError::at(key, problem) }
    }

    /// The key as it is written, without the tables and lists around it, except for those written on the same line.
    pub fn written_key(&self) -> String {
        written_key(&self.key)
    }
}

/// A key from the top as it is written on its line: `hedge.budget` of a pool, `weight` of a server.
pub(crate) fn written_key(key: &str) -> String {
    let place = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let parts: Vec<&str> = key.split('.').collect();
    match parts.iter().rposition(|part| place(part)) {
        Some(last) if last + 1 < parts.len() => parts[last + 1..].join("."),
        Some(_) => parts.into_iter().rfind(|part| !place(part)).unwrap_or(key).into(),
        None => key.into(),
    }
}

/// The advice for an unknown name: the known name that is closest to it.
pub fn proposal(given: &str, known: &[&str]) -> String {
    let distance = |name: &&&str| strsim::osa_distance(given, name);
    match known.iter().min_by_key(distance) {
        Some(nearest) if distance(&nearest) <= 1 + given.len() / 4 => format!("; did you mean {nearest}?"),
        _ => format!("; give one of: {}", known.join(", ")),
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Some(value) => write!(formatter, "{} = {value}: {}", self.written_key(), self.problem),
            None => write!(formatter, "{}: {}", self.written_key(), self.problem),
        }
    }
}

impl std::error::Error for ConfigError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_quoted_as_written_in_the_file() {
        for (key, written) in [
            ("loops", "loops"),
            ("pools", "pools"),
            ("pools.1", "pools"),
            ("pools.0.replicas", "replicas"),
            ("pools.0.hedge.budget", "hedge.budget"),
            ("pools.0.servers.3", "servers"),
            ("pools.0.servers.3.weight", "weight"),
        ] {
            assert_eq!(written_key(key), written);
        }
        let error = ConfigError::value("pools.0.replicas", 3, "there are only 2 servers");
        assert_eq!(error.to_string(), "replicas = 3: there are only 2 servers");
    }
}
