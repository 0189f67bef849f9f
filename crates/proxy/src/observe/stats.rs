//! The replies to `stats`. Names and formats are memcached's, because clients and exporters parse them. Values that a proxy does not
//! have, such as items, are 0 or left out.

use crate::config::Config;
use crate::observe::counters::{BackendCounters, Counter, LoopCounters, PoolCounters};
use crate::observe::hot_keys::HotKeysBoard;
use crate::observe::process_counts::ProcessCounts;
use crate::observe::server_version::version_text;
use crate::observe::tally::{Sums, Tally};
use clock::Clock;
use records::Outcome;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use wire::{Reply, Verb};

/// The sources of `stats`.
#[derive(Clone, Debug)]
pub(crate) struct Stats {
    pub(crate) tally: Arc<Tally>,
    pub(crate) counts: Arc<ProcessCounts>,
    pub(crate) hot_keys: Option<HotKeysBoard>,
    /// The unique names of the backends.
    pub(crate) servers: Vec<String>,
    pub(crate) replicas: usize,
    /// By backend.
    pub(crate) invalidations_pending: Vec<Arc<AtomicUsize>>,
    pub(crate) clients_max: usize,
    /// The names and values of `stats settings`.
    pub(crate) settings: Vec<(&'static str, String)>,
    pub(crate) clock: Clock,
}

const GETS: [Verb; 5] = [Verb::Get, Verb::Gets, Verb::Gat, Verb::Gats, Verb::Mg];
const STORES: [Verb; 7] = [Verb::Set, Verb::Add, Verb::Replace, Verb::Append, Verb::Prepend, Verb::Cas, Verb::Ms];
const METAS: [Verb; 6] = [Verb::Mg, Verb::Ms, Verb::Md, Verb::Ma, Verb::Mn, Verb::Me];
/// memcached counts `gat` both as a read and as a touch.
const TOUCHES: [Verb; 3] = [Verb::Touch, Verb::Gat, Verb::Gats];

impl Stats {
    /// Writes the reply to `stats [argument]`.
    pub(crate) fn answer(&self, argument: &[u8], out: &mut Vec<u8>) {
        let mut words = argument.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
        match words.next().unwrap_or_default() {
            b"" => self.general(&self.counts.sums(&self.tally), out),
            // The metrics show the same counters, which must never decrease, so nothing is reset.
            b"reset" => return Reply::Reset.encode(out),
            b"backends" => self.backends(&self.counts.sums(&self.tally), out),
            b"hotkeys" => self.hot_keys.iter().for_each(|board| board.stats(out)),
            b"settings" => self.settings.iter().for_each(|(name, value)| stat(out, name, value)),
            b"slabs" => ["active_slabs", "total_malloced"].iter().for_each(|name| stat(out, name, "0")),
            b"sizes" => stat(out, "sizes_status", "disabled"),
            b"detail" => match words.next() {
                Some(b"on" | b"off") => return Reply::Ok.encode(out),
                Some(b"dump") => {}
                _ => return out.extend_from_slice(b"CLIENT_ERROR usage: stats detail on|off|dump\r\n"),
            },
            b"cachedump" => match (words.next(), words.next()) {
                (Some(class), Some(limit)) if [class, limit].iter().all(|word| is_number(word)) => {}
                (Some(_), Some(_)) => return out.extend_from_slice(b"CLIENT_ERROR bad command line format\r\n"),
                _ => return out.extend_from_slice(b"CLIENT_ERROR bad command line\r\n"),
            },
            // The proxy stores no items.
            b"items" | b"conns" | b"extstore" => {}
            _ => return Reply::Error.encode(out),
        }
        Reply::End.encode(out);
    }

    fn general(&self, sums: &Sums, out: &mut Vec<u8>) {
        let usage = clock::process_cpu();
        stat(out, "pid", &std::process::id().to_string());
        stat(out, "uptime", &(self.clock.now().since(self.counts.started) / 1_000_000_000).to_string());
        stat(out, "time", &(clock::unix_now() / 1_000_000_000).to_string());
        stat(out, "version", &version_text(self.tally.loops.iter().map(|counters| &**counters)));
        stat(out, "pointer_size", "64");
        stat(out, "rusage_user", &format!("{:.6}", usage.user_s));
        stat(out, "rusage_system", &format!("{:.6}", usage.system_s));
        self.commands(sums, out);
        stat(out, "waystage_version", env!("CARGO_PKG_VERSION"));
        self.policies(sums, out);
    }

