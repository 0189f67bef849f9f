//! What the proxy answers itself: version, verbosity and stats.

use crate::counters::{Counter, LoopCounters};
use crate::hot_keys::HotKeysBoard;
use clock::{Clock, Nanos};
use records::Outcome;
use std::sync::Arc;
use wire::{Reply, Verb};

/// What clients are told: libmemcached and others expect memcached's own number in front.
pub const VERSION_LINE: &str = concat!("1.6.38-waystage-", env!("CARGO_PKG_VERSION"));

/// What `stats` is made of.
#[derive(Clone, Debug)]
pub(crate) struct Local {
    pub(crate) loops: Vec<Arc<LoopCounters>>,
    pub(crate) hot_keys: Option<HotKeysBoard>,
    pub(crate) servers: Vec<String>,
    pub(crate) replicas: usize,
    pub(crate) started: Nanos,
    pub(crate) clock: Clock,
}

impl Local {
    /// Answers `stats [argument]`.
    pub(crate) fn stats(&self, argument: &[u8], out: &mut Vec<u8>) {
        match argument.split(|&byte| byte == b' ').next().unwrap_or_default() {
            b"" => self.general(out),
            b"reset" => return Reply::Reset.encode(out),
            b"backends" => self.backends(out),
            b"hotkeys" => self.hot_keys.iter().for_each(|board| board.stats(out)),
            // Exporters and clients ask for these; the proxy holds no items and has none to tell.
            b"settings" | b"items" | b"slabs" | b"sizes" | b"conns" | b"extstore" => {}
            _ => return Reply::Error.encode(out),
        }
        Reply::End.encode(out);
    }

    fn general(&self, out: &mut Vec<u8>) {
        let sum = |field: fn(&LoopCounters) -> &Counter| self.total(|counters| field(counters).get());
        let verb = |verbs: &[Verb]| {
            self.total(|counters| verbs.iter().map(|&verb| counters.requests[verb as usize].get()).sum())
        };
        let (keys, hits) = (sum(|counters| &counters.keys_read), sum(|counters| &counters.hits));
        let stores = [Verb::Set, Verb::Add, Verb::Replace, Verb::Append, Verb::Prepend, Verb::Cas, Verb::Ms];
        let failed = |outcome: Outcome| self.total(|counters| counters.outcomes[outcome as usize].get());
        let lines = [
            ("pid", u64::from(std::process::id())),
            ("uptime", self.clock.now().since(self.started) / 1_000_000_000),
            ("time", clock::unix_now() / 1_000_000_000),
            ("pointer_size", 64),
            ("curr_connections", sum(|counters| &counters.clients_open)),
            ("total_connections", sum(|counters| &counters.clients_accepted)),
            ("cmd_get", keys),
            ("cmd_set", verb(&stores)),
            ("cmd_touch", verb(&[Verb::Touch])),
            ("cmd_flush", verb(&[Verb::FlushAll])),
            ("get_hits", hits),
            ("get_misses", keys.saturating_sub(hits)),
            ("bytes_read", sum(|counters| &counters.received_bytes)),
            ("bytes_written", sum(|counters| &counters.replied_bytes)),
            ("threads", self.loops.len() as u64),
            ("waystage_requests", self.total(LoopCounters::requests_total)),
            ("waystage_backends", self.servers.len() as u64),
            ("waystage_replicas", self.replicas as u64),
            ("waystage_timeouts", failed(Outcome::Timeout)),
            ("waystage_refused", failed(Outcome::BackendDown)),
            ("waystage_lost", failed(Outcome::BackendLost)),
            ("waystage_overloaded", failed(Outcome::Overloaded)),
        ];
        stat(out, "version", VERSION_LINE);
        for (name, value) in lines {
            stat(out, name, &value.to_string());
        }
    }

    fn backends(&self, out: &mut Vec<u8>) {
        for (index, name) in self.servers.iter().enumerate() {
            let sum = |field: fn(&crate::counters::BackendCounters) -> &Counter| {
                self.total(|counters| field(&counters.backends[index]).get()).to_string()
            };
            stat(out, &format!("{name}:requests"), &sum(|backend| &backend.requests));
            stat(out, &format!("{name}:connections_up"), &sum(|backend| &backend.is_up));
            stat(out, &format!("{name}:in_flight"), &sum(|backend| &backend.in_flight));
            stat(out, &format!("{name}:timeouts"), &sum(|backend| &backend.timeouts));
            stat(out, &format!("{name}:lost"), &sum(|backend| &backend.lost));
            stat(out, &format!("{name}:refused"), &sum(|backend| &backend.refused));
        }
    }

    fn total(&self, of: impl Fn(&LoopCounters) -> u64) -> u64 {
        self.loops.iter().map(|counters| of(counters)).sum()
    }
}

fn stat(out: &mut Vec<u8>, name: &str, value: &str) {
    Reply::Stat { name: name.as_bytes(), value: value.as_bytes() }.encode(out);
}
