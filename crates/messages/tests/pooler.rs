//! A connection pooler between the service and PostgreSQL is refused with an error that names it, because it drops session settings.
//! Uses PgBouncer if it is installed, and imitations of it otherwise as well.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::batch::lanes_connect;
use common::{Client, Database, serve};
use messages::{Config, migrate};
use std::fs::{metadata, write};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{sleep, spawn};
use std::time::Duration;

/// The beginning of the error.
const REFUSED: &str = "a connection pooler such as PgBouncer answers";
/// The server's socket in its folder.
const SOCKET: &str = ".s.PGSQL.5432";
/// Debian installs PgBouncer in a folder that may not be on the PATH.
const PGBOUNCER: [&str; 2] = ["pgbouncer", "/usr/sbin/pgbouncer"];

/// A real PgBouncer, which ends with the test.
struct PgBouncer {
    child: Child,
    port: u16,
}

impl PgBouncer {
    /// Starts it in this mode before a server. None if it is not installed, unless `WAYSTAGE_REQUIRE_PEERS` is set.
    fn start(database: &Database, mode: &str, ignored: &str) -> Option<PgBouncer> {
        let folder = database.directory();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let (settings, users) = (folder.join("pgbouncer.ini"), folder.join("users.txt"));
        write(&users, "\"waystage\" \"\"\n").unwrap();
        let text = format!(
            "[databases]\npostgres = host={} port=5432\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
             unix_socket_dir =\nauth_type = trust\nauth_file = {}\npool_mode = {mode}\n\
             ignore_startup_parameters = {ignored}\n",
            folder.display(),
            users.display()
        );
        write(&settings, text).unwrap();
        for program in PGBOUNCER {
            let mut command = Command::new(program);
            command.arg("--quiet").arg(&settings).stdout(Stdio::null()).stderr(Stdio::null());
            // It refuses to run as root, and only the server's user can enter the folder with the socket.
            let owner = metadata(folder).unwrap();
            command.uid(owner.uid()).gid(owner.gid());
            match command.spawn() {
                Ok(child) => {
                    let mut pooler = PgBouncer { child, port };
                    pooler.wait_until_ready();
                    return Some(pooler);
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound, "{error}"),
            }
        }
        testkit::skip_without("PgBouncer", "pgbouncer");
        None
    }

    fn wait_until_ready(&mut self) {
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert_eq!(self.child.try_wait().unwrap(), None, "it has ended");
            sleep(Duration::from_millis(10));
        }
    }

    fn config(&self) -> Config {
        config(self.port)
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// PgBouncer's reply to a startup parameter that it does not know.
fn refuses_parameters(mut client: TcpStream) {
    read_startup(&mut client);
    let fields = b"SFATAL\0VFATAL\0C08P01\0Munsupported startup parameter: options\0\0";
    let mut reply = vec![b'E'];
    reply.extend(u32::try_from(fields.len() + 4).unwrap().to_be_bytes());
    reply.extend(fields);
    // The client may have given up.
    let _ = client.write_all(&reply);
}

/// PgBouncer with `ignore_startup_parameters = options`.
fn ignores_parameters(mut client: TcpStream, directory: &Path) {
    read_startup(&mut client);
    let mut server = UnixStream::connect(directory.join(SOCKET)).unwrap();
    let parameters = b"\0\x03\0\0user\0waystage\0database\0postgres\0\0";
    server.write_all(&u32::try_from(parameters.len() + 4).unwrap().to_be_bytes()).unwrap();
    server.write_all(parameters).unwrap();
    relay(client, server);
}

/// Forwards bytes in both directions.
fn relay(mut client: TcpStream, mut server: UnixStream) {
    let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    spawn(move || {
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Both);
    });
    let _ = std::io::copy(&mut server, &mut client);
    let _ = client.shutdown(Shutdown::Both);
}

/// Reads the startup packet, after refusing TLS.
fn read_startup(client: &mut TcpStream) {
    loop {
        let mut length = [0; 4];
        client.read_exact(&mut length).unwrap();
        let mut packet = vec![0; u32::from_be_bytes(length) as usize - 4];
        client.read_exact(&mut packet).unwrap();
        if packet != 80_877_103_u32.to_be_bytes() {
            return;
        }
        client.write_all(b"N").unwrap();
    }
}

/// The configuration of a service whose database is at this port.
fn config(port: u16) -> Config {
    let database = format!("host=127.0.0.1 port={port} user=waystage dbname=postgres");
    Config { database, listen: "127.0.0.1:0".into(), ..Config::default() }
}

