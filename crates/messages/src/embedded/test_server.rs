//! A PostgreSQL server for one unit test.

use crate::embedded::{Embedded, EmbeddedError};
use tempfile::TempDir;

/// The server. It stops with the test, and its data are deleted.
pub(crate) struct TestServer {
    embedded: Embedded,
    _folder: TempDir,
}

impl TestServer {
    /// Starts a server. None if PostgreSQL is not installed, unless `WAYSTAGE_REQUIRE_PEERS` is set.
    pub(crate) fn start() -> Option<TestServer> {
        TestServer::start_with(&[])
    }

    /// The same with server settings, as `name=value`.
    pub(crate) fn start_with(settings: &[&str]) -> Option<TestServer> {
        let folder = tempfile::tempdir().unwrap();
        match Embedded::start_with(folder.path(), settings) {
            Ok(embedded) => Some(TestServer { embedded, _folder: folder }),
            Err(EmbeddedError::Missing(_)) => {
                testkit::skip_without("PostgreSQL", "postgresql");
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// The connection string.
    pub(crate) fn url(&self) -> String {
        self.embedded.url()
    }
}
