//! What a pool does with reads and writes, in words.

use proxy::{Failover, PoolConfig, Reads, Writes};
use quantity::duration_text;

/// How keys are spread, as in "ketama (md5)".
pub(crate) fn spread(pool: &PoolConfig) -> String {
    format!("{} ({})", pool.distribution.name(), pool.hash().name())
}

/// Which copies a read asks, given their names, the primary first.
pub(crate) fn reads(pool: &PoolConfig, copies: &[&str]) -> String {
    let all = copies.join(", ");
    let mut text = match pool.reads {
        Reads::Primary => copies.first().map(ToString::to_string).unwrap_or_default(),
        Reads::Any => format!("each in turn of {all}"),
        Reads::LeastOutstanding => format!("the one with fewest requests under way of {all}"),
    };
    match pool.failover {
        Failover::Never => {}
        Failover::OnError => text += "; the next copy on an error",
        Failover::OnMiss => text += "; the next copy on an error or a miss",
    }
    if let Some(hedge) = pool.hedge {
        text += &format!("; another copy too after {}", duration_text(hedge.delay));
        text += &format!(", for at most {} of reads", percent(hedge.budget));
    }
    text
}

/// Which copies a write reaches, and when it is answered.
pub(crate) fn writes(pool: &PoolConfig, copies: &[&str]) -> String {
    let all = copies.join(", ");
    match (pool.writes, copies.len()) {
        (_, 0 | 1) => all,
        (Writes::All, count) => format!("{all}; answered when all {count} have answered"),
        (Writes::Majority, count) => format!("{all}; answered when {} of {count} have", count / 2 + 1),
        (Writes::First, count) => format!("{all}; answered when the first of {count} has"),
    }
}

/// What other pools have to do with it, each as name and text.
pub(crate) fn others(pool: &PoolConfig) -> Vec<(&'static str, String)> {
    let mut others = Vec::new();
    if let Some(failover) = &pool.failover_pool {
        let expiry = duration_text(failover.expiry);
        others.push(("failover", format!("pool {}, where values live at most {expiry}", failover.pool)));
    }
    if let Some(warm_up) = &pool.warm_up {
        let expiry = duration_text(warm_up.expiry);
        others.push(("warm-up", format!("misses are fetched from pool {}, for at most {expiry}", warm_up.from)));
    }
    if let Some(shadow) = &pool.shadow {
        let what = if shadow.reads { "reads and writes" } else { "writes" };
        others
            .push(("shadow", format!("{what} of {} of the keys go to pool {} too", percent(shadow.share), shadow.to)));
    }
    others
}

/// A share as people read it.
pub(crate) fn percent(share: f64) -> String {
    let rounded = (share * 10_000.0).round() / 100.0;
    format!("{rounded} %")
}
