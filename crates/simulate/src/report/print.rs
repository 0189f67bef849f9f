//! The result as tables on the terminal.

use crate::report::spread::Estimate;
use crate::report::{Quantiles, Simulation};
use std::fmt::Write;

/// The quantiles that are shown.
const SHOWN: [(f64, &str); 5] = [(0.5, "p50"), (0.9, "p90"), (0.95, "p95"), (0.99, "p99"), (0.999, "p99.9")];

/// Renders the whole result.
pub fn render(simulation: &Simulation) -> String {
    let mut out = heading(simulation);
    let mut requests = Table::new(&["class", "requests/s", "response", "lost/s"]);
    for class in &simulation.classes {
        let lost = if class.lost_per_s.mean == Some(0.0) { "0".into() } else { rate(class.lost_per_s) };
        requests.add([class.name.clone(), rate(class.throughput_per_s), time(class.response_s), lost]);
    }
    requests.write(&mut out);
    let mut quantiles = Table::new(&["response", "p50", "p90", "p95", "p99", "p99.9"]);
    for class in &simulation.classes {
        if let Some(found) = &class.quantiles {
            let cells = SHOWN.map(|(share, _)| quantile(found, share));
            quantiles.add(std::iter::once(class.name.clone()).chain(cells));
        }
    }
    quantiles.write(&mut out);
    stations(simulation, &mut out);
    forks_and_pools(simulation, &mut out);
    for note in &simulation.notes {
        let _ = writeln!(out, "note: {note}");
    }
    out
}

fn heading(simulation: &Simulation) -> String {
    let found = match simulation.warm_up.mser_requests {
        Some(requests) => format!(" (MSER-5: {requests})"),
        None => String::new(),
    };
    let mut out = format!(
        "{}: {} replications of {} requests after a warm-up of {}{found}, seed {}\n",
        simulation.model, simulation.replications, simulation.requests, simulation.warm_up.requests, simulation.seed
    );
    let _ = writeln!(
        out,
        "{:.1} million events in {:.2} s on {} threads, {:.1} million per second of CPU time\n\
         [low, high] are 95 % confidence intervals\n",
        simulation.events as f64 / 1e6,
        simulation.elapsed_s,
        simulation.threads,
        simulation.events_per_cpu_s / 1e6
    );
    out
}

fn stations(simulation: &Simulation, out: &mut String) {
    let mut table = Table::new(&["station", "class", "visits/s", "response", "waiting", "queue length", "utilisation"]);
    for station in &simulation.stations {
        for class in station.classes.iter().filter(|class| class.throughput_per_s.mean > Some(0.0)) {
            table.add([
                station.name.clone(),
                class.name.clone(),
                rate(class.throughput_per_s),
                time(class.response_s),
                time(class.waiting_s),
                plain(class.queue_length),
                plain(class.utilisation),
            ]);
        }
    }
    table.write(out);
}

fn forks_and_pools(simulation: &Simulation, out: &mut String) {
    let mut forks = Table::new(&["fork", "class", "response"]);
    for fork in &simulation.forks {
        for class in fork.classes.iter().filter(|class| class.response_s.mean.is_some()) {
            forks.add([fork.name.clone(), class.name.clone(), time(class.response_s)]);
        }
    }
    forks.write(out);
    let mut pools = Table::new(&["pool", "class", "waiting", "busy slots"]);
    for pool in &simulation.pools {
        for class in pool.classes.iter().filter(|class| class.waiting_s.mean.is_some()) {
            let busy = format!("{} of {}", plain(pool.busy), pool.slots);
            pools.add([pool.name.clone(), class.name.clone(), time(class.waiting_s), busy]);
        }
    }
    pools.write(out);
}

/// A quantile and its interval.
fn quantile(found: &Quantiles, share: f64) -> String {
    let Some(index) = found.share.iter().position(|&known| (known - share).abs() < 1e-9) else { return "-".into() };
    let (low, high) = (found.low_s[index], found.high_s[index]);
    time(Estimate { mean: Some(found.response_s[index]), low, high, half_width: None })
}

/// A rate per second with its interval.
fn rate(estimate: Estimate) -> String {
    plain(estimate)
}

/// A number and its interval, with as many digits as the width of the interval justifies.
fn plain(estimate: Estimate) -> String {
    scaled(estimate, 1.0, "")
}

/// A time and its interval, in a suitable unit.
fn time(estimate: Estimate) -> String {
    let Some(mean) = estimate.mean else { return "-".into() };
    let (scale, unit) = match mean {
        // The rounding error of a difference of equal times.
        mean if mean < 1e-12 => return "0 s".into(),
        mean if mean < 1e-6 => (1e9, " ns"),
        mean if mean < 1e-3 => (1e6, " us"),
        mean if mean < 1.0 => (1e3, " ms"),
        _ => (1.0, " s"),
    };
    scaled(estimate, scale, unit)
}

fn scaled(estimate: Estimate, scale: f64, unit: &str) -> String {
    let Some(mean) = estimate.mean.map(|mean| mean * scale) else { return "-".into() };
    match estimate.low.zip(estimate.high).map(|(low, high)| (low * scale, high * scale)) {
        Some((low, high)) if high > low => {
            // Two digits of half the width are enough.
            let digits = (1.0 - ((high - low) / 2.0).log10().floor()).clamp(0.0, 9.0) as usize;
            format!("{mean:.digits$} [{low:.digits$}, {high:.digits$}]{unit}")
        }
        Some(_) => format!("{mean:.6}{unit}"),
        // Three digits, because the accuracy is unknown.
        None => {
            let digits = (2.0 - mean.abs().max(1e-9).log10().floor()).clamp(0.0, 9.0) as usize;
            format!("{mean:.digits$}{unit}")
        }
    }
}

/// Aligned columns; the first ones are texts, aligned to the left.
struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    fn new(headings: &[&str]) -> Table {
        Table { rows: vec![headings.iter().map(|heading| (*heading).to_owned()).collect()] }
    }

    fn add(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Nothing if there is no row below the headings.
    fn write(&self, out: &mut String) {
        if self.rows.len() < 2 {
            return;
        }
        let columns = self.rows[0].len();
        let width = |column: usize| self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for row in &self.rows {
            let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
            let _ = writeln!(out, "{}", cells.join("  ").trim_end());
        }
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_follow_the_width_of_the_interval() {
        let estimate =
            |mean, low, high| Estimate { mean: Some(mean), low: Some(low), high: Some(high), half_width: None };
        assert_eq!(time(estimate(0.001_234_567, 0.001_224, 0.001_248)), "1.235 [1.224, 1.248] ms");
        assert_eq!(plain(estimate(19_718.4, 19_683.4, 19_753.4)), "19718 [19683, 19753]");
        assert_eq!(time(Estimate { mean: Some(0.25), ..Estimate::default() }), "250 ms");
        assert_eq!(plain(Estimate::default()), "-");
    }
}
