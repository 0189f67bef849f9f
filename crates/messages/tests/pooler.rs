//! A connection pooler between the service and PostgreSQL is refused with an error that names it, because it drops session settings.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::Database;
use messages::Config;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::thread::spawn;

/// PgBouncer's reply to a startup parameter that it does not know.
fn refuses_parameters(mut client: TcpStream) {
    read_startup(&mut client);
    let fields = b"SFATAL\0VFATAL\0C08P01\0Munsupported startup parameter: options\0\0";
    let mut reply = vec![b'E'];
    reply.extend(u32::try_from(fields.len() + 4).unwrap().to_be_bytes());
    reply.extend(fields);
    client.write_all(&reply).unwrap();
}

/// PgBouncer with `ignore_startup_parameters = options`.
fn ignores_parameters(mut client: TcpStream, directory: &std::path::Path) {
    read_startup(&mut client);
    let mut server = UnixStream::connect(directory.join(".s.PGSQL.5432")).unwrap();
    let parameters = b"\0\x03\0\0user\0waystage\0database\0postgres\0\0";
    server.write_all(&u32::try_from(parameters.len() + 4).unwrap().to_be_bytes()).unwrap();
    server.write_all(parameters).unwrap();
    let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    spawn(move || std::io::copy(&mut from, &mut to));
    let _ = std::io::copy(&mut server, &mut client);
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

/// The error with which the service refuses to start at this server.
fn refusal(serve: impl Fn(TcpStream) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    spawn(move || listener.incoming().flatten().for_each(&serve));
    let database = format!("host=127.0.0.1 port={port} user=waystage dbname=postgres");
    let config = Config { database, listen: "127.0.0.1:0".into(), ..Config::default() };
    messages::start(&config, clock::Clock::monotonic()).unwrap_err().to_string()
}

#[test]
fn a_pooler_is_refused_in_words() {
    let expected = "a connection pooler such as PgBouncer answers";
    let line = refusal(refuses_parameters);
    assert!(line.contains(expected) && !line.contains('\n'), "{line}");
    let Some(database) = Database::start() else { return };
    let directory = database.directory().to_path_buf();
    let line = refusal(move |client| ignores_parameters(client, &directory));
    assert!(line.contains(expected) && !line.contains('\n'), "{line}");
}
