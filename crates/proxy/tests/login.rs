//! Authentication of the proxy at its servers, which require a user and a password as memcached with `-Y`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod common;
#[path = "common/users.rs"]
mod users;

use common::{Proxy, disciplines, until};
use proxy::{Config, LogConfig, LogFormat, LogOutput, Timeouts};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use testkit::{Client, Server, memcached_is_here, skip_without};
use users::{Files, USERS, guarded, metric, reload};

const HIT: &str = "VALUE k 0 1\r\n1\r\nEND\r\n";

/// A proxy that authenticates to its servers.
fn visiting(files: &Files, servers: &[SocketAddr], change: impl FnOnce(&mut Config)) -> Proxy {
    Proxy::at(servers, |config| {
        (config.loops, config.metrics) = (2, Some("127.0.0.1:0".into()));
        config.pools[0].server_auth_file = Some(files.path());
        change(config);
    })
}

#[test]
fn the_proxy_authenticates_to_memcached_on_every_connection() {
    if !memcached_is_here() {
        return skip_without("memcached", "memcached");
    }
    let files = Files::new(USERS);
    let servers = [files.memcached(), files.memcached()];
    let addresses = servers.each_ref().map(Server::address);
    files.write("bob:hidden:word\n");
    for discipline in disciplines(2, true) {
        let proxy = visiting(&files, &addresses, |config| {
            config.discipline = discipline;
            config.pools[0].replicas = 2;
        });
        let mut client = proxy.client();
        for key in 0..20 {
            client.ask(format!("set k{key} 0 0 1\r\n1\r\n"), "STORED\r\n");
        }
        let large = "x".repeat(500_000);
        client.ask(format!("set large 0 0 500000\r\n{large}\r\n"), "STORED\r\n");
        for _ in 0..3 {
            client.ask("get large\r\n", format!("VALUE large 0 500000\r\n{large}\r\nEND\r\n"));
        }
        client.ask("get k1 k2 k3\r\n", "VALUE k1 0 1\r\n1\r\nVALUE k2 0 1\r\n1\r\nVALUE k3 0 1\r\n1\r\nEND\r\n");
        client.ask("get auth\r\n", "END\r\n");
        let metrics = proxy.metrics();
        for address in addresses {
            let of = |name: &str| format!("{name}{{pool=\"default\",backend=\"{address}\"");
            assert!(metrics.contains(&format!("{}}} 1\n", of("waystage_backend_up"))), "{metrics}");
            assert!(metrics.contains(&format!("{}}} 0\n", of("waystage_backend_in_flight"))), "{metrics}");
            let lost = format!("{},reason=\"login\"}} 0\n", of("waystage_backend_connections_lost_total"));
            assert!(metrics.contains(&lost), "{metrics}");
            assert!(!metrics.contains(&format!("{}}} 0\n", of("waystage_backend_connections_opened_total"))));
        }
    }
}

/// The lines of a log.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    fn config(&self) -> LogConfig {
        let lines = self.0.clone();
        let output = LogOutput::new(move |line| {
            lines.lock().unwrap().extend_from_slice(line);
            Ok(())
        });
        LogConfig { format: LogFormat::Text, output, ..LogConfig::default() }
    }

    fn wait_for(&self, text: &str) {
        until(text, || String::from_utf8_lossy(&self.0.lock().unwrap()).contains(text));
    }
}

#[test]
fn a_server_that_refuses_the_login_is_down_until_the_file_is_right() {
    if !memcached_is_here() {
        return skip_without("memcached", "memcached");
    }
    let (files, lines) = (Files::new(USERS), Lines::default());
    let server = files.memcached();
    files.write("alice:wrong\n");
    let mut proxy = visiting(&files, &[server.address()], |config| config.log = lines.config());
    lines.wait_for(&format!(
        "backend {} is down, because it refuses the user and password in server-auth-file",
        server.address()
    ));
    let mut client = proxy.client();
    client.send("set k 0 0 1\r\n1\r\n");
    let line = client.line();
    assert!(line.starts_with("SERVER_ERROR ") && line.contains(&server.address().to_string()), "{line}");
    // A value that would be the right login is not taken for one.
    client.send("set k 0 0 12\r\nalice secret\r\nget k\r\n");
    for _ in 0..2 {
        let line = client.line();
        assert!(line.starts_with("SERVER_ERROR "), "{line}");
    }
    let metrics = proxy.metrics();
    let backend = format!("{{pool=\"default\",backend=\"{}\"", server.address());
    assert!(metrics.contains(&format!("waystage_backend_up{backend}}} 0\n")), "{metrics}");
    assert!(metrics.contains(&format!("waystage_backend_in_flight{backend}}} 0\n")), "{metrics}");
    assert!(!metrics.contains(&format!("lost_total{backend},reason=\"login\"}} 0\n")), "{metrics}");
    assert!(metrics.contains(&format!("lost_total{backend},reason=\"out_of_step\"}} 0\n")), "{metrics}");
    assert!(proxy.get("/readyz").contains("503 Service Unavailable"));
    files.write("alice:secret\n");
    reload(&mut proxy, |_| ()).unwrap();
    until("the server is up", || {
        client.send("set k 0 0 1\r\n1\r\n");
        client.line() == "STORED\r\n"
    });
    client.ask("get k\r\n", HIT);
    lines.wait_for("is up again");
}

