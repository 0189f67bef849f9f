//! What an operator has changed at run time: servers that are drained, and weights. It is applied to the configuration at each reload,
//! until the file itself changes the same key, or no longer has the server.

use proxy::{ChangedServer, PoolFile, ProxyFile, ServerChange, ServerConfig};

/// The most servers that can be changed: as many as a proxy can have.
const SERVERS_MAX: usize = 250;

/// All changes.
#[derive(Clone, Debug, Default)]
pub(super) struct Overrides(Vec<Override>);

/// The changes of one server.
#[derive(Clone, Debug)]
struct Override {
    pool: Option<String>,
    address: String,
    is_drained: Option<Changed<bool>>,
    weight: Option<Changed<u32>>,
}

/// A changed value, and what the file had in its place.
#[derive(Clone, Copy, Debug)]
struct Changed<T> {
    value: T,
    in_file: T,
}

impl<T: Copy + PartialEq> Changed<T> {
    /// Changes the value, unless the file has changed it meanwhile. Returns whether it has not.
    fn apply(&self, value: &mut T) -> bool {
        let is_valid = *value == self.in_file;
        if is_valid {
            *value = self.value;
        }
        is_valid
    }
}

impl Overrides {
    /// Applies the changes to the keys of the file. Forgets those that the file has overtaken.
    pub(super) fn apply(&mut self, settings: &mut ProxyFile) {
        self.0.retain_mut(|change| {
            let Some(server) = find(settings, change.pool.as_deref(), &change.address) else { return false };
            change.is_drained = change.is_drained.filter(|drain| drain.apply(&mut server.is_drained));
            change.weight = change.weight.filter(|weight| weight.apply(&mut server.weight));
            change.is_drained.is_some() || change.weight.is_some()
        });
    }

    /// Adds a change of a server of this file. Returns the servers that it changes, as `server of pool`.
    ///
    /// # Errors
    /// If there is no such server. The error is one line.
    pub(super) fn add(&mut self, changed: &ChangedServer, file: &ProxyFile) -> Result<Vec<String>, String> {
        if !file.pools.iter().any(|pool| is_meant(changed, pool)) {
            let known: Vec<&str> = file.pools.iter().filter_map(|pool| pool.name.as_deref()).collect();
            let name = changed.pool.as_deref().unwrap_or_default();
            return Err(format!("there is no pool {name:?}; give one of: {}", known.join(", ")));
        }
        let mut found = Vec::new();
        for (pool, server) in named(changed, file) {
            self.change(pool.name.as_deref(), server, changed.change);
            let of_pool = pool.name.as_ref().map(|name| format!(" of pool {name}")).unwrap_or_default();
            found.push(format!("{}{of_pool}", server.address));
        }
        match found.is_empty() {
            true => Err(format!(
                "there is no server {:?}; give an address or a name as in the configuration",
                changed.server
            )),
            false => Ok(found),
        }
    }

    fn change(&mut self, pool: Option<&str>, server: &ServerConfig, change: ServerChange) {
        let is_same = |known: &&mut Override| known.pool.as_deref() == pool && known.address == server.address;
        if self.0.iter_mut().find(is_same).is_none() && self.0.len() < SERVERS_MAX {
            let (pool, address) = (pool.map(Into::into), server.address.clone());
            self.0.push(Override { pool, address, is_drained: None, weight: None });
        }
        let Some(known) = self.0.iter_mut().find(is_same) else { return };
        match change {
            ServerChange::Drain(value) => {
                known.is_drained =
                    Some(Changed { value, in_file: server.is_drained }).filter(|drain| drain.value != drain.in_file);
            }
            ServerChange::Weight(value) => {
                known.weight =
                    Some(Changed { value, in_file: server.weight }).filter(|weight| weight.value != weight.in_file);
            }
        }
    }
}

/// The servers that a change names, with their pools.
fn named<'f>(
    changed: &'f ChangedServer,
    file: &'f ProxyFile,
) -> impl Iterator<Item = (&'f PoolFile, &'f ServerConfig)> {
    let pools = file.pools.iter().filter(|pool| is_meant(changed, pool));
    let servers = pools.flat_map(|pool| pool.servers.iter().flatten().map(move |server| (pool, server)));
    servers.filter(|(_, server)| server.address == changed.server || server.name.as_ref() == Some(&changed.server))
}

