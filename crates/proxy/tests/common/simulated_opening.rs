//! What precedes the first request on the connections of a scenario: the header of a load balancer and the authentication of clients, and
//! the authentication of the proxy at its servers.

use super::random::Random;
use proxy::{ListenerConfig, PoolFile, ProxyFile};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

/// What the connections of one scenario begin with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opening {
    has_header: bool,
    has_users: bool,
    pub(crate) has_login: bool,
}

/// The value of the login to servers.
pub(crate) const LOGIN: &[u8] = b"proxy to servers";

const USERS: &str = "reader:one\nwriter:t:w o\n";
const LOGIN_OF_CLIENT: &str = "set login 0 0 12\r\nwriter t:w o\r\n";
const WRONG: &str = "set login 0 0 10\r\nwriter one\r\n";
const FAILED: &str = "CLIENT_ERROR authentication failure\r\n";

impl Opening {
    pub(crate) fn from(random: &mut Random) -> Opening {
        Opening { has_header: random.one_in(3), has_users: random.one_in(3), has_login: random.one_in(3) }
    }

    /// Adds its keys to a configuration that listens on one address. Those of files are only names.
    pub(crate) fn configure(self, file: &mut ProxyFile, random: &mut Random) {
        file.client_auth_file = self.has_users.then(|| "users".into());
        if self.has_header {
            let addresses =
                |listeners: &Vec<ListenerConfig>| listeners.iter().map(|listener| listener.address.clone()).collect();
            file.proxy_protocol = file.listen.as_ref().map(addresses);
            file.proxy_protocol_from = random.one_in(2).then(|| vec!["10.0.0.0/8".into(), "127.0.0.1".into()]);
            file.proxy_protocol_timeout = Some(random.choose(&[Duration::from_secs(30), Duration::from_secs(60)]));
        }
    }

    /// Adds its key to a pool.
    pub(crate) fn configure_pool(self, pool: &mut PoolFile) {
        pool.server_auth_file = self.has_login.then(|| "login".into());
    }

    /// Writes the files of a configuration to a folder, and names them there.
    pub(crate) fn write_files(file: &mut ProxyFile, folder: &Path) {
        let place = |name: &str, text: &str| {
            let path = folder.join(name);
            std::fs::write(&path, text).expect("the folder can be written");
            path
        };
        if file.client_auth_file.is_some() {
            file.client_auth_file = Some(place("users", USERS));
        }
        for pool in file.pools.iter_mut().filter(|pool| pool.server_auth_file.is_some()) {
            pool.server_auth_file = Some(place("login", "proxy:to servers\n"));
        }
    }

    /// Begins the connection of a client, in one piece or in two.
    pub(crate) fn begin(self, stream: &mut TcpStream, random: &mut Random) {
        let mut bytes = Vec::new();
        let mut replies = String::new();
        if self.has_header {
            let line = "PROXY TCP4 192.0.2.1 192.0.2.2 4711 11211\r\n".as_bytes();
            let binary = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x10\xc0\0\x02\x01\xc0\0\x02\x02\x12\x67\x2b\xcb\x04\0\x01\0";
            bytes.extend_from_slice(random.choose(&[line, &binary[..]]));
        }
        if self.has_users {
            if random.one_in(2) {
                bytes.extend_from_slice(WRONG.as_bytes());
                replies += FAILED;
            }
            bytes.extend_from_slice(LOGIN_OF_CLIENT.as_bytes());
            replies += "STORED\r\n";
        }
        let cut = random.below(bytes.len() + 1);
        stream.write_all(&bytes[..cut]).expect("the proxy accepts the beginning");
        if random.one_in(2) {
            std::thread::sleep(Duration::from_millis(random.next() % 20));
        }
        stream.write_all(&bytes[cut..]).expect("the proxy accepts the beginning");
        expect(stream, &replies);
    }
}

/// Reads replies, however long that takes.
fn expect(stream: &mut TcpStream, replies: &str) {
    let mut found = vec![0; replies.len()];
    let mut filled = 0;
    while filled < found.len() {
        match stream.read(&mut found[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => panic!("the authentication: {error}"),
        }
    }
    assert_eq!(String::from_utf8_lossy(&found[..filled]), replies, "the authentication");
}