    /// The numbers that memcached has, too.
    fn commands(&self, sums: &Sums, out: &mut Vec<u8>) {
        let sum = |field: fn(&LoopCounters) -> &Counter| sums.of_loops(|counters| field(counters).get());
        let ended =
            |verbs: &[Verb]| sums.of_loops(|counters| verbs.iter().map(|&verb| counters.ended_by_verb(verb)).sum());
        let found = |verbs: &[Verb]| {
            let both = |field: fn(&LoopCounters) -> &[Counter; Verb::ALL.len()]| {
                sums.of_loops(|counters| verbs.iter().map(|&verb| field(counters)[verb as usize].get()).sum())
            };
            (both(|counters| &counters.hits), both(|counters| &counters.misses))
        };
        let (gets, deletes, touches) = (found(&GETS), found(&[Verb::Delete, Verb::Md]), found(&TOUCHES));
        let (authenticated, refused) =
            (sum(|counters| &counters.clients_authenticated), sum(|counters| &counters.client_auth_failed));
        let (incrs, decrs, cas) = (found(&[Verb::Incr, Verb::Ma]), found(&[Verb::Decr]), found(&[Verb::Cas]));
        let lines = [
            ("max_connections", self.clients_max as u64),
            ("curr_connections", sum(|counters| &counters.clients_open)),
            ("total_connections", sum(|counters| &counters.clients_accepted)),
            ("rejected_connections", sums.of_accept(|accept| &accept.refused)),
            ("cmd_get", sum(|counters| &counters.keys_read)),
            ("cmd_set", ended(&STORES)),
            ("cmd_flush", ended(&[Verb::FlushAll])),
            ("cmd_touch", ended(&TOUCHES)),
            ("cmd_meta", ended(&METAS)),
            ("get_hits", gets.0),
            ("get_misses", gets.1),
            ("delete_misses", deletes.1),
            ("delete_hits", deletes.0),
            ("incr_misses", incrs.1),
            ("incr_hits", incrs.0),
            ("decr_misses", decrs.1),
            ("decr_hits", decrs.0),
            ("cas_misses", cas.1),
            ("cas_hits", cas.0),
            ("cas_badval", sum(|counters| &counters.cas_conflicts)),
            ("touch_hits", touches.0),
            ("touch_misses", touches.1),
            ("auth_cmds", authenticated + refused),
            ("auth_errors", refused),
            ("bytes_read", sum(|counters| &counters.received_bytes)),
            ("bytes_written", sum(|counters| &counters.replied_bytes)),
            ("limit_maxbytes", 0),
            ("accepting_conns", 1),
            ("listen_disabled_num", sums.of_accept(|accept| &accept.pauses)),
            ("threads", self.tally.loops.len() as u64),
            ("bytes", 0),
            ("curr_items", 0),
            ("total_items", 0),
            ("evictions", 0),
            ("reclaimed", 0),
        ];
        append(out, &lines);
    }

    /// The numbers that only a proxy has.
    fn policies(&self, sums: &Sums, out: &mut Vec<u8>) {
        let of_pools = |field: fn(&PoolCounters) -> &Counter| sums.of_loops(|counters| counters.of_pools(field));
        let of_backends = |field: fn(&BackendCounters) -> &Counter| {
            sums.of_loops(|counters| counters.backends.iter().map(|backend| field(backend).get()).sum())
        };
        let failed = |outcome: Outcome| sums.of_loops(|counters| counters.ended_by_outcome(outcome));
        let lines = [
            ("waystage_requests", sums.of_loops(LoopCounters::requests_total)),
            ("waystage_backends", self.servers.len() as u64),
            ("waystage_replicas", self.replicas as u64),
            ("waystage_failovers", of_pools(|pool| &pool.failovers)),
            ("waystage_hedges", of_pools(|pool| &pool.hedges)),
            ("waystage_hedges_won", of_pools(|pool| &pool.hedges_won)),
            ("waystage_failover_pool_requests", of_pools(|pool| &pool.failover_pool_requests)),
            ("waystage_warm_up_hits", of_pools(|pool| &pool.warm_up_hits)),
            ("waystage_warm_up_fills", of_pools(|pool| &pool.warm_up_fills)),
            ("waystage_shadowed_requests", of_pools(|pool| &pool.shadowed)),
            ("waystage_degraded_writes", of_pools(|pool| &pool.writes_degraded)),
            ("waystage_withheld_reads", of_pools(|pool| &pool.withheld_reads)),
            ("waystage_rate_limited", of_pools(|pool| &pool.rate_limited)),
            ("waystage_near_cache_hits", of_pools(|pool| &pool.near_cache_hits)),
            ("waystage_invalidations_pending", self.invalidations_pending.iter().map(|count| load(count)).sum()),
            ("waystage_invalidations_sent", of_backends(|backend| &backend.invalidations_sent)),
            ("waystage_invalidations_failed", of_backends(|backend| &backend.invalidations_failed)),
            ("waystage_ejections", of_backends(|backend| &backend.ejections)),
            ("waystage_timeouts", failed(Outcome::Timeout)),
            ("waystage_refused", failed(Outcome::BackendDown)),
            ("waystage_lost", failed(Outcome::BackendLost)),
            ("waystage_overloaded", failed(Outcome::Overloaded)),
            ("waystage_commands_refused", sums.of_loops(|counters| counters.commands_refused.get())),
        ];
        append(out, &lines);
    }

