//! What is wrong with a configuration that cannot work: at which key, and what to do.

use std::fmt;

/// A setting that cannot work. Whoever knows where the setting came from says so in front.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The key from the top of the file, with places in lists counted from zero, as in `pools.0.servers.2.weight`.
    pub key: String,
    /// What stands there, unless it is missing or long.
    pub value: Option<String>,
    /// What is wrong with it, and what to do.
    pub problem: String,
}

impl ConfigError {
    /// Something that is missing, or too long to be repeated.
    pub fn at(key: impl Into<String>, problem: impl Into<String>) -> ConfigError {
        ConfigError { key: key.into(), value: None, problem: problem.into() }
    }

    /// A value that cannot work.
    pub fn value(key: impl Into<String>, value: impl fmt::Display, problem: impl Into<String>) -> ConfigError {
        ConfigError { value: Some(value.to_string()), ..ConfigError::at(key, problem) }
    }

    /// The key as it is written: without the tables and lists that it stands in, except for those written with it.
    pub fn written_key(&self) -> String {
        written_key(&self.key)
    }
}

/// A key from the top as it is written in its line: `hedge.budget` of a pool, `weight` of a server.
pub(crate) fn written_key(key: &str) -> String {
    let place = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let parts: Vec<&str> = key.split('.').collect();
    match parts.iter().rposition(|part| place(part)) {
        Some(last) if last + 1 < parts.len() => parts[last + 1..].join("."),
        Some(_) => parts.into_iter().rfind(|part| !place(part)).unwrap_or(key).into(),
        None => key.into(),
    }
}

/// What to write instead of a name that is not known.
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
    fn keys_are_told_as_they_are_written() {
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
