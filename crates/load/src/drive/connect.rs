//! Connects all clients before the run, one after the other. A missing server is noticed at once, and the server's
//! backlog never overflows. The event loop reconnects connections that are lost later.

use crate::LoadError;
use crate::config::Config;
use crate::drive::connection::{CONNECT_TIMEOUT, ConnectionId};
use crate::drive::lane::Lane;
use mio::net::TcpStream;
use net::Connection;
use std::io;
use std::net::SocketAddr;

/// Resolves every server.
pub(crate) fn resolve(config: &Config) -> Result<Vec<SocketAddr>, LoadError> {
    config.servers.iter().map(|server| net::resolve(server).map_err(LoadError::Server)).collect()
}

/// Opens one connection.
pub(crate) fn connect(server: &str, address: SocketAddr) -> Result<Connection, LoadError> {
    let connected = std::net::TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).and_then(|stream| {
        stream.set_nonblocking(true)?;
        Ok(Connection::new(TcpStream::from_std(stream)))
    });
    connected.map_err(|source| LoadError::Connect { server: server.into(), advice: advice(&source), source })
}

/// Advice for errors whose message contains none.
fn advice(error: &io::Error) -> &'static str {
    /// Too many open files in the process, and in the system.
    const EMFILE: i32 = 24;
    const ENFILE: i32 = 23;
    match error.raw_os_error() {
        Some(EMFILE | ENFILE) => "; allow more with ulimit -n, or use fewer --clients",
        _ if error.kind() == io::ErrorKind::ConnectionRefused => "; is it running?",
        _ => "",
    }
}

/// Opens the connections of all clients and distributes them over the threads in turn. A client has a connection to
/// every server, or with `--distribution any` to one server, in turn.
pub(crate) fn lanes(config: &Config, addresses: &[SocketAddr]) -> Result<Vec<Vec<Lane>>, LoadError> {
    let mut threads: Vec<Vec<Lane>> = (0..config.threads).map(|_| Vec::new()).collect();
    for number in 0..config.connections() {
        let server = number % addresses.len();
        let client = number / config.lanes_per_client();
        let connection = connect(&config.servers[server], addresses[server])?;
        let port = connection.local_address().map_or(0, |address| address.port());
        let id = ConnectionId { client: 0, number: number as u32, port, server: server as u16 };
        threads[client % config.threads].push(Lane::new(connection, id, addresses[server]));
    }
    Ok(threads)
}
