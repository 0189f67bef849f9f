//! The metrics page in Prometheus' text format.

use crate::database::storage::FAULT_LABELS;
use crate::observe::client_connections::{ClientConnectionCounts, TIMEOUTS};
use crate::observe::journal::{Counts, DUE_OUTCOMES, intervals};
use crate::observe::limits::{LIMIT_LABELS, REQUEST_LIMIT_LABELS};
use crate::observe::stage_times::{BOUNDS_US, OPERATION_LABELS, SERIES};
use crate::path::health::LOOP_LABELS;
use crate::path::lane_connections::LaneState;
use clock::Process;
use std::fmt::Write;
use std::time::Duration;

/// The label `limit` of requests that were refused because there were too many: the settings that limit them.
const LOAD_LIMITS: [&str; 5] = ["queue", "queue-per-sender", "memory", "memory-per-client", "long-polls"];

/// Everything that the page shows.
#[derive(Debug)]
pub(crate) struct MetricsSnapshot {
    pub(crate) counts: Counts,
    pub(crate) connections: ClientConnectionCounts,
    /// The same for operators at an address of their own.
    pub(crate) operators: ClientConnectionCounts,
    /// The lanes of each job queue.
    pub(crate) lanes: Vec<(String, LaneState)>,
    /// The length of each job queue.
    pub(crate) queues: Vec<(String, usize)>,
    /// Requests that were refused, by [`LOAD_LIMITS`].
    pub(crate) refused: [u64; LOAD_LIMITS.len()],
    /// Requests that were refused, by [`REQUEST_LIMIT_LABELS`].
    pub(crate) refused_alone: [u64; REQUEST_LIMIT_LABELS.len()],
    /// How often other limits were reached, by [`LIMIT_LABELS`].
    pub(crate) limits_reached: [u64; LIMIT_LABELS.len()],
    pub(crate) polls: usize,
    /// How long ago each background loop finished a round.
    pub(crate) loop_ages: Option<[Duration; LOOP_LABELS.len()]>,
    /// Reserved bytes of bodies and replies, and their limit.
    pub(crate) memory: [usize; 2],
    pub(crate) process: Process,
}

