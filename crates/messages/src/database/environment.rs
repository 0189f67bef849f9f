//! Completes the database URL from libpq's environment variables and its password file.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tokio_postgres::Config;
use tokio_postgres::config::Host;

/// Looks up environment variables. An empty one counts as missing.
pub(super) type Variable<'v> = &'v dyn Fn(&str) -> Option<String>;

/// An environment variable of this process.
pub(super) fn of_process(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Completes a configuration from PGHOST, PGPORT, PGUSER, PGPASSWORD and PGDATABASE.
pub(super) fn complete(config: &mut Config, variable: Variable<'_>) -> Result<(), String> {
    if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
        for host in variable("PGHOST").iter().flat_map(|hosts| hosts.split(',')) {
            if host.starts_with('/') {
                config.host_path(host)
            } else {
                config.host(host)
            };
        }
    }
    if config.get_ports().is_empty() {
        for port in variable("PGPORT").iter().flat_map(|ports| ports.split(',')) {
            let number = port.parse().map_err(|_| format!("PGPORT: {port:?} is not a port"))?;
            config.port(number);
        }
    }
    if let (None, Some(user)) = (config.get_user(), variable("PGUSER")) {
        config.user(user);
    }
    if let (None, Some(name)) = (config.get_dbname(), variable("PGDATABASE")) {
        config.dbname(name);
    }
    if let (None, Some(password)) = (config.get_password(), variable("PGPASSWORD")) {
        config.password(password);
    }
    Ok(())
}

/// Refuses a PGSSLMODE that demands TLS. With libpq it would encrypt; here only an authority's file does.
pub(super) fn check_encryption(variable: Variable<'_>) -> Result<(), String> {
    match variable("PGSSLMODE") {
        Some(mode) if mode == "require" || mode.starts_with("verify-") => Err(format!(
            "PGSSLMODE={mode} needs --database-authority FILE to verify the server; PGSSLROOTCERT is not read"
        )),
        _ => Ok(()),
    }
}

/// Gives each host its password from the file in PGPASSFILE, or from `~/.pgpass`, unless there is a password already.
pub(super) fn add_passwords(hosts: &mut [Config], variable: Variable<'_>) -> Result<(), String> {
    if hosts.iter().all(|host| host.get_password().is_some()) {
        return Ok(());
    }
    let given = variable("PGPASSFILE").map(PathBuf::from);
    let usual = || variable("HOME").map(|home| Path::new(&home).join(".pgpass")).filter(|path| path.exists());
    let Some(path) = given.or_else(usual) else { return Ok(()) };
    let failed = |why: &dyn ToString| format!("password file {}: {}", path.display(), why.to_string());
    let metadata = fs::metadata(&path).map_err(|error| failed(&error))?;
    // As in libpq. Reading a named pipe could wait for ever.
    if !metadata.is_file() {
        return Err(failed(&"not a regular file"));
    }
    if metadata.permissions().mode() & 0o077 != 0 {
        return Err(failed(&"other users can read it; run chmod 600"));
    }
    let text = fs::read_to_string(&path).map_err(|error| failed(&error))?;
    for host in hosts.iter_mut().filter(|host| host.get_password().is_none()) {
        if let Some(password) = find(&text, host) {
            host.password(password);
        }
    }
    Ok(())
}

/// The password in the first line `host:port:database:user:password` that matches. `*` matches everything.
fn find(text: &str, host: &Config) -> Option<String> {
    let name = match (host.get_hosts().first(), host.get_hostaddrs().first()) {
        (Some(Host::Tcp(name)), _) => name.clone(),
        (None, Some(address)) => address.to_string(),
        // As in libpq, lines for unix sockets have the host localhost.
        _ => "localhost".into(),
    };
    let port = host.get_ports().first().unwrap_or(&5432).to_string();
    // As in libpq, the user of the operating system is the default.
    let user = host.get_user().map_or_else(|| whoami::username().unwrap_or_default(), str::to_string);
    let database = host.get_dbname().map_or_else(|| user.clone(), str::to_string);
    let wanted = [name, port, database, user];
    text.lines().filter(|line| !line.starts_with('#')).map(fields).find_map(|fields| {
        let [pattern @ .., password] = fields.as_slice() else { return None };
        let is_match = pattern.len() == 4
            && pattern.iter().zip(&wanted).all(|(pattern, value)| pattern == "*" || pattern == value);
        is_match.then(|| password.clone())
    })
}

