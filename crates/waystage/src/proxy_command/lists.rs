//! The servers of pools that come from a file, from SRV records, or from the addresses of host names. A list that cannot be used is replaced by the last one
//! that could.

use crate::proxy_command::file_watch::{FileVersion, version};
use crate::proxy_command::names::{Answer, Names, Question};
use proxy::{ConfigError, PoolFile, ProxyFile, Resolve, SERVERS_MAX, ServerConfig, read_servers};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;

/// The name of the only pool, if it has none.
const POOL: &str = "default";

/// Where a list comes from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Origin {
    File(PathBuf),
    /// The server as it is written.
    Name(String),
    /// The name with SRV records.
    Records(String),
}

/// The lists in use, each with its pool: two pools can accept different lists of one file.
type Used = BTreeMap<(String, Origin), Vec<ServerConfig>>;

/// The lists of one configuration.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lists {
    /// None if host names stay as they are written.
    names: Option<Names>,
    /// The lists in use.
    used: Used,
    /// Why other lists than those in use are refused.
    refusal: Option<String>,
    /// The problems, each with the pool that keeps its last list.
    failures: BTreeMap<(String, Origin), String>,
    /// The versions of the files that were read, from before the reading.
    versions: BTreeMap<PathBuf, Option<FileVersion>>,
    /// The names that were resolved, with the answers in use. Also those of lists that were refused.
    hosts: Vec<(Question, Answer)>,
    /// The lines of the servers in the files that were read, by the address as it is written.
    lines: BTreeMap<(PathBuf, String), usize>,
}

impl Lists {
    pub(super) fn new(names: Names) -> Lists {
        Lists { names: Some(names), ..Lists::default() }
    }

    /// Whether no pool has a list.
    pub(super) fn is_empty(&self) -> bool {
        self.versions.is_empty() && self.hosts.is_empty()
    }

    /// These lists for another attempt. With a refusal, only those in use are accepted.
    pub(super) fn for_attempt(&self, refusal: Option<String>) -> Lists {
        Lists { names: self.names.clone(), used: self.used.clone(), refusal, ..Lists::default() }
    }

    /// The files with the versions that were read.
    pub(super) fn versions(&self) -> &BTreeMap<PathBuf, Option<FileVersion>> {
        &self.versions
    }

    /// The names that were resolved, with the answers in use.
    pub(super) fn hosts(&self) -> &[(Question, Answer)] {
        &self.hosts
    }

    pub(super) fn into_hosts(self) -> Vec<(Question, Answer)> {
        self.hosts
    }

    /// Adds the names of lists that were refused: their next answers can make the lists usable.
    pub(super) fn add_hosts(&mut self, refused: Vec<(Question, Answer)>) {
        let is_new = |host: &Question| !self.hosts.iter().any(|(known, _)| known == host);
        let added: Vec<_> = refused.into_iter().filter(|(host, _)| is_new(host)).collect();
        self.hosts.extend(added);
    }

    /// Forgets the answers for names that these lists do not have.
    pub(super) fn forget_other_names(&self) {
        if let Some(names) = &self.names {
            names.keep_only(self.hosts.iter().map(|(host, _)| host.clone()));
        }
    }

