//! The servers of pools that come from a file, or from the addresses of host names. A list that cannot be used is replaced by the last one
//! that could.

use crate::proxy_command::file_watch::{FileVersion, version};
use crate::proxy_command::names::{Answer, Names};
use net::HostPort;
use proxy::{ConfigError, PoolFile, ProxyFile, Resolve, ServerConfig, read_servers};
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
    hosts: Vec<(HostPort, Answer)>,
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
    pub(super) fn hosts(&self) -> &[(HostPort, Answer)] {
        &self.hosts
    }

    pub(super) fn into_hosts(self) -> Vec<(HostPort, Answer)> {
        self.hosts
    }

    /// Adds the names of lists that were refused: their next answers can make the lists usable.
    pub(super) fn add_hosts(&mut self, refused: Vec<(HostPort, Answer)>) {
        let is_new = |host: &HostPort| !self.hosts.iter().any(|(known, _)| known == host);
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
            let hosts: Vec<HostPort> = self.hosts.iter().map(|(host, _)| host.clone()).collect();
            names.look_up(&hosts, true);
        }
    }

    /// Puts the servers of the files and names into the pools.
    ///
    /// # Errors
    /// If a list cannot be used, and there is no earlier one.
    pub(super) fn expand(&mut self, settings: &mut ProxyFile) -> Result<(), ConfigError> {
        settings.check_lists()?;
        let mut used = BTreeMap::new();
        for (index, pool) in settings.pools.iter_mut().enumerate() {
            let name = pool.name.clone().unwrap_or_else(|| POOL.into());
            if let Some(path) = pool.servers_file.clone() {
                self.versions.entry(path.clone()).or_insert_with(|| version(&path));
                let has_several = pool.resolve == Some(Resolve::All);
                let found = read_servers(&path).and_then(|servers| checked(servers, has_several));
                let place = (name.clone(), Origin::File(path.clone()));
                let servers = self.decide(place, found, &path.display().to_string(), &mut used).map_err(|problem| {
                    ConfigError::value(format!("pools.{index}.servers-file"), format!("{path:?}"), problem)
                })?;
                pool.servers = Some(servers);
            }
            self.resolve(index, &name, pool, &mut used)?;
        }
        self.used = used;
        Ok(())
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
        let hosts: Vec<HostPort> = written.iter().filter_map(ServerConfig::host_name).collect();
        names.look_up(&hosts, false);
        self.hosts.extend(hosts.into_iter().map(|host| (host.clone(), names.answer(&host))));
        let mut servers = Vec::new();
        for (place, server) in written.into_iter().enumerate() {
            let Some(host) = server.host_name() else {
                servers.push(server);
                continue;
            };
            // The list has addresses alone: the weight is always that of the configuration.
            let at = |address: &SocketAddr| ServerConfig::new(&address.to_string());
            let answer = self.hosts.iter().rev().find(|(other, _)| *other == host).map(|(_, answer)| answer.clone());
            let answer = answer.unwrap_or_else(|| names.answer(&host));
            let found = answer.map(|addresses| addresses.iter().map(at).collect());
            let found = found.map_err(|reason| format!("it cannot be resolved ({reason})"));
            let origin = (pool_name.to_string(), Origin::Name(server.address.clone()));
            let list = self.decide(origin, found, &server.address, used).map_err(|problem| {
                ConfigError::value(format!("pools.{index}.servers.{place}"), format!("{:?}", server.address), problem)
            })?;
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
fn checked(servers: Vec<ServerConfig>, has_several: bool) -> Result<Vec<ServerConfig>, String> {
    let problem =
        servers.iter().filter(|_| has_several).find_map(|server| Some((server, server.check_several().err()?)));
    match problem {
        Some((server, problem)) => Err(format!("{:?}: {problem}", server.address)),
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
