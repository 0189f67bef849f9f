//! The scenario of a seed: pools and their policies, faults, clients, whether the proxy reloads its configuration,
//! and which guarantees follow for clients.

use super::common::disciplines;
use super::random::Random;
use super::simulated_backend::{Faults, SimulatedBackend};
use super::simulated_client::{Disconnect, Plan};
use super::simulated_promise::{Board, Promise};
use super::simulated_requests::{own_keys, shared_keys, value};
use super::simulated_store::Store;
use proxy::{
    Config, Discipline, Failover, FailoverPool, Hedge, MultiGet, PartFailure, PoolConfig, Reads, Shadow, Timeouts,
    WarmUp, Writes,
};
use std::sync::Arc;
use std::time::Duration;

/// The longest time to live in another pool. No scenario takes longer.
const EXPIRY_S: u64 = 100;

/// Everything that a seed decides.
#[derive(Debug)]
pub(crate) struct Scenario {
    pub(crate) pools: Vec<PoolPlan>,
    pub(crate) clients: Vec<Plan>,
    pub(crate) setting: Setting,
    /// The configuration that is loaded in the middle, and when.
    pub(crate) reload: Option<(Duration, Setting)>,
    shadow: Option<Shadow>,
    timeout: Duration,
    part_failure: PartFailure,
}

/// The role of a pool for the first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Main,
    Failover,
    Source,
    Shadow,
}

/// One pool.
#[derive(Debug)]
pub(crate) struct PoolPlan {
    pub(crate) part: Part,
    pub(crate) replicas: usize,
    backends: Vec<Faults>,
}

/// The settings that a reload may change.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    discipline: Discipline,
    writes: Writes,
    reads: Reads,
    failover: Failover,
    hedge: Option<Hedge>,
    loops: usize,
    client_window: usize,
    client_buffer_bytes: u64,
    backend_window: usize,
    queue: usize,
}

impl Scenario {
    pub(crate) fn from(random: &mut Random) -> Scenario {
        let servers = 1 + random.below(3);
        let replicas = 1 + random.below(servers);
        let timeout = Duration::from_millis(30 + random.next() % 40);
        let has_all = replicas == servers;
        let mut pools = vec![PoolPlan::new(Part::Main, servers, replicas, timeout, random)];
        for (part, one_in) in [(Part::Failover, 4), (Part::Source, 4), (Part::Shadow, 5)] {
            if random.one_in(one_in) {
                let servers = 1 + random.below(2);
                // A multi-get that reads any server needs every value on each.
                let replicas = if has_all { servers } else { 1 + random.below(servers) };
                pools.push(PoolPlan::new(part, servers, replicas, timeout, random));
            }
        }
        let client = |number| Plan {
            number,
            requests: 20 + random.below(150),
            burst: random.choose(&[1, 5, 40]),
            disconnect: random.choose(&[
                Disconnect::Quit,
                Disconnect::HalfClosed,
                Disconnect::Closed,
                Disconnect::Vanished,
            ]),
        };
        let clients = (0..2 + servers).map(client).collect();
        let setting = Setting::from(replicas, has_all, timeout, random);
        let has_reload = random.one_in(3);
        let moment = Duration::from_millis(random.next() % 300);
        let reload = has_reload.then(|| (moment, Setting::from(replicas, has_all, timeout, random)));
        let shares = random.choose(&[0.5, 1.0]);
        let shadow = pools.iter().any(|pool| pool.part == Part::Shadow);
        Scenario {
            pools,
            clients,
            setting,
            reload,
            shadow: shadow.then(|| Shadow { to: Part::Shadow.name(), share: shares, reads: random.one_in(2) }),
            timeout,
            part_failure: random.choose(&[PartFailure::Miss, PartFailure::Partial, PartFailure::Error]),
        }
    }

    /// Starts the backends, pool by pool.
    pub(crate) fn start(&self, seed: u64) -> Vec<Vec<SimulatedBackend>> {
        let started = self.pools.iter().zip(1..).map(|(pool, place)| {
            let numbered = pool.backends.iter().zip(1..);
            let start = |(faults, number): (&Faults, u64)| {
                SimulatedBackend::start(seed ^ (number << 32) ^ (place << 48), *faults, self.store(pool.part))
            };
            numbered.map(start).collect()
        });
        started.collect()
    }

    fn store(&self, part: Part) -> Store {
        match part {
            Part::Main => Store::default(),
            Part::Failover => Store::failover(EXPIRY_S as i64),
            Part::Source => {
                let own =
                    self.clients.iter().flat_map(|plan| own_keys(plan.number).zip(std::iter::repeat(plan.number)));
                let keys = own.chain(shared_keys().zip(std::iter::repeat(0)));
                Store::with_values(keys.map(|(key, client)| (key.clone(), value(&key, client, 0))))
            }
            Part::Shadow if self.shadow.as_ref().is_some_and(|shadow| !shadow.reads) => Store::never_read(),
            Part::Shadow => Store::default(),
        }
    }

