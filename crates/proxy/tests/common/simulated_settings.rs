//! The configurations of the simulation, drawn as an operator would write them: as the keys of a file. What a seed draws is
//! compared with the table of docs/testing.md, so that a key cannot be forgotten.

use super::random::Random;
use super::simulated_opening::Opening;
use super::simulated_scenario::{EXPIRY_S, Part, PoolPlan, Shape};
use proxy::{
    CommandGroup, Config, DispatchConfig, Distribution, Failover, FailoverPool, Hash, Hedge, ListenerConfig, LogFormat,
    LogLevel, LoggedKeys, Lookup, MultiGet, NearCache, PartFailure, PoolFile, ProxyFile, RateLimit, Reads, RouteConfig,
    ServerConfig, Shadow, Stamps, Timeouts, WarmUp, Writes,
};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

/// One configuration, apart from the ports of the backends and the directory of records.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) file: ProxyFile,
    /// The spelling of the addresses of the backends, and of those of the warm-up pool.
    host: &'static str,
    source_host: &'static str,
}

const NEW: &str = "-new";
const USUAL_HOST: &str = "127.0.0.1";

impl Setting {
    /// A configuration of the pools of a scenario. The second one of a scenario may give them other names and spellings.
    pub(crate) fn from(shape: &Shape, pools: &[PoolPlan], is_second: bool, random: &mut Random) -> Setting {
        let is_shared = random.one_in(3);
        let suffix = if is_second && random.one_in(2) { NEW } else { "" };
        let host = if is_second && shape.has_names && random.one_in(2) { "localhost" } else { USUAL_HOST };
        // The proxy recognises servers of both pools even if they are written differently.
        let source_host = if shape.has_names && random.one_in(2) { "localhost" } else { host };
        let loops = 1 + random.below(2);
        let mut file = limits(shape, random);
        file.listen = Some(vec![listener(shape.denied, is_second)]);
        file.metrics = Some("127.0.0.1:0".into());
        file.loops = Some(loops);
        dispatch(&mut file, is_shared, loops, shape.has_all, random);
        // Its own numbers, so that the log changes nothing else of a scenario.
        log(&mut file, &mut Random(!random.0));
        shape.opening.configure(&mut file, &mut Random(!random.0));
        let name = |part: Part| format!("{part:?}{suffix}");
        file.pools = pools.iter().map(|plan| pool(plan, pools, is_shared, shape, (&name, host), random)).collect();
        let replacement = shape.replacement.map(String::from);
        near_caches(&mut file, pools, &mut Random(random.0.rotate_left(41)));
        let route = |(prefix, part): &(&str, Part)| RouteConfig {
            strip_prefix: shape.replacement == Some(""),
            replace_prefix: replacement.clone().filter(|replacement| !replacement.is_empty()),
            ..RouteConfig::new(prefix, &name(*part))
        };
        file.routes = shape.routes.iter().map(route).collect();
        Setting { file, host, source_host }
    }

    /// Lets some servers receive no requests.
    pub(crate) fn drain_some(&mut self, random: &mut Random) {
        let servers = self.file.pools.iter_mut().flat_map(|pool| pool.servers.iter_mut().flatten());
        servers.for_each(|server| server.is_drained = random.one_in(3));
    }

    /// The configuration of a proxy in front of these backends, pool by pool.
    pub(crate) fn config(&self, backends: &[Vec<SocketAddr>], records: &Path) -> Config {
        let mut file = self.file.clone();
        for (pool, backends) in file.pools.iter_mut().zip(backends) {
            let is_source = pool.name.as_ref().is_some_and(|name| name.starts_with(&format!("{:?}", Part::Source)));
            let host = if is_source { self.source_host } else { self.host };
            for (server, backend) in pool.servers.iter_mut().flatten().zip(backends) {
                server.address = format!("{host}:{}", backend.port());
            }
        }
        file.records = file.records.map(|_| records.into());
        Opening::write_files(&mut file, records);
        let mut config = file.config().expect("the drawn keys belong together");
        config.transport.lookup = Lookup::new(|host_port| Ok(vec![(Ipv4Addr::LOCALHOST, host_port.port()).into()]));
        config
    }

    /// Whether the pools have other names than in the first configuration.
    pub(crate) fn has_new_names(&self) -> bool {
        self.file.pools.iter().any(|pool| pool.name.as_ref().is_some_and(|name| name.ends_with(NEW)))
    }