    /// The pools and reasons of the problems that earlier lists did not have.
    pub(super) fn new_failures<'a>(&'a self, earlier: &'a Lists) -> impl Iterator<Item = (&'a str, &'a str)> {
        let is_new = |(place, reason): &(&(String, Origin), &String)| earlier.failures.get(place) != Some(reason);
        self.failures.iter().filter(is_new).map(|((pool, _), reason)| (pool.as_str(), reason.as_str()))
    }

    /// The pools that have another list than before from the same file or name.
    pub(super) fn changed_pools<'a>(&'a self, earlier: &Lists) -> BTreeSet<&'a str> {
        let is_other = |(place, list): &(&(String, Origin), &Vec<ServerConfig>)| {
            earlier.used.get(place).is_some_and(|last| last != *list)
        };
        self.used.iter().filter(is_other).map(|((pool, _), _)| pool.as_str()).collect()
    }

    /// Looks up all names again.
    pub(super) fn look_up_again(&self) {
        if let Some(names) = &self.names {
            let hosts: Vec<Question> = self.hosts.iter().map(|(host, _)| host.clone()).collect();
            names.look_up(&hosts, true);
        }
    }

    /// Puts the servers of the files and names into the pools.
    ///
    /// # Errors
    /// If a list cannot be used, and there is no earlier one.
    pub(super) fn expand(&mut self, settings: &mut ProxyFile) -> Result<(), ConfigError> {
        settings.check_lists()?;
        let server = settings.dns_server()?;
        let mut used = BTreeMap::new();
        for (index, pool) in settings.pools.iter_mut().enumerate() {
            let name = pool.name.clone().unwrap_or_else(|| POOL.into());
            if let Some(path) = pool.servers_file.clone() {
                self.versions.entry(path.clone()).or_insert_with(|| version(&path));
                let has_several = pool.resolve == Some(Resolve::All);
                let found = read_servers(&path).and_then(|servers| checked(servers, has_several));
                let found = found.map(|servers| {
                    let line = |(line, server): &(usize, ServerConfig)| ((path.clone(), server.address.clone()), *line);
                    self.lines.extend(servers.iter().map(line));
                    servers.into_iter().map(|(_, server)| server).collect()
                });
                let place = (name.clone(), Origin::File(path.clone()));
                let servers = self.decide(place, found, &path.display().to_string(), &mut used).map_err(|problem| {
                    ConfigError::value(format!("pools.{index}.servers-file"), format!("{path:?}"), problem)
                })?;
                pool.servers = Some(servers);
            }
            if let Some(record) = pool.srv.clone() {
                pool.servers = Some(self.records(index, &name, &record, pool, (server, &mut used))?);
            }
            self.resolve(index, &name, pool, &mut used)?;
        }
        self.used = used;
        Ok(())
    }

    /// The servers of SRV records. Without lookups, servers that do not exist stand for them, as many as the pool needs.
    fn records(
        &mut self,
        index: usize,
        pool_name: &str,
        record: &str,
        pool: &PoolFile,
        (server, used): (Option<SocketAddr>, &mut Used),
    ) -> Result<Vec<ServerConfig>, ConfigError> {
        let Some(names) = self.names.clone() else {
            let stand_in = |number| ServerConfig::new(&format!("server-{number}.pool-{index}.invalid:1"));
            return Ok((0..pool.replicas.unwrap_or(1).clamp(1, SERVERS_MAX)).map(stand_in).collect());
        };
        let question = Question::Records(record.into(), server);
        names.look_up(std::slice::from_ref(&question), false);
        let answer = names.answer(&question);
        self.hosts.push((question, answer.clone()));
        let found = answer.map_err(|reason| format!("it cannot be resolved ({reason})"));
        let origin = (pool_name.to_string(), Origin::Records(record.into()));
        self.decide(origin, found, record, used)
            .map_err(|problem| ConfigError::value(format!("pools.{index}.srv"), format!("{record:?}"), problem))
    }

    /// The error in the terms of the operator: a server that comes from a file is named by the file and its line, and one of SRV records
    /// by their name.
    pub(super) fn in_file(&self, error: ConfigError, settings: &ProxyFile) -> ConfigError {
        let place = || {
            let (pool, rest) = error.key.strip_prefix("pools.")?.split_once(".servers.")?;
            let (server, key) = rest.split_once('.').map_or((rest, None), |(server, key)| (server, Some(key)));
            let settings = settings.pools.get(pool.parse::<usize>().ok()?)?;
            let server = settings.servers.as_ref()?.get(server.parse::<usize>().ok()?)?;
            let address = server.address.clone();
            if let Some(path) = settings.servers_file.clone() {
                let line = self.lines.get(&(path.clone(), address.clone())).map(|line| format!("line {line}: "));
                return Some((format!("pools.{pool}.servers-file"), format!("{path:?}"), line, address, key));
            }
            let name = settings.srv.as_ref()?;
            Some((format!("pools.{pool}.srv"), format!("{name:?}"), None, address, key))
        };
        let Some((place, source, line, address, key)) = place() else { return error };
        let value = match (key, &error.value) {
            (Some(key), Some(value)) => format!("{key} = {value}: "),
            _ => String::new(),
        };
        let problem = format!("{}{address:?}: {value}{}", line.unwrap_or_default(), error.problem);
        ConfigError::value(place, source, problem)
    }

    /// Puts the servers at the addresses of a name in the place of the name.
    fn resolve(
        &mut self,
        index: usize,
        pool_name: &str,
        pool: &mut PoolFile,
        used: &mut Used,
    ) -> Result<(), ConfigError> {
        let Some(names) = self.names.clone().filter(|_| pool.resolve == Some(Resolve::All)) else { return Ok(()) };
        let written = pool.servers.take().unwrap_or_default();
        let question = |server: &ServerConfig| server.host_name().map(Question::Addresses);
        let hosts: Vec<Question> = written.iter().filter_map(question).collect();
        names.look_up(&hosts, false);
        self.hosts.extend(hosts.into_iter().map(|host| (host.clone(), names.answer(&host))));
        let mut servers = Vec::new();
        for (place, server) in written.iter().enumerate() {
            let Some(host) = question(server) else {
                servers.push(server.clone());
                continue;
            };
            // The list has addresses alone: the weight is always that of the configuration.
            let answer = self.hosts.iter().rev().find(|(other, _)| *other == host).map(|(_, answer)| answer.clone());
            let answer = answer.unwrap_or_else(|| names.answer(&host));
            let found = answer.map_err(|reason| format!("it cannot be resolved ({reason})"));
            let origin = (pool_name.to_string(), Origin::Name(server.address.clone()));
            let list = match self.decide(origin, found, &server.address, used) {
                Ok(list) => list,
                Err(problem) => {
                    let (key, value) = (format!("pools.{index}.servers.{place}"), format!("{:?}", server.address));
                    // The error is reported with the place that the server comes from.
                    pool.servers = Some(written);
                    return Err(ConfigError::value(key, value, problem));
                }
            };
            servers.extend(list.into_iter().map(|one| ServerConfig { address: one.address, ..server.clone() }));
        }
        pool.servers = Some(servers);
        Ok(())
    }

    /// The list that is used: this one if it can be, and otherwise the last one.
    fn decide(
        &mut self,
        place: (String, Origin),
        found: Result<Vec<ServerConfig>, String>,
        shown: &str,
        used: &mut Used,
    ) -> Result<Vec<ServerConfig>, String> {
        // A pool that is new, or has another name now, begins with the list of another pool.
        let of_another = || self.used.iter().find(|((_, origin), _)| *origin == place.1).map(|(_, list)| list);
        let found = match (found, self.used.get(&place).or_else(of_another), &self.refusal) {
            (Ok(list), Some(last), Some(refusal)) if list != *last => Err((refusal.clone(), last.clone())),
            (Ok(list), ..) => Ok(list),
            (Err(problem), Some(last), _) => Err((format!("{shown}: {problem}"), last.clone())),
            (Err(problem), None, _) => return Err(problem),
        };
        let list = found.unwrap_or_else(|(reason, last)| {
            self.failures.insert(place.clone(), reason);
            last
        });
        used.insert(place, list.clone());
        Ok(list)
    }
}

