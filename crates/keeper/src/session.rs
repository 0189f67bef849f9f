//! The conversation with the lab: one request after another, until the lab is gone.

use crate::children::Children;
use crate::files;
use crate::message::{PROTOCOL, Reply, Request};
use crate::patience::{Patience, Patient};
use clock::{Clock, unix_now};
use rustix::fs::statvfs;
use sha2::{Digest, Sha256};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The longest request.
const LINE_BYTES: u64 = 1 << 20;
/// For a connection to another host.
const CONNECT: Duration = Duration::from_secs(3);
const SIGNALS: [i32; 3] = [SIGTERM, SIGINT, SIGHUP];

/// What a keeper is started with.
#[derive(Debug)]
pub struct Settings {
    /// Its folder, which exists, and which it removes at the end.
    pub folder: PathBuf,
    /// How long the lab may be silent.
    pub silence: Duration,
}

/// Serves the lab until `from` ends or stays silent, `to` is not read, or a signal arrives; then kills every program and removes the folder.
///
/// # Errors
///
/// If the signals cannot be taken over. The folder is removed in this case, too.
pub fn keep(settings: &Settings, from: impl Read + AsFd, to: impl Write + AsFd) -> Result<(), String> {
    let mut children = Children::default();
    let served = serve(settings, &mut children, from, to);
    children.end();
    let _ = files::remove(&settings.folder);
    served
}

fn serve(
    settings: &Settings,
    children: &mut Children,
    from: impl Read + AsFd,
    to: impl Write + AsFd,
) -> Result<(), String> {
    let stopped = Arc::new(AtomicBool::new(false));
    for signal in SIGNALS {
        let registered = signal_hook::flag::register(signal, Arc::clone(&stopped));
        registered.map_err(|error| format!("cannot take over signals: {error}"))?;
    }
    let clock = Clock::monotonic();
    let patience = Patience { silence: settings.silence, stopped, clock: clock.clone() };
    let (mut from, mut to) = (BufReader::new(Patient::new(from, &patience)), Patient::new(to, &patience));
    loop {
        let mut line = String::new();
        match (&mut from).take(LINE_BYTES).read_line(&mut line) {
            Ok(1..) => {}
            Ok(0) | Err(_) => break,
        }
        let mut content = Vec::new();
        let reply = match serde_json::from_str::<Request>(&line) {
            Ok(request) => answer(request, settings, children, &mut from, &clock, &mut content),
            Err(error) => Reply::Error { line: format!("the request cannot be read: {error}") },
        };
        let sent = serde_json::to_vec(&reply).map_err(io::Error::other).and_then(|mut line| {
            line.push(b'\n');
            to.write_all(&line)?;
            to.write_all(&content)?;
            to.flush()
        });
        if sent.is_err() {
            break;
        }
    }
    Ok(())
}

fn answer(
    request: Request,
    settings: &Settings,
    children: &mut Children,
    from: &mut impl Read,
    clock: &Clock,
    content: &mut Vec<u8>,
) -> Reply {
    let now_ns = clock.now().0;
    // A relative path is in the folder, an absolute one stays as it is.
    let here = |path: &PathBuf| settings.folder.join(path);
    match request {
        Request::Clock {} => Reply::Clock { clock_ns: now_ns },
        Request::Hello {} => done(hello(now_ns)),
        Request::Start { name, command, environment } => {
            let started = children.start(&settings.folder, &name, &command, &environment);
            done(started.map(|pid| Reply::Started { pid }))
        }
        Request::Signal { pid, number, at_clock_ns } => {
            let wait = Duration::from_nanos(at_clock_ns.unwrap_or(0).saturating_sub(now_ns));
            done(children.signal(pid, number, wait).map(|()| Reply::Done {}))
        }
        Request::PauseConnected { pid, sockets, within_ms } => {
            let until_ns = now_ns.saturating_add(within_ms.saturating_mul(1_000_000));
            let in_time = || clock.now().0 < until_ns;
            done(children.pause_when_connected(pid, sockets, in_time).map(|()| Reply::Done {}))
        }
        Request::Status { pid, stdout, stderr } => {
            done(children.status(pid, [stdout, stderr]).map(|(ended, [out, err])| Reply::Status {
                ended,
                stdout: out,
                stderr: err,
            }))
        }
        Request::Texts { paths } => {
            Reply::Texts { clock_ns: now_ns, texts: paths.iter().map(|path| files::text(&here(path))).collect() }
        }
        Request::Make { path } => done(std::fs::create_dir_all(here(&path)).map(|()| Reply::Done {})),
        Request::List { path } => done(files::list(&here(&path)).map(|files| Reply::List { files })),
        Request::Read { path, offset } => done(files::part(&here(&path), offset).map(|bytes| {
            *content = bytes;
            Reply::Read { bytes: content.len() as u64 }
        })),
        Request::Write { path, bytes } => {
            done(files::write_program(&here(&path), bytes, from).map(|()| Reply::Done {}))
        }
        Request::Remove { path } => done(files::remove(&here(&path)).map(|()| Reply::Done {})),
        Request::Port { address } => done(free_port(&address)),
        Request::Connect { address } => done(connect(&address)),
        Request::Space {} => done(space(&settings.folder)),
    }
}

/// The reply, or the reason for a failure in one line.
fn done<E: ToString>(result: Result<Reply, E>) -> Reply {
    result.unwrap_or_else(|error| Reply::Error { line: error.to_string() })
}

fn hello(clock_ns: u64) -> io::Result<Reply> {
    let mut hash = Sha256::new();
    let mut file = File::open("/proc/self/exe")?;
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            bytes => hash.update(&buffer[..bytes]),
        }
    }
    Ok(Reply::Hello {
        protocol: PROTOCOL,
        version: env!("CARGO_PKG_VERSION"),
        sha256: hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect(),
        clock_ns,
        unix_ns: unix_now(),
        pid: std::process::id(),
        cores: std::thread::available_parallelism()?.get(),
    })
}

fn free_port(address: &str) -> Result<Reply, String> {
    let ip: IpAddr = address.parse().map_err(|_| format!("{address} is not an IP address"))?;
    let listener = TcpListener::bind((ip, 0)).map_err(|error| error.to_string())?;
    listener.local_addr().map(|found| Reply::Port { port: found.port() }).map_err(|error| error.to_string())
}

fn connect(address: &str) -> Result<Reply, String> {
    let target: SocketAddr = address.parse().map_err(|_| format!("{address} is not IP:PORT"))?;
    let connected = TcpStream::connect_timeout(&target, CONNECT);
    connected.map(|_| Reply::Done {}).map_err(|error| error.to_string())
}

fn space(folder: &Path) -> io::Result<Reply> {
    let found = statvfs(folder)?;
    Ok(Reply::Space { free_bytes: found.f_bavail.saturating_mul(found.f_frsize) })
}
