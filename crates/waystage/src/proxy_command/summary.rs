//! The output of `waystage proxy --check` for a valid configuration.

use crate::proxy_command::{counted, discipline_text, policies};
use proxy::{Commands, Config, Distribution, Hash, ListenerConfig, PoolConfig, PoolFile, ProxyFile, Resolve, Timeouts};
use quantity::duration_text;

/// The addresses, the pools with their policies, and the routes, one per line. `settings` are the keys that the configuration was
/// made of.
pub(crate) fn summary(config: &Config, settings: &ProxyFile) -> String {
    let pool_name = |index: usize| config.pools[index].name.as_str();
    let mut lines = Vec::new();
    let (open, limited): (Vec<_>, Vec<_>) = config.listen.iter().partition(|own| own.commands() == Commands::ALL);
    if !open.is_empty() {
        let addresses: Vec<&str> = open.iter().map(|listener| listener.address.as_str()).collect();
        lines.push(format!("listen   {}", addresses.join(" and ")));
    }
    lines.extend(limited.iter().map(|listener| format!("listen   {}{}", listener.address, allowed(listener))));
    let of_pools = config.listeners().filter_map(|(listener, pool)| Some((listener, pool?)));
    lines.extend(of_pools.map(|(listener, pool)| {
        format!("listen   {} for pool {}{}", listener.address, pool_name(pool), allowed(listener))
    }));
    let header = &config.transport.proxy_protocol;
    if !header.listeners.is_empty() {
        let networks: Vec<String> = header.from.iter().map(ToString::to_string).collect();
        let from = if networks.is_empty() { "everywhere".into() } else { networks.join(" and ") };
        lines.push(format!("header   PROXY protocol on {}, from {from}", header.listeners.join(" and ")));
    }
    if let Some(users) = &config.client_auth_file {
        lines.push(format!("users    clients authenticate with a user of {}", users.display()));
    }
    if let Some(metrics) = &config.metrics {
        lines.push(format!("metrics  {metrics}"));
    }
    if let Some(records) = &config.records {
        lines.push(format!("records  one request in {} to {}", records.sample, records.directory.display()));
    }
    if let Some(traces) = &config.traces {
        lines.push(format!("traces   one request in {} to {}", traces.sample, traces.url));
    }
    lines.push(format!("loops    {}, {}", config.loops, discipline_text(config.discipline)));
    for (index, pool) in config.pools.iter().enumerate() {
        let written = settings.pools.get(index);
        lines.push(format!(
            "pool     {}: {}",
            pool.name,
            text(pool, written.is_some_and(|written| written.srv.is_some()))
        ));
        if let Some(written) = written {
            lines.extend(lists(pool, written).into_iter().map(|(name, text)| format!("  {name:<8} {text}")));
        }
        lines.extend(details(config, index).into_iter().map(|(name, text)| format!("  {name:<8} {text}")));
        if !is_used(config, index) {
            lines.push(
                "  unused   it has no listener, and no route and no pool refers to it, so it gets no keys".into(),
            );
        }
    }
    // Clients of a pool's listener use this pool only.
    if config.listen.is_empty() && config.listeners().next().is_some() {
        return lines.join("\n");
    }
    for route in &config.routes {
        let change = match route.replacement() {
            None => String::new(),
            Some("") => ", sent without the prefix".into(),
            Some(replacement) => format!(", sent with {replacement:?} in the place of the prefix"),
        };
        lines.push(format!("route    {:?} to pool {}{change}", route.prefix, route.pool));
    }
    let all = if config.routes.is_empty() { "all keys" } else { "all other keys" };
    lines.push(format!("route    {all} to pool {}", config.pools.first().map_or("", |pool| &pool.name)));
    lines.join("\n")
}

/// The commands of a listener that does not allow all of them.
fn allowed(listener: &ListenerConfig) -> String {
    let names: Vec<&str> = listener.commands().names().collect();
    match listener.commands() {
        Commands::ALL => String::new(),
        _ => format!(", allows {}", names.join(" ")),
    }
}