/// The port of a server that serves each connection like this.
fn imitate(serve: impl Fn(TcpStream) + Clone + Send + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    spawn(move || {
        for client in listener.incoming().flatten() {
            let serve = serve.clone();
            spawn(move || serve(client));
        }
    });
    port
}

/// The error with which the service refuses to start at this server.
fn refusal(serve: impl Fn(TcpStream) + Clone + Send + 'static) -> String {
    messages::start(&config(imitate(serve)), clock::Clock::monotonic()).unwrap_err().to_string()
}

#[test]
fn an_imitated_pooler_is_refused_in_words() {
    let line = refusal(refuses_parameters);
    assert!(line.contains(REFUSED) && !line.contains('\n'), "{line}");
    let Some(database) = Database::start() else { return };
    let directory = database.directory().to_path_buf();
    let line = refusal(move |client| ignores_parameters(client, &directory));
    assert!(line.contains(REFUSED) && !line.contains('\n'), "{line}");
}

/// A host that is a pooler is passed over, like every other host that refuses the connection.
#[test]
fn another_host_is_used_instead_of_a_pooler() {
    let Some(database) = Database::start() else { return };
    let directory = database.directory().to_path_buf();
    let imitations = [
        imitate(refuses_parameters),
        imitate({
            let directory = directory.clone();
            move |client| ignores_parameters(client, &directory)
        }),
    ];
    let pooler = PgBouncer::start(&database, "transaction", "options");
    for port in imitations.into_iter().chain(pooler.as_ref().map(|pooler| pooler.port)) {
        let good = directory.display();
        let hosts = format!("host='127.0.0.1,{good}' port={port},5432 user=waystage dbname=postgres");
        let running = serve(&Config { database: hosts, ..database.config() });
        assert!(running.is_database_reachable());
        let mut client = Client::connect(running.address(), "alice");
        lanes_connect(&mut client);
        let created = client.short("PUT", "/v1/queues/q").0;
        assert!([201, 204].contains(&created), "{created}");
        assert_eq!(client.short("GET", "/readyz"), (204, String::new()));
        running.stop().unwrap();
    }
}

/// The address leads to a pooler since the start. The reason is in the reply of `/readyz`.
#[test]
fn a_pooler_that_appears_later_is_reported() {
    let Some(database) = Database::start() else { return };
    let (directory, is_pooler) = (database.directory().to_path_buf(), Arc::new(AtomicBool::new(false)));
    let port = imitate({
        let is_pooler = is_pooler.clone();
        move |client| match is_pooler.load(Ordering::SeqCst) {
            true => refuses_parameters(client),
            false => relay(client, UnixStream::connect(directory.join(SOCKET)).unwrap()),
        }
    });
    let running = serve(&config(port));
    let mut client = Client::connect(running.address(), "alice");
    assert_eq!(client.short("PUT", "/v1/queues/q").0, 201);
    is_pooler.store(true, Ordering::SeqCst);
    database.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'waystage'");
    let mut text = String::new();
    for _ in 0..3000 {
        text = client.short("GET", "/readyz").1;
        if text.contains(REFUSED) {
            break;
        }
        sleep(Duration::from_millis(20));
    }
    assert!(text.contains(REFUSED), "{text}");
    is_pooler.store(false, Ordering::SeqCst);
    for _ in 0..3000 {
        if client.short("POST", "/v1/queues/q/messages").0 == 201 {
            return running.stop().map(drop).unwrap();
        }
        sleep(Duration::from_millis(20));
    }
    panic!("sends do not succeed again");
}

/// Each time, because earlier attempts can leave prepared statements on the connections that PgBouncer keeps to the server.
#[test]
fn pgbouncer_is_refused_in_words_each_time_in_every_mode() {
    let Some(database) = Database::start() else { return };
    for mode in ["session", "transaction", "statement"] {
        for ignored in ["", "options"] {
            let Some(pooler) = PgBouncer::start(&database, mode, ignored) else { return };
            for attempt in 0..3 {
                let started = messages::start(&pooler.config(), clock::Clock::monotonic());
                let line = started.map(|_| ()).unwrap_err().to_string();
                assert!(line.contains(REFUSED) && !line.contains('\n'), "{mode} {ignored} {attempt}: {line}");
                let line = migrate(&pooler.config(), false).unwrap_err().to_string();
                assert!(line.contains(REFUSED) && !line.contains('\n'), "{mode} {ignored} {attempt}: {line}");
            }
        }
    }
}