fn is_meant(changed: &ChangedServer, pool: &PoolFile) -> bool {
    changed.pool.is_none() || changed.pool == pool.name
}

/// The weights of the servers that a change names, apart from those that are alone in their pool: these have all its keys.
pub(super) fn shares(changed: &ChangedServer, settings: &ProxyFile) -> Vec<u32> {
    let is_alone = |pool: &PoolFile| pool.servers.as_ref().is_some_and(|servers| servers.len() == 1);
    named(changed, settings).filter(|(pool, _)| !is_alone(pool)).map(|(_, server)| server.weight).collect()
}

fn find<'s>(settings: &'s mut ProxyFile, pool: Option<&str>, address: &str) -> Option<&'s mut ServerConfig> {
    let pool = settings.pools.iter_mut().find(|other| other.name.as_deref() == pool)?;
    pool.servers.iter_mut().flatten().find(|server| server.address == address)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(weight: u32, is_drained: bool) -> ProxyFile {
        let server = |address: &str| ServerConfig { weight, is_drained, ..ServerConfig::new(address) };
        let named = ServerConfig { name: Some("second".into()), ..server("b:1") };
        let pool =
            |name: &str, servers| PoolFile { name: Some(name.into()), servers: Some(servers), ..PoolFile::default() };
        ProxyFile {
            pools: vec![pool("main", vec![server("a:1"), named]), pool("other", vec![server("a:1")])],
            ..ProxyFile::default()
        }
    }

    fn changed(pool: Option<&str>, server: &str, change: ServerChange) -> ChangedServer {
        ChangedServer { pool: pool.map(Into::into), server: server.into(), change }
    }

    /// The weight of each server, and whether it is drained.
    fn servers(settings: &ProxyFile) -> Vec<(u32, bool)> {
        let all = settings.pools.iter().flat_map(|pool| pool.servers.iter().flatten());
        all.map(|server| (server.weight, server.is_drained)).collect()
    }

    fn after(overrides: &mut Overrides, mut file: ProxyFile) -> Vec<(u32, bool)> {
        overrides.apply(&mut file);
        servers(&file)
    }

    #[test]
    fn a_change_survives_reloads_until_the_file_changes_the_same_key() {
        let mut overrides = Overrides::default();
        let drain = changed(None, "a:1", ServerChange::Drain(true));
        assert_eq!(overrides.add(&drain, &file(1, false)).unwrap(), ["a:1 of pool main", "a:1 of pool other"]);
        overrides.add(&changed(Some("main"), "second", ServerChange::Weight(5)), &file(1, false)).unwrap();
        for _ in 0..3 {
            assert_eq!(after(&mut overrides, file(1, false)), [(1, true), (5, false), (1, true)]);
        }
        // The file has another weight: it counts, now and later.
        assert_eq!(after(&mut overrides, file(2, false)), [(2, true), (2, false), (2, true)]);
        assert_eq!(after(&mut overrides, file(1, false)), [(1, true), (1, false), (1, true)]);
        assert_eq!(after(&mut overrides, ProxyFile::default()), []);
        assert_eq!(after(&mut overrides, file(1, false)), [(1, false), (1, false), (1, false)]);
    }

    #[test]
    fn a_change_back_leaves_nothing_and_an_unknown_server_is_one_line() {
        let mut overrides = Overrides::default();
        for is_drained in [true, false] {
            overrides.add(&changed(None, "b:1", ServerChange::Drain(is_drained)), &file(1, false)).unwrap();
        }
        assert_eq!(after(&mut overrides, file(1, false)), [(1, false), (1, false), (1, false)]);
        assert!(overrides.0.is_empty());
        // What the file drains can be used again.
        overrides.add(&changed(None, "b:1", ServerChange::Drain(false)), &file(1, true)).unwrap();
        assert_eq!(after(&mut overrides, file(1, true)), [(1, true), (1, false), (1, true)]);
        for (pool, server, expected) in [
            (None, "c:1", "there is no server \"c:1\"; give an address or a name as in the configuration"),
            (Some("other"), "b:1", "there is no server \"b:1\"; give an address or a name as in the configuration"),
            (Some("more"), "a:1", "there is no pool \"more\"; give one of: main, other"),
        ] {
            let line = overrides.add(&changed(pool, server, ServerChange::Drain(true)), &file(1, false)).unwrap_err();
            assert_eq!(line, expected);
        }
    }
}