/// The five fields of a line. A backslash escapes a colon or a backslash.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        let next = match character {
            ':' if fields.len() < 5 => {
                fields.push(String::new());
                continue;
            }
            '\\' => characters.next().unwrap_or('\\'),
            other => other,
        };
        if let Some(field) = fields.last_mut() {
            field.push(next);
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, Mode, mkfifoat};

    #[test]
    fn variables_complete_what_the_url_leaves_out() {
        let variable = |name: &str| {
            let value = match name {
                "PGHOST" => "/run,b",
                "PGPORT" => "1,2",
                "PGUSER" => "me",
                "PGDATABASE" => "queues",
                "PGPASSWORD" => "secret",
                _ => return None,
            };
            Some(value.to_string())
        };
        let mut config = Config::new();
        complete(&mut config, &variable).unwrap();
        assert_eq!(config.get_hosts(), [Host::Unix("/run".into()), Host::Tcp("b".into())]);
        assert_eq!(
            (config.get_ports(), config.get_user(), config.get_dbname()),
            (&[1, 2][..], Some("me"), Some("queues"))
        );
        let mut given: Config = "host=a port=7 user=you dbname=d password=p".parse().unwrap();
        let before = given.clone();
        complete(&mut given, &variable).unwrap();
        assert_eq!(given, before);
        assert!(complete(&mut Config::new(), &|name| (name == "PGPORT").then(|| "x".into())).is_err());
    }

    #[test]
    fn the_password_file_is_read_for_each_host() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("passwords");
        let own = whoami::username().unwrap();
        let lines = "# comment\na:1:d:me:on\\:e\\\\\nlocalhost:*:*:me:two\n*:*:*:you:three\nshort";
        fs::write(&path, format!("{lines}\nc:*:{own}:{own}:four\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let variable = |name: &str| (name == "PGPASSFILE").then(|| path.display().to_string());
        let password = |text: &str| {
            let mut hosts = [text.parse().unwrap()];
            add_passwords(&mut hosts, &variable).unwrap();
            hosts[0].get_password().map(|bytes| String::from_utf8(bytes.to_vec()).unwrap())
        };
        assert_eq!(password("host=a port=1 dbname=d user=me").unwrap(), "on:e\\");
        assert_eq!(password("host=/run user=me").unwrap(), "two");
        assert_eq!(password("host=b user=you").unwrap(), "three");
        assert_eq!(password("host=b user=you password=own").unwrap(), "own");
        assert_eq!(password("host=c").unwrap(), "four", "the user of the operating system, and a database of its name");
        assert_eq!(password("host=b user=me"), None);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let refused = || add_passwords(&mut ["host=a user=me".parse().unwrap()], &variable).unwrap_err();
        let error = refused();
        assert!(error.contains("chmod 600") && !error.contains('\n'), "{error}");
        fs::remove_file(&path).unwrap();
        mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR).unwrap();
        assert!(refused().ends_with("not a regular file"));
    }

    #[test]
    fn a_variable_that_demands_tls_is_refused() {
        let check = |mode: &'static str| check_encryption(&|name| (name == "PGSSLMODE").then(|| mode.into()));
        assert!(["require", "verify-ca", "verify-full"].into_iter().all(|mode| check(mode).is_err()));
        assert!(["disable", "allow", "prefer"].into_iter().all(|mode| check(mode).is_ok()));
        assert!(check_encryption(&|_| None).is_ok());
    }
}