    /// Whether the backends have other addresses than in the first configuration, which lead to the same servers.
    pub(crate) fn has_new_addresses(&self) -> bool {
        self.host != USUAL_HOST
    }

    /// The policy of one pool.
    pub(crate) fn pool(&self, place: usize) -> &PoolFile {
        &self.file.pools[place]
    }

    pub(crate) fn parts_may_miss(&self) -> bool {
        self.file.part_failure == Some(PartFailure::Miss)
    }

    /// Whether requests of one client can use different connections to one backend, and so overtake each other there.
    pub(crate) fn is_shared(&self) -> bool {
        self.file.dispatch == Some(DispatchConfig::Shared)
    }

    /// Whether writes wait for a writer, that of their first replica: a write to another pool can overtake them there.
    pub(crate) fn polls_writes(&self) -> bool {
        self.file.fault_write_poll.is_some()
    }

    /// Whether another replica than the primary may answer a read.
    pub(crate) fn reads_replicas(&self, place: usize) -> bool {
        let pool = self.pool(place);
        self.file.multi_get.is_some_and(|multi_get| multi_get != MultiGet::ByKey)
            || pool.reads != Some(Reads::Primary)
            || pool.failover != Some(Failover::Never)
            || pool.hedge.is_some()
    }
}

/// Limits, and what the proxy observes.
fn limits(shape: &Shape, random: &mut Random) -> ProxyFile {
    let stamps = random.choose(&[Stamps::All, Stamps::All, Stamps::Off, Stamps::Sampled]);
    let has_records = stamps == Stamps::Sampled || (stamps == Stamps::All && random.one_in(4));
    let hot_keys = random.choose(&[32, 32, 4, 0]);
    let client_buffer = random.choose(&[1 << 20, 1 << 20, 3000]);
    ProxyFile {
        part_failure: Some(random.choose(&[PartFailure::Miss, PartFailure::Partial, PartFailure::Error])),
        stamps: Some(stamps),
        records: has_records.then(|| "records".into()),
        sample: has_records.then(|| random.choose(&[1, 10])),
        backend_window: Some(random.choose(&[65536, 65536, 65536, 6])),
        // Below the size of the largest value, that value could never be stored.
        backend_buffer: Some(random.choose(&[64 << 20, 64 << 20, 1 << 20])),
        client_window: Some(random.choose(&[1024, 1024, 5, 1])),
        client_buffer: Some(client_buffer),
        // It must be enough for one client.
        memory: Some(random.choose(&[1 << 30, 1 << 30, client_buffer.max(60_000)])),
        value_max: Some(shape.value_max),
        client_idle_timeout: shape.client_timeout,
        client_request_timeout: shape.client_timeout,
        client_unread_timeout: shape.client_timeout,
        reply_max: Some(random.choose(&[64 << 20, if shape.has_large { 1 << 20 } else { 30_000 }])),
        hot_keys: Some(hot_keys),
        hot_keys_metrics: Some(hot_keys > 0 && random.one_in(2)),
        resolve_every: Some(random.choose(&[Duration::from_secs(30), Duration::ZERO, Duration::from_millis(100)])),
        ..ProxyFile::default()
    }
}

/// The only listener. One and the same set of commands can be written in two ways.
fn listener(denied: Option<CommandGroup>, is_second: bool) -> ListenerConfig {
    let usual = ListenerConfig::new("127.0.0.1:0");
    let Some(denied) = denied else { return usual };
    if !is_second {
        return ListenerConfig { deny: Some(vec![denied]), ..usual };
    }
    let others = CommandGroup::ALL.into_iter().filter(|&group| group != denied);
    ListenerConfig { allow: Some(others.collect()), ..usual }
}

/// So that some requests are refused, but not most of them.
const RATE_LIMITS: [Option<RateLimit>; 4] = [
    None,
    None,
    Some(RateLimit { per_second: 3000, burst: Some(150) }),
    Some(RateLimit { per_second: 1000, burst: None }),
];

/// Lifetimes from less than the time of a request to longer than a fault. A key is kept from its first request on: no key of a scenario
/// is hot.
const LIFETIMES: [Duration; 4] =
    [Duration::from_millis(1), Duration::from_millis(5), Duration::from_millis(100), Duration::from_secs(1)];

