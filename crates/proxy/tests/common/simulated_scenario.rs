//! The scenario of a seed: pools and their faults, clients, whether the proxy reloads its configuration, and which guarantees
//! follow for clients. `simulated_settings` draws the configurations.

use super::random::Random;
use super::simulated_backend::{Faults, SimulatedBackend};
use super::simulated_client::{Disconnect, Plan};
use super::simulated_opening::Opening;
use super::simulated_promise::{Board, Promise, Promises};
use super::simulated_requests::{Ask, own_keys, shared_keys, value};
use super::simulated_settings::{Setting, draw_distribution};
use super::simulated_store::Store;
use proxy::{CommandGroup, Distribution, Hash, ServerConfig, Writes};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// The longest time to live in another pool. No scenario takes longer.
pub(crate) const EXPIRY_S: u64 = 100;

/// Everything that a seed decides.
#[derive(Debug)]
pub(crate) struct Scenario {
    pub(crate) shape: Shape,
    pub(crate) pools: Vec<PoolPlan>,
    pub(crate) clients: Vec<Plan>,
    pub(crate) setting: Setting,
    /// The configuration that is loaded in the middle, and when.
    pub(crate) reload: Option<(Duration, Setting)>,
}

/// What all configurations of a scenario have in common.
#[derive(Debug)]
pub(crate) struct Shape {
    pub(crate) timeout: Duration,
    /// Every pool stores every value on every backend, so that a multi-get can be sent to any of them.
    pub(crate) has_all: bool,
    /// Servers have names, so that their addresses can be written in another way.
    pub(crate) has_names: bool,
    /// Clients store large values.
    pub(crate) has_large: bool,
    pub(crate) value_max: u64,
    pub(crate) may_flush: bool,
    /// The listener does not allow these commands.
    pub(crate) denied: Option<CommandGroup>,
    /// After this time the proxy closes clients on which nothing happens. Then two clients hang.
    pub(crate) client_timeout: Option<Duration>,
    pub(crate) opening: Opening,
    pub(crate) shadow_share: f64,
    pub(crate) shadow_reads: bool,
    /// Prefixes and their pools.
    pub(crate) routes: Vec<(&'static str, Part)>,
    /// What servers receive in the place of a route's prefix, if not the prefix itself. No two keys of a pool become the same.
    pub(crate) replacement: Option<&'static str>,
}

/// The role of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Main,
    /// A second pool to which routes lead.
    Routed,
    Failover,
    Source,
    Shadow,
    /// The read pool of the main pool, from which it fetches what it misses.
    Near,
}

/// One pool.
#[derive(Debug)]
pub(crate) struct PoolPlan {
    pub(crate) part: Part,
    pub(crate) replicas: usize,
    pub(crate) backends: Vec<Faults>,
    pub(crate) servers: Vec<ServerConfig>,
    pub(crate) distribution: Distribution,
    pub(crate) hash: Option<Hash>,
    pub(crate) hash_tag: Option<[u8; 2]>,
    /// Its servers are the first ones of the main pool, as when a pool grows.
    pub(crate) shares_servers: bool,
}

/// The largest value that a proxy of the simulation accepts, if it does not have the default.
const VALUE_MAX: u64 = 450_000;
/// So long that a client is not closed because the machine is busy, apart from rare cases that the client notices.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(4);
const USUAL_VALUE_MAX: u64 = 8 << 20;

impl Shape {
    fn from(random: &mut Random) -> Shape {
        let routes = random.choose(&[
            &[][..],
            &[],
            &[("all", Part::Routed)],
            &[("c0", Part::Routed)],
            &[("c", Part::Routed), ("c1", Part::Main)],
        ]);
        // Its own numbers, so that it changes nothing else of a scenario.
        let denied = Random(!random.0).choose(&[
            None,
            None,
            None,
            Some(CommandGroup::Touch),
            Some(CommandGroup::Delete),
            Some(CommandGroup::Flush),
            Some(CommandGroup::Stats),
        ]);
        // As above.
        let replacement = Random(random.0.rotate_left(29)).choose(&[None, None, Some(""), Some("a:"), Some("longer:")]);
        Shape {
            denied,
            replacement,
            timeout: Duration::from_millis(30 + random.next() % 40),
            has_all: random.one_in(3),
            has_names: random.one_in(2),
            has_large: random.one_in(5),
            value_max: random.choose(&[USUAL_VALUE_MAX, USUAL_VALUE_MAX, USUAL_VALUE_MAX, VALUE_MAX]),
            may_flush: random.one_in(6),
            client_timeout: (random.one_in(5)).then_some(CLIENT_TIMEOUT),
            // Its own numbers, so that it changes nothing else of a scenario.
            opening: Opening::from(&mut Random(random.0.rotate_left(17))),
            shadow_share: random.choose(&[0.5, 1.0]),
            shadow_reads: random.one_in(2),
            routes: routes.to_vec(),
        }
    }

