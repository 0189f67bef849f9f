//! How many connections the server accepts. PostgreSQL fixes the number when it starts.

use super::{Embedded, EmbeddedError};
use std::fs;

/// The setting.
const NAME: &str = "max_connections";
/// PostgreSQL writes its arguments to this file in the data directory when it starts.
const ARGUMENTS: &str = "postmaster.opts";

impl Embedded {
    /// Makes the next start accept at least this many connections. A larger number in the configuration of the data stays.
    pub(super) fn make_room(&mut self, connections: usize) {
        let accepted = self.configured().map_or(connections, |configured| configured.max(connections));
        self.settings.push(format!("{NAME}={accepted}"));
    }

    /// Makes the next start accept as many connections as the last one, by another waystage: services beside this one may need them.
    pub(super) fn keep_room(&mut self) {
        let connections = self.connections.max(argument(&self.last_arguments()).unwrap_or(0));
        if connections > 0 {
            self.make_room(connections);
        }
    }

    fn last_arguments(&self) -> String {
        fs::read_to_string(self.data().join(ARGUMENTS)).unwrap_or_default()
    }

    /// Checks that the server of another waystage, which runs already, accepts at least this many connections.
    pub(super) fn check_room(&self, connections: usize) -> Result<(), EmbeddedError> {
        // A server that was started without the setting has the number of its configuration. If this cannot be read either, the
        // connections themselves show whether there is room.
        let Some(accepted) = argument(&self.last_arguments()).or_else(|| self.configured()) else { return Ok(()) };
        if accepted >= connections {
            return Ok(());
        }
        let why = format!(
            "another waystage runs its PostgreSQL with {NAME}={accepted}, but this service needs {connections}; \
             use fewer lanes, or start the service with the most lanes first"
        );
        Err(EmbeddedError::Directory { path: self.directory.display().to_string(), why })
    }

    /// The number in the configuration files of the data.
    fn configured(&self) -> Option<usize> {
        let output = self.command("postgres").arg("-D").arg(self.data()).args(["-C", NAME]).output().ok()?;
        String::from_utf8_lossy(&output.stdout).trim().parse().ok()
    }
}

/// The number in the arguments of a server. The last one counts.
fn argument(arguments: &str) -> Option<usize> {
    let (_, rest) = arguments.rsplit_once(&format!("\"{NAME}="))?;
    rest.split('"').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_number_in_the_arguments_counts() {
        let arguments = r#"/usr/bin/postgres "-D" "/a "max_connections=7"/data" "-c" "max_connections=60" "-c" "max_connections=254"
"#;
        assert_eq!(argument(arguments), Some(254));
        assert_eq!(argument(r#"postgres "-D" "data""#), None);
    }
}