/// The page as text.
pub(crate) fn page(snapshot: &MetricsSnapshot) -> String {
    let MetricsSnapshot { counts, queues, polls, .. } = snapshot;
    let mut page = String::with_capacity(64 << 10);
    head(&mut page, "waystage_messages_requests_total", "counter", "Requests by operation and HTTP status.");
    for (kind, status, number) in &counts.requests {
        line(
            &mut page,
            "waystage_messages_requests_total",
            &format!("operation=\"{kind}\",status=\"{status}\""),
            number,
        );
    }
    let counters = [
        ("batches_total", "Batches of requests sent to the database.", counts.batches),
        ("batched_requests_total", "Requests in all batches.", counts.batched_requests),
        ("reconnects_total", "Reconnections to the database.", counts.connects),
        ("connect_failures_total", "Connections to the database that failed.", counts.connect_failures),
        (
            "redelivery_failures_total",
            "Messages that the database refused to redeliver; each is tried again.",
            counts.redelivery_failures,
        ),
        (
            "table_errors_total",
            "Batches of requests and rounds of background loops that failed for want of a privilege or a table.",
            counts.table_errors,
        ),
        (
            "replication_timeouts_total",
            "Batches given up because their commit waited too long for a synchronous standby.",
            counts.replication_timeouts,
        ),
        ("records_dropped_total", "Records dropped because the disk was too slow.", counts.records_dropped),
    ];
    for (name, help, value) in counters {
        let name = format!("waystage_messages_{name}");
        head(&mut page, &name, "counter", help);
        line(&mut page, &name, "", &value);
    }
    let name = "waystage_messages_due_total";
    head(&mut page, name, "counter", "Messages whose lease, delay or expiry has ended, by outcome.");
    for (outcome, number) in DUE_OUTCOMES.iter().zip(counts.due) {
        line(&mut page, name, &format!("outcome=\"{outcome}\""), &number);
    }
    let name = "waystage_messages_storage_errors_total";
    let help =
        "Batches of requests and rounds of background loops that failed because of the server's storage, by fault.";
    head(&mut page, name, "counter", help);
    for (fault, number) in FAULT_LABELS.iter().zip(counts.storage_errors) {
        line(&mut page, name, &format!("fault=\"{fault}\""), &number);
    }
    head(&mut page, "waystage_messages_queue_length", "gauge", "Requests that wait for a connection to the database.");
    for (label, length) in queues {
        line(&mut page, "waystage_messages_queue_length", &format!("queue=\"{label}\""), length);
    }
    let name = "waystage_messages_lane_connections";
    head(&mut page, name, "gauge", "Open connections to the database for the requests of this queue.");
    for (label, lanes) in &snapshot.lanes {
        line(&mut page, name, &format!("queue=\"{label}\""), &lanes.open);
    }
    let name = "waystage_messages_lane_stuck_seconds";
    head(&mut page, name, "gauge", "Time since a lane of this queue became stuck in a statement; 0: none is.");
    for (label, lanes) in &snapshot.lanes {
        line(&mut page, name, &format!("queue=\"{label}\""), &lanes.stuck_for.as_secs_f64());
    }
    let name = "waystage_messages_refused_total";
    head(&mut page, name, "counter", "Requests that were refused because a limit was reached.");
    let alone = REQUEST_LIMIT_LABELS.iter().zip(snapshot.refused_alone);
    for (limit, number) in LOAD_LIMITS.iter().zip(snapshot.refused).chain(alone) {
        line(&mut page, name, &format!("limit=\"{limit}\""), &number);
    }
    let name = "waystage_messages_limits_reached_total";
    head(&mut page, name, "counter", "Statements, requests, notifications and the like that reached another limit.");
    for (limit, number) in LIMIT_LABELS.iter().zip(snapshot.limits_reached) {
        line(&mut page, name, &format!("limit=\"{limit}\""), &number);
    }
    head(&mut page, "waystage_messages_long_polls", "gauge", "Requests that wait for messages.");
    line(&mut page, "waystage_messages_long_polls", "", polls);
    for (name, help, bytes) in [
        ("waystage_messages_buffered_bytes", "Bytes of bodies and replies in memory.", snapshot.memory[0]),
        (
            "waystage_messages_buffered_bytes_max",
            "Limit of the bytes of bodies and replies in memory.",
            snapshot.memory[1],
        ),
    ] {
        head(&mut page, name, "gauge", help);
        line(&mut page, name, "", &bytes);
    }
    let name = "waystage_messages_loop_age_seconds";
    head(&mut page, name, "gauge", "Time since a background loop last finished a round.");
    for (label, age) in LOOP_LABELS.iter().zip(snapshot.loop_ages.iter().flatten()) {
        line(&mut page, name, &format!("loop=\"{label}\""), &age.as_secs_f64());
    }
    stages(&mut page, counts);
    clients(&mut page, &snapshot.connections, &snapshot.operators);
    process(&mut page, &snapshot.process);
    page
}

fn stages(page: &mut String, counts: &Counts) {
    let name = "waystage_messages_stage_seconds";
    head(page, name, "histogram", "Time in each stage, and in total, by operation.");
    for (kind, all) in OPERATION_LABELS.iter().zip(&counts.times) {
        let series = intervals().map(|(index, interval)| (index, interval.name)).chain([(SERIES - 1, "total")]);
        for (index, stage) in series {
            let times = &all[index];
            let count = times.count();
            if count == 0 {
                continue;
            }
            let labels = format!("operation=\"{kind}\",stage=\"{stage}\"");
            for (bound_us, below) in BOUNDS_US.into_iter().zip(times.up_to_bounds()) {
                let bound_s = bound_us as f64 / 1e6;
                line(page, &format!("{name}_bucket"), &format!("{labels},le=\"{bound_s}\""), &below);
            }
            line(page, &format!("{name}_bucket"), &format!("{labels},le=\"+Inf\""), &count);
            line(page, &format!("{name}_sum"), &labels, &(times.sum_ns as f64 / 1e9));
            line(page, &format!("{name}_count"), &labels, &count);
        }
    }
}

fn clients(page: &mut String, counts: &ClientConnectionCounts, operators: &ClientConnectionCounts) {
    let numbers = [
        ("clients", "gauge", "Client connections.", counts.open),
        ("clients_max", "gauge", "Limit of client connections.", counts.max),
        ("clients_accepted_total", "counter", "Client connections accepted.", counts.accepted),
        ("clients_refused_total", "counter", "Client connections refused because of the limit.", counts.refused),
        ("clients_tls_failed_total", "counter", "Client connections whose TLS handshake failed.", counts.tls_failed),
        (
            "operators_refused_total",
            "counter",
            "Connections to admin-listen refused because of their limit.",
            operators.refused,
        ),
        (
            "accept_pauses_total",
            "counter",
            "Pauses of accept because no file descriptor was left.",
            counts.accept_pauses,
        ),
    ];
    for (name, kind, help, value) in numbers {
        let name = format!("waystage_messages_{name}");
        head(page, &name, kind, help);
        line(page, &name, "", &value);
    }
    let name = "waystage_messages_clients_timed_out_total";
    head(page, name, "counter", "Client connections closed by a timeout.");
    for (timeout, number) in TIMEOUTS.iter().zip(counts.timed_out) {
        line(page, name, &format!("timeout=\"{timeout}\""), &number);
    }
}

