//! TLS to clients and to PostgreSQL, with certificates that are made for the test.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::{Client, Database, serve};
use messages::{Config, DispatchConfig, Embedded, IdentityFiles};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;
use testkit::Authority;

/// An address of this machine for this test alone, so that PostgreSQL can use its usual port.
const POSTGRES: &str = "127.83.11.7";

#[test]
fn with_tls_plain_connections_are_refused() {
    let authority = Authority::new();
    let tls = Some(authority.sign("127.0.0.1"));
    let dispatch = DispatchConfig::None { body_bytes: None };
    let running = serve(&Config { listen: "127.0.0.1:0".into(), dispatch, tls, ..Config::default() });
    let mut client = authority.client(running.address(), None);
    for _ in 0..2 {
        client.write_all(b"POST /v1/queues/q/messages:pop HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        let mut text = String::new();
        while !text.ends_with("\r\n\r\n") {
            let mut byte = [0];
            client.read_exact(&mut byte).unwrap();
            text.push(char::from(byte[0]));
        }
        assert!(text.starts_with("HTTP/1.1 204") && text.contains("server-timing"), "{text}");
    }
    let mut plain = TcpStream::connect(running.address()).unwrap();
    plain.write_all(b"GET /v1/queues HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let mut reply = Vec::new();
    // The service may close or reset the connection.
    let _ = plain.read_to_end(&mut reply);
    assert!(!reply.starts_with(b"HTTP"), "{reply:?}");
    client.write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    let mut page = String::new();
    let _ = client.read_to_string(&mut page);
    assert!(page.contains("waystage_messages_clients_tls_failed_total 1"), "{page}");
    running.stop().unwrap();
}

#[test]
fn a_certificate_is_replaced_while_the_service_runs() {
    let (before, after) = (Authority::new(), Authority::new());
    let dispatch = DispatchConfig::None { body_bytes: None };
    let config = |authority: &Authority| Config {
        listen: "127.0.0.1:0".into(),
        dispatch,
        tls: Some(authority.sign("127.0.0.1")),
        ..Config::default()
    };
    let running = serve(&config(&before));
    let is_served = |authority: &Authority| {
        let mut client = authority.client(running.address(), None);
        client.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
        let mut reply = String::new();
        let _ = client.read_to_string(&mut reply);
        reply.starts_with("HTTP/1.1 200")
    };
    assert!(is_served(&before));
    let error = running.reload(&Config { tls: None, ..config(&after) }).unwrap_err().to_string();
    assert!(error.contains("restart") && !error.contains('\n'), "{error}");
    assert!(is_served(&before));
    running.reload(&config(&after)).unwrap();
    assert!(is_served(&after));
    running.stop().unwrap();
}

#[test]
fn invalid_files_are_reported_in_one_line() {
    let authority = Authority::new();
    let good = authority.sign("127.0.0.1");
    let start = |certificate: &Path, key: &Path| {
        let tls = Some(IdentityFiles { certificate: certificate.into(), key: key.into() });
        let dispatch = DispatchConfig::None { body_bytes: None };
        let config = Config { listen: "127.0.0.1:0".into(), dispatch, tls, ..Config::default() };
        messages::start(&config, clock::Clock::monotonic()).unwrap_err().to_string()
    };
    let nowhere = Path::new("/nowhere.pem");
    for line in [start(nowhere, &good.key), start(&good.certificate, nowhere), start(&good.key, &good.key)] {
        assert!(line.contains(".pem") || line.contains(".key"), "{line}");
        assert!(!line.contains('\n'), "{line}");
    }
}

#[test]
fn the_database_is_verified() {
    let Some(first) = Database::start() else { return };
    drop(first);
    let (directory, authority, stranger) = (tempfile::tempdir().unwrap(), Authority::new(), Authority::new());
    drop(Embedded::start(directory.path()).unwrap());
    let files = authority.sign("localhost");
    let owner = std::fs::metadata(directory.path()).unwrap();
    for (file, name) in [(&files.certificate, "server.pem"), (&files.key, "server.key")] {
        let path = &directory.path().join(name);
        std::fs::copy(file, path).unwrap();
        chown(path, Some(owner.uid()), Some(owner.gid())).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
    }
    let settings = [
        format!("listen_addresses={POSTGRES}"),
        "ssl=on".into(),
        "ssl_cert_file=../server.pem".into(),
        "ssl_key_file=../server.key".into(),
    ];
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let _server = Embedded::start_with(directory.path(), &settings).unwrap();
    let config = |host: &str, authority: &Authority| Config {
        listen: "127.0.0.1:0".into(),
        database: format!("host={host} hostaddr={POSTGRES} user=waystage dbname=postgres"),
        database_authority: Some(authority.file()),
        ..Config::default()
    };
    let running = serve(&config("localhost", &authority));
    assert!(running.is_database_reachable());
    let mut client = Client::connect(running.address(), "alice");
    assert_eq!(client.short("PUT", "/v1/queues/q").0, 201);
    client.send("/v1/queues/q/messages", "secret");
    assert_eq!(client.short("POST", "/v1/queues/q/messages:pop"), (200, "secret".into()));
    running.stop().unwrap();
    // If the server's certificate is wrong, nothing is sent to it, and the service waits for the right one.
    for wrong in [config("localhost", &stranger), config("other.example", &authority)] {
        let running = serve(&wrong);
        assert!(!running.is_database_reachable());
        // An operator can see why.
        let mut client = Client::connect(running.address(), "alice");
        let mut reply = (0, String::new());
        for _ in 0..200 {
            reply = client.short("GET", "/readyz");
            if reply.1.contains("invalid peer certificate") {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let (status, problem) = reply;
        assert!(status == 503 && problem.contains("invalid peer certificate"), "{status} {problem}");
        running.stop().unwrap();
    }
}

#[test]
fn unsupported_settings_are_refused() {
    let authority = Authority::new();
    let start = |database: &str, authority: Option<PathBuf>| {
        let config = Config { database: database.into(), database_authority: authority, ..Config::default() };
        messages::start(&config, clock::Clock::monotonic()).unwrap_err().to_string()
    };
    let file = || Some(authority.file());
    let cases = [
        (start("host=a sslmode=require", None), "needs --database-authority FILE"),
        (start("postgres://a/b?sslmode=verify-full", None), "give --database-authority FILE instead"),
        (start("host=a sslmode=disable", file()), "contradict"),
        (start("host=/run/postgresql", file()), "over unix sockets"),
        (start("hostaddr=127.0.0.1", file()), "give host as well"),
        (start("host=a", Some("/nowhere.pem".into())), "/nowhere.pem"),
    ];
    for (line, expected) in cases {
        assert!(line.starts_with("--database: ") && line.contains(expected) && !line.contains('\n'), "{line}");
    }
}