    /// The key that servers receive for a key of a client.
    pub(crate) fn sent(&self, key: &str) -> String {
        let routes = self.routes.iter().filter(|(prefix, _)| key.starts_with(prefix));
        match (routes.max_by_key(|(prefix, _)| prefix.len()), self.replacement) {
            (Some((prefix, _)), Some(replacement)) => replacement.to_owned() + &key[prefix.len()..],
            _ => key.into(),
        }
    }

    /// Whether the listener refuses this request.
    pub(crate) fn denies(&self, ask: &Ask) -> bool {
        self.denied.is_some() && ask.group() == self.denied
    }
}

impl Scenario {
    pub(crate) fn from(random: &mut Random) -> Scenario {
        let shape = Shape::from(random);
        let mut parts = vec![Part::Main];
        parts.extend((!shape.routes.is_empty()).then_some(Part::Routed));
        for (part, one_in) in [(Part::Failover, 3), (Part::Source, 4), (Part::Shadow, 5), (Part::Near, 5)] {
            parts.extend(random.one_in(one_in).then_some(part));
        }
        let mut pools: Vec<PoolPlan> = parts.into_iter().map(|part| PoolPlan::new(part, &shape, random)).collect();
        if random.one_in(2) {
            share_servers(&mut pools, &shape, random);
        }
        let client = |number| Plan::from(number, &shape, random);
        let clients = (0..2 + pools[0].backends.len()).map(client).collect();
        let mut setting = Setting::from(&shape, &pools, false, random);
        let has_reload = random.one_in(3);
        // The reload ends it, so that every value can be read at the end.
        if has_reload && random.one_in(3) {
            setting.drain_some(random);
        }
        let moment = Duration::from_millis(random.next() % 300);
        let reload = has_reload.then(|| (moment, Setting::from(&shape, &pools, true, random)));
        Scenario { shape, pools, clients, setting, reload }
    }

    /// Starts the backends, pool by pool.
    pub(crate) fn start(&self, seed: u64) -> Vec<Vec<SimulatedBackend>> {
        let started = self.pools.iter().zip(1..).map(|(pool, place)| {
            let numbered = pool.backends.iter().zip(1..);
            let start = |(faults, number): (&Faults, u64)| {
                let own = (number << 32) ^ (place << 48);
                let is_source = pool.part == Part::Main && number <= self.shared_servers() as u64;
                let store = self.store(if is_source { Part::Source } else { pool.part });
                // Two servers never issue the same cas token.
                SimulatedBackend::start(seed ^ own, *faults, store.with_tokens_from(own))
            };
            if pool.shares_servers { Vec::new() } else { numbered.map(start).collect() }
        });
        started.collect()
    }

    /// The addresses of backends, pool by pool.
    pub(crate) fn addresses(&self, backends: &[Vec<SimulatedBackend>]) -> Vec<Vec<SocketAddr>> {
        let of_pool = |pool: &Vec<SimulatedBackend>| pool.iter().map(|backend| backend.address).collect();
        let mut addresses: Vec<Vec<SocketAddr>> = backends.iter().map(of_pool).collect();
        let shared = addresses[0][..self.shared_servers()].to_vec();
        let sharing = addresses.iter_mut().zip(&self.pools).filter(|(_, pool)| pool.shares_servers);
        sharing.for_each(|(own, _)| own.clone_from(&shared));
        addresses
    }

    /// The number of servers of the main pool that the warm-up pool uses, too.
    fn shared_servers(&self) -> usize {
        self.pools.iter().find(|pool| pool.shares_servers).map_or(0, |pool| pool.backends.len())
    }

    fn store(&self, part: Part) -> Store {
        match part {
            Part::Main | Part::Routed | Part::Near => Store::default(),
            Part::Failover => Store::failover(EXPIRY_S as i64),
            Part::Source => {
                let own =
                    self.clients.iter().flat_map(|plan| own_keys(plan.number).zip(std::iter::repeat(plan.number)));
                let keys = own.chain(shared_keys().zip(std::iter::repeat(0)));
                Store::with_values(keys.map(|(key, client)| (self.shape.sent(&key), value(&key, client, 0))))
            }
            Part::Shadow if !self.shape.shadow_reads => Store::never_read(),
            Part::Shadow => Store::default(),
        }
    }

    /// The configurations, in their order.
    pub(crate) fn settings(&self) -> impl Iterator<Item = &Setting> {
        std::iter::once(&self.setting).chain(self.reload.as_ref().map(|(_, then)| then))
    }

    /// The guarantees for clients.
    pub(crate) fn promises(&self) -> Promises {
        let place_of = |part| self.pools.iter().position(|pool| pool.part == part);
        Promises {
            pools: (0..self.pools.len()).map(|place| self.promise(place)).collect(),
            routes: self.shape.routes.iter().filter_map(|&(prefix, part)| Some((prefix, place_of(part)?))).collect(),
            parts_may_miss: self.settings().any(Setting::parts_may_miss),
            parts_always_miss: self.settings().all(Setting::parts_may_miss),
            denied: self.shape.denied,
            board: Arc::new(Board::default()),
        }
    }

