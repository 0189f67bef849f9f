//! The curve as a chart in the terminal with one sentence, and as JSON.

use hit_ratio::{Curve, Point};
use quantity::bytes_text;
use serde_json::json;
use std::fmt::Write;

/// Characters of the bar of a hit ratio of 1.
const BAR: f64 = 40.0;
/// Without the memory of today, the answer is the smallest memory with a hit ratio that is lower by at most this.
const NEAR: f64 = 0.01;
const FORMAT: &str = "waystage-memory/1";

/// The curve of a trace, and the settings it was computed with.
pub(super) struct CapacityAnswer {
    pub(super) trace: String,
    pub(super) policy: String,
    /// Amounts of memory are multiples of it.
    pub(super) unit: u64,
    pub(super) today: Option<u64>,
    pub(super) item_bytes_max: u64,
    pub(super) skipped_lines: u64,
    pub(super) curve: Curve,
}

impl CapacityAnswer {
    /// The chart and the sentence.
    pub(super) fn text(&self) -> String {
        let sample = &self.curve.sample;
        let about = if sample.rate < 1.0 { "about " } else { "" };
        let mut lines = vec![
            format!(
                "{}: {} requests, {} gets, {about}{:.0} keys, {about}{} of items, {} s",
                self.trace,
                sample.requests,
                sample.gets,
                sample.keys,
                readable(sample.item_bytes),
                sample.span_s
            ),
            format!("policy: {}", self.policy),
        ];
        if sample.rate < 1.0 {
            lines.push(format!("{} keys are simulated, {:.3} % of all", sample.sampled_keys, 100.0 * sample.rate));
        }
        let first = sample.first_gets / sample.gets as f64;
        lines.push(format!("first gets of a key, which miss with any memory: {:.1} % of the gets", 100.0 * first));
        lines.extend(self.reservations());
        lines.push(String::new());
        lines.push(format!("{:>10}  {:>9}  0 %{:>width$}", "memory", "hit ratio", "100 %", width = BAR as usize - 3));
        lines.extend(self.curve.points.iter().map(bar));
        lines.push(String::new());
        lines.push(self.sentence());
        lines.iter().fold(String::new(), |mut text, line| {
            let _ = writeln!(text, "{}", line.trim_end());
            text
        })
    }

    /// Facts that make the answer uncertain, one line each.
    fn reservations(&self) -> Vec<String> {
        let sample = &self.curve.sample;
        let mut lines = Vec::new();
        if sample.too_large > 0 {
            let limit = bytes_text(self.item_bytes_max);
            lines.push(format!("{} requests have items above -I {limit}; they are never stored", sample.too_large));
        }
        if sample.empty_writes > 0 {
            lines.push(format!("{} writes have the value size 0, which was taken as it is", sample.empty_writes));
        }
        let has_exceeded = |point: &&Point| self.unit > 1 && point.taken_bytes > point.memory;
        if let Some(point) = self.curve.points.iter().rfind(has_exceeded) {
            lines.push(format!(
                "up to {} of memory, memcached takes more, here {}: the first page of every slab class",
                readable(point.memory as f64),
                readable(point.taken_bytes as f64)
            ));
        }
        if self.skipped_lines > 0 {
            lines.push(format!("{} malformed lines were skipped", self.skipped_lines));
        }
        lines
    }

    /// What more memory brings, or how much is enough.
    fn sentence(&self) -> String {
        let points = &self.curve.points;
        let percent = |ratio: f64| format!("{:.1}", 100.0 * ratio);
        let at = |memory: u64| points.iter().find(|point| point.memory == memory);
        if let Some((now, more)) = self.today.and_then(|today| Some((at(today)?, at(2 * today)?))) {
            let step = readable((more.memory - now.memory) as f64);
            let (from, to) = (percent(now.hit_ratio), percent(more.hit_ratio));
            let fewer = 1.0 - (1.0 - more.hit_ratio) / (1.0 - now.hit_ratio).max(f64::MIN_POSITIVE);
            let fewer = (100.0 * fewer).clamp(0.0, 100.0);
            return format!("{step} more: hit ratio {from} -> {to} %, {fewer:.0} % fewer misses");
        }
        let best = points.iter().map(|point| point.hit_ratio).fold(0.0, f64::max);
        match points.iter().find(|point| point.hit_ratio >= best - NEAR) {
            Some(point) => format!(
                "{} of memory: hit ratio {} %, within one point of the highest, {} %",
                readable(point.memory as f64),
                percent(point.hit_ratio),
                percent(best)
            ),
            None => "no amount of memory was simulated".into(),
        }
    }

