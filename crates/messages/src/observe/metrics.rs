//! The counts as a page for Prometheus, in its text format.

use crate::observe::client_connections::{ConnectionCounts, LATE};
use crate::observe::journal::{Counts, KINDS, MOVES, SERIES, intervals};
use clock::Process;
use std::fmt::Write;

/// Upper bounds of the buckets in microseconds, as the proxy has them.
const BOUNDS_US: [u64; 21] = [
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000,
    1_000_000, 2_000_000, 5_000_000,
];

/// Everything that the page shows.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) counts: Counts,
    pub(crate) connections: ConnectionCounts,
    /// The length of each queue.
    pub(crate) queues: Vec<usize>,
    pub(crate) polls: usize,
    /// Bytes of bodies and replies that are held, and that may be.
    pub(crate) memory: [usize; 2],
    pub(crate) process: Process,
}

/// Writes the page.
pub(crate) fn page(seen: &Seen) -> String {
    let Seen { counts, queues, polls, .. } = seen;
    let mut page = String::with_capacity(64 << 10);
    head(&mut page, "waystage_messages_requests_total", "counter", "Requests by operation and HTTP status.");
    for ((kind, status), number) in &counts.requests {
        line(
            &mut page,
            "waystage_messages_requests_total",
            &format!("operation=\"{kind}\",status=\"{status}\""),
            number,
        );
    }
    let counters = [
        ("batches_total", "Times that a connection took waiting requests.", counts.batches),
        ("batched_requests_total", "Requests in all batches.", counts.batched_requests),
        ("reconnects_total", "Connections to the database that were made again.", counts.connects),
        ("connect_failures_total", "Connections to the database that could not be made.", counts.connect_failures),
        ("records_dropped_total", "Records that the disk was too slow for.", counts.records_dropped),
    ];
    for (name, help, value) in counters {
        let name = format!("waystage_messages_{name}");
        head(&mut page, &name, "counter", help);
        line(&mut page, &name, "", &value);
    }
    let name = "waystage_messages_moved_total";
    head(&mut page, name, "counter", "Messages whose lease, delay or life ended, by where they went.");
    for (to, number) in MOVES.iter().zip(counts.moved) {
        line(&mut page, name, &format!("to=\"{to}\""), &number);
    }
    head(&mut page, "waystage_messages_queue_length", "gauge", "Requests that wait for a connection.");
    for (index, length) in queues.iter().enumerate() {
        line(&mut page, "waystage_messages_queue_length", &format!("queue=\"{index}\""), length);
    }
    head(&mut page, "waystage_messages_long_polls", "gauge", "Requests that wait for messages.");
    line(&mut page, "waystage_messages_long_polls", "", polls);
    for (name, help, bytes) in [
        ("waystage_messages_held_bytes", "Bytes of bodies and replies that are held.", seen.memory[0]),
        ("waystage_messages_held_bytes_max", "Bytes of bodies and replies that may be held.", seen.memory[1]),
    ] {
        head(&mut page, name, "gauge", help);
        line(&mut page, name, "", &bytes);
    }
    stages(&mut page, counts);
    clients(&mut page, &seen.connections);
    process(&mut page, &seen.process);
    page
}

fn stages(page: &mut String, counts: &Counts) {
    let name = "waystage_messages_stage_seconds";
    head(page, name, "histogram", "Time in each interval, and in all, by operation.");
    for (kind, all) in KINDS.iter().zip(&counts.times) {
        let series = intervals().map(|(index, interval)| (index, interval.name)).chain([(SERIES - 1, "total")]);
        for (index, stage) in series {
            let times = &all[index];
            if times.histogram.is_empty() {
                continue;
            }
            let labels = format!("operation=\"{kind}\",stage=\"{stage}\"");
            for bound_us in BOUNDS_US {
                let below = times.histogram.count_between(0, bound_us * 1000);
                let bound_s = bound_us as f64 / 1e6;
                line(page, &format!("{name}_bucket"), &format!("{labels},le=\"{bound_s}\""), &below);
            }
            let all = times.histogram.len();
            line(page, &format!("{name}_bucket"), &format!("{labels},le=\"+Inf\""), &all);
            line(page, &format!("{name}_sum"), &labels, &(times.sum_ns as f64 / 1e9));
            line(page, &format!("{name}_count"), &labels, &all);
        }
    }
}

