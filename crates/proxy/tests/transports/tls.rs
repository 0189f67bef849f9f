//! TLS towards clients and towards backends.

use crate::common::Proxy;
use crate::speak::{ask, expect, keeper, proxy, stop};
use net::IdentityFiles;
use proxy::{Config, Running, Timeouts};
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;
use testkit::{Authority, Client, Server, TlsClient, tcp};

const LISTEN: &str = "tls:127.0.0.1:0";

/// A proxy with TLS for clients, in front of one server without TLS.
fn terminating(authority: &Authority, server: SocketAddr, change: impl FnOnce(&mut Config)) -> Running {
    proxy(&[LISTEN.into()], &[server.to_string()], |config| {
        config.transport.tls.identity = Some(authority.sign("127.0.0.1"));
        config.metrics = Some("127.0.0.1:0".into());
        change(config);
    })
}

/// A proxy without TLS for clients, in front of one server with TLS.
fn originating(authority: &Authority, backend: &str, change: impl FnOnce(&mut Config)) -> Proxy {
    Proxy::of(proxy(&["127.0.0.1:0".into()], &[backend.into()], |config| {
        config.transport.tls.backend_authority = Some(authority.file());
        config.metrics = Some("127.0.0.1:0".into());
        change(config);
    }))
}

fn address(running: &Running) -> SocketAddr {
    running.address().unwrap()
}