    /// One JSON document.
    pub(super) fn json(&self) -> String {
        let sample = &self.curve.sample;
        let points: Vec<_> = self.curve.points.iter().map(point_json).collect();
        let document = json!({
            "format": FORMAT,
            "trace": self.trace,
            "policy": self.policy,
            "memory_unit_bytes": self.unit,
            "requests": sample.requests,
            "gets": sample.gets,
            "keys": sample.keys,
            "item_bytes": sample.item_bytes,
            "span_s": sample.span_s,
            "sampling_rate": sample.rate,
            "sampled_keys": sample.sampled_keys,
            "first_gets": sample.first_gets,
            "too_large": sample.too_large,
            "empty_writes": sample.empty_writes,
            "skipped_lines": self.skipped_lines,
            "points": points,
            "sentence": self.sentence(),
        });
        format!("{document:#}\n")
    }
}

fn bar(point: &Point) -> String {
    let filled = (point.hit_ratio * BAR).round() as usize;
    format!("{:>10}  {:>7.1} %  {}", readable(point.memory as f64), 100.0 * point.hit_ratio, "█".repeat(filled))
}

fn point_json(point: &Point) -> serde_json::Value {
    json!({
        "memory_bytes": point.memory,
        "hit_ratio": point.hit_ratio,
        "evictions": point.evictions,
        "stored_bytes": point.stored_bytes,
        "taken_bytes": point.taken_bytes,
    })
}

/// Bytes with a unit, and at most one decimal digit.
fn readable(bytes: f64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let unit = units.into_iter().map(|(power, name)| (2f64.powi(power), name)).find(|(unit, _)| bytes >= *unit);
    let (value, name) = unit.map_or((bytes, "bytes"), |(unit, name)| (bytes / unit, name));
    let text = format!("{value:.1}");
    format!("{} {name}", text.strip_suffix(".0").unwrap_or(&text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hit_ratio::Sample;

    fn answer(today: Option<u64>) -> CapacityAnswer {
        let point = |mib: u64, hit_ratio| Point {
            memory: mib << 20,
            hit_ratio,
            evictions: 0.0,
            stored_bytes: 0.0,
            taken_bytes: 90 << 20,
        };
        let sample = Sample { rate: 1.0, requests: 10, gets: 8, keys: 3.0, ..Sample::default() };
        CapacityAnswer {
            trace: "t.csv".into(),
            policy: "memcached".into(),
            unit: 1 << 20,
            today,
            item_bytes_max: 1 << 20,
            skipped_lines: 0,
            curve: Curve { sample, points: vec![point(64, 0.912), point(128, 0.94), point(256, 0.945)] },
        }
    }

    #[test]
    fn the_sentence_names_twice_the_memory_of_today_or_enough_memory() {
        let sentence = answer(Some(64 << 20)).sentence();
        assert_eq!(sentence, "64 MiB more: hit ratio 91.2 -> 94.0 %, 32 % fewer misses");
        let sentence = answer(None).sentence();
        assert_eq!(sentence, "128 MiB of memory: hit ratio 94.0 %, within one point of the highest, 94.5 %");
    }

    #[test]
    fn the_chart_has_a_bar_for_each_amount() {
        let text = answer(None).text();
        let bars: Vec<usize> =
            text.lines().filter(|line| line.contains('█')).map(|line| line.matches('█').count()).collect();
        assert_eq!(bars, [36, 38, 38], "{text}");
        assert!(text.contains("up to 64 MiB of memory, memcached takes more, here 90 MiB"), "{text}");
        let read: serde_json::Value = serde_json::from_str(&answer(None).json()).unwrap();
        assert_eq!((&read["format"], read["points"].as_array().map(Vec::len)), (&json!(FORMAT), Some(3)));
    }

    #[test]
    fn amounts_are_readable() {
        let cases = [(512.0, "512 bytes"), (1536.0, "1.5 KiB"), (67_108_864.0, "64 MiB"), (3_221_225_472.0, "3 GiB")];
        for (bytes, text) in cases {
            assert_eq!(readable(bytes), text);
        }
    }
}
