//! Files of users, proxies that read them, and what their tests share.

use crate::common::Proxy;
use proxy::Config;
use std::path::PathBuf;
use testkit::Server;

pub(crate) const USERS: &str = "alice:secret\nbob:hidden:word\n";

/// A folder with a file of users.
pub(crate) struct Files(tempfile::TempDir);

impl Files {
    pub(crate) fn new(users: &str) -> Files {
        let files = Files(tempfile::tempdir().unwrap());
        files.write(users);
        files
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.0.path().join("users")
    }

    pub(crate) fn write(&self, users: &str) {
        std::fs::write(self.path(), users).unwrap();
    }

    /// A memcached whose clients must authenticate with these users.
    pub(crate) fn memcached(&self) -> Server {
        Server::memcached_with(&["-Y", self.path().to_str().unwrap()])
    }
}

/// A proxy whose clients must authenticate.
pub(crate) fn guarded(files: &Files, server: std::net::SocketAddr, change: impl FnOnce(&mut Config)) -> Proxy {
    Proxy::at(&[server], |config| {
        (config.loops, config.metrics) = (1, Some("127.0.0.1:0".into()));
        config.client_auth_file = Some(files.path());
        change(config);
    })
}

pub(crate) fn metric(proxy: &Proxy, name: &str) -> u64 {
    let text = proxy.metrics();
    let line =
        text.lines().find(|line| line.starts_with(&format!("{name} ")) || line.starts_with(&format!("{name}{{")));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or_else(|| panic!("{name} in {text}"))
}

pub(crate) fn reload(proxy: &mut Proxy, change: impl FnOnce(&mut Config)) -> Result<(), String> {
    let mut old = proxy.running.take().unwrap();
    let mut config = old.config().clone();
    change(&mut config);
    match old.reload(config) {
        Ok(new) => {
            proxy.running = Some(new);
            old.wait_for_clients(|| false);
            assert_eq!(old.stop().unwrap().lost, 0);
            Ok(())
        }
        Err(error) => {
            proxy.running = Some(old);
            Err(error.to_string())
        }
    }
}
