//! The whole proxy among clients and backends that follow a seed and behave badly: every request is answered or failed exactly
//! once, in order, with nothing of anybody else, and when all have gone nothing is left of them. `WAYSTAGE_SIMULATION_SEEDS=from..to`
//! says which scenarios are run; the one that fails is named.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod common;
#[path = "common/random.rs"]
mod random;
#[path = "common/simulated_backend.rs"]
mod simulated_backend;
#[path = "common/simulated_client.rs"]
mod simulated_client;
#[path = "common/simulated_requests.rs"]
mod simulated_requests;

use clock::Clock;
use common::{Proxy, disciplines};
use proxy::{Config, Discipline, MultiGet, PartFailure};
use random::Random;
use simulated_backend::{Faults, SimulatedBackend};
use simulated_client::{Leaving, Plan, SimulatedClient, Tally};
use std::net::SocketAddr;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const SEEDS: Range<u64> = 0..60;
/// Most of a scenario is waiting.
const AT_ONCE: usize = 8;
/// What has not come to rest by then never will.
const PATIENCE: Duration = Duration::from_secs(20);

/// Everything that a seed decides.
struct Scenario {
    backends: Vec<Faults>,
    clients: Vec<Plan>,
    discipline: Discipline,
    replicas: usize,
    loops: usize,
    timeout: Duration,
    part_failure: PartFailure,
    client_window: usize,
    client_buffer_bytes: u64,
    backend_window: usize,
    queue: usize,
}

impl Scenario {
    fn from(random: &mut Random) -> Scenario {
        let servers = 1 + random.below(3);
        let replicas = 1 + random.below(servers);
        let loops = 1 + random.below(2);
        let slots = loops + random.below(4);
        let discipline = random.choose(&disciplines(slots, replicas == servers));
        let reads_copies =
            matches!(discipline, Discipline::Shared { multi_get, .. } if multi_get != MultiGet::ByKey && replicas > 1);
        let timeout = Duration::from_millis(30 + random.next() % 40);
        let backends = (0..servers).map(|_| Faults {
            one_in: random.choose(&[0, 300, 60, 20]),
            connection_one_in: random.choose(&[0, 0, 8, 3]),
            stall: timeout.mul_f64(random.choose(&[1.2, 2.0])),
        });
        let backends = backends.collect();
        let client = |number| Plan {
            number,
            requests: 20 + random.below(150),
            burst: random.choose(&[1, 5, 40]),
            leaving: random.choose(&[Leaving::Quit, Leaving::HalfClosed, Leaving::Closed, Leaving::Vanished]),
            reads_copies,
        };
        let clients = (0..2 + servers).map(client).collect();
        Scenario {
            backends,
            clients,
            discipline,
            replicas,
            loops,
            timeout,
            part_failure: random.choose(&[PartFailure::Miss, PartFailure::Partial, PartFailure::Error]),
            client_window: random.choose(&[1024, 1024, 5, 1]),
            client_buffer_bytes: random.choose(&[1 << 20, 1 << 20, 3000]),
            backend_window: random.choose(&[65536, 65536, 65536, 6]),
            queue: random.choose(&[65536, 65536, 65536, 3]),
        }
    }

    fn configure(&self, config: &mut Config) {
        (config.discipline, config.pools[0].replicas, config.loops) = (self.discipline, self.replicas, self.loops);
        (config.pools[0].timeouts, config.part_failure) = (proxy::Timeouts::all(self.timeout), self.part_failure);
        (config.client_window, config.client_buffer_bytes) = (self.client_window, self.client_buffer_bytes);
        (config.backend_window, config.queue) = (self.backend_window, self.queue);
        config.metrics = Some("127.0.0.1:0".into());
    }

