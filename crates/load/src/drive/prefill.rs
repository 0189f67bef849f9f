//! Stores every key once before the run, over several connections with several sets in flight each.
//! The prefill is not measured: it stamps and records nothing, and the first refusal ends it.

use crate::LoadError;
use crate::config::Config;
use crate::drive::connect::connect;
use crate::drive::encoder::Encoder;
use crate::drive::worker::reply_limits;
use crate::progress::REPORT_EVERY;
use crate::workload::versions::PREFILL_VERSION;
use clock::{Clock, Nanos};
use key_distribution::KeyDistribution;
use net::{Buffers, Connection, Filled, Poller, Token};
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use wire::{Limits, MetaCode, ParsedReply, Reply, parse_reply};

/// Connections used.
const CONNECTIONS: usize = 4;
/// Sets in flight on each connection ...
const WINDOW_REQUESTS: u64 = 64;
/// ... unless they are large.
const WINDOW_BYTES: u64 = 256 * 1024;
const WAIT: Duration = Duration::from_millis(50);

/// A prefill in progress.
struct Prefill {
    lines: Vec<PrefillConnection>,
    encoder: Encoder,
    key_distribution: Option<KeyDistribution>,
    limits: Limits,
    buffers: Buffers,
    window: u64,
    stored: u64,
}

/// One connection, and the keys that it still has to set.
struct PrefillConnection {
    connection: Connection,
    /// The number of its server, which may own only some of these keys.
    server: usize,
    keys: RangeInclusive<u64>,
    in_flight: u64,
}

/// Sets every key to its first version. Calls `report` with the keys set and the keys in total every two seconds.
pub(crate) fn prefill(
    config: &Config,
    addresses: &[SocketAddr],
    clock: &Clock,
    stop: &AtomicBool,
    report: &mut dyn FnMut(u64, u64),
) -> Result<(), LoadError> {
    let failed = |reason: String| LoadError::Prefill { server: config.servers.join(" "), reason };
    let mut poller = Poller::new().map_err(LoadError::Poller)?;
    let mut prefill = Prefill::new(config, addresses)?;
    for (number, line) in prefill.lines.iter_mut().enumerate() {
        poller.add(&mut line.connection, Token(number)).map_err(LoadError::Poller)?;
    }
    prefill.pump_all().map_err(failed)?;
    let mut ready = Vec::new();
    let mut last_progress = (clock.now(), 0);
    let mut next_report = clock.now() + REPORT_EVERY;
    while prefill.stored < config.keys() {
        if stop.load(Ordering::Relaxed) {
            return Err(LoadError::Stopped);
        }
        poller.wait(Some(WAIT), &mut ready).map_err(LoadError::Poller)?;
        for event in &ready {
            let line = &mut prefill.lines[event.token.0];
            line.connection.on_ready(event.readable, event.writable, event.closing);
        }
        prefill.receive_all().and_then(|()| prefill.pump_all()).map_err(failed)?;
        let now = clock.now();
        if now >= next_report {
            report(prefill.stored, config.keys());
            next_report = now + REPORT_EVERY;
        }
        last_progress = progress(last_progress, (now, prefill.stored), config.reply_timeout)
            .ok_or_else(|| failed(format!("no reply within {:?}", config.reply_timeout)))?;
    }
    Ok(())
}

/// The time and count of the last progress; none if it was longer than `timeout` ago.
fn progress(last: (Nanos, u64), now: (Nanos, u64), timeout: Duration) -> Option<(Nanos, u64)> {
    if now.1 > last.1 {
        return Some(now);
    }
    (last.0 + timeout > now.0).then_some(last)
}

