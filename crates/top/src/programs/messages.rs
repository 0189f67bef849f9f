//! The panels of a message service. docs/messages-operation.md has the meaning of each metric.

use super::{counted, counted_once, process_numbers, stage_panels, with_limit};
use crate::format::{bytes, maybe, number, time};
use crate::panel::{Number, Panel, Row, Tone, warning_if};
use crate::reading::{Interval, Series, VALUES_MAX};

const REQUESTS: &str = "waystage_messages_requests_total";
const LANES: &str = "waystage_messages_lane_connections";
/// A background loop that has not finished a round for this long is late (docs/messages-operation.md).
const LATE_S: f64 = 60.0;

pub(super) fn panels(interval: &Interval) -> Vec<Panel> {
    let mut panels = vec![Panel::Numbers(numbers(interval))];
    panels.extend(stage_panels(interval, "waystage_messages_stage_seconds"));
    panels.push(lanes(interval));
    panels.push(errors(interval));
    panels.push(due(interval));
    panels.push(loops(interval));
    panels
}

/// Requests that the service could not serve, by its own fault or the client's.
fn is_error(status: &str) -> bool {
    status.starts_with(['4', '5'])
}

fn numbers(interval: &Interval) -> Vec<Number> {
    let errors = interval.per_s_of(REQUESTS, |series| is_error(series.label("status")));
    let batches = interval.per_s("waystage_messages_batches_total");
    let batched = interval.per_s("waystage_messages_batched_requests_total");
    let size = batched.zip(batches).map(|(requests, batches)| requests / batches).filter(|size| size.is_finite());
    let clients = with_limit(interval, "waystage_messages_clients", "waystage_messages_clients_max", number);
    let buffered =
        with_limit(interval, "waystage_messages_buffered_bytes", "waystage_messages_buffered_bytes_max", bytes);
    let mut numbers = vec![
        Number::plain("requests/s", maybe(interval.per_s(REQUESTS), number)),
        Number::warning("errors/s", maybe(errors, number), errors),
        Number::plain("long polls", maybe(interval.value("waystage_messages_long_polls"), number)),
        Number::plain("batches/s", maybe(batches, number)),
        Number::plain("batch size", maybe(size, number)),
        Number::plain("clients", clients),
        Number::plain("buffered", buffered),
    ];
    numbers.extend(process_numbers(interval));
    numbers
}

/// One row for each lane: the connections to the database, and the requests that wait for one.
fn lanes(interval: &Interval) -> Panel {
    let row = |open: &Series| {
        let queue = open.label("queue");
        let of = |metric: &str| interval.all(metric).find(|series| series.label("queue") == queue);
        let waiting = of("waystage_messages_queue_length").map(|series| series.value);
        let stuck_s = of("waystage_messages_lane_stuck_seconds").map_or(0.0, |series| series.max);
        let (state, tone) = match (open.value, stuck_s) {
            (0.0, _) => ("down".into(), Tone::Down),
            (_, 0.0) => ("up".into(), Tone::Plain),
            _ => (format!("stuck {}", time(stuck_s)), Tone::Warning),
        };
        Row { cells: vec![queue.to_owned(), state, number(open.value), maybe(waiting, number)], tone }
    };
    Panel::Table {
        header: vec!["lane", "state", "connections", "waiting"],
        rows: interval.all(LANES).take(VALUES_MAX).map(row).collect(),
    }
}

fn errors(interval: &Interval) -> Panel {
    let mut rows = counted(interval, REQUESTS, "status", "status ", is_error);
    rows.extend(counted(interval, "waystage_messages_refused_total", "limit", "limit ", |_| true));
    rows.extend(counted(interval, "waystage_messages_storage_errors_total", "fault", "storage ", |_| true));
    for (name, text) in [
        ("waystage_messages_connect_failures_total", "database connects failed"),
        ("waystage_messages_table_errors_total", "table errors"),
        ("waystage_messages_redelivery_failures_total", "redeliveries failed"),
        ("waystage_messages_replication_timeouts_total", "replication timeouts"),
        ("waystage_messages_clients_refused_total", "clients refused"),
    ] {
        rows.extend(counted_once(interval, name, text));
    }
    Panel::Table { header: vec!["failures", "per s", "total"], rows }
}

fn due(interval: &Interval) -> Panel {
    let mut rows = counted(interval, "waystage_messages_due_total", "outcome", "", |_| true);
    // That a lease ends is ordinary; that a message could not be processed is not.
    rows.iter_mut().filter(|row| row.cells[0] != "dead_lettered").for_each(|row| row.tone = Tone::Plain);
    Panel::Table { header: vec!["messages due", "per s", "total"], rows }
}

fn loops(interval: &Interval) -> Panel {
    let row = |age: &Series| Row {
        cells: vec![age.label("loop").to_owned(), time(age.max)],
        tone: warning_if(age.max > LATE_S),
    };
    let rows = interval.all("waystage_messages_loop_age_seconds").map(row).collect();
    Panel::Table { header: vec!["background loop", "last round"], rows }
}
