//! Clients in a closed loop in one thread: each says its request again as soon as it has its answer. One thread is enough, and what it
//! takes of the processor is told.

use crate::connection::Connection;
use crate::talk::{Next, Talk};
use clock::{Clock, process_cpu};
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use std::net::SocketAddr;
use std::time::Duration;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A system that says nothing for so long has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the clients saw.
#[derive(Default)]
struct Seen {
    times_ns: Vec<u64>,
    /// When the last message was done.
    last_ns: u64,
    is_empty: bool,
}

/// `ADDRESS TALK CLIENTS SECONDS`. A client that is told that there is no message ends; so do all after the seconds.
pub(crate) fn run(arguments: &[&str]) -> Result<(), Failure> {
    let [address, talk, clients, seconds] = arguments else {
        return Err("drive needs ADDRESS TALK CLIENTS SECONDS".into());
    };
    let (talk, clients): (Talk, usize) = (Talk::named(talk)?, clients.parse()?);
    let limit = Duration::from_secs_f64(seconds.parse()?);
    let (mut poll, mut connections) = connect(address.parse()?, clients)?;
    let clock = Clock::monotonic();
    let cpu_before = process_cpu();
    let begin = clock.now();
    let mut seen = Seen::default();
    drive(&mut poll, &mut connections, &talk, &clock, (begin + limit).0, &mut seen)?;
    let cpu = process_cpu();
    let cpu_s = cpu.user_s + cpu.system_s - cpu_before.user_s - cpu_before.system_s;
    seen.times_ns.sort_unstable();
    let at = |share: f64| {
        let index = (seen.times_ns.len() as f64 * share) as usize;
        seen.times_ns.get(index.min(seen.times_ns.len().saturating_sub(1))).map_or(0.0, |time_ns| *time_ns as f64 / 1e6)
    };
    let elapsed_s = seen.last_ns.saturating_sub(begin.0) as f64 / 1e9;
    let summary = serde_json::json!({
        "messages": seen.times_ns.len(),
        "elapsed_s": elapsed_s,
        "p50_ms": at(0.5),
        "p99_ms": at(0.99),
        "driver_cpu_s": cpu_s,
        "is_empty": seen.is_empty,
    });
    println!("{summary}");
    Ok(())
}

fn connect(address: SocketAddr, clients: usize) -> Result<(Poll, Vec<Option<Connection>>), Failure> {
    let poll = Poll::new()?;
    let mut connections = Vec::new();
    for number in 0..clients {
        // Blocking, so that all are there before the time runs.
        let stream = std::net::TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let mut stream = TcpStream::from_std(stream);
        poll.registry().register(&mut stream, Token(number), Interest::READABLE | Interest::WRITABLE)?;
        connections.push(Some(Connection::new(stream)));
    }
    Ok((poll, connections))
}

fn drive(
    poll: &mut Poll,
    connections: &mut [Option<Connection>],
    talk: &Talk,
    clock: &Clock,
    end_ns: u64,
    seen: &mut Seen,
) -> Result<(), Failure> {
    let opening = talk.opening();
    for connection in connections.iter_mut().flatten() {
        connection.begin(&opening, clock.now().0)?;
    }
    let mut left = connections.len();
    let mut events = Events::with_capacity(1024);
    while left > 0 {
        poll.poll(&mut events, Some(PATIENCE))?;
        if events.is_empty() {
            return Err("no answer for a minute".into());
        }
        for event in &events {
            let place = &mut connections[event.token().0];
            while let Some(connection) = place {
                let Some(next) = connection.go_on(talk)? else { break };
                let now_ns = clock.now().0;
                if next == Next::Empty {
                    seen.is_empty = true;
                } else {
                    seen.last_ns = now_ns;
                    seen.times_ns.push(now_ns - connection.begun_ns);
                }
                if next == Next::Empty || now_ns >= end_ns {
                    *place = None;
                    left -= 1;
                } else {
                    connection.begin(&opening, now_ns)?;
                }
            }
        }
    }
    Ok(())
}
