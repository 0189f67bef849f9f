//! Reads the files with users and passwords, at a start and at every reload.

use crate::config::{Config, PoolConfig};
use crate::control::error::ProxyError;
use crate::path::auth::{Login, Users, UsersFault};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

/// The size of the largest file, with as many and as long lines as are allowed.
const BYTES_MAX: u64 = 256 * 1024;

/// The users whose clients are served, and the logins to the servers.
#[derive(Clone, Debug)]
pub(crate) struct Auth {
    /// None if clients need not authenticate.
    pub(crate) users: Option<Arc<Users>>,
    /// By pool. None if its servers require none.
    pub(crate) logins: Vec<Option<Login>>,
}

impl Auth {
    /// Reads the files of a configuration.
    pub(crate) fn load(config: &Config) -> Result<Auth, ProxyError> {
        let users = config.client_auth_file.as_deref().map(|path| load(path, Users::parse)).transpose()?;
        let login = |pool: &PoolConfig| pool.server_auth_file.as_deref().map(|path| load(path, Login::parse));
        let logins = config.pools.iter().map(|pool| login(pool).transpose()).collect::<Result<_, _>>()?;
        Ok(Auth { users: users.map(Arc::new), logins })
    }
}

fn load<T>(path: &Path, parse: impl Fn(&[u8]) -> Result<T, UsersFault>) -> Result<T, ProxyError> {
    let refuse = |fault: &dyn ToString| ProxyError::Auth { path: path.into(), fault: fault.to_string() };
    let text = read(path).map_err(|error| refuse(&error))?;
    if text.len() as u64 > BYTES_MAX {
        return Err(refuse(&"it is larger than 256 KiB; is it a file of users?"));
    }
    parse(&text).map_err(|fault| refuse(&fault))
}

/// The bytes of a file, or the first ones of a file that is too large.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    // Opening a named pipe would block until another process writes to it.
    if !path.metadata()?.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    let mut text = Vec::new();
    File::open(path)?.take(BYTES_MAX + 1).read_to_end(&mut text)?;
    Ok(text)
}