#[test]
fn a_server_that_requires_a_login_is_down_for_a_pool_without_one() {
    if !memcached_is_here() {
        return skip_without("memcached", "memcached");
    }
    let (files, lines) = (Files::new(USERS), Lines::default());
    let server = files.memcached();
    let proxy = visiting(&files, &[server.address()], |config| {
        (config.pools[0].server_auth_file, config.log) = (None, lines.config());
    });
    lines.wait_for("is down, because it requires a user and password; give its pool a server-auth-file");
    let mut client = proxy.client();
    client.send("set k 0 0 12\r\nalice secret\r\n");
    let line = client.line();
    assert!(line.starts_with("SERVER_ERROR "), "{line}");
}

#[test]
fn a_server_without_authentication_never_shows_the_password() {
    let (files, server) = (Files::new("alice:secret\n"), Server::start());
    let proxy = visiting(&files, &[server.address()], |_| ());
    let mut client = proxy.client();
    client.ask("set k 0 0 1\r\n1\r\nget k\r\n", format!("STORED\r\n{HIT}"));
    for mut client in [client, Client::connect(server.address())] {
        client.ask("get auth\r\ngets auth\r\nmg auth v\r\n", "END\r\nEND\r\nEN\r\n");
    }
}

#[test]
fn a_proxy_authenticates_to_a_proxy() {
    let (files, server) = (Files::new("alice:secret\n"), Server::start());
    let behind = guarded(&files, server.address(), |_| ());
    for discipline in disciplines(2, false) {
        let before = visiting(&files, &[behind.address], |config| config.discipline = discipline);
        before.client().ask("set k 0 0 1\r\n1\r\nget k\r\n", format!("STORED\r\n{HIT}"));
    }
    assert_eq!(metric(&behind, "waystage_clients_auth_failed_total"), 0);
    assert!(metric(&behind, "waystage_clients_authenticated_total") > 0);
}

/// Replies to the first connection as the test wants, and to later ones as a server that accepts the login. Returns what arrived on the
/// first one.
fn server_that_replies(first: &'static str, is_in_pieces: bool) -> (SocketAddr, Arc<Mutex<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, received) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(String::new())));
    let arrived = received.clone();
    std::thread::spawn(move || {
        for (number, mut stream) in listener.incoming().flatten().enumerate() {
            stream.set_nodelay(true).unwrap();
            let arrived = arrived.clone();
            std::thread::spawn(move || {
                let (mut reader, mut is_login) = (BufReader::new(stream.try_clone().unwrap()), true);
                let mut line = String::new();
                while reader.read_line(&mut line).is_ok_and(|count| count > 0) {
                    if number == 0 {
                        arrived.lock().unwrap().push_str(&line);
                    }
                    let reply = match line.as_str() {
                        "alice secret\r\n" if is_login && number == 0 => first,
                        "alice secret\r\n" if is_login => "STORED\r\n",
                        "version\r\n" => "VERSION 1.6.0\r\n",
                        text if text.starts_with("get ") => "END\r\n",
                        _ => "",
                    };
                    // Without a reply to the login, there is none to what follows.
                    let reply = if number == 0 && first.is_empty() { "" } else { reply };
                    is_login &= !line.starts_with("alice");
                    line.clear();
                    if reply == "close" {
                        return;
                    }
                    let piece = if is_in_pieces { 1 } else { reply.len().max(1) };
                    for bytes in reply.as_bytes().chunks(piece) {
                        if stream.write_all(bytes).is_err() {
                            return;
                        }
                        std::thread::sleep(Duration::from_millis(u64::from(is_in_pieces)));
                    }
                }
            });
        }
    });
    (address, received)
}

