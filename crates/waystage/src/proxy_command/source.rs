//! The source of a configuration: a file, arguments that override it, or arguments alone. An error names the flag, or the file,
//! line and key, that caused it.

use crate::proxy_command::lists::Lists;
use proxy::{Config, ConfigError, Document, ProxyFile};
use std::path::PathBuf;
use toml::{Table, Value};

/// The file, if there is one, and the arguments.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) file: Option<PathBuf>,
    pub(crate) flags: ProxyFile,
}

impl Source {
    /// The checked configuration.
    pub(crate) fn config(&self, lists: &mut Lists) -> Result<Config, String> {
        self.settings(self.document()?.as_ref(), lists, |_| {}).map(|(config, _)| config)
    }

    /// The file, as it is now.
    pub(crate) fn document(&self) -> Result<Option<Document>, String> {
        self.file.as_deref().map(Document::read).transpose().map_err(|error| error.to_string())
    }

    /// The checked configuration of this file, and the keys that were given for it, with the servers of files and names. The keys are
    /// changed before they are checked.
    pub(crate) fn settings(
        &self,
        document: Option<&Document>,
        lists: &mut Lists,
        change: impl FnOnce(&mut ProxyFile),
    ) -> Result<(Config, ProxyFile), String> {
        let written = document.map_or(Ok(ProxyFile::default()), Document::settings);
        let mut settings = written.map_err(|error| error.to_string())?.overridden_by(self.flags.clone());
        let expanded = lists.expand(&mut settings);
        expanded.map_err(|error| self.line(&lists.in_file(error, &settings), document))?;
        change(&mut settings);
        let checked = settings.clone().config().and_then(|config| config.check().map(|()| config));
        let config = checked.map_err(|error| self.line(&lists.in_file(error, &settings), document))?;
        Ok((config, settings))
    }

    fn line(&self, error: &ConfigError, document: Option<&Document>) -> String {
        let flag = flag_of(&error.key).filter(|_| document.is_none() || self.is_flag(&error.key));
        match (flag, document) {
            _ if document.is_none() && !self.is_flag("pools.0.servers") => {
                "there are no servers; give --server HOST:PORT for each, or --config FILE".into()
            }
            (Some(flag), _) => match &error.value {
                Some(value) => format!("--{flag} {}: {}", value.trim_matches('"'), error.problem),
                None => format!("--{flag}: {}", error.problem),
            },
            (None, Some(document)) => document.locate(error).to_string(),
            (None, None) => error.to_string(),
        }
    }

    /// Whether an argument sets this key.
    fn is_flag(&self, key: &str) -> bool {
        let Ok(table) = Table::try_from(&self.flags) else { return false };
        let mut value = &Value::Table(table);
        for part in key.split('.') {
            let inner = match value {
                Value::Table(table) => table.get(part),
                Value::Array(array) => part.parse::<usize>().ok().and_then(|index| array.get(index)),
                // An argument replaces the whole key, with all its parts.
                _ => return true,
            };
            match inner {
                Some(inner) => value = inner,
                None => return false,
            }
        }
        true
    }
}

/// The argument for a key, if there is one.
fn flag_of(key: &str) -> Option<&str> {
    if key.starts_with("listen.") {
        return Some("listen");
    }
    let Some(pool) = key.strip_prefix("pools.0.") else { return (!key.contains('.') && key != "pools").then_some(key) };
    match pool.split('.').next() {
        Some("servers") => Some("server"),
        Some("timeouts") => Some("backend-timeout"),
        Some(name @ ("replicas" | "hash-tag" | "hash" | "distribution")) => Some(name),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proxy::{PoolFile, ServerConfig};
    use std::io::Write;

    fn flags(replicas: usize) -> ProxyFile {
        let servers = Some(vec![ServerConfig::new("a:1"), ServerConfig::new("b:1")]);
        let pool = PoolFile { servers, replicas: Some(replicas), ..PoolFile::default() };
        ProxyFile { pools: vec![pool], ..ProxyFile::default() }
    }

    fn file(text: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    }

    #[test]
    fn an_error_names_the_flag_that_it_came_from() {
        let alone = |flags| Source { file: None, flags }.config(&mut Lists::default()).unwrap_err();
        assert_eq!(alone(flags(3)), "--replicas 3: there are 2 servers; give a number from 1 to 2");
        assert!(alone(ProxyFile::default()).starts_with("there are no servers; give --server"));
        assert_eq!(alone(ProxyFile { loops: Some(0), ..flags(1) }), "--loops 0: give a number from 1 to 250");
        let line = alone(ProxyFile { listen: Some(vec!["127.0.0.1:5".into(); 2]), ..flags(1) });
        assert_eq!(line, "--listen 127.0.0.1:5: this address is given twice; leave one of them out");
    }

    #[test]
    fn flags_override_the_file_and_an_error_names_the_one_that_counts() {
        let file = file("loops = 0\n[[pools]]\nname = 'p'\nservers = ['x:1']\nhash-tag = '[]'\n");
        let name = file.path().display().to_string();
        let of = |flags| Source { file: Some(file.path().into()), flags }.config(&mut Lists::default());
        assert_eq!(of(ProxyFile::default()).unwrap_err(), format!("{name}:1: loops = 0: give a number from 1 to 250"));
        assert_eq!(of(flags(3)).unwrap_err(), "--replicas 3: there are 2 servers; give a number from 1 to 2");
        let config = of(ProxyFile { loops: Some(2), ..flags(2) }).unwrap();
        assert_eq!((config.loops, config.pools[0].servers.len(), config.pools[0].replicas), (2, 2, 2));
        assert_eq!((config.pools[0].name.as_str(), config.pools[0].hash_tag), ("p", Some(*b"[]")));
    }
}
