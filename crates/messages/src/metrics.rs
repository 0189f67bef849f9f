//! The counts as a page for Prometheus, in its text format.

use crate::journal::{Counts, KINDS, SERIES, intervals};
use std::fmt::Write;

/// Upper bounds of the buckets in microseconds, as the proxy has them.
const BOUNDS_US: [u64; 21] = [
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000,
    1_000_000, 2_000_000, 5_000_000,
];

/// Writes the page. `queues` has the length of each queue.
pub(crate) fn page(counts: &Counts, queues: &[usize], polls: usize) -> String {
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
    ];
    for (name, help, value) in counters {
        let name = format!("waystage_messages_{name}");
        head(&mut page, &name, "counter", help);
        line(&mut page, &name, "", &value);
    }
    head(&mut page, "waystage_messages_queue_length", "gauge", "Requests that wait for a connection.");
    for (index, length) in queues.iter().enumerate() {
        line(&mut page, "waystage_messages_queue_length", &format!("queue=\"{index}\""), length);
    }
    head(&mut page, "waystage_messages_long_polls", "gauge", "Requests that wait for messages.");
    line(&mut page, "waystage_messages_long_polls", "", &polls);
    stages(&mut page, counts);
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
    use crate::journal::Journal;
    use clock::{Nanos, Stage, StageClock};

    #[test]
    fn a_page_has_every_family_and_cumulative_buckets() {
        let journal = Journal::new();
        let mut clock = StageClock::started(Nanos(1));
        clock.stamp(Stage::Replied, Nanos(3_000_001));
        clock.finish();
        journal.end("pop", 204, &clock);
        let page = page(&journal.counts(), &[3, 0], 7);
        for expected in [
            "waystage_messages_requests_total{operation=\"pop\",status=\"204\"} 1",
            "waystage_messages_queue_length{queue=\"0\"} 3",
            "waystage_messages_long_polls 7",
            "waystage_messages_stage_seconds_bucket{operation=\"pop\",stage=\"total\",le=\"0.002\"} 0",
            "waystage_messages_stage_seconds_bucket{operation=\"pop\",stage=\"total\",le=\"0.005\"} 1",
            "waystage_messages_stage_seconds_sum{operation=\"pop\",stage=\"total\"} 0.003",
        ] {
            assert!(page.contains(expected), "{expected}\n{page}");
        }
    }
}
