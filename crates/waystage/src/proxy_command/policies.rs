//! The policies of a pool as text: key distribution, reads, writes, other pools.

use proxy::{Config, Failover, PoolConfig, Reads, Writes};
use quantity::duration_text;

/// The key distribution and hash, as in "ketama (md5)".
pub(crate) fn key_distribution(pool: &PoolConfig) -> String {
    format!("{} ({})", pool.distribution.name(), pool.hash().name())
}

/// The replicas that a read uses; `replicas` are their names, the primary first.
pub(crate) fn reads(pool: &PoolConfig, replicas: &[&str]) -> String {
    let all = replicas.join(", ");
    let mut text = match pool.reads {
        Reads::Primary => replicas.first().map(ToString::to_string).unwrap_or_default(),
        Reads::Any => format!("{all}, in turn"),
        Reads::LeastOutstanding => format!("the one of {all} with the fewest requests in flight"),
    };
    match pool.failover {
        Failover::Never => {}
        Failover::OnError => text += "; on an error the next replica",
        Failover::OnMiss => text += "; on an error or a miss the next replica",
    }
    if let Some(hedge) = pool.hedge {
        text += &format!("; hedged after {}", duration_text(hedge.delay));
        text += &format!(", for at most {} of reads", percent(hedge.budget));
    }
    text
}

/// The replicas of a write, and when it is acknowledged.
pub(crate) fn writes(pool: &PoolConfig, replicas: &[&str]) -> String {
    let all = replicas.join(", ");
    match (pool.writes, replicas.len()) {
        (_, 0 | 1) => all,
        (Writes::All, count) => format!("{all}; acknowledged by all {count}"),
        (Writes::Majority, count) => format!("{all}; acknowledged by {} of {count}", count / 2 + 1),
        (Writes::First, count) => format!("{all}; acknowledged by the first of {count}"),
    }
}

/// The read pool and what it reads, as `of_read_pool` says; `primary` is the name of the primary in the pool of the key.
pub(crate) fn reads_elsewhere(name: &str, of_read_pool: &str, primary: &str) -> String {
    let which = if of_read_pool.is_empty() { String::new() } else { format!(": {of_read_pool}") };
    format!("pool {name}{which}; gets, gat and gats {primary}")
}

/// The names of the other pools that deletes of the keys of this one are sent to, if there are any.
pub(crate) fn deletes(config: &Config, index: usize) -> Option<String> {
    let pools = config.pools_of_deletes(index);
    let names: Vec<String> = pools.iter().map(|&pool| format!("pool {}", config.pools[pool].name)).collect();
    (!names.is_empty()).then(|| format!("also {}", names.join(" and ")))
}

/// The failover, warm-up and shadow pool, each as name and text.
pub(crate) fn others(pool: &PoolConfig) -> Vec<(&'static str, String)> {
    let mut others = Vec::new();
    if let Some(failover) = &pool.failover_pool {
        let expiry = duration_text(failover.expiry);
        others.push(("failover", format!("pool {}, where values live at most {expiry}", failover.pool)));
    }
    if let Some(warm_up) = &pool.warm_up {
        let expiry = duration_text(warm_up.expiry);
        others.push((
            "warm-up",
            format!("misses are fetched from pool {}, and stored for at most {expiry}", warm_up.from),
        ));
    }
    if let Some(shadow) = &pool.shadow {
        let what = if shadow.reads { "reads and writes" } else { "writes" };
        others.push((
            "shadow",
            format!("{what} of {} of the keys are also sent to pool {}", percent(shadow.share), shadow.to),
        ));
    }
    others
}

/// A share in per cent.
pub(crate) fn percent(share: f64) -> String {
    let rounded = (share * 10_000.0).round() / 100.0;
    format!("{rounded} %")
}
