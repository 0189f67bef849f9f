//! The secret that agents and controllers share: where it comes from. It is never an argument, because every user of a
//! machine can read the arguments of its programs.

use clap::Args;
use load::Secret;
use std::path::PathBuf;
use std::{env, fs};

/// The environment variable with the secret.
const VARIABLE: &str = "WAYSTAGE_AGENT_SECRET";

/// Arguments about the secret.
#[derive(Clone, Debug, Args)]
pub(crate) struct SecretArguments {
    /// A file with the secret that agents and controllers share [default: the environment variable
    /// WAYSTAGE_AGENT_SECRET]. Each side proves to the other that it has it. At least 16 bytes in one line, with at least
    /// six different characters, and no space at either end. `openssl rand -base64 32` makes one.
    #[arg(help_heading = "Agents", long, value_name = "FILE")]
    pub(crate) secret_file: Option<PathBuf>,
    /// Allow agents beyond the loopback interface without a secret: everyone who can connect to such an agent can make
    /// its machine load any server.
    #[arg(help_heading = "Agents", long)]
    pub(crate) insecure: bool,
}

impl SecretArguments {
    /// The secret, if there is one.
    pub(crate) fn secret(&self) -> Result<Option<Secret>, String> {
        let (source, text) = match (&self.secret_file, env::var_os(VARIABLE)) {
            (Some(path), _) => {
                let text = fs::read_to_string(path);
                let source = format!("--secret-file {}", path.display());
                (source.clone(), text.map_err(|error| format!("{source}: {error}"))?)
            }
            (None, Some(text)) => {
                (VARIABLE.to_owned(), text.into_string().map_err(|_| format!("{VARIABLE} is not UTF-8"))?)
            }
            (None, None) => return Ok(None),
        };
        Secret::new(&text).map(Some).map_err(|line| format!("{source}: {line}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_file_that_cannot_be_used_is_one_line() {
        let folder = tempfile::tempdir().unwrap();
        let of = |name: &str| {
            let path = folder.path().join(name);
            SecretArguments { secret_file: Some(path), insecure: false }.secret()
        };
        assert!(of("none").is_err_and(|line| line.contains("none: ")));
        fs::write(folder.path().join("short"), "hunter2\n").unwrap();
        assert!(of("short").is_err_and(|line| line.contains("7 bytes") && !line.contains("hunter2")));
        fs::write(folder.path().join("long"), "0123456789abcdef\n").unwrap();
        assert!(of("long").is_ok_and(|secret| secret.is_some()));
    }
}