/// Waits until this counter is no longer zero.
fn wait_for(proxy: &Proxy, counter: &str) {
    for _ in 0..1000 {
        let metrics = proxy.metrics();
        let line = metrics.lines().find(|line| line.starts_with(counter)).expect("the metric exists");
        if !line.ends_with(" 0") {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{counter} stays zero");
}

fn large_value(length: usize) -> (Vec<u8>, Vec<u8>) {
    let value: Vec<u8> = (0..length).map(|at| (at * 31 + at / 253) as u8).collect();
    let set = [format!("set large 0 0 {length}\r\n").as_bytes(), &value, b"\r\n"].concat();
    let reply = [format!("VALUE large 0 {length}\r\n").as_bytes(), &value, b"\r\nEND\r\n"].concat();
    (set, reply)
}

#[test]
fn values_of_any_size_pass_both_sides() {
    let authority = Authority::new();
    let behind =
        terminating(&authority, keeper(), |config| config.pools[0].timeouts = Timeouts::all(Duration::from_secs(20)));
    let before = proxy(&[LISTEN.into()], &[format!("tls:{}", address(&behind))], |config| {
        config.transport.tls.identity = Some(authority.sign("127.0.0.1"));
        config.transport.tls.backend_authority = Some(authority.file());
        config.pools[0].timeouts = Timeouts::all(Duration::from_secs(20));
    });
    let mut client = authority.client(address(&before), None);
    ask(&mut client, "set k 0 0 3\r\nabc\r\nget k\r\n", "STORED\r\nVALUE k 0 3\r\nabc\r\nEND\r\n");
    for length in [1, 16 * 1024, 16 * 1024 + 1, 100_000, 8 << 20] {
        let (set, reply) = large_value(length);
        ask(&mut client, set, "STORED\r\n");
        ask(&mut client, "get large\r\n", reply);
    }
    // More than the kernel buffers before the other side reads.
    let (set, reply) = large_value(3 << 20);
    ask(&mut client, set, "STORED\r\n");
    client.write_all(&b"get large\r\n".repeat(4)).unwrap();
    client.flush().unwrap();
    std::thread::sleep(Duration::from_millis(100));
    expect(&mut client, reply.repeat(4));
    stop(before);
    stop(behind);
}

#[test]
fn records_may_come_in_any_pieces() {
    let authority = Authority::new();
    let server = Server::start();
    let running = terminating(&authority, server.address(), |_| ());
    // A record for every byte.
    let mut client = authority.client(address(&running), None);
    for byte in b"set k 0 0 3\r\nabc\r\nget k\r\n" {
        client.write_all(&[*byte]).unwrap();
        client.flush().unwrap();
    }
    expect(&mut client, "STORED\r\nVALUE k 0 3\r\nabc\r\nEND\r\n");
    // A packet for every byte, from the first of the handshake to the last of a reply.
    let mut session = authority.session(None);
    let mut socket = tcp(address(&running));
    session.writer().write_all(b"get k\r\nget none\r\n").unwrap();
    let expected = b"VALUE k 0 3\r\nabc\r\nEND\r\nEND\r\n";
    let mut reply = Vec::new();
    while reply.len() < expected.len() {
        let mut bytes = Vec::new();
        while session.wants_write() {
            session.write_tls(&mut bytes).unwrap();
        }
        for byte in bytes {
            socket.write_all(&[byte]).unwrap();
        }
        let mut byte = [0];
        assert_eq!(socket.read(&mut byte).unwrap(), 1);
        session.read_tls(&mut &byte[..]).unwrap();
        let waiting = session.process_new_packets().unwrap().plaintext_bytes_to_read();
        let mut plain = vec![0; waiting];
        session.reader().read_exact(&mut plain).unwrap();
        reply.extend(plain);
    }
    assert_eq!(reply, expected);
    drop(socket);
    stop(running);
}

#[test]
fn a_client_that_sends_close_notify_gets_every_reply_and_close_notify() {
    let authority = Authority::new();
    let server = Server::start();
    let running = terminating(&authority, server.address(), |_| ());
    let ends: [fn(&mut TlsClient); 3] = [
        // Half-closed, in TLS alone.
        |client| client.conn.send_close_notify(),
        // Half-closed below TLS, as a careless client does.
        |client| client.sock.shutdown(std::net::Shutdown::Write).unwrap(),
        |client| client.write_all(b"quit\r\n").unwrap(),
    ];
    for end in ends {
        let mut client = authority.client(address(&running), None);
        ask(&mut client, "get none\r\n", "END\r\n");
        client.write_all(&b"get none\r\n".repeat(500)).unwrap();
        client.flush().unwrap();
        end(&mut client);
        let _ = client.flush();
        let mut replies = Vec::new();
        // An end without close_notify would be an error.
        client.read_to_end(&mut replies).expect("it sends close_notify");
        assert_eq!(replies, b"END\r\n".repeat(500));
    }
    stop(running);
}

#[test]
fn only_clients_with_a_certificate_of_the_authority_are_accepted() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let server = Server::start();
    let running = Proxy::of(terminating(&authority, server.address(), |config| {
        config.transport.tls.client_authority = Some(authority.file());
    }));
    let good = authority.sign("client.test");
    ask(&mut authority.client(running.address, Some(&good)), "get none\r\n", "END\r\n");
    assert!(running.metrics().contains("waystage_clients_tls_failed_total 0"));
    let bad = stranger.sign("client.test");
    for identity in [None, Some(&bad)] {
        let mut client = authority.client(running.address, identity);
        // The handshake has ended for the client before it learns that it is refused.
        let refused = client.write_all(b"get none\r\n").and_then(|()| client.flush());
        assert!(refused.and_then(|()| client.read(&mut [0])).is_err(), "it gets no reply");
    }
    wait_for(&running, "waystage_clients_tls_failed_total");
    assert!(running.metrics().contains("waystage_clients_tls_failed_total 2"));
}

#[test]
fn only_backends_of_the_authority_and_of_that_name_are_used() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let server = Server::start();
    let tried: [(&Authority, IdentityFiles); 2] =
        [(&stranger, authority.sign("127.0.0.1")), (&authority, authority.sign("other.test"))];
    for (trusted, identity) in tried {
        let backend =
            terminating(&authority, server.address(), |config| config.transport.tls.identity = Some(identity));
        let name = format!("tls:{}", address(&backend));
        let before = originating(trusted, &name, |_| ());
        wait_for(&before, &format!("waystage_backend_tls_failed_total{{pool=\"default\",backend=\"{name}\"}}"));
        let mut client = before.client();
        client.send("set k 0 0 1\r\n1\r\n");
        let line = client.line();
        assert!(line.starts_with("SERVER_ERROR") && line.contains(&name), "{line}");
        drop(client);
        drop(before);
        stop(backend);
    }
    // A backend that requests a certificate receives it.
    let backend = terminating(&authority, server.address(), |config| {
        config.transport.tls.client_authority = Some(authority.file());
    });
    let name = format!("tls:{}", address(&backend));
    let before = originating(&authority, &name, |config| {
        config.transport.tls.backend_identity = Some(authority.sign("proxy.test"));
    });
    before.client().ask("set k 0 0 1\r\n1\r\n", "STORED\r\n");
    drop(before);
    let without = originating(&authority, &name, |_| ());
    wait_for(&without, "waystage_backend_tls_failed_total");
    drop(without);
    stop(backend);
}

