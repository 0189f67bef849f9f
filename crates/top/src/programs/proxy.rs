//! The panels of a proxy. docs/metrics.md has the meaning of each metric.

use super::{counted, process_numbers, stage_panels, with_limit};
use crate::format::{bytes, maybe, number, percent};
use crate::panel::{Number, Panel, Row, Tone, warning_if};
use crate::reading::{Interval, Series};
use std::collections::HashMap;

pub(super) const REQUESTS: &str = "waystage_requests_total";
const BACKEND_UP: &str = "waystage_backend_up";
const HOT_KEY: &str = "waystage_hot_key_requests_per_second";
const HOT_KEYS_SHOWN: usize = 10;

pub(super) fn panels(interval: &Interval) -> Vec<Panel> {
    let mut panels = vec![Panel::Numbers(numbers(interval))];
    panels.extend(stage_panels(interval, "waystage_stage_seconds"));
    panels.push(backends(interval));
    panels.push(errors(interval));
    panels.push(pools(interval));
    panels.push(queues(interval));
    panels.push(hot_keys(interval));
    panels
}

fn numbers(interval: &Interval) -> Vec<Number> {
    let requests = interval.per_s(REQUESTS);
    let errors = interval.per_s_of(REQUESTS, |series| series.label("outcome") != "answered");
    let hits = interval.per_s("waystage_hits_total");
    let misses = interval.per_s("waystage_misses_total");
    let ratio = hits.zip(misses).map(|(hits, misses)| hits / (hits + misses)).filter(|ratio| ratio.is_finite());
    let mut numbers = vec![
        Number::plain("requests/s", maybe(requests, number)),
        Number::warning("errors/s", maybe(errors, number), errors),
        Number::plain("hit ratio", maybe(ratio, percent)),
        Number::plain("clients", with_limit(interval, "waystage_clients", "waystage_clients_max", number)),
        Number::plain("received/s", maybe(interval.per_s("waystage_received_bytes_total"), bytes)),
        Number::plain("replied/s", maybe(interval.per_s("waystage_replied_bytes_total"), bytes)),
    ];
    numbers.extend(process_numbers(interval));
    numbers.push(Number::plain("held", maybe(interval.value("waystage_held_bytes"), bytes)));
    numbers
}

fn errors(interval: &Interval) -> Panel {
    let rows = counted(interval, REQUESTS, "outcome", "", |outcome| outcome != "answered");
    Panel::Table { header: vec!["failed requests", "per s", "total"], rows }
}

/// The key of a backend: its pool and its name.
type BackendKey<'i> = (&'i str, &'i str);

fn key(series: &Series) -> BackendKey<'_> {
    (series.label("pool"), series.label("backend"))
}

/// A number of each backend, all series of the backend together.
fn by_backend<'i>(
    interval: &'i Interval,
    metric: &str,
    number: impl Fn(&Series) -> Option<f64>,
) -> HashMap<BackendKey<'i>, f64> {
    let mut sums = HashMap::new();
    for series in interval.all(metric) {
        if let Some(number) = number(series) {
            *sums.entry(key(series)).or_default() += number;
        }
    }
    sums
}

/// One row for each backend, first those that are down.
fn backends(interval: &Interval) -> Panel {
    let has_pools = interval.label_values(BACKEND_UP, "pool").len() > 1;
    let value = |metric: &str| by_backend(interval, metric, |series| Some(series.value));
    let rate = |metric: &str| by_backend(interval, metric, |series| series.per_s);
    let (drained, ejected) = (value("waystage_backend_drained"), value("waystage_backend_ejected"));
    let (requests, errors) = (rate("waystage_backend_requests_total"), rate("waystage_backend_errors_total"));
    let in_flight = value("waystage_backend_in_flight");
    let pending = value("waystage_backend_invalidations_pending");
    let row = |up: &Series| {
        let (pool, name) = key(up);
        let of = |numbers: &HashMap<BackendKey<'_>, f64>| numbers.get(&(pool, name)).copied();
        let (state, tone) = state(up, of(&drained), of(&ejected));
        let fails = of(&errors).is_some_and(|errors| errors > 0.0);
        let cells = vec![
            if has_pools { format!("{pool}/{name}") } else { name.to_owned() },
            state,
            maybe(of(&requests), number),
            maybe(of(&errors), number),
            maybe(of(&in_flight), number),
            maybe(of(&pending), number),
        ];
        Row { cells, tone: if tone == Tone::Plain { warning_if(fails) } else { tone } }
    };
    let mut rows: Vec<Row> = interval.all(BACKEND_UP).map(row).collect();
    rows.sort_by_key(|row| row.tone != Tone::Down);
    Panel::Table { header: vec!["backend", "state", "req/s", "err/s", "in flight", "to invalidate"], rows }
}