/// The servers, the key distribution and the replicas. Servers of SRV records are not known.
fn text(pool: &PoolConfig, is_unknown: bool) -> String {
    let weights: Vec<String> = pool.servers.iter().map(|server| server.weight.to_string()).collect();
    let servers = if is_unknown { "servers of SRV records".into() } else { counted(pool.servers.len(), "server") };
    let mut text = format!("{servers}, {}", policies::key_distribution(pool));
    if pool.servers.iter().any(|server| server.weight != pool.servers[0].weight) {
        text += &format!(", weights {}", weights.join(" "));
    }
    if let Some([open, close]) = pool.hash_tag {
        text += &format!(", hash tag {}{}", char::from(open), char::from(close));
    }
    text += &format!(", {}", counted(pool.replicas, "replica"));
    let drained: Vec<&str> =
        pool.servers.iter().filter(|server| server.is_drained).map(|server| server.address.as_str()).collect();
    if !drained.is_empty() {
        text += &format!(", drained {}", drained.join(" "));
    }
    text
}

/// Where the servers of a pool come from, if not from the configuration alone.
fn lists(pool: &PoolConfig, written: &PoolFile) -> Vec<(&'static str, String)> {
    let mut lists = Vec::new();
    if let Some(path) = &written.servers_file {
        lists.push(("servers", format!("{} found in {}", counted(pool.servers.len(), "server"), path.display())));
    }
    if let Some(name) = &written.srv {
        lists.push(("servers", format!("the SRV records of {name}, not looked up by --check")));
        if written.resolve == Some(Resolve::All) {
            lists.push(("resolve", "each address of their hosts is a server".into()));
        }
        return lists;
    }
    if written.resolve == Some(Resolve::All) {
        let names = pool.servers.iter().filter(|server| server.host_name().is_some()).count();
        let names = format!("{}, not resolved by --check", counted(names, "host name"));
        lists.push(("resolve", format!("each address of a host name is a server: {names}")));
    }
    lists
}

fn details(config: &Config, index: usize) -> Vec<(&'static str, String)> {
    let pool = &config.pools[index];
    let names: Vec<String> = (1..=pool.replicas)
        .map(|replica| if replica == 1 { "primary".into() } else { format!("replica {replica}") })
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let reads = match &pool.read_pool {
        Some(name) => policies::reads_elsewhere(name, "", names[0]),
        None => policies::reads(pool, &names),
    };
    let mut details = vec![("reads", reads), ("writes", policies::writes(pool, &names))];
    details.extend(policies::deletes(config, index).map(|text| ("deletes", text)));
    details.extend(policies::others(pool));
    let total: u32 = pool.servers.iter().map(|server| server.weight).sum();
    if pool.distribution == Distribution::Modulo
        && pool.hash() == Hash::Fnv1a64
        && (total.is_multiple_of(3) || total.is_multiple_of(5))
    {
        details.push((
            "uneven",
            "fnv1a_64 is uneven over a multiple of 3 or 5 servers; check with: waystage proxy route -".into(),
        ));
    }
    let Timeouts { connect, read, write, reply } = pool.timeouts;
    let [connect, read, write, reply] = [connect, read, write, reply].map(duration_text);
    details.push(("timeouts", format!("connect {connect}, read {read}, write {write}, reply {reply}")));
    if pool.failures != PoolConfig::new("", &[]).failures {
        details.push(("failures", format!("ejected after {} timeouts in a row", pool.failures)));
    }
    if let Some(user) = &pool.server_auth_file {
        details.push(("login", format!("the proxy authenticates with the user of {}", user.display())));
    }
    if let Some(limit) = pool.rate_limit {
        details.push(("limit", format!("{} keys per second, {} at once", limit.per_second, limit.burst())));
    }
    if let Some(near) = pool.near_cache {
        let (lifetime, memory) = (duration_text(near.lifetime), quantity::bytes_text(near.memory_bytes()));
        details
            .push(("near", format!("get of hot keys from values up to {lifetime} old, {memory} in each event loop")));
    }
    if !pool.flush {
        details.push(("flush", "flush_all is not sent to this pool".into()));
    }
    details
}

/// Whether any key can be sent to the pool with this index.
fn is_used(config: &Config, index: usize) -> bool {
    let name = &config.pools[index].name;
    let mut others = config.pools.iter().flat_map(PoolConfig::named_pools).map(|(_, other)| other);
    config.is_used_by_clients(index) || others.any(|other| other == name)
}
