//! Clients behind a load balancer that reports their addresses with the PROXY protocol.

use crate::common::{Proxy, until};
use crate::speak::{ask, expect, proxy, stop, unix_client};
use proxy::{Config, LogConfig, LogFormat, LogOutput, RecordsConfig, Running, ServerConfig};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use testkit::{Authority, Client, Server, TlsClient, tcp};

const LISTEN: &str = "127.0.0.1:0";
const HEADER: &str = "PROXY TCP4 192.0.2.7 192.0.2.8 4711 11211\r\n";
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// A header of version 2 with these bytes behind the signature, and their length.
fn version_2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    [SIGNATURE, &[command, family], &(rest.len() as u16).to_be_bytes()[..], rest].concat()
}

fn tcp4(source: [u8; 4], port: u16, others: &[u8]) -> Vec<u8> {
    let port = port.to_be_bytes();
    version_2(0x21, 0x11, &[&source[..], &[192, 0, 2, 8], &port, &[0x2b, 0xcb], others].concat())
}

/// A proxy all of whose clients come through load balancers.
fn behind(server: SocketAddr, listen: &[&str], change: impl FnOnce(&mut Config)) -> Running {
    let listen: Vec<String> = listen.iter().map(ToString::to_string).collect();
    proxy(&listen, &[server.to_string()], |config| {
        config.transport.proxy_protocol.listeners = listen.clone();
        (config.loops, config.metrics) = (1, Some("127.0.0.1:0".into()));
        change(config);
    })
}

fn metric(proxy: &Proxy, name: &str) -> u64 {
    let text = proxy.metrics();
    let line = text.lines().find(|line| line.starts_with(&format!("{name} ")));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or_else(|| panic!("{name} in {text}"))
}

fn failed(proxy: &Proxy) -> u64 {
    metric(proxy, "waystage_clients_header_failed_total")
}

