//! Connects all clients before the run. The first connects alone, so that a missing server is noticed at once. Then some
//! connect at the same time, because a distant server takes a round trip for each, but not so many that the server's
//! backlog overflows. The event loop reconnects connections that are lost later.

use crate::LoadError;
use crate::config::Config;
use crate::drive::connection::{CONNECT_TIMEOUT, ConnectionId};
use crate::drive::lane::Lane;
use mio::net::TcpStream;
use net::Connection;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// The number of clients that connect at the same time.
const AT_ONCE: usize = 16;

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
    for (number, connection) in connections(config, addresses)?.into_iter().enumerate() {
        let server = number % addresses.len();
        let client = number / config.lanes_per_client();
        let port = connection.local_address().map_or(0, |address| address.port());
        let id = ConnectionId { client: 0, number: number as u32, port, server: server as u16 };
        threads[client % config.threads].push(Lane::new(connection, id, addresses[server]));
    }
    Ok(threads)
}

/// Opens all connections, in the order of their numbers. The first error ends it.
fn connections(config: &Config, addresses: &[SocketAddr]) -> Result<Vec<Connection>, LoadError> {
    open_all(config.connections(), |number| {
        let server = number % addresses.len();
        connect(&config.servers[server], addresses[server])
    })
}

/// Calls `open` for 0 to `all`, first for 0 alone and then [`AT_ONCE`] at a time.
fn open_all<T: Send>(all: usize, open: impl Fn(usize) -> Result<T, LoadError> + Sync) -> Result<Vec<T>, LoadError> {
    let open = &open;
    let mut opened: Vec<Option<T>> = (0..all).map(|_| None).collect();
    let Some(first) = opened.first_mut() else { return Ok(Vec::new()) };
    *first = Some(open(0)?);
    let failed = AtomicBool::new(false);
    let open_some = |from: usize| -> Result<Vec<(usize, T)>, LoadError> {
        let mut found = Vec::new();
        for number in (from..all).step_by(AT_ONCE) {
            if failed.load(Ordering::Relaxed) {
                break;
            }
            let connection = open(number).inspect_err(|_| failed.store(true, Ordering::Relaxed))?;
            found.push((number, connection));
        }
        Ok(found)
    };
    thread::scope(|scope| {
        let open_some = &open_some;
        let workers: Vec<_> = (1..all.min(AT_ONCE + 1)).map(|from| scope.spawn(move || open_some(from))).collect();
        for worker in workers {
            for (number, connection) in worker.join().expect("connecting never panics")? {
                opened[number] = Some(connection);
            }
        }
        Ok::<_, LoadError>(())
    })?;
    Ok(opened.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    #[test]
    fn the_first_client_connects_alone_and_then_some_at_the_same_time() {
        let (now, most, started) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        let opened = open_all(100, |number| {
            let before = now.fetch_add(1, Ordering::SeqCst);
            most.fetch_max(before + 1, Ordering::SeqCst);
            thread::sleep(Duration::from_millis(if number == 0 { 50 } else { 2 }));
            let others = started.fetch_add(1, Ordering::SeqCst);
            assert!(number > 0 || others == 0, "{others} connected before the first had ended");
            now.fetch_sub(1, Ordering::SeqCst);
            Ok(number)
        });
        assert_eq!(opened.unwrap(), (0..100).collect::<Vec<_>>(), "in the order of their numbers");
        assert!((2..=AT_ONCE).contains(&most.into_inner()));
    }

    #[test]
    fn an_error_ends_all_of_them() {
        let refused = || LoadError::Connect {
            server: "s".into(),
            advice: "",
            source: io::Error::from(io::ErrorKind::ConnectionRefused),
        };
        let tried = AtomicUsize::new(0);
        let opened = open_all(10_000, |number| {
            tried.fetch_add(1, Ordering::SeqCst);
            thread::sleep(Duration::from_millis(1));
            if number >= 40 { Err(refused()) } else { Ok(number) }
        });
        assert!(opened.is_err());
        assert!(tried.into_inner() < 40 + 3 * AT_ONCE, "each thread stops after its next one");
    }
}