    /// The configuration of a proxy in front of these backends.
    pub(crate) fn config(&self, setting: &Setting, backends: &[Vec<SimulatedBackend>]) -> Config {
        let mut config = Config::new("127.0.0.1:0", &[]);
        let pool = |(plan, backends): (&PoolPlan, &Vec<SimulatedBackend>)| {
            let addresses: Vec<String> = backends.iter().map(|backend| backend.address.to_string()).collect();
            let mut pool = PoolConfig::new(&plan.part.name(), &addresses);
            (pool.replicas, pool.timeouts) = (plan.replicas, Timeouts::all(self.timeout));
            pool
        };
        config.pools = self.pools.iter().zip(backends).map(pool).collect();
        let has = |part| self.pools.iter().any(|pool| pool.part == part);
        let expiry = Duration::from_secs(EXPIRY_S);
        let main = &mut config.pools[0];
        (main.writes, main.reads, main.failover) = (setting.writes, setting.reads, setting.failover);
        (main.hedge, main.shadow) = (setting.hedge, self.shadow.clone());
        main.failover_pool = has(Part::Failover).then(|| FailoverPool { pool: Part::Failover.name(), expiry });
        main.warm_up = has(Part::Source).then(|| WarmUp { from: Part::Source.name(), expiry });
        (config.discipline, config.loops) = (setting.discipline, setting.loops);
        (config.client_window, config.client_buffer_bytes) = (setting.client_window, setting.client_buffer_bytes);
        (config.backend_window, config.queue) = (setting.backend_window, setting.queue);
        (config.part_failure, config.metrics) = (self.part_failure, Some("127.0.0.1:0".into()));
        config
    }

    /// The guarantees for clients.
    pub(crate) fn promise(&self, backends: &[Vec<SimulatedBackend>]) -> Promise {
        let settings = || [Some(&self.setting), self.reload.as_ref().map(|(_, then)| then)].into_iter().flatten();
        let has = |part| self.pools.iter().any(|pool| pool.part == part);
        let has_replicas = self.pools[0].replicas > 1;
        let is_late = has_replicas && settings().any(|setting| setting.writes != Writes::All);
        let loses = self.pools.iter().flat_map(|pool| &pool.backends).any(|faults| faults.forgets);
        let failover_pools = self.pools.iter().zip(backends).filter(|(pool, _)| pool.part == Part::Failover);
        Promise {
            mends: has_replicas || has(Part::Failover) || has(Part::Source),
            // A read that was sent in the turn in which the time ended gets a little more.
            late: is_late.then_some(self.timeout * 2),
            // A value that may have been stored late is deleted.
            forgets: is_late || loses || has(Part::Failover) || has(Part::Source),
            fills_late: settings().any(|setting| matches!(setting.discipline, Discipline::Shared { .. })),
            reads_replicas: has_replicas && settings().any(Setting::reads_replicas),
            has_source: has(Part::Source),
            parts_may_miss: self.part_failure == PartFailure::Miss,
            failover_values: failover_pools
                .flat_map(|(_, backends)| backends)
                .map(SimulatedBackend::stored_values)
                .collect(),
            board: Arc::new(Board::default()),
        }
    }
}

impl PoolPlan {
    fn new(part: Part, servers: usize, replicas: usize, timeout: Duration, random: &mut Random) -> PoolPlan {
        let outages = random.one_in(3);
        let forgets = random.one_in(2);
        let faults = |_| {
            let outage_one_in = if outages { random.choose(&[0, 100, 300]) } else { 0 };
            Faults {
                one_in: random.choose(&[0, 300, 60, 20]),
                connection_one_in: random.choose(&[0, 0, 8, 3]),
                outage_one_in,
                outage: timeout * 8,
                forgets: forgets && outage_one_in > 0,
                stall: timeout.mul_f64(random.choose(&[0.5, 1.2, 2.0])),
            }
        };
        PoolPlan { part, replicas, backends: (0..servers).map(faults).collect() }
    }
}

impl Part {
    fn name(self) -> String {
        format!("{self:?}")
    }
}

impl Setting {
    fn from(replicas: usize, has_all: bool, timeout: Duration, random: &mut Random) -> Setting {
        let loops = 1 + random.below(2);
        let slots = loops + random.below(4);
        let discipline = random.choose(&disciplines(slots, has_all));
        let is_shared = matches!(discipline, Discipline::Shared { .. });
        let mut setting = Setting {
            discipline,
            writes: random.choose(&[Writes::All, Writes::Majority, Writes::First]),
            reads: random.choose(&[Reads::Primary, Reads::Any, Reads::LeastOutstanding]),
            failover: random.choose(&[Failover::Never, Failover::OnError, Failover::OnMiss]),
            hedge: random.one_in(3).then(|| Hedge {
                delay: timeout.mul_f64(random.choose(&[0.05, 0.3, 0.9])),
                budget: random.choose(&[0.1, 1.0]),
            }),
            loops,
            client_window: random.choose(&[1024, 1024, 5, 1]),
            client_buffer_bytes: random.choose(&[1 << 20, 1 << 20, 3000]),
            backend_window: random.choose(&[65536, 65536, 65536, 6]),
            queue: random.choose(&[65536, 65536, 65536, 3]),
        };
        // Combinations that the configuration refuses.
        if replicas == 1 {
            (setting.reads, setting.failover, setting.hedge) = (Reads::Primary, Failover::Never, None);
        }
        if is_shared {
            (setting.writes, setting.hedge) = (Writes::All, None);
        }
        setting
    }

    /// Whether another replica than the primary may answer a read.
    fn reads_replicas(&self) -> bool {
        let reads_any = matches!(self.discipline, Discipline::Shared { multi_get, .. } if multi_get != MultiGet::ByKey);
        reads_any || self.reads != Reads::Primary || self.failover != Failover::Never || self.hedge.is_some()
    }
}