fn state(up: &Series, drained: Option<f64>, ejected: Option<f64>) -> (String, Tone) {
    let down = f64::from(up.targets) - up.value;
    if drained.is_some_and(|proxies| proxies > 0.0) {
        ("drained".into(), Tone::Warning)
    } else if up.value == 0.0 {
        ("down".into(), Tone::Down)
    } else if down > 0.0 {
        // Several proxies are added up.
        (format!("down at {down} of {}", up.targets), Tone::Down)
    } else if let Some(loops) = ejected.filter(|loops| *loops > 0.0) {
        (format!("down for {loops} loops"), Tone::Warning)
    } else {
        ("up".into(), Tone::Plain)
    }
}

/// One row for each pool, if there are several.
fn pools(interval: &Interval) -> Panel {
    let requests = "waystage_pool_requests_total";
    let names = Some(interval.label_values(requests, "pool")).filter(|names| names.len() > 1).unwrap_or_default();
    let row = |pool: &str| {
        let of = |series: &Series| series.label("pool") == pool;
        let kind = |kind: &str| interval.per_s_of(requests, |series| of(series) && series.label("kind") == kind);
        let rates = [kind("read"), kind("write"), interval.per_s_of("waystage_failovers_total", of)];
        let cells = [pool.to_owned()].into_iter().chain(rates.map(|rate| maybe(rate, number)));
        Row { cells: cells.collect(), tone: Tone::Plain }
    };
    Panel::Table {
        header: vec!["pool", "reads/s", "writes/s", "failovers/s"],
        rows: names.into_iter().map(row).collect(),
    }
}

/// One row for each queue, all event loops together.
fn queues(interval: &Interval) -> Panel {
    let waiting = "waystage_queue_length";
    let row = |queue: &str| {
        let of = |series: &Series| series.label("queue") == queue;
        let sum =
            |metric: &str| interval.all(metric).filter(|series| of(series)).map(|series| series.value).sum::<f64>();
        let refused = interval.per_s_of("waystage_queue_full_total", of);
        let cells =
            vec![queue.to_owned(), number(sum(waiting)), number(sum("waystage_slots_busy")), maybe(refused, number)];
        Row { cells, tone: warning_if(refused.is_some_and(|refused| refused > 0.0)) }
    };
    let rows = interval.label_values(waiting, "queue").into_iter().map(row).collect();
    Panel::Table { header: vec!["queue", "waiting", "slots busy", "refused/s"], rows }
}

/// The most requested keys, if the proxy has them in its metrics.
fn hot_keys(interval: &Interval) -> Panel {
    let all = interval.value("waystage_hot_keys_requests_per_second");
    let mut keys: Vec<&Series> = interval.all(HOT_KEY).collect();
    keys.sort_by(|left, right| right.value.total_cmp(&left.value));
    let row = |key: &&Series| {
        let share = all.filter(|all| *all > 0.0).map(|all| key.value / all);
        Row { cells: vec![key.label("key").to_owned(), number(key.value), maybe(share, percent)], tone: Tone::Plain }
    };
    let rows = keys.iter().take(HOT_KEYS_SHOWN).map(row).collect();
    Panel::Table { header: vec!["hot key", "req/s", "share"], rows }
}