    fn backends(&self, sums: &Sums, out: &mut Vec<u8>) {
        type Field = fn(&BackendCounters) -> &Counter;
        let fields: [(&str, Field); 17] = [
            ("requests", |backend| &backend.requests),
            ("replies", |backend| &backend.replies),
            ("connections_up", |backend| &backend.is_up),
            ("connections_opened", |backend| &backend.connects),
            ("ejections", |backend| &backend.ejections),
            ("in_flight", |backend| &backend.in_flight),
            ("timeouts", |backend| &backend.timeouts),
            ("lost", |backend| &backend.lost),
            ("out_of_step", |backend| &backend.out_of_step),
            ("late_replies", |backend| &backend.late_replies),
            ("carried_over", |backend| &backend.carried_over),
            ("refused", |backend| &backend.errors[Outcome::BackendDown as usize]),
            ("overloaded", |backend| &backend.errors[Outcome::Overloaded as usize]),
            ("sent_bytes", |backend| &backend.sent_bytes),
            ("received_bytes", |backend| &backend.received_bytes),
            ("invalidations_sent", |backend| &backend.invalidations_sent),
            ("invalidations_failed", |backend| &backend.invalidations_failed),
        ];
        for (index, server) in self.servers.iter().enumerate() {
            for (name, field) in fields {
                let value = sums.of_loops(|counters| field(&counters.backends[index]).get());
                stat(out, &format!("{server}:{name}"), &value.to_string());
            }
            let is_drained = sums.of_loops(|counters| counters.backends[index].is_drained.get()) > 0;
            stat(out, &format!("{server}:drained"), if is_drained { "1" } else { "0" });
            stat(
                out,
                &format!("{server}:invalidations_pending"),
                &load(&self.invalidations_pending[index]).to_string(),
            );
        }
    }
}

/// The reply to `stats settings`: memcached's names for settings that it has too, then our own. No value contains a space.
pub(crate) fn settings(config: &Config) -> Vec<(&'static str, String)> {
    let listen = config.listeners().next().map_or("", |(listener, _)| &listener.address);
    let (host, port) = listen.rsplit_once(':').unwrap_or((listen, "0"));
    let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let without_spaces = |text: &str| text.replace(char::is_whitespace, "_");
    vec![
        ("maxbytes", "0".into()),
        ("maxconns", config.clients_max.to_string()),
        ("tcpport", if is_number { port } else { "0" }.to_string()),
        ("udpport", "0".into()),
        ("inter", without_spaces(host)),
        ("verbosity", "0".into()),
        ("num_threads", config.loops.to_string()),
        ("item_size_max", config.value_bytes.to_string()),
        ("cas_enabled", "yes".into()),
        ("flush_enabled", "yes".into()),
        ("lru_crawler", "no".into()),
        ("waystage_dispatch", config.discipline.name().into()),
        ("waystage_replicas", config.pools[0].replicas.to_string()),
        ("waystage_backend_timeout_ms", config.longest_timeout().as_millis().to_string()),
        ("waystage_client_window", config.client_window.to_string()),
        ("waystage_hot_keys", config.operations.hot_keys.to_string()),
    ]
}

fn is_number(word: &[u8]) -> bool {
    !word.is_empty() && word.iter().all(u8::is_ascii_digit)
}

fn load(count: &AtomicUsize) -> u64 {
    count.load(Ordering::Relaxed) as u64
}

fn append(out: &mut Vec<u8>, lines: &[(&str, u64)]) {
    for (name, value) in lines {
        stat(out, name, &value.to_string());
    }
}

fn stat(out: &mut Vec<u8>, name: &str, value: &str) {
    Reply::Stat { name: name.as_bytes(), value: value.as_bytes() }.encode(out);
}