fn clients(page: &mut String, counts: &ConnectionCounts) {
    let numbers = [
        ("clients", "gauge", "Clients connected.", counts.open),
        ("clients_max", "gauge", "Clients that may be connected.", counts.max),
        ("clients_accepted_total", "counter", "Connections of clients that were accepted.", counts.accepted),
        ("clients_refused_total", "counter", "Connections that were refused for want of room.", counts.refused),
        ("clients_tls_failed_total", "counter", "Clients with whom TLS failed.", counts.tls_failed),
        ("accept_pauses_total", "counter", "Pauses in accepting for want of descriptors.", counts.accept_pauses),
    ];
    for (name, kind, help, value) in numbers {
        let name = format!("waystage_messages_{name}");
        head(page, &name, kind, help);
        line(page, &name, "", &value);
    }
    let name = "waystage_messages_clients_late_total";
    head(page, name, "counter", "Clients whose time was up, by what they were waited for.");
    for (what, number) in LATE.iter().zip(counts.late) {
        line(page, name, &format!("what=\"{what}\""), &number);
    }
}

fn process(page: &mut String, process: &Process) {
    let name = "waystage_messages_build_info";
    head(page, name, "gauge", "Always 1; the label says what is running.");
    line(page, name, &format!("version=\"{}\"", env!("CARGO_PKG_VERSION")), &1);
    let name = "process_cpu_seconds_total";
    head(page, name, "counter", "Processor time of the process, user and system.");
    let cpu = clock::process_cpu();
    line(page, name, "", &(cpu.user_s + cpu.system_s));
    let numbers = [
        ("process_resident_memory_bytes", "Memory of the process.", process.memory_bytes),
        ("process_open_fds", "Open file descriptors.", process.open_files),
        ("process_max_fds", "File descriptors that may be open.", process.open_files_max),
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
    use crate::observe::client_connections::Connections;
    use crate::observe::journal::Journal;
    use crate::observe::record_file::Rows;
    use clock::{Nanos, Stage, StageClock};
    use std::sync::Arc;

    #[test]
    fn a_page_has_every_family_and_cumulative_buckets() {
        let journal = Journal::new(Rows::default());
        let mut clock = StageClock::started(Nanos(1));
        clock.stamp(Stage::Replied, Nanos(3_000_001));
        clock.finish();
        journal.end("pop", 204, &clock);
        let page = page(&Seen {
            counts: journal.counts(),
            connections: Arc::new(Connections::new(5)).counts(),
            queues: vec![3, 0],
            polls: 7,
            memory: [3, 9],
            process: Process::now(),
        });
        for expected in [
            "waystage_messages_requests_total{operation=\"pop\",status=\"204\"} 1",
            "waystage_messages_queue_length{queue=\"0\"} 3",
            "waystage_messages_long_polls 7",
            "waystage_messages_held_bytes_max 9",
            "waystage_messages_clients_max 5",
            "waystage_messages_clients_late_total{what=\"head\"} 0",
            "waystage_messages_stage_seconds_bucket{operation=\"pop\",stage=\"total\",le=\"0.002\"} 0",
            "waystage_messages_stage_seconds_bucket{operation=\"pop\",stage=\"total\",le=\"0.005\"} 1",
            "waystage_messages_stage_seconds_sum{operation=\"pop\",stage=\"total\"} 0.003",
        ] {
            assert!(page.contains(expected), "{expected}\n{page}");
        }
    }
}
