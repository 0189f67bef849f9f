//! The curve as a chart in the terminal with one sentence, and as JSON.

use hit_ratio::{Curve, Point};
use quantity::bytes_text;
use serde_json::json;
use std::fmt::Write;

/// Characters of the bar of a hit ratio of 1.
const BAR: f64 = 40.0;
/// Without the memory of today, the answer is the smallest memory with a hit ratio that is lower by at most this.
const NEAR: f64 = 0.01;
/// The gets of the sample may differ by this factor from those that its share of the keys stands for, and by this share of
/// all gets, without a warning.
const UNLIKE_FACTOR: f64 = 1.5;
const UNLIKE_SHARE: f64 = 0.01;
const FORMAT: &str = "waystage-memory/1";

/// The curve of a trace, and the settings it was computed with.
pub(super) struct CapacityAnswer {
    pub(super) trace: String,
    pub(super) policy: String,
    /// Amounts of memory are multiples of it.
    pub(super) unit: u64,
    pub(super) today: Option<u64>,
    /// memcached's -I; none for an LRU, which has no such limit.
    pub(super) item_bytes_max: Option<u64>,
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
                "{}: {}, {}, {about}{}, {about}{} of items, {} s",
                self.trace,
                counted(sample.requests, "request", "requests"),
                counted(sample.gets, "get", "gets"),
                counted(sample.keys.round() as u64, "key", "keys"),
                readable(sample.item_bytes),
                sample.span_s
            ),
            format!("policy: {}", self.policy),
        ];
        if sample.rate < 1.0 {
            let simulated = counted(sample.sampled_keys, "key is", "keys are");
            lines.push(format!("{simulated} simulated, {:.3} % of all{}", 100.0 * sample.rate, self.popular()));
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

    /// The popular keys, as the end of a sentence.
    fn popular(&self) -> String {
        match self.curve.sample.popular.len() {
            0 => String::new(),
            1 => "; the gets of the most popular key are counted exactly".into(),
            keys => format!("; the gets of the {keys} most popular keys are counted exactly"),
        }
    }

    /// A warning if the sample has far too many or too few gets.
    fn unlike_sample(&self) -> Option<String> {
        let Curve { other_gets, sampled_gets, sample, .. } = &self.curve;
        let (all, sampled) = (*other_gets as f64, *sampled_gets);
        let is_unlike = sampled > UNLIKE_FACTOR * all || all > UNLIKE_FACTOR * sampled;
        let matters = (sampled - all).abs() > UNLIKE_SHARE * sample.gets as f64;
        (is_unlike && matters).then(|| {
            format!(
                "warning: the sample has {:.2} times the gets that {:.3} % of the keys should have, so the hit ratios may \
                 be far off; give --samples all",
                sampled / all,
                100.0 * sample.rate
            )
        })
    }

    /// Facts that make the answer uncertain, one line each.
    fn reservations(&self) -> Vec<String> {
        let sample = &self.curve.sample;
        let mut lines: Vec<String> = self.unlike_sample().into_iter().collect();
        if let Some(limit) = self.item_bytes_max.filter(|_| sample.too_large > 0) {
            let requests = counted(sample.too_large, "request has an item", "requests have items");
            let stored = if sample.too_large == 1 { "it is" } else { "they are" };
            lines.push(format!("{requests} above -I {}; {stored} never stored", bytes_text(limit)));
        }
        if sample.empty_writes > 0 {
            let writes = counted(sample.empty_writes, "write has", "writes have");
            lines.push(format!("{writes} the value size 0, which was taken as it is"));
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
            lines
                .push(format!("{} skipped", counted(self.skipped_lines, "malformed line was", "malformed lines were")));
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
            "popular_keys": sample.popular.len(),
            "other_gets": self.curve.other_gets,
            "sampled_gets": self.curve.sampled_gets,
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

/// A count with its noun, or the start of a sentence about it.
fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// Bytes with a unit, and at most one decimal digit.
fn readable(bytes: f64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let unit = units.into_iter().map(|(power, name)| (2f64.powi(power), name)).find(|(unit, _)| bytes >= *unit);
    let (value, name) = unit.map_or((bytes, "bytes"), |(unit, name)| (bytes / unit, name));
    let text = format!("{value:.1}");
    match text.strip_suffix(".0").unwrap_or(&text) {
        "1" if name == "bytes" => "1 byte".into(),
        text => format!("{text} {name}"),
    }
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
            item_bytes_max: Some(1 << 20),
            skipped_lines: 0,
            curve: Curve {
                sample,
                other_gets: 8,
                sampled_gets: 8.0,
                points: vec![point(64, 0.912), point(128, 0.94), point(256, 0.945)],
            },
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
    fn a_sample_that_is_not_like_the_trace_has_a_warning() {
        let text = |other_gets, sampled_gets| {
            let mut answer = answer(None);
            answer.curve.sample.gets = 1000;
            answer.curve.sample.rate = 0.25;
            answer.curve.sample.sampled_keys = 1;
            answer.curve.sample.popular = vec![5];
            (answer.curve.other_gets, answer.curve.sampled_gets) = (other_gets, sampled_gets);
            answer.text()
        };
        let line = "1 key is simulated, 25.000 % of all; the gets of the most popular key are counted exactly";
        assert!(text(900, 800.0).contains(line), "{}", text(900, 800.0));
        for (other_gets, sampled_gets, warns) in [
            (900, 1300.0, false),
            (900, 1400.0, true),
            (900, 650.0, false),
            (900, 450.0, true),
            (9, 1.0, false),
            (0, 0.0, false),
        ] {
            let found = text(other_gets, sampled_gets);
            assert_eq!(found.contains("warning: the sample has"), warns, "{found}");
        }
        assert!(text(900, 450.0).contains("0.50 times the gets that 25.000 % of the keys should have"));
    }

    #[test]
    fn an_lru_has_no_limit_of_items_and_one_is_singular() {
        let mut answer = answer(None);
        (answer.curve.sample.too_large, answer.curve.sample.empty_writes, answer.skipped_lines) = (1, 1, 1);
        let text = answer.text();
        for line in [
            "1 request has an item above -I 1m; it is never stored",
            "1 write has the value size 0",
            "1 malformed line was skipped",
        ] {
            assert!(text.contains(line), "{text}");
        }
        answer.item_bytes_max = None;
        assert!(!answer.text().contains("-I"), "{}", answer.text());
    }

    #[test]
    fn amounts_are_readable() {
        let cases = [
            (1.0, "1 byte"),
            (512.0, "512 bytes"),
            (1536.0, "1.5 KiB"),
            (67_108_864.0, "64 MiB"),
            (3_221_225_472.0, "3 GiB"),
        ];
        for (bytes, text) in cases {
            assert_eq!(readable(bytes), text);
        }
    }
}
