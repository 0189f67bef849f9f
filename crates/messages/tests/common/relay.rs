//! A relay between a service and its database. It can become silent: open connections stay open, but no bytes pass.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{sleep, spawn};
use std::time::Duration;

/// The relay. It ends with the process.
pub struct Relay {
    address: SocketAddr,
    /// Connections with a number below this are silent.
    silent_below: Arc<AtomicUsize>,
    connections: Arc<AtomicUsize>,
    /// Whether new connections are accepted but silent as well.
    is_down: Arc<AtomicBool>,
    /// Bytes that each connection forwards in a second, in each direction; 0: no limit.
    rate: Arc<AtomicU64>,
}

impl Relay {
    /// A relay to the server with this directory.
    pub fn start(directory: &Path) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (silent_below, connections, is_down, rate) = Default::default();
        let relay = Relay { address, silent_below, connections, is_down, rate };
        let socket = directory.join(".s.PGSQL.5432");
        let (silent_below, connections, is_down, rate) =
            (relay.silent_below.clone(), relay.connections.clone(), relay.is_down.clone(), relay.rate.clone());
        spawn(move || {
            for client in listener.incoming().flatten() {
                let number = connections.fetch_add(1, Ordering::SeqCst);
                let (silent_below, is_down) = (silent_below.clone(), is_down.clone());
                let is_silent = move || number < silent_below.load(Ordering::SeqCst) || is_down.load(Ordering::SeqCst);
                relay_connection(client, socket.clone(), is_silent, rate.clone());
            }
        });
        relay
    }

    /// The connection string through the relay.
    pub fn url(&self) -> String {
        format!("host=127.0.0.1 port={} user=waystage dbname=postgres", self.address.port())
    }

    /// The address of the relay.
    pub fn host_and_port(&self) -> (String, u16) {
        (self.address.ip().to_string(), self.address.port())
    }

    /// The number of connections so far.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Each connection forwards so many bytes in a second, in each direction.
    pub fn slow_down(&self, bytes_per_second: u64) {
        self.rate.store(bytes_per_second, Ordering::SeqCst);
    }

    /// Silences every open connection for ever. New ones work.
    pub fn silence_open_connections(&self) {
        self.silent_below.store(self.connections(), Ordering::SeqCst);
    }

    /// Silences every connection, and every new one until [`Relay::restore`].
    pub fn silence(&self) {
        self.is_down.store(true, Ordering::SeqCst);
    }

    /// New connections work again. Those of before stay silent.
    pub fn restore(&self) {
        self.silence_open_connections();
        self.is_down.store(false, Ordering::SeqCst);
    }
}

fn relay_connection(
    client: TcpStream,
    socket: PathBuf,
    is_silent: impl Fn() -> bool + Clone + Send + 'static,
    rate: Arc<AtomicU64>,
) {
    spawn(move || {
        let Ok(server) = UnixStream::connect(socket) else { return };
        let (to_server, from_server) = (server.try_clone().unwrap(), server);
        let (from_client, to_client) = (client.try_clone().unwrap(), client);
        let (silent, rate_up) = (is_silent.clone(), rate.clone());
        spawn(move || {
            pass(from_client, &to_server, &silent, &rate_up);
            let _ = to_server.shutdown(Shutdown::Both);
        });
        pass(from_server, &to_client, &is_silent, &rate);
        let _ = to_client.shutdown(Shutdown::Both);
    });
}

/// Forwards bytes. While the connection is silent, drops them and does not detect that it is closed.
fn pass(mut from: impl Read, mut to: impl Write, is_silent: &impl Fn() -> bool, rate: &AtomicU64) {
    let mut bytes = [0; 64 << 10];
    loop {
        let count = from.read(&mut bytes).unwrap_or(0);
        if is_silent() {
            if count == 0 {
                loop {
                    std::thread::park();
                }
            }
            continue;
        }
        if let Some(nanoseconds) = (count as u64 * 1_000_000_000).checked_div(rate.load(Ordering::SeqCst)) {
            sleep(Duration::from_nanos(nanoseconds));
        }
        if count == 0 || to.write_all(&bytes[..count]).is_err() {
            return;
        }
    }
}
