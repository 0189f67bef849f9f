//! A bare relay for memcached requests of one line: what is left of a proxy if it only moves bytes. It has two drivers with the same
//! work between them, so that `tests/speed/relay.py` can compare what the drivers cost:
//!
//! - `epoll`: readiness, one `recv` and one `send` for each connection of a turn, as in the proxy.
//! - `uring`: completions of io_uring. `uring-fixed` has registered files, too.
//!
//! `relay DRIVER PORT SERVERS WORK`: servers are separated by commas. `WORK` is how many multiplications each request and each
//! reply cost in addition, to make the relay as slow as a proxy.

mod completion;
mod readiness;
mod relay;

use relay::Relay;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("relay: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> io::Result<()> {
    let usage = || io::Error::other("usage: relay epoll|uring|uring-fixed PORT HOST:PORT,... WORK");
    let [driver, port, servers, work] = arguments else { return Err(usage()) };
    let servers: Vec<TcpStream> = servers.split(',').map(TcpStream::connect).collect::<io::Result<_>>()?;
    for server in &servers {
        server.set_nodelay(true)?;
    }
    let relay = Relay::new(servers.len(), work.parse().map_err(|_| usage())?);
    let listener = TcpListener::bind(("127.0.0.1", port.parse().map_err(|_| usage())?))?;
    match driver.as_str() {
        "epoll" => readiness::run(relay, listener, servers),
        "uring" => completion::run(relay, listener, servers, false),
        "uring-fixed" => completion::run(relay, listener, servers, true),
        _ => Err(usage()),
    }
}