/// Expects that the connection is closed without a byte, perhaps by a reset.
fn expect_closed(mut stream: impl Read) {
    match stream.read(&mut [0]) {
        Ok(count) => assert_eq!(count, 0),
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
}

/// A slow log of all requests, and records of all.
struct Observed {
    lines: Arc<Mutex<Vec<serde_json::Value>>>,
    records: tempfile::TempDir,
}

impl Observed {
    fn new() -> Observed {
        Observed { lines: Arc::default(), records: tempfile::tempdir().unwrap() }
    }

    fn configure(&self, config: &mut Config) {
        let lines = self.lines.clone();
        config.records = Some(RecordsConfig { directory: self.records.path().into(), sample: 1 });
        config.log = LogConfig {
            format: LogFormat::Json,
            slow_requests: Some(Duration::from_nanos(1)),
            output: LogOutput::new(move |line| {
                lines.lock().unwrap().push(serde_json::from_slice(line).expect("each line is JSON"));
                Ok(())
            }),
            ..LogConfig::default()
        };
    }

    /// The client of the slow request with this key.
    fn client_of(&self, key: &str) -> Option<String> {
        let found = |lines: &[serde_json::Value]| {
            lines.iter().find(|line| line["event"] == "slow_request" && line["key"] == key).cloned()
        };
        until(&format!("the request for {key} is logged"), || found(&self.lines.lock().unwrap()).is_some());
        let line = found(&self.lines.lock().unwrap()).unwrap();
        line.get("client").and_then(|client| client.as_str()).map(String::from)
    }

    /// The ports of the clients in the records.
    fn ports(&self) -> Vec<u16> {
        let file = std::fs::read_dir(self.records.path()).unwrap().next().unwrap().unwrap().path();
        let reader = records::Reader::open(&file, false).unwrap();
        reader.rows().filter(|(row, _)| row.leg == records::PARENT).map(|(row, _)| row.port).collect()
    }
}

#[test]
fn the_reported_address_is_that_of_the_log_and_of_the_records() {
    let (server, observed) = (Server::start(), Observed::new());
    let proxy = Proxy::of(behind(server.address(), &[LISTEN], |config| observed.configure(config)));
    let tcp6 = [&[0x20, 1, 0x0d, 0xb8][..], &[0; 11], &[1], &[0; 16], &[0x12, 0x67, 0, 0]].concat();
    let headers = [
        ("a", HEADER.as_bytes().to_vec(), Some("192.0.2.7:4711".to_string())),
        ("b", b"PROXY TCP6 2001:db8::1 ::1 4711 1\r\n".to_vec(), Some("[2001:db8::1]:4711".into())),
        ("c", tcp4([192, 0, 2, 9], 4712, b""), Some("192.0.2.9:4712".into())),
        ("d", tcp4([192, 0, 2, 9], 4713, &[4; 10_000]), Some("192.0.2.9:4713".into())),
        ("e", version_2(0x21, 0x21, &tcp6), Some("[2001:db8::1]:4711".into())),
        ("f", version_2(0x21, 0x31, &[b'/'; 216]), None),
    ];
    for (key, header, address) in &headers {
        let mut client = proxy.client();
        client.send(header);
        client.ask(format!("get {key}\r\n"), "END\r\n");
        assert_eq!(observed.client_of(key), *address, "{key}");
    }
    // The load balancer itself, and one that does not know the address of its client.
    for (key, header) in [
        ("g", b"PROXY UNKNOWN\r\n".to_vec()),
        ("h", version_2(0x20, 0x00, b"")),
        ("i", version_2(0x20, 0x11, &[1; 12])),
        ("j", version_2(0x21, 0x00, &[1; 30])),
    ] {
        let mut client = proxy.client();
        client.send(&header);
        client.ask(format!("get {key}\r\n"), "END\r\n");
        assert_eq!(observed.client_of(key), Some(format!("127.0.0.1:{}", client.port())), "{key}");
    }
    assert_eq!(failed(&proxy), 0);
    proxy.stop();
    let ports = observed.ports();
    assert_eq!(ports[..6], [4711, 4711, 4712, 4713, 4711, 0]);
}

#[test]
fn the_header_and_requests_can_come_in_any_pieces() {
    let server = Server::start();
    let proxy = Proxy::of(behind(server.address(), &[LISTEN], |_| ()));
    for header in [HEADER.as_bytes().to_vec(), tcp4([192, 0, 2, 7], 4711, b"\x04\0\x03abc")] {
        let all = [&header[..], b"get a\r\nget b\r\n"].concat();
        let mut client = proxy.client();
        client.ask(&all, "END\r\nEND\r\n");
        let mut client = proxy.client();
        client.trickle(&all);
        client.expect("END\r\nEND\r\n");
        for cut in 1..all.len() {
            let mut client = proxy.client();
            client.send(&all[..cut]);
            std::thread::sleep(Duration::from_millis(1));
            client.send(&all[cut..]);
            client.expect("END\r\nEND\r\n");
        }
        // Half-closed behind the requests.
        let mut client = proxy.client();
        client.send(&all);
        client.half_close();
        client.expect("END\r\nEND\r\n");
        client.expect_closed();
    }
    assert_eq!(failed(&proxy), 0);
}

#[test]
fn a_client_without_a_valid_header_in_time_is_closed_and_counted() {
    let server = Server::start();
    let proxy = Proxy::of(behind(server.address(), &[LISTEN], |config| {
        config.transport.proxy_protocol.timeout = Duration::from_millis(500);
    }));
    let mut served = proxy.client();
    served.send(HEADER);
    served.ask("get a\r\n", "END\r\n");
    let too_long = format!("PROXY UNKNOWN {}\r\n", "x".repeat(100));
    let invalid: [&[u8]; 6] = [
        b"get a\r\n",
        b"PROXY TCP4 192.0.2.7 192.0.2.8 4711\r\n",
        too_long.as_bytes(),
        &version_2(0x21, 0x12, &[0; 12]),
        &version_2(0x21, 0x11, &[0; 11]),
        // What a TLS client sends.
        &[0x16, 3, 1, 2, 0],
    ];
    for (index, bytes) in invalid.into_iter().enumerate() {
        let mut client = proxy.client();
        client.send(bytes);
        client.expect_closed();
        assert_eq!(failed(&proxy), 1 + index as u64);
    }
    // Too late: nothing, a part, and all but the last byte of the fields behind the addresses.
    let fields = tcp4([192, 0, 2, 7], 4711, &[0; 5000]);
    for part in [&b""[..], b"PROXY TCP4", &SIGNATURE[..5], &fields[..5000]] {
        let mut client = proxy.client();
        client.send(part);
        client.expect_closed();
    }
    assert_eq!(failed(&proxy), 10);
    // The end of the connection within the header.
    let mut client = proxy.client();
    client.send("PROXY ");
    client.half_close();
    client.expect_closed();
    assert_eq!(failed(&proxy), 11);
    // A load balancer that checks the port by connecting to it.
    let mut client = proxy.client();
    client.half_close();
    client.expect_closed();
    assert_eq!(failed(&proxy), 11);
    std::thread::sleep(Duration::from_millis(600));
    served.ask("get a\r\n", "END\r\n");
    until("only one client is left", || metric(&proxy, "waystage_clients") == 1);
}

#[test]
fn the_limit_of_an_address_is_that_of_the_reported_one() {
    let server = Server::start();
    let proxy = Proxy::of(behind(server.address(), &[LISTEN], |config| config.client_limits.per_address = 2));
    let connect = |address: u8| {
        let mut client = proxy.client();
        client.send(tcp4([192, 0, 2, address], 1, b""));
        client
    };
    let mut clients: Vec<Client> = [1, 2, 3, 1, 2, 3].map(connect).into();
    clients.iter_mut().for_each(|client| client.ask("get a\r\n", "END\r\n"));
    connect(1).expect_closed();
    connect(2).expect_closed();
    assert_eq!(metric(&proxy, "waystage_clients_refused_address_total"), 2);
    // The first client of the address 1 leaves.
    clients.remove(0);
    until("another one is accepted", || {
        let mut client = connect(1);
        client.send("version\r\n");
        client.line_within(Duration::from_secs(1)).is_some_and(|line| line.starts_with("VERSION"))
    });
    // Clients that are counted for the load balancer itself.
    let mut own: Vec<Client> = (0..2).map(|_| proxy.client()).collect();
    for client in &mut own {
        client.send(version_2(0x20, 0, b""));
        client.ask("get a\r\n", "END\r\n");
    }
    let mut refused = proxy.client();
    refused.send("PROXY UNKNOWN\r\n");
    refused.expect_closed();
}

#[test]
fn only_load_balancers_of_the_networks_are_accepted() {
    let server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    let unix = folder.path().join("clients");
    let unix_text = format!("unix:{}", unix.display());
    for (networks, is_allowed) in
        [("127.0.0.0/8", true), ("10.0.0.0/8", false), ("::1", false), ("127.0.0.2/31", false)]
    {
        let proxy = Proxy::of(behind(server.address(), &[LISTEN, &unix_text], |config| {
            config.transport.proxy_protocol.from = vec!["192.0.2.0/24".parse().unwrap(), networks.parse().unwrap()];
        }));
        let mut client = proxy.client();
        if is_allowed {
            client.send(HEADER);
            client.ask("get a\r\n", "END\r\n");
        } else {
            client.expect_closed();
        }
        assert_eq!(metric(&proxy, "waystage_clients_refused_relay_total"), u64::from(!is_allowed), "{networks}");
        // The file decides who can connect to a unix socket.
        ask(&mut unix_client(&unix), [HEADER, "get a\r\n"].concat(), "END\r\n");
    }
}

#[test]
fn only_the_named_listeners_expect_a_header() {
    let server = Server::start();
    let pool_server = Server::start();
    let running = proxy(&[LISTEN.into(), "127.0.0.2:0".into()], &[server.address().to_string()], |config| {
        let mut pool = config.pools[0].clone();
        (pool.name, pool.listen) = ("other".into(), vec!["127.0.0.3:0".into()]);
        pool.servers = vec![ServerConfig::new(&pool_server.address().to_string())];
        config.pools.push(pool);
        config.transport.proxy_protocol.listeners = vec!["127.0.0.2:0".into(), "127.0.0.3:0".into()];
    });
    let address = |index: usize| running.listening[index].host_port().and_then(net::HostPort::number).unwrap();
    Client::connect(address(0)).ask("set k 0 0 1\r\n1\r\n", "STORED\r\n");
    Client::connect(address(0)).ask(HEADER, "ERROR\r\n");
    let ask = |index: usize, value: &str| {
        let mut client = Client::connect(address(index));
        client.send(HEADER);
        client.ask("get k\r\n", value);
    };
    ask(1, "VALUE k 0 1\r\n1\r\nEND\r\n");
    ask(2, "END\r\n");
    stop(running);
}

#[test]
fn a_header_precedes_the_tls_handshake() {
    let (server, authority, observed) = (Server::start(), Authority::new(), Observed::new());
    let proxy = Proxy::of(behind(server.address(), &["tls:127.0.0.1:0"], |config| {
        config.transport.tls.identity = Some(authority.sign("127.0.0.1"));
        config.transport.tls.handshake_timeout = Duration::from_millis(700);
        config.transport.proxy_protocol.timeout = Duration::from_millis(700);
        observed.configure(config);
    }));
    let fields = tcp4([192, 0, 2, 9], 4711, &[4; 3000]);
    for (index, header) in [HEADER.as_bytes(), &fields, &version_2(0x20, 0, b"")].into_iter().enumerate() {
        // In one piece with the first message of the handshake, byte by byte, and with a pause between them.
        let mut session = authority.session(None);
        let mut hello = Vec::new();
        session.write_tls(&mut hello).unwrap();
        let mut stream = tcp(proxy.address);
        match index {
            0 => stream.write_all(&[header, &hello].concat()).unwrap(),
            1 => header.iter().chain(&hello).for_each(|byte| stream.write_all(&[*byte]).unwrap()),
            _ => {
                stream.write_all(header).unwrap();
                std::thread::sleep(Duration::from_millis(50));
                stream.write_all(&hello).unwrap();
            }
        }
        let mut client = TlsClient::new(session, stream);
        ask(&mut client, format!("get k{index}\r\n"), "END\r\n");
    }
    assert_eq!(observed.client_of("k0"), Some("192.0.2.7:4711".into()));
    assert_eq!(observed.client_of("k1"), Some("192.0.2.9:4711".into()));
    // The handshake has its own time, and a client without a header has none.
    let mut silent = tcp(proxy.address);
    silent.write_all(HEADER.as_bytes()).unwrap();
    expect_closed(silent);
    assert_eq!(metric(&proxy, "waystage_clients_tls_failed_total"), 1);
    let mut without = tcp(proxy.address);
    authority.session(None).write_tls(&mut without).unwrap();
    expect_closed(without);
    expect_closed(tcp(proxy.address));
    assert_eq!((failed(&proxy), metric(&proxy, "waystage_clients_tls_failed_total")), (2, 1));
}

#[test]
fn a_reload_keeps_the_address_and_the_place_of_a_client() {
    let (server, observed) = (Server::start(), Observed::new());
    let mut old = behind(server.address(), &[LISTEN], |config| {
        observed.configure(config);
        config.records = None;
        config.client_limits.per_address = 1;
    });
    let address = old.address().unwrap();
    let mut client = Client::connect(address);
    client.send(HEADER);
    client.ask("get before\r\n", "END\r\n");
    let (mut silent, mut half) = (Client::connect(address), Client::connect(address));
    half.send("PROXY TCP4 192.0.2.1");
    half.expect_silence();
    let config = old.config().clone();
    let new = old.reload(config).unwrap();
    client.ask("get after\r\n", "END\r\n");
    assert_eq!(observed.client_of("after"), Some("192.0.2.7:4711".into()));
    // Until the first one has moved, it does not count.
    until("a second client of the address is refused", || {
        let mut second = Client::connect(address);
        second.send(HEADER);
        second.line_within(Duration::from_millis(300)).is_some_and(|line| line.is_empty())
    });
    // Those whose header was not complete are served, too.
    silent.send(HEADER.replace("2.7", "2.10"));
    silent.ask("get silent\r\n", "END\r\n");
    assert_eq!(observed.client_of("silent"), Some("192.0.2.10:4711".into()));
    half.send("1 192.0.2.8 4711 11211\r\n");
    half.ask("get half\r\n", "END\r\n");
    drop((client, silent, half));
    old.wait_for_clients(|| false);
    stop(old);
    stop(new);
}

#[test]
fn a_stop_does_not_wait_for_a_header() {
    let server = Server::start();
    let running = behind(server.address(), &[LISTEN], |config| {
        config.transport.proxy_protocol.timeout = Duration::from_secs(60);
    });
    let (mut silent, mut half) =
        (Client::connect(running.address().unwrap()), Client::connect(running.address().unwrap()));
    half.send("PROXY");
    half.expect_silence();
    let clock = clock::Clock::monotonic();
    let before = clock.now();
    stop(running);
    assert!(clock.now().after(before) < Duration::from_secs(20));
    silent.expect_closed();
    half.expect_closed();
}

#[test]
fn users_can_authenticate_behind_a_load_balancer() {
    let server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    let users = folder.path().join("users");
    std::fs::write(&users, "alice:secret\n").unwrap();
    let running = behind(server.address(), &[LISTEN], |config| config.client_auth_file = Some(users));
    let mut client: TcpStream = tcp(running.address().unwrap());
    let all = [HEADER, "set any 0 0 12\r\nalice secret\r\n", "get k\r\n"].concat();
    client.write_all(all.as_bytes()).unwrap();
    expect(&mut client, "STORED\r\nEND\r\n");
    drop(client);
    stop(running);
}