    fn promise(&self, place: usize) -> Promise {
        let plan = &self.pools[place];
        let has_replicas = plan.replicas > 1;
        let has = |part| self.pools.iter().any(|pool| pool.part == part);
        let has_source = plan.part == Part::Main && has(Part::Source);
        let is_read_elsewhere = plan.part == Part::Main && has(Part::Near);
        let is_late = has_replicas && self.settings().any(|setting| setting.pool(place).writes != Some(Writes::All));
        let write_timeouts = self.settings().filter_map(|setting| Some(setting.pool(place).timeouts?.write));
        let loses = self.pools.iter().flat_map(|pool| &pool.backends).any(|faults| faults.forgets);
        Promise {
            mends: has_replicas || has(Part::Failover) || has_source,
            // A read that was sent in the turn in which the time ended gets a little more.
            late: is_late.then(|| write_timeouts.max().unwrap_or_default() + self.shape.timeout),
            // A value that may have been stored late is deleted. So is everything on a backend that a reload does not recognize,
            // and everything that any client flushes.
            forgets: is_late
                || loses
                || has(Part::Failover)
                || has_source
                // The read pool has a miss while the pool cannot be read.
                || is_read_elsewhere
                || self.shape.may_flush
                || self.settings().any(|setting| setting.has_new_names() || setting.has_new_addresses()),
            fills_late: self.settings().any(Setting::is_shared)
                || self.shape.may_flush
                // A fill of the read pool does not wait for the same writer as a delete.
                || is_read_elsewhere && self.settings().any(Setting::polls_writes),
            reads_replicas: has_replicas && self.settings().any(|setting| setting.reads_replicas(place)),
            has_source,
            is_read_elsewhere,
        }
    }
}

impl PoolPlan {
    fn new(part: Part, shape: &Shape, random: &mut Random) -> PoolPlan {
        let servers = 1 + random.below(if part.has_keys() { 3 } else { 2 });
        let replicas = if shape.has_all { servers } else { 1 + random.below(servers) };
        let timeout = shape.timeout;
        let outages = random.one_in(3);
        let forgets = random.one_in(2);
        let mut faults = || {
            let outage_one_in = if outages { random.choose(&[0, 100, 300]) } else { 0 };
            Faults {
                one_in: random.choose(&[0, 300, 60, 20]),
                connection_one_in: random.choose(&[0, 0, 8, 3]),
                outage_one_in,
                outage: timeout * 8,
                forgets: forgets && outage_one_in > 0,
                stall: timeout.mul_f64(random.choose(&[0.5, 1.2, 2.0])),
                requires_login: shape.opening.has_login,
            }
        };
        let backends = (0..servers).map(|_| faults()).collect();
        let (distribution, hash, hash_tag) = (Distribution::Ketama, None, None);
        let servers = Vec::new();
        let mut plan =
            PoolPlan { part, replicas, backends, servers, distribution, hash, hash_tag, shares_servers: false };
        draw_distribution(&mut plan, shape.has_names, random);
        plan
    }
}

impl Plan {
    fn from(number: usize, shape: &Shape, random: &mut Random) -> Plan {
        Plan {
            number,
            requests: 20 + random.below(150),
            burst: random.choose(&[1, 5, 40]),
            disconnect: match random.choose(&[
                Disconnect::Quit,
                Disconnect::HalfClosed,
                Disconnect::Closed,
                Disconnect::Vanished,
            ]) {
                _ if shape.client_timeout.is_some() && number == 0 => Disconnect::Idle,
                _ if shape.client_timeout.is_some() && number == 1 => Disconnect::Unfinished,
                other => other,
            },
            client_timeout: shape.client_timeout,
            // A client that does not read for this time, again and again.
            pause: random.one_in(4).then(|| shape.timeout.mul_f64(random.choose(&[0.5, 3.0]))),
            has_large: shape.has_large,
            may_flush: shape.may_flush,
            opening: shape.opening,
            refused_bytes: (shape.value_max == VALUE_MAX).then_some(VALUE_MAX as usize + 1),
        }
    }
}

impl Part {
    /// Whether keys of clients belong to it, rather than to another pool that refers to it.
    pub(crate) fn has_keys(self) -> bool {
        matches!(self, Part::Main | Part::Routed)
    }
}

/// Lets the warm-up pool, if there is one, use servers of the main pool.
fn share_servers(pools: &mut [PoolPlan], shape: &Shape, random: &mut Random) {
    let servers = 1 + random.below(pools[0].backends.len());
    let backends = pools[0].backends[..servers].to_vec();
    let Some(source) = pools.iter_mut().find(|pool| pool.part == Part::Source) else { return };
    let replicas = if shape.has_all { servers } else { source.replicas.min(servers) };
    (source.backends, source.replicas, source.shares_servers) = (backends, replicas, true);
    draw_distribution(source, shape.has_names, random);
}