#[test]
fn connections_that_do_not_start_a_tls_handshake_are_closed() {
    let authority = Authority::new();
    let server = Server::start();
    let running = Proxy::of(proxy(&[LISTEN.into(), "127.0.0.1:0".into()], &[server.address().to_string()], |config| {
        config.loops = 1;
        config.metrics = Some("127.0.0.1:0".into());
        config.transport.tls.identity = Some(authority.sign("127.0.0.1"));
        config.transport.tls.handshake_timeout = Duration::from_secs(3);
    }));
    let plain_address =
        running.running.as_ref().unwrap().listening[1].host_port().and_then(net::HostPort::number).unwrap();
    let mut idle = Client::connect(plain_address);
    let mut served = authority.client(running.address, None);
    ask(&mut served, "get none\r\n", "END\r\n");

    let mut plain = tcp(running.address);
    plain.write_all(b"get none\r\n").unwrap();
    let mut answer = Vec::new();
    match plain.read_to_end(&mut answer) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
    // At most a TLS alert of seven bytes.
    assert!(answer.len() <= 7 && !answer.starts_with(b"END"), "{answer:?}");
    wait_for(&running, "waystage_clients_tls_failed_total");

    // One client sends nothing, one stops after half of its first message. The others continue meanwhile.
    let mut silent = tcp(running.address);
    let mut halting = tcp(running.address);
    let mut hello = Vec::new();
    authority.session(None).write_tls(&mut hello).unwrap();
    halting.write_all(&hello[..hello.len() / 2]).unwrap();
    for _ in 0..200 {
        ask(&mut served, "get none\r\n", "END\r\n");
    }
    assert_eq!(silent.read(&mut [0]).unwrap(), 0);
    assert_eq!(halting.read(&mut [0]).unwrap(), 0);
    assert!(running.metrics().contains("waystage_clients_tls_failed_total 3"));
    // After the handshake a client may be idle for any time, as without TLS.
    ask(&mut served, "get none\r\n", "END\r\n");
    idle.ask("get none\r\n", "END\r\n");
}

#[test]
fn a_backend_that_never_shakes_hands_is_a_timeout_and_then_down() {
    let authority = Authority::new();
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let name = format!("tls:{}", silent.local_addr().unwrap());
    let before =
        originating(&authority, &name, |config| config.pools[0].timeouts = Timeouts::all(Duration::from_millis(200)));
    let mut client = before.client();
    client.send("set k 0 0 1\r\n1\r\n");
    let line = client.line();
    assert!(line.starts_with("SERVER_ERROR") && line.contains(&name), "{line}");
    wait_for(&before, "waystage_backend_connections_lost_total");
}

#[test]
fn a_successor_speaks_tls_on_the_same_socket() {
    let authority = Authority::new();
    let server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    let control = folder.path().join("control");
    let mut old = terminating(&authority, server.address(), |config| config.transport.control = Some(control.clone()));
    let mut staying = authority.client(address(&old), None);
    ask(&mut staying, "get none\r\n", "END\r\n");
    let new = terminating(&authority, server.address(), |config| {
        config.metrics = None;
        config.transport.take_over = Some(control.clone());
    });
    assert_eq!(new.listening, old.listening);
    ask(&mut staying, "get none\r\n", "END\r\n");
    ask(&mut authority.client(address(&new), None), "get none\r\n", "END\r\n");
    drop(staying);
    old.wait_for_clients(|| false);
    stop(old);
    stop(new);
}