    /// Plays it; returns what became of all requests.
    fn play(&self, seed: u64) -> Result<Tally, String> {
        let started = self
            .backends
            .iter()
            .zip(1..)
            .map(|(faults, number)| SimulatedBackend::start(seed ^ (number << 32), *faults));
        let backends: Vec<SimulatedBackend> = started.collect();
        let addresses: Vec<SocketAddr> = backends.iter().map(|backend| backend.address).collect();
        let proxy = Proxy::at(&addresses, |config| self.configure(config));
        let tallies: Vec<Result<Tally, String>> = std::thread::scope(|scope| {
            let address = proxy.address;
            let run = |plan: &Plan| {
                let (plan, seed) = (*plan, seed ^ ((1 + plan.number as u64) << 40));
                scope.spawn(move || SimulatedClient::new(address, plan, seed).run())
            };
            let clients: Vec<_> = self.clients.iter().map(run).collect();
            clients.into_iter().map(|client| client.join().unwrap()).collect()
        });
        let mut all = Tally::default();
        for tally in tallies {
            let tally = tally?;
            all.sent += tally.sent;
            all.answered += tally.answered;
            all.failed += tally.failed;
            all.vanished += tally.vanished;
        }
        wait_for_rest(&proxy)?;
        let totals = proxy.stop();
        // Of a client that vanished, not everything need have been read.
        let counted = all.sent - all.vanished..=all.sent;
        if totals.lost != 0 || !counted.contains(&totals.requests) {
            return Err(format!("{totals:?} of {all:?}"));
        }
        Ok(all)
    }
}

/// Waits until no client, request or place in a queue is left.
fn wait_for_rest(proxy: &Proxy) -> Result<(), String> {
    const EMPTY: [&str; 4] =
        ["waystage_clients ", "waystage_backend_in_flight", "waystage_queue_length", "waystage_slots_busy"];
    let clock = Clock::monotonic();
    let until = clock.now() + PATIENCE;
    loop {
        let metrics = proxy.metrics();
        let mut gauges = metrics.lines().filter(|line| EMPTY.iter().any(|name| line.starts_with(name)));
        let Some(left) = gauges.find(|line| !line.ends_with(" 0")) else { return Ok(()) };
        if clock.now() > until {
            return Err(format!("{left} although all clients have gone"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Plays the scenario of a seed; a panic of the proxy is its failure, too.
fn play(seed: u64) -> Result<Tally, String> {
    let scenario = Scenario::from(&mut Random(seed));
    catch_unwind(AssertUnwindSafe(|| scenario.play(seed))).unwrap_or_else(|_| Err("panicked".into())).map_err(|what| {
        let Scenario { discipline, replicas, loops, .. } = scenario;
        format!(
            "seed {seed} ({discipline:?}, {} servers, {replicas} copies, {loops} loops): {what}",
            scenario.backends.len()
        )
    })
}

fn seeds() -> Range<u64> {
    let Ok(text) = std::env::var("WAYSTAGE_SIMULATION_SEEDS") else { return SEEDS };
    let range = text.split_once("..").and_then(|(from, to)| Some(from.parse().ok()?..to.parse().ok()?));
    range.unwrap_or_else(|| panic!("WAYSTAGE_SIMULATION_SEEDS: {text:?} is not like 0..100"))
}

#[test]
fn every_request_is_answered_or_failed_exactly_once_whatever_others_do() {
    let (next, seeds) = (AtomicU64::new(seeds().start), seeds());
    let (total, failures) = (Mutex::new(Tally::default()), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::SeqCst);
                    if seed >= seeds.end || failures.lock().unwrap().len() > 5 {
                        return;
                    }
                    match play(seed) {
                        Ok(tally) => {
                            let mut total = total.lock().unwrap();
                            total.answered += tally.answered;
                            total.failed += tally.failed;
                            total.vanished += tally.vanished;
                        }
                        Err(what) => failures.lock().unwrap().push(what),
                    }
                }
            });
        }
    });
    let (total, failures) = (total.into_inner().unwrap(), failures.into_inner().unwrap());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    eprintln!("seeds {seeds:?}: {total:?}");
    // A simulation in which everything goes well, or nothing, would show little.
    assert!(seeds.end - seeds.start < 50 || (total.failed > 0 && total.answered > total.failed), "{total:?}");
}
