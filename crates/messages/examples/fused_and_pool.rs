//! Sends per second with both dispatches, side by side and interleaved, and what they cost: processor time, batches
//! (with sends only, each is one statement and one commit) and bytes of the write-ahead log. `cargo run --release -p messages --example fused_and_pool -- target/release/waystage [SECONDS] [ROUNDS]`

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::expect_used,
    reason = "a measurement that cannot go on has failed"
)]

use clock::Clock;
use messages::Embedded;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use testkit::Http;

const CLIENTS: [usize; 3] = [1, 16, 64];
const BODY: [u8; 200] = [b'x'; 200];
const MODES: [&str; 2] = ["fused", "pool"];

/// What one trial gave, all for one message.
#[derive(Clone, Copy, Debug, Default)]
struct Trial {
    sends_per_s: f64,
    service_cpu_us: f64,
    database_cpu_us: f64,
    batches: f64,
    log_bytes: f64,
    median_ms: f64,
}

/// Counters before and after a trial.
struct Counters {
    service_ticks: u64,
    database_ticks: u64,
    batches: f64,
    log_bytes: f64,
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let program = arguments.get(1).expect("the first argument is the program waystage");
    let seconds: f64 = arguments.get(2).map_or(3.0, |text| text.parse().unwrap());
    let rounds: usize = arguments.get(3).map_or(3, |text| text.parse().unwrap());
    let directory = tempfile::tempdir().unwrap();
    let postgres = Embedded::start(directory.path()).unwrap();
    let services = MODES.map(|mode| start(program, &postgres.url(), mode));
    Http::connect(services[0].1).unwrap().request("PUT", "/v1/queues/q", &[], b"").unwrap();
    println!("{seconds} s, {rounds} rounds, {} bytes; machine: {}", BODY.len(), load());
    println!("clients mode    sends/s  median ms  service us  database us  batches  log bytes   (a message)");
    for clients in CLIENTS {
        let mut trials: BTreeMap<&str, Vec<Trial>> = BTreeMap::new();
        for round in 0..rounds {
            for index in 0..MODES.len() {
                let which = (index + round) % MODES.len();
                let (child, address) = &services[which];
                let trial = trial(*address, child.id(), &postgres.url(), clients, seconds);
                trials.entry(MODES[which]).or_default().push(trial);
            }
        }
        for mode in MODES {
            for trial in &trials[mode] {
                println!(
                    "{clients:7} {mode:6} {:8.0} {:10.2} {:11.0} {:12.0} {:8.3} {:10.0}",
                    trial.sends_per_s,
                    trial.median_ms,
                    trial.service_cpu_us,
                    trial.database_cpu_us,
                    trial.batches,
                    trial.log_bytes
                );
            }
        }
        let ratios: Vec<String> = (0..rounds)
            .map(|round| trials["fused"][round].sends_per_s / trials["pool"][round].sends_per_s)
            .map(|ratio| format!("{ratio:.2}"))
            .collect();
        println!("{clients:7} fused/pool, round by round: {}; machine: {}", ratios.join(" "), load());
    }
    for (mut child, _) in services {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

fn start(program: &str, database: &str, mode: &str) -> (Child, SocketAddr) {
    let arguments = ["messages", "--database", database, "--listen", "127.0.0.1:0", "--dispatch", mode];
    let mut child = Command::new(program).args(arguments).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (child, line.split(' ').nth(4).unwrap().parse().unwrap())
}

fn trial(address: SocketAddr, service: u32, database: &str, clients: usize, seconds: f64) -> Trial {
    let before = Counters::read(service, address, database);
    let clock = Clock::monotonic();
    let begin = clock.now();
    let end = begin + Duration::from_secs_f64(seconds);
    let threads: Vec<_> = (0..clients)
        .map(|number| {
            let clock = clock.clone();
            std::thread::spawn(move || {
                let mut http = Http::connect(address).unwrap();
                let sender = format!("waystage-sender: s{number}");
                let mut times_ns = Vec::new();
                let mut now = clock.now();
                while now < end {
                    let reply = http.request("POST", "/v1/queues/q/messages", &[&sender], &BODY).unwrap();
                    assert_eq!(reply.status, 201, "{}", reply.text());
                    let done = clock.now();
                    times_ns.push(done.since(now));
                    now = done;
                }
                times_ns
            })
        })
        .collect();
    let mut times_ns: Vec<u64> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    let elapsed_s = clock.now().since(begin) as f64 / 1e9;
    let after = Counters::read(service, address, database);
    times_ns.sort_unstable();
    let sends = times_ns.len() as f64;
    let us_per_tick = 1e6 / rustix::param::clock_ticks_per_second() as f64;
    Trial {
        sends_per_s: sends / elapsed_s,
        service_cpu_us: (after.service_ticks - before.service_ticks) as f64 * us_per_tick / sends,
        database_cpu_us: (after.database_ticks.saturating_sub(before.database_ticks)) as f64 * us_per_tick / sends,
        batches: (after.batches - before.batches) / sends,
        log_bytes: (after.log_bytes - before.log_bytes) / sends,
        median_ms: times_ns[times_ns.len() / 2] as f64 / 1e6,
    }
}

impl Counters {
    fn read(service: u32, address: SocketAddr, database: &str) -> Counters {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let log_bytes = runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(database, tokio_postgres::NoTls).await.unwrap();
            tokio::spawn(connection);
            let text = "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::float8";
            client.query_one(text, &[]).await.unwrap().get(0)
        });
        let page = Http::connect(address).unwrap().request("GET", "/metrics", &[], b"").unwrap().text();
        let line = page.lines().find_map(|line| line.strip_prefix("waystage_messages_batches_total "));
        let batches = line.unwrap().parse().unwrap();
        let database_ticks = postgres_processes().iter().map(|process| ticks(*process)).sum();
        Counters { service_ticks: ticks(service), database_ticks, batches, log_bytes }
    }
}

/// User and system time of a process, and of those that it has waited for.
fn ticks(process: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    (11..15).filter_map(|index| fields.get(index)?.parse::<u64>().ok()).sum()
}

/// The children's children of this process: PostgreSQL and its processes.
fn postgres_processes() -> Vec<u32> {
    let parent = |process: u32| -> Option<u32> {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse().ok()
    };
    let is_postgres = |process: u32| {
        std::fs::read_to_string(format!("/proc/{process}/comm")).is_ok_and(|name| name.trim() == "postgres")
    };
    let us = std::process::id();
    let all = std::fs::read_dir("/proc").unwrap();
    all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|process| is_postgres(*process))
        .filter(|process| parent(*process).is_some_and(|above| above == us || parent(above) == Some(us)))
        .collect()
}

fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    format!("load average {}", text.split(' ').next().unwrap_or_default())
}