/// OpenSSL, and so memcached, reads the contents whatever the label says.
#[test]
fn a_key_may_have_the_label_of_another_format() {
    let (authority, server) = (Authority::new(), Server::start());
    let identity = authority.sign("127.0.0.1");
    let text = std::fs::read_to_string(&identity.key).unwrap();
    for label in ["RSA PRIVATE KEY", "EC PRIVATE KEY"] {
        let key = authority.write("label.pem", &text.replace("PRIVATE KEY", label));
        let running = proxy(&[LISTEN.into()], &[server.address().to_string()], |config| {
            config.transport.tls.identity = Some(IdentityFiles { certificate: identity.certificate.clone(), key });
        });
        ask(&mut authority.client(address(&running), None), "get none\r\n", "END\r\n");
        stop(running);
    }
}

#[test]
fn every_bad_file_is_one_clear_line() {
    let (authority, other) = (Authority::new(), Authority::new());
    let (good, foreign) = (authority.sign("127.0.0.1"), other.sign("127.0.0.1"));
    let missing = authority.file().with_file_name("missing.pem");
    let empty = authority.write("empty.pem", "nothing\n");
    let damaged = authority.write("damaged.pem", "-----BEGIN CERTIFICATE-----\n?\n-----END CERTIFICATE-----\n");
    let with = |certificate: &std::path::Path, key: &std::path::Path| {
        Some(IdentityFiles { certificate: certificate.into(), key: key.into() })
    };
    let line = |listen: &str, server: &str, change: &dyn Fn(&mut proxy::TlsConfig)| {
        let mut config = Config::new(listen, &[server.to_string()]);
        change(&mut config.transport.tls);
        let line = match proxy::start(config, clock::Clock::monotonic()) {
            Ok(_) => panic!("it starts"),
            Err(error) => error.to_string(),
        };
        assert!(!line.contains('\n'), "{line}");
        line
    };
    let listening = |change: &dyn Fn(&mut proxy::TlsConfig)| line(LISTEN, "127.0.0.1:1", change);
    let asking = |server: &str, change: &dyn Fn(&mut proxy::TlsConfig)| line("127.0.0.1:0", server, change);
    let table = [
        (listening(&|_| ()), "uses TLS: give --tls-certificate and --tls-key"),
        (listening(&|tls| tls.identity = with(&missing, &good.key)), "missing.pem: No such file"),
        (listening(&|tls| tls.identity = with(&good.certificate, &missing)), "missing.pem: No such file"),
        (listening(&|tls| tls.identity = with(&empty, &good.key)), "empty.pem contains no certificate in PEM form"),
        (
            listening(&|tls| tls.identity = with(&good.certificate, &empty)),
            "empty.pem contains no private key in PEM form",
        ),
        (listening(&|tls| tls.identity = with(&damaged, &good.key)), "cannot read"),
        (listening(&|tls| tls.identity = with(&good.certificate, &foreign.key)), "do not match"),
        (
            listening(&|tls| {
                (tls.identity, tls.client_authority) = (Some(good.clone()), Some(empty.clone()));
            }),
            "empty.pem contains no certificate in PEM form",
        ),
        (asking("tls:127.0.0.1:1", &|_| ()), "--server tls:127.0.0.1:1 uses TLS: give --tls-backend-authority"),
        (asking("tls:127.0.0.1:1", &|tls| tls.backend_authority = Some(missing.clone())), "missing.pem: No such file"),
        (asking("127.0.0.1:1", &|tls| tls.backend_authority = Some(authority.file())), "no server uses TLS"),
        (asking("127.0.0.1:1", &|tls| tls.identity = Some(good.clone())), "no listener uses TLS"),
        (
            asking("127.0.0.1:1", &|tls| tls.client_authority = Some(authority.file())),
            "--tls-client-authority needs --tls-certificate",
        ),
        (
            asking("127.0.0.1:1", &|tls| tls.backend_identity = Some(good.clone())),
            "--tls-backend-certificate needs --tls-backend-authority",
        ),
        (asking("127.0.0.1:1", &|tls| tls.handshake_timeout = Duration::ZERO), "no client could finish its handshake"),
    ];
    for (line, expected) in table {
        assert!(line.contains(expected), "{line:?} does not contain {expected:?}");
    }
}