/// Most pools to which keys belong have a near-cache, if the proxy counts keys.
fn near_caches(file: &mut ProxyFile, pools: &[PoolPlan], random: &mut Random) {
    let counts_keys = file.hot_keys != Some(0);
    let with_keys = file.pools.iter_mut().zip(pools).filter(|(_, plan)| plan.part.has_keys());
    for (pool, _) in with_keys.filter(|_| counts_keys) {
        let memory = random.choose(&[None, Some(4096), Some(100_000)]);
        let near = NearCache { memory, keeps_every_key: true, ..NearCache::new(random.choose(&LIFETIMES)) };
        pool.near_cache = (!random.one_in(3)).then_some(near);
    }
}

/// Half of the proxies that stamp every request log slow ones, some of them all.
fn log(file: &mut ProxyFile, random: &mut Random) {
    file.log_level = Some(random.choose(&[LogLevel::Info, LogLevel::Warn, LogLevel::Error, LogLevel::Off]));
    file.log_format = Some(random.choose(&[LogFormat::Text, LogFormat::Json]));
    file.log_keys = Some(random.choose(&[LoggedKeys::Plain, LoggedKeys::Hashed, LoggedKeys::Hidden]));
    if file.stamps == Some(Stamps::All) && file.log_level >= Some(LogLevel::Warn) && random.one_in(2) {
        file.slow_requests = Some(random.choose(&[Duration::from_nanos(1), Duration::from_millis(20)]));
        file.slow_requests_per_second = Some(random.choose(&[1, 100, 100_000]));
    }
    traces(file, random);
}

/// Half of the proxies with stamps send spans, to a collector whose address is not known yet.
fn traces(file: &mut ProxyFile, random: &mut Random) {
    if file.stamps == Some(Stamps::Off) || random.one_in(2) {
        return;
    }
    file.traces = Some("http://127.0.0.1:1/v1/traces".into());
    file.traces_sample = Some(random.choose(&[1, 1, 10]));
    file.traces_queue = Some(random.choose(&[2048, 2048, 20]));
    file.traces_keys = Some(random.choose(&[LoggedKeys::Plain, LoggedKeys::Hashed, LoggedKeys::Hidden]));
    file.traces_service = random.one_in(2).then(|| "simulation".into());
}

/// The times of the published faults of writers and workers. Half of the proxies have none.
const FAULTS: [Option<Duration>; 4] = [None, None, Some(Duration::from_millis(1)), Some(Duration::from_millis(20))];

fn dispatch(file: &mut ProxyFile, is_shared: bool, loops: usize, has_all: bool, random: &mut Random) {
    let slots = loops + random.below(4);
    let queue = random.choose(&[65536, 65536, 65536, 3]);
    let dispatch = match is_shared {
        true => DispatchConfig::Shared,
        false => random.choose(&[DispatchConfig::Pipelined, DispatchConfig::PerBackend]),
    };
    file.dispatch = Some(dispatch);
    match dispatch {
        DispatchConfig::Pipelined => return,
        DispatchConfig::PerBackend => {
            (file.readers, file.writers) = (Some(slots), Some(loops + random.below(2)));
            file.fault_write_poll = random.choose(&FAULTS);
        }
        DispatchConfig::Shared => {
            let all = [MultiGet::ByKey, MultiGet::Sharded, MultiGet::Whole];
            let multi_get = if has_all { random.choose(&all) } else { MultiGet::ByKey };
            (file.workers, file.multi_get) = (Some(slots), Some(multi_get));
            file.fault_write_hold = random.choose(&FAULTS);
        }
    }
    file.queue = Some(queue);
}

