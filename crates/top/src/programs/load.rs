//! The panels of a load generator. docs/load-summary.md has the meaning of each metric.

use super::times_panel;
use crate::format::{bytes, maybe, number, percent};
use crate::panel::{Number, Panel};
use crate::reading::{Interval, Series};

/// Counts only requests that were answered without an error.
pub(super) const REQUESTS: &str = "waystage_load_requests_total";
const ERRORS: &str = "waystage_load_errors_total";

pub(super) fn panels(interval: &Interval) -> Vec<Panel> {
    let mut panels = vec![Panel::Numbers(numbers(interval))];
    for (title, name) in [
        ("response time", "waystage_load_response_seconds"),
        ("service time", "waystage_load_service_seconds"),
        ("slip", "waystage_load_slip_seconds"),
    ] {
        let row = |operation: &str| {
            let times = interval.times(name, |series: &Series| series.label("operation") == operation);
            (operation.to_owned(), times)
        };
        // Every operation has its histogram, also one that the load does not use.
        let rows = interval.label_values(&format!("{name}_bucket"), "operation").into_iter().map(row);
        panels.push(times_panel(title, rows.filter(|(_, times)| times.is_some()).collect()));
    }
    panels
}

fn numbers(interval: &Interval) -> Vec<Number> {
    // The generator publishes its counts once a second. An interval can have none or two of these updates, so that a rate of the
    // interval would be wrong; the generator's own rate is that of its last second.
    let requests = interval.value("waystage_load_achieved_per_second");
    let errors = interval.per_s(ERRORS);
    let [hits, misses] = ["waystage_load_hits_total", "waystage_load_misses_total"].map(|name| interval.per_s(name));
    let ratio = hits.zip(misses).map(|(hits, misses)| hits / (hits + misses)).filter(|ratio| ratio.is_finite());
    let mut numbers = vec![
        Number::plain("requests/s", maybe(requests, number)),
        Number::warning("errors/s", maybe(errors, number), errors),
        Number::plain("hit ratio", maybe(ratio, percent)),
    ];
    let offered = interval.value("waystage_load_offered_per_second");
    numbers.extend(offered.map(|rate| Number::plain("offered/s", number(rate))));
    numbers.push(Number::plain("sent/s", maybe(interval.per_s("waystage_load_sent_bytes_total"), bytes)));
    numbers.push(Number::plain("received/s", maybe(interval.per_s("waystage_load_received_bytes_total"), bytes)));
    numbers
}