/// Whether a client that requests this host name receives a certificate that is valid for it.
fn reaches(authority: &Authority, host: &str, address: SocketAddr) -> bool {
    let mut client = authority.client_of(host, address);
    let sent = client.write_all(b"get none\r\n").and_then(|()| client.flush());
    sent.and_then(|()| client.read_exact(&mut [0; 5])).is_ok()
}

#[test]
fn a_client_receives_the_certificate_of_the_host_that_it_requests() {
    let (authority, server) = (Authority::new(), Server::start());
    let others = vec![authority.sign("a.test"), authority.sign("*.b.test")];
    let mut running =
        terminating(&authority, server.address(), |config| config.transport.tls.other_identities = others);
    let at = address(&running);
    // The last client requests no name, because an address is none.
    for (host, is_known) in [
        ("a.test", true),
        ("A.TEST", true),
        ("x.b.test", true),
        ("b.test", false),
        ("x.a.test", false),
        ("c.test", false),
        ("127.0.0.1", true),
    ] {
        assert_eq!(reaches(&authority, host, at), is_known, "{host}");
    }
    let mut staying = authority.client_of("a.test", at);
    ask(&mut staying, "get none\r\n", "END\r\n");
    // A reload with other files, and one that fails.
    let mut config = running.config().clone();
    config.transport.tls.other_identities = vec![authority.sign("c.test")];
    let new = running.reload(config.clone()).unwrap();
    let mut old = std::mem::replace(&mut running, new);
    assert!(reaches(&authority, "c.test", at) && !reaches(&authority, "a.test", at));
    ask(&mut staying, "get none\r\n", "END\r\n");
    let missing = authority.file().with_file_name("missing.key");
    config.transport.tls.other_identities[0].key = missing;
    let line = running.reload(config.clone()).err().expect("the file is missing").to_string();
    assert!(line.contains("missing.key: No such file"), "{line}");
    config.transport.tls.other_identities[0].key = authority.sign("d.test").key;
    let line = running.reload(config).err().expect("the key is another one's").to_string();
    assert!(line.contains("c.test.pem and the key in") && line.contains("do not match"), "{line}");
    assert!(reaches(&authority, "c.test", at));
    drop(staying);
    old.wait_for_clients(|| false);
    stop(old);
    stop(running);
}

#[test]
fn a_client_whose_handshake_is_under_way_at_a_reload_is_served() {
    let authority = Authority::new();
    let server = keeper();
    let mut running = terminating(&authority, server, |_| ());
    let mut clients = Vec::new();
    for _ in 0..10 {
        let (mut session, mut stream) = (authority.session(None), tcp(address(&running)));
        session.write_tls(&mut stream).unwrap();
        clients.push((session, stream));
    }
    // Others have sent nothing yet.
    for _ in 0..10 {
        clients.push((authority.session(None), tcp(address(&running))));
    }
    std::thread::sleep(Duration::from_millis(100));
    let config = running.config().clone();
    let new = running.reload(config).unwrap();
    let mut old = std::mem::replace(&mut running, new);
    for (session, stream) in clients {
        let mut client = TlsClient::new(session, stream);
        ask(&mut client, "set k 0 0 3\r\nabc\r\nget k\r\n", "STORED\r\nVALUE k 0 3\r\nabc\r\nEND\r\n");
    }
    old.wait_for_clients(|| false);
    stop(old);
    stop(running);
}