#[test]
fn the_login_comes_first_and_every_odd_reply_to_it_fails_the_connection_only() {
    let files = Files::new("alice:secret\n");
    for (reply, is_in_pieces) in [
        ("STORED\r\n", false),
        ("STORED\r\n", true),
        ("CLIENT_ERROR authentication failure\r\n", true),
        ("SERVER_ERROR out of memory storing object\r\n", false),
        ("NOT_STORED\r\n", false),
        ("ERROR\r\n", false),
        ("VERSION 1.6.0\r\n", false),
        ("END\r\n", false),
        ("close", false),
        ("STORED\r\nSTORED\r\n", false),
    ] {
        let (address, received) = server_that_replies(reply, is_in_pieces);
        let proxy = visiting(&files, &[address], |config| config.loops = 1);
        let mut client = proxy.client();
        until(&format!("the server is used after {reply:?}"), || {
            client.send("get none\r\n");
            client.line() == "END\r\n"
        });
        let received = received.lock().unwrap();
        // The server may have closed the connection before it read the probe.
        let expected = "set auth 0 -1 12\r\nalice secret\r\nversion\r\n";
        assert!(received.starts_with(expected) || expected.starts_with(&*received), "{received}");
        assert!(received.starts_with("set auth 0 -1 12\r\nalice secret\r\n"), "{received}");
        assert_eq!(metric(&proxy, "waystage_backend_in_flight"), 0);
        assert_eq!(metric(&proxy, "waystage_backend_connections_opened_total"), 1, "{reply:?}");
    }
}

#[test]
fn a_server_that_does_not_answer_the_login_times_out() {
    let files = Files::new("alice:secret\n");
    let (address, _) = server_that_replies("", false);
    let proxy = visiting(&files, &[address], |config| {
        config.loops = 1;
        config.pools[0].timeouts = Timeouts::all(Duration::from_millis(200));
    });
    until("it has timed out", || {
        proxy
            .metrics()
            .contains(&format!("lost_total{{pool=\"default\",backend=\"{address}\",reason=\"timeout\"}} 1\n"))
    });
    let mut client = proxy.client();
    until("the next connection works", || {
        client.send("get none\r\n");
        client.line() == "END\r\n"
    });
}

/// The probe that follows a timeout has its usual place behind a login.
#[test]
fn late_replies_are_dropped_behind_a_login_as_well() {
    let files = Files::new("alice:secret\n");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                for line in BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok) {
                    if line.contains("slow") {
                        std::thread::sleep(Duration::from_millis(450));
                    }
                    let reply = match line.as_str() {
                        "alice secret" => "STORED\r\n",
                        "version" => "VERSION 1.6.0\r\n",
                        text if text.starts_with("get ") => "END\r\n",
                        _ => "",
                    };
                    if stream.write_all(reply.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    let proxy = visiting(&files, &[address], |config| {
        config.loops = 1;
        config.pools[0].timeouts = Timeouts::all(Duration::from_millis(300));
    });
    let mut client = proxy.client();
    client.ask("get none\r\n", "END\r\n");
    client.send("get slow\r\n");
    assert!(client.line().starts_with("SERVER_ERROR "));
    until("the late reply has arrived", || metric(&proxy, "waystage_backend_late_replies_total") == 1);
    client.ask("get none\r\n", "END\r\n");
    assert_eq!(metric(&proxy, "waystage_backend_connections_opened_total"), 1);
}

#[test]
fn every_bad_file_is_one_clear_line() {
    let files = Files::new(USERS);
    let line = |text: Option<&str>, change: &dyn Fn(&mut Config, PathBuf)| {
        match text {
            Some(text) => files.write(text),
            None => _ = std::fs::remove_file(files.path()),
        }
        let mut config = Config::new("127.0.0.1:0", &["127.0.0.1:1".into()]);
        change(&mut config, files.path());
        let line = match proxy::start(config.clone(), clock::Clock::monotonic()) {
            Ok(_) => panic!("it starts"),
            Err(error) => error.to_string(),
        };
        assert_eq!(proxy::check_files(&config).map_err(|error| error.to_string()), Err(line.clone()));
        assert!(!line.contains('\n') && !line.contains("secret"), "{line}");
        line
    };
    let clients: &dyn Fn(&mut Config, PathBuf) = &|config, path| config.client_auth_file = Some(path);
    let servers: &dyn Fn(&mut Config, PathBuf) = &|config, path| config.pools[0].server_auth_file = Some(path);
    for change in [clients, servers] {
        assert!(line(None, change).contains("users for authentication: No such file"));
        assert!(line(Some(""), change).contains("it has no user; write user:password in a line"));
        assert!(line(Some("secret\n"), change).contains("line 1 has no colon"));
        assert!(line(Some(&"x".repeat(300_000)), change).contains("it is larger than 256 KiB"));
        assert!(
            line(Some(""), &|config, path| change(config, path.parent().unwrap().into())).contains("it is not a file")
        );
        assert!(line(Some(""), &|config, _| change(config, "/dev/zero".into())).contains("it is not a file"));
    }
    assert!(line(Some("alice:secret\nbob:secret\n"), servers).contains("it has several users"));
}