impl Prefill {
    fn new(config: &Config, addresses: &[SocketAddr]) -> Result<Prefill, LoadError> {
        let shares = shares(config.key_minimum, config.key_maximum);
        let each = shares.iter().flat_map(|keys| (0..config.lanes_per_client()).map(move |server| (server, keys)));
        let lines = each.map(|(server, keys)| {
            let connection = connect(&config.servers[server], addresses[server])?;
            Ok(PrefillConnection { connection, server, keys: keys.clone(), in_flight: 0 })
        });
        Ok(Prefill {
            lines: lines.collect::<Result<_, LoadError>>()?,
            encoder: Encoder::with_replies(config),
            key_distribution: config.key_distribution(),
            limits: reply_limits(config),
            buffers: Buffers::default(),
            window: (WINDOW_BYTES / (config.value_sizes().largest() as u64 + 1)).clamp(1, WINDOW_REQUESTS),
            stored: 0,
        })
    }

    /// Refills every window that is at least half empty, and writes.
    fn pump_all(&mut self) -> Result<(), String> {
        for line in &mut self.lines {
            if line.in_flight <= self.window / 2 {
                let (encoder, server) = (&mut self.encoder, line.server);
                let is_its = |key: &u64| {
                    self.key_distribution.as_ref().is_none_or(|keys| keys.owner(encoder.key(*key)) == server)
                };
                let room = (self.window - line.in_flight) as usize;
                let keys: Vec<u64> = line.keys.by_ref().filter(is_its).take(room).collect();
                for key in keys {
                    line.connection.outbox.append(|out| self.encoder.set(key, PREFILL_VERSION, out));
                    line.in_flight += 1;
                }
            }
            line.connection.flush().map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Reads replies. Any reply other than a success is an error.
    fn receive_all(&mut self) -> Result<(), String> {
        for line in &mut self.lines {
            while line.connection.is_readable() {
                let filled = line.connection.fill(&mut self.buffers, 1).map_err(|error| error.to_string())?;
                self.stored += line.take_replies(&self.limits)?;
                if filled == Filled::Closed {
                    return Err("the connection was closed".into());
                }
            }
            line.connection.inbox.release(&mut self.buffers);
        }
        Ok(())
    }
}

impl PrefillConnection {
    /// Takes every complete reply and returns how many there were.
    fn take_replies(&mut self, limits: &Limits) -> Result<u64, String> {
        let mut stored = 0;
        loop {
            let consumed = match parse_reply(self.connection.inbox.filled(), limits) {
                ParsedReply::Incomplete => return Ok(stored),
                ParsedReply::Reply { reply, consumed } if is_stored(&reply) && self.in_flight > 0 => consumed,
                _ => return Err(format!("unexpected reply {:?}", first_line(self.connection.inbox.filled()))),
            };
            self.connection.inbox.consume(consumed);
            self.in_flight -= 1;
            stored += 1;
        }
    }
}

fn is_stored(reply: &Reply<'_>) -> bool {
    matches!(reply, Reply::Stored | Reply::Meta { code: MetaCode::Header, .. })
}

/// Divides the keys into as many contiguous ranges as there are connections.
fn shares(key_minimum: u64, key_maximum: u64) -> Vec<RangeInclusive<u64>> {
    let keys = key_maximum - key_minimum + 1;
    let lines = keys.min(CONNECTIONS as u64);
    let start = |line: u64| key_minimum + keys * line / lines;
    (0..lines).map(|line| start(line)..=start(line + 1) - 1).collect()
}

/// The first line of a reply, for an error message.
fn first_line(bytes: &[u8]) -> String {
    let line = bytes.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
    String::from_utf8_lossy(&line[..line.len().min(120)]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_contain_every_key_once() {
        for (minimum, maximum) in [(0, 0), (5, 7), (0, 10_000), (100, 103)] {
            let keys: Vec<u64> = shares(minimum, maximum).into_iter().flatten().collect();
            assert_eq!(keys, (minimum..=maximum).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_timeout_passes_without_progress() {
        let timeout = Duration::from_nanos(10);
        assert_eq!(progress((Nanos(1), 5), (Nanos(9), 6), timeout), Some((Nanos(9), 6)));
        assert_eq!(progress((Nanos(1), 5), (Nanos(9), 5), timeout), Some((Nanos(1), 5)));
        assert_eq!(progress((Nanos(1), 5), (Nanos(11), 5), timeout), None);
    }
}