/// A pool. Those that clients' keys belong to have policies, and some shadow pools are warmed up from the main pool.
fn pool(
    plan: &PoolPlan,
    pools: &[PoolPlan],
    is_shared: bool,
    shape: &Shape,
    (name, host): (&impl Fn(Part) -> String, &str),
    random: &mut Random,
) -> PoolFile {
    let mut timeouts = Timeouts::all(shape.timeout);
    timeouts.read = shape.timeout.mul_f64(random.choose(&[1.0, 1.3]));
    timeouts.write = shape.timeout.mul_f64(random.choose(&[1.0, 1.3]));
    timeouts.reply = random.choose(&[timeouts.reply, shape.timeout * 3]);
    let mut pool = PoolFile {
        name: Some(name(plan.part)),
        servers: Some(
            plan.servers.iter().cloned().map(|server| ServerConfig { address: host.into(), ..server }).collect(),
        ),
        distribution: Some(plan.distribution),
        hash: plan.hash,
        hash_tag: plan.hash_tag,
        replicas: Some(plan.replicas),
        flush: Some(shape.may_flush),
        writes: Some(Writes::All),
        reads: Some(Reads::Primary),
        failover: Some(Failover::Never),
        timeouts: Some(timeouts),
        failures: Some(random.choose(&[1, 2, 3])),
        ready_servers: Some(plan.servers.len().min(1 + plan.replicas % 2)),
        ..PoolFile::default()
    };
    shape.opening.configure_pool(&mut pool);
    let expiry = Duration::from_secs(EXPIRY_S);
    // As in a migration, where the shadow pool replaces the main pool later.
    let is_successor = plan.part == Part::Shadow && shape.shadow_reads && shape.shadow_share == 1.0;
    let fetches = is_successor || plan.part == Part::Near;
    pool.warm_up = fetches.then(|| WarmUp { from: name(Part::Main), expiry });
    if !plan.part.has_keys() && plan.part != Part::Near {
        return pool;
    }
    // Its own numbers, so that it changes nothing else of a scenario.
    pool.rate_limit = Random(!random.0).choose(&RATE_LIMITS);
    let has = |part| pools.iter().any(|pool| pool.part == part);
    pool.read_pool = (plan.part == Part::Main && has(Part::Near)).then(|| name(Part::Near));
    // The configuration refuses settings of reads that go to another pool.
    let may_read = plan.replicas > 1 && pool.read_pool.is_none();
    if may_read {
        pool.reads = Some(random.choose(&[Reads::Primary, Reads::Any, Reads::LeastOutstanding]));
        pool.failover = Some(random.choose(&[Failover::Never, Failover::OnError, Failover::OnMiss]));
    }
    // The configuration refuses other combinations.
    if may_read && !is_shared {
        let delay = shape.timeout.mul_f64(random.choose(&[0.05, 0.3, 0.9]));
        pool.hedge = random.one_in(3).then(|| Hedge { delay, budget: random.choose(&[0.1, 1.0]) });
    }
    if plan.part == Part::Near {
        return pool;
    }
    let other = if plan.part == Part::Main { Part::Routed } else { Part::Main };
    pool.delete_pools = (has(other) && random.one_in(2)).then(|| vec![name(other)]);
    if !is_shared {
        pool.writes = Some(random.choose(&[Writes::All, Writes::Majority, Writes::First]));
    }
    pool.failover_pool = has(Part::Failover).then(|| FailoverPool { pool: name(Part::Failover), expiry });
    if plan.part == Part::Main {
        pool.warm_up = has(Part::Source).then(|| WarmUp { from: name(Part::Source), expiry });
        let (to, share, reads) = (name(Part::Shadow), shape.shadow_share, shape.shadow_reads);
        pool.shadow = has(Part::Shadow).then_some(Shadow { to, share, reads });
    }
    pool
}

/// The servers of a pool, without their addresses, and how keys are distributed among them. A reload keeps all of it: otherwise keys
/// would move to servers with old values.
pub(crate) fn draw_distribution(plan: &mut PoolPlan, has_names: bool, random: &mut Random) {
    let server = |number: usize, random: &mut Random| ServerConfig {
        address: String::new(),
        name: has_names.then(|| format!("server-{number}")),
        weight: random.choose(&[1, 1, 1, 3]),
        is_drained: false,
    };
    plan.servers = (0..plan.backends.len()).map(|number| server(number, random)).collect();
    let Some(distribution) = Distribution::named(random.choose(Distribution::NAMES)) else { unreachable!() };
    plan.distribution = distribution;
    let hashes = [Hash::Md5, Hash::Fnv1a64, Hash::Crc32, Hash::Xxh3, Hash::Murmur64a];
    let hashes: Vec<Hash> = hashes.into_iter().filter(|&hash| distribution.can_use(hash)).collect();
    let hash = random.choose(&hashes);
    plan.hash = random.one_in(2).then_some(hash);
    plan.hash_tag = random.one_in(3).then_some(*b"{}");
}
