//! The counters of a cache, and `stats`. Uses memcached's names, so that its tools can read them.

use crate::store::Store;
use clock::{Clock, Nanos, process_cpu};
use wire::Reply;

/// The reported version; clients parse the three numbers.
pub(crate) const VERSION: &str = "1.6.18-waystage";

/// Counters since the start, or since `stats reset`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Connections accepted.
    pub total_connections: u64,
    /// Times that accepting was paused because no connection or descriptor was free.
    pub accepts_deferred: u64,
    /// Requests, invalid ones included.
    pub requests: u64,
    /// Malformed requests.
    pub invalid: u64,
    /// Keys requested, and keys found.
    pub cmd_get: u64,
    #[allow(missing_docs, reason = "named after memcached's statistics")]
    pub get_hits: u64,
    /// Values offered.
    pub cmd_set: u64,
    /// Executions of `flush_all`.
    pub cmd_flush: u64,
    /// Keys touched, `gat` included, and keys found.
    pub cmd_touch: u64,
    #[allow(missing_docs, reason = "named after memcached's statistics")]
    pub touch_hits: u64,
    /// Keys to delete that were found, or not found.
    pub delete_hits: u64,
    #[allow(missing_docs, reason = "named after memcached's statistics")]
    pub delete_misses: u64,
    /// Numbers to increment that were found, or not found.
    pub incr_hits: u64,
    #[allow(missing_docs, reason = "named after memcached's statistics")]
    pub incr_misses: u64,
    /// Numbers to decrement that were found, or not found.
    pub decr_hits: u64,
    #[allow(missing_docs, reason = "named after memcached's statistics")]
    pub decr_misses: u64,
    /// Compare-and-swap: stored, changed by another client, or not found.
    pub cas_hits: u64,
    #[allow(missing_docs, reason = "named after memcached's statistics")]
    pub cas_badval: u64,
    #[allow(missing_docs, reason = "named after memcached's statistics")]
    pub cas_misses: u64,
    /// Bytes of requests.
    pub bytes_read: u64,
    /// Bytes of replies.
    pub bytes_written: u64,
}

/// The values of `stats` other than the counters and those of the store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Surroundings {
    pub(crate) started: Nanos,
    pub(crate) unix_s: u64,
    pub(crate) connections: usize,
    pub(crate) connections_maximum: usize,
    pub(crate) workers: usize,
    pub(crate) present: usize,
}

/// Writes the general statistics.
pub(crate) fn general(counters: &Counters, store: &Store, around: &Surroundings, clock: &Clock, out: &mut Vec<u8>) {
    let mut line = |name: &str, value: &str| {
        Reply::Stat { name: name.as_bytes(), value: value.as_bytes() }.encode(out);
    };
    let cpu = process_cpu();
    line("version", VERSION);
    line("rusage_user", &format!("{:.6}", cpu.user_s));
    line("rusage_system", &format!("{:.6}", cpu.system_s));
    let numbers = [
        ("pid", u64::from(std::process::id())),
        ("uptime", clock.now().since(around.started) / 1_000_000_000),
        ("time", around.unix_s),
        ("pointer_size", u64::from(usize::BITS)),
        ("max_connections", around.connections_maximum as u64),
        ("curr_connections", around.connections as u64),
        ("total_connections", counters.total_connections),
        ("listen_disabled_num", counters.accepts_deferred),
        ("cmd_get", counters.cmd_get),
        ("cmd_set", counters.cmd_set),
        ("cmd_flush", counters.cmd_flush),
        ("cmd_touch", counters.cmd_touch),
        ("get_hits", counters.get_hits),
        ("get_misses", counters.cmd_get - counters.get_hits),
        ("delete_misses", counters.delete_misses),
        ("delete_hits", counters.delete_hits),
        ("incr_misses", counters.incr_misses),
        ("incr_hits", counters.incr_hits),
        ("decr_misses", counters.decr_misses),
        ("decr_hits", counters.decr_hits),
        ("cas_misses", counters.cas_misses),
        ("cas_hits", counters.cas_hits),
        ("cas_badval", counters.cas_badval),
        ("touch_hits", counters.touch_hits),
        ("touch_misses", counters.cmd_touch - counters.touch_hits),
        ("bytes_read", counters.bytes_read),
        ("bytes_written", counters.bytes_written),
        ("limit_maxbytes", store.limit_bytes() as u64),
        ("threads", 1),
        ("virtual_workers", around.workers as u64),
        ("requests_in_service", around.present as u64),
        ("bytes", store.bytes() as u64),
        ("curr_items", store.len() as u64),
        ("total_items", store.stored_total),
        ("evictions", store.evictions),
    ];
    for (name, value) in numbers {
        line(name, &value.to_string());
    }
}