/// The servers of a file, unless one of them cannot stand for several.
fn checked(servers: Vec<(usize, ServerConfig)>, has_several: bool) -> Result<Vec<(usize, ServerConfig)>, String> {
    let mut several = servers.iter().filter(|_| has_several);
    let problem = several.find_map(|(line, server)| Some((line, server, server.check_several().err()?)));
    match problem {
        Some((line, server, problem)) => Err(format!("line {line}: {:?}: {problem}", server.address)),
        None => Ok(servers),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proxy::Lookup;
    use std::fs::{remove_file, write};
    use std::io;
    use std::sync::{Arc, Mutex};

    fn pool(servers_file: Option<PathBuf>, servers: &[&str], resolve: Option<Resolve>) -> ProxyFile {
        let servers = (!servers.is_empty()).then(|| servers.iter().map(|server| ServerConfig::new(server)).collect());
        let pool = PoolFile { servers_file, servers, resolve, ..PoolFile::default() };
        ProxyFile { pools: vec![pool], ..ProxyFile::default() }
    }

    /// The servers of the pool, or the error, with the lists after that.
    fn expanded(lists: &Lists, settings: &ProxyFile, refusal: Option<&str>) -> (Result<Vec<String>, String>, Lists) {
        let (mut lists, mut settings) = (lists.for_attempt(refusal.map(Into::into)), settings.clone());
        let outcome = lists.expand(&mut settings).map_err(|error| error.to_string());
        let servers = settings.pools.remove(0).servers.unwrap_or_default();
        (outcome.map(|()| servers.into_iter().map(|server| server.address).collect()), lists)
    }

    #[test]
    fn an_error_in_a_server_of_a_file_names_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("servers");
        for (text, expected) in [
            ("a:1\n#\nb:1:5000\n", "line 3: \"b:1\": weight = 5000: give a number from 1 to 1000; leave out"),
            ("a:1:0\n", "line 1: \"a:1\": weight = 0: give a number from 1 to 1000; leave out"),
            ("a:1 x\n\nb:1 x\n", "line 3: \"b:1\": name = \"x\": another server has this name; they would have"),
            ("a:1 x\u{1}\n", "line 1: \"a:1\": name = \"x\\u{1}\": give 1 to 250 characters without spaces"),
            ("a:1\nb:1:500\n", "line 1: \"a:1\": weight = 1: below a fortieth of the average weight"),
        ] {
            write(&path, text).unwrap();
            let mut settings = pool(Some(path.clone()), &[], None);
            let mut lists = Lists::default();
            lists.expand(&mut settings).unwrap();
            let error = settings.clone().config().and_then(|config| config.check()).unwrap_err();
            let line = lists.in_file(error, &settings).to_string();
            assert!(line.starts_with(&format!("servers-file = {path:?}: {expected}")), "{line}");
        }
        // A host that has no address.
        write(&path, "10.0.0.1:1\n# second\ncache.test:1\n").unwrap();
        let lookup = Lookup::new(|_| Err(io::Error::other("broken")));
        let (mut lists, mut settings) =
            (Lists::new(Names::new(lookup)), pool(Some(path.clone()), &[], Some(Resolve::All)));
        let error = lists.expand(&mut settings).unwrap_err();
        let line = lists.in_file(error, &settings).to_string();
        let expected = "line 3: \"cache.test:1\": it cannot be resolved (broken)";
        assert_eq!(line, format!("servers-file = {path:?}: {expected}"));
        // Other errors, and those of servers in the configuration, stay as they are.
        let error = ConfigError::value("pools.0.servers.0.weight", "0", "no");
        assert_eq!(Lists::default().in_file(error.clone(), &pool(None, &["a:1"], None)), error);
    }

    #[test]
    fn a_file_that_cannot_be_used_is_replaced_by_the_last_list() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("servers");
        let settings = pool(Some(path.clone()), &[], None);
        let none = Lists::default();
        let line = expanded(&none, &settings, None).0.unwrap_err();
        assert!(line.starts_with("servers-file = \"") && line.contains("cannot read the servers"), "{line}");
        write(&path, "a:1\nb:1\n").unwrap();
        let (servers, first) = expanded(&none, &settings, None);
        assert_eq!(servers.unwrap(), ["a:1", "b:1"]);
        let mut lists = first.clone();
        for text in [Some(""), Some("a:1\nb:"), Some("a:1\nc:1"), Some("\0\0"), None] {
            text.map_or_else(|| remove_file(&path), |text| write(&path, text)).unwrap();
            let (servers, next) = expanded(&lists, &settings, None);
            assert_eq!(servers.unwrap(), ["a:1", "b:1"], "{text:?}");
            assert_eq!(next.new_failures(&lists).count(), 1, "{text:?}");
            let (_, again) = expanded(&next, &settings, None);
            assert_eq!(again.new_failures(&next).count(), 0, "the same problem is reported once");
            lists = again;
        }
        write(&path, "c:1\n").unwrap();
        let (servers, last) = expanded(&lists, &settings, None);
        assert_eq!((servers.unwrap(), last.failures.len()), (vec!["c:1".to_string()], 0));
        let (servers, refused) = expanded(&first, &settings, Some("too many"));
        assert_eq!(servers.unwrap(), ["a:1", "b:1"]);
        assert_eq!(refused.new_failures(&first).collect::<Vec<_>>(), [("default", "too many")]);
    }

    #[test]
    fn a_name_stands_for_the_servers_at_its_addresses() {
        let answers = Arc::new(Mutex::new(Ok(vec!["10.0.0.2:1", "10.0.0.1:1"])));
        let shared = answers.clone();
        let lookup = Lookup::new(move |_| {
            let answer = shared.lock().unwrap().clone();
            answer
                .map(|texts: Vec<&str>| texts.iter().map(|text| text.parse().unwrap()).collect())
                .map_err(|text: &str| io::Error::other(text))
        });
        let settings = pool(None, &["10.0.0.7:1", "cache.test:1"], Some(Resolve::All));
        let none = Lists::new(Names::new(lookup));
        let (servers, first) = expanded(&none, &settings, None);
        assert_eq!(servers.unwrap(), ["10.0.0.7:1", "10.0.0.1:1", "10.0.0.2:1"]);
        for answer in [Err("broken"), Ok(vec![])] {
            *answers.lock().unwrap() = answer;
            first.look_up_again();
            let (servers, kept) = expanded(&first, &settings, None);
            assert_eq!(servers.unwrap(), ["10.0.0.7:1", "10.0.0.1:1", "10.0.0.2:1"]);
            assert_eq!(kept.new_failures(&first).count(), 1);
            assert!(expanded(&none, &settings, None).0.is_err(), "without an earlier list there is an error");
        }
        *answers.lock().unwrap() = Ok(vec!["10.0.0.3:1"]);
        first.look_up_again();
        assert_eq!(expanded(&first, &settings, None).0.unwrap(), ["10.0.0.7:1", "10.0.0.3:1"]);
        let one = pool(None, &["cache.test:1"], None);
        assert_eq!(expanded(&none, &one, None).0.unwrap(), ["cache.test:1"]);
        assert_eq!(expanded(&Lists::default(), &settings, None).0.unwrap(), ["10.0.0.7:1", "cache.test:1"]);
    }
}