fn process(page: &mut String, process: &Process) {
    let name = "waystage_messages_build_info";
    head(page, name, "gauge", "Always 1; the label has the version.");
    line(page, name, &format!("version=\"{}\"", env!("CARGO_PKG_VERSION")), &1);
    let name = "process_cpu_seconds_total";
    head(page, name, "counter", "CPU time of the process, user and system.");
    let cpu = clock::process_cpu();
    line(page, name, "", &(cpu.user_s + cpu.system_s));
    let numbers = [
        ("process_resident_memory_bytes", "Resident memory of the process.", process.memory_bytes),
        ("process_open_fds", "Open file descriptors.", process.open_files),
        ("process_max_fds", "Limit of open file descriptors.", process.open_files_max),
    ];
    for (name, help, value) in numbers {
        if let Some(value) = value {
            head(page, name, "gauge", help);
            line(page, name, "", &value);
        }
    }
}

fn head(page: &mut String, name: &str, kind: &str, help: &str) {
    // Writing into a string cannot fail.
    let _ = write!(page, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
}

fn line(page: &mut String, name: &str, labels: &str, value: &dyn std::fmt::Display) {
    let _ = match labels {
        "" => writeln!(page, "{name} {value}"),
        _ => writeln!(page, "{name}{{{labels}}} {value}"),
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::client_connections::ClientConnections;
    use crate::observe::journal::Journal;
    use crate::observe::record_file::RecordSink;
    use clock::{Nanos, Stage, StageClock};
    use std::sync::Arc;

    #[test]
    fn a_page_has_every_family_and_cumulative_buckets() {
        let journal = Journal::new(RecordSink::default(), Arc::default());
        let mut clock = StageClock::started(Nanos(1));
        clock.stamp(Stage::Replied, Nanos(3_000_001));
        clock.finish();
        journal.end("pop", 204, &clock);
        let page = page(&MetricsSnapshot {
            counts: journal.counts(),
            connections: Arc::new(ClientConnections::new(5)).counts(),
            operators: Arc::new(ClientConnections::new(5)).counts(),
            lanes: vec![
                ("0".into(), LaneState { open: 1, stuck_for: Duration::from_millis(2500) }),
                ("keyed".into(), LaneState::default()),
            ],
            queues: vec![("0".into(), 3), ("lists".into(), 0)],
            refused: [1, 2, 3, 4, 5],
            refused_alone: [6; 6],
            limits_reached: [7; 19],
            polls: 7,
            loop_ages: Some([Duration::from_millis(1500); 4]),
            memory: [3, 9],
            process: Process::now(),
        });
        for expected in [
            "waystage_messages_requests_total{operation=\"pop\",status=\"204\"} 1",
            "waystage_messages_queue_length{queue=\"0\"} 3",
            "waystage_messages_lane_connections{queue=\"keyed\"} 0",
            "waystage_messages_lane_stuck_seconds{queue=\"0\"} 2.5",
            "waystage_messages_refused_total{limit=\"memory-per-client\"} 4",
            "waystage_messages_refused_total{limit=\"lease-limit\"} 6",
            "waystage_messages_limits_reached_total{limit=\"lock-timeout\"} 7",
            "waystage_messages_long_polls 7",
            "waystage_messages_loop_age_seconds{loop=\"redelivery\"} 1.5",
            "waystage_messages_buffered_bytes_max 9",
            "waystage_messages_clients_max 5",
            "waystage_messages_clients_timed_out_total{timeout=\"head\"} 0",
            "waystage_messages_stage_seconds_bucket{operation=\"pop\",stage=\"total\",le=\"0.002\"} 0",
            "waystage_messages_stage_seconds_bucket{operation=\"pop\",stage=\"total\",le=\"0.005\"} 1",
            "waystage_messages_stage_seconds_sum{operation=\"pop\",stage=\"total\"} 0.003",
        ] {
            assert!(page.contains(expected), "{expected}\n{page}");
        }
    }
}
