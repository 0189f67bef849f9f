//! How a client begins: with the header of a load balancer, and with its authentication. Whatever the bytes are and however they arrive,
//! the proxy finds the end of the header where a reader of the whole text finds it, and replies to each login as its bytes require. It
//! replies to nothing else before a login has succeeded.
//!
//! The first byte of the input is the size of the pieces in which the rest is sent.
#![no_main]

use clock::Clock;
use libfuzzer_sys::fuzz_target;
use net::{Buffers, Connection, Filled, HeaderReader};
use proxy::{Config, LogLevel, Running, start};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::LazyLock;
use std::time::Duration;
use wire::{AUTHENTICATED, AUTHENTICATION_FAILED, AuthRequest, FirstBytes, first_bytes, parse_auth};

/// No backend listens there.
const NOWHERE: &str = "127.0.0.1:9";
const LISTEN: &str = "127.0.0.1:0";
const USER: &[u8] = b"u";
const PASSWORD: &[u8] = b"p";
const PAUSE: Duration = Duration::from_micros(20);
/// After this time without a byte, the proxy hangs.
const PATIENCE: Duration = Duration::from_secs(40);
const PIECES_MAX: usize = 64;

/// It serves all inputs, because one client must not change what another receives.
static PROXY: LazyLock<(Running, SocketAddr, tempfile::TempDir)> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let users = folder.path().join("users");
    std::fs::write(&users, [USER, b":", PASSWORD, b"\n"].concat()).unwrap();
    let mut config = Config::new(LISTEN, &[NOWHERE.to_string()]);
    (config.loops, config.log.level) = (1, LogLevel::Off);
    config.client_auth_file = Some(users);
    config.transport.proxy_protocol.listeners = vec![LISTEN.into()];
    let running = start(config, Clock::monotonic()).unwrap();
    let address = running.address().unwrap();
    (running, address, folder)
});

/// The replies to a client before it has authenticated.
#[derive(Debug, Default)]
struct Expected {
    replies: Vec<u8>,
    /// Requests follow, or the refusal of a binary client.
    is_more: bool,
}

fuzz_target!(|input: &[u8]| {
    let Some((&size, text)) = input.split_first() else { return };
    let expected = after_header(text).map(|rest| expected(&rest)).unwrap_or_default();
    let size = usize::from(size).max(1).max(text.len() / PIECES_MAX);
    let replies = converse(text.chunks(size));
    let is_right = match expected.is_more {
        true => replies.starts_with(&expected.replies),
        false => replies == expected.replies,
    };
    assert!(is_right, "{:?} instead of {expected:?}", String::from_utf8_lossy(&replies));
});

/// Sends the pieces; returns all replies.
fn converse<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut stream = TcpStream::connect(PROXY.1).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    for piece in pieces {
        // The proxy may have closed the connection already.
        let _ = stream.write_all(piece);
        std::thread::sleep(PAUSE);
    }
    let _ = stream.shutdown(Shutdown::Write);
    let mut replies = Vec::new();
    if let Err(error) = stream.read_to_end(&mut replies) {
        assert!(error.kind() == ErrorKind::ConnectionReset, "no end of the connection: {error}");
    }
    replies
}

/// The bytes behind the header, if the text begins with one: what it leaves in the socket when all of it has arrived.
fn after_header(text: &[u8]) -> Option<Vec<u8>> {
    let listener = TcpListener::bind(LISTEN).unwrap();
    let mut connection = Connection::connect(listener.local_addr().unwrap()).unwrap();
    let (mut peer, _) = listener.accept().unwrap();
    peer.write_all(text).unwrap();
    peer.shutdown(Shutdown::Write).unwrap();
    let mut reader = HeaderReader::new();
    loop {
        match connection.receive_header(&mut reader) {
            Ok(Some(_)) => break,
            Ok(None) => std::thread::sleep(PAUSE),
            Err(_) => return None,
        }
    }
    let mut buffers = Buffers::default();
    loop {
        // No poller reports readiness here.
        connection.on_ready(true, true, true);
        if let Ok(Filled::Closed) | Err(_) = connection.fill(&mut buffers, usize::MAX) {
            break;
        }
    }
    Some(connection.inbox.filled().to_vec())
}

fn expected(mut rest: &[u8]) -> Expected {
    let mut expected = Expected::default();
    loop {
        match first_bytes(rest, "") {
            FirstBytes::Text => {}
            FirstBytes::Incomplete => return expected,
            FirstBytes::Binary { .. } => return Expected { is_more: true, ..expected },
        }
        let (reply, consumed) = match parse_auth(rest) {
            AuthRequest::Incomplete => return expected,
            AuthRequest::Login { user: USER, password: PASSWORD, .. } => {
                expected.replies.extend_from_slice(AUTHENTICATED);
                return Expected { is_more: true, ..expected };
            }
            AuthRequest::Login { consumed, .. } => (AUTHENTICATION_FAILED, consumed),
            AuthRequest::Refused { reply, consumed } => (reply, consumed),
            AuthRequest::TooLong { reply } => {
                expected.replies.extend_from_slice(reply);
                return expected;
            }
        };
        assert!((1..=rest.len()).contains(&consumed));
        expected.replies.extend_from_slice(reply);
        rest = &rest[consumed..];
    }
}
