//! What happened between two readings of a page: the values of gauges, and the rates of counters. Several targets can be added up.

use crate::quantile::{Quantile, quantile};
use crate::text::{Labels, Sample};
use clock::Nanos;
use std::collections::{HashMap, HashSet};

/// The values of a label that are told apart: more than the operations, outcomes, pools or queues of a program.
pub(crate) const VALUES_MAX: usize = 1000;

/// A page, and when it was read.
#[derive(Debug)]
pub(crate) struct Reading {
    pub(crate) at: Nanos,
    pub(crate) samples: Vec<Sample>,
}

/// One series of one or of several targets.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    labels: Labels,
    /// The sum over the targets.
    pub(crate) value: f64,
    /// The largest value of a target.
    pub(crate) max: f64,
    /// The increase per second of a counter; None for gauges, and before the second reading.
    pub(crate) per_s: Option<f64>,
    /// The number of targets that have the series.
    pub(crate) targets: u32,
}

/// The interval between the last two readings of one or of several targets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interval {
    series: Vec<Series>,
    /// Indices of `series`, by the text of the series.
    known: HashMap<String, usize>,
    /// Indices of `series` in the order of the page, by name.
    names: HashMap<String, Vec<usize>>,
    /// The length in seconds, of the longest one if there are several targets. None: there are no rates yet.
    pub(crate) seconds: Option<f64>,
}

/// Times of requests in one interval.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) per_s: f64,
    pub(crate) p50: Quantile,
    pub(crate) p99: Quantile,
}

impl Series {
    /// The value of a label; empty if the series does not have it.
    pub(crate) fn label(&self, name: &str) -> &str {
        self.labels.iter().find(|(other, _)| other == name).map_or("", |(_, value)| value)
    }

    fn add(&mut self, other: &Series) {
        self.value += other.value;
        self.max = self.max.max(other.max);
        self.per_s = match (self.per_s, other.per_s) {
            (Some(mine), Some(theirs)) => Some(mine + theirs),
            (mine, theirs) => mine.or(theirs),
        };
        self.targets += other.targets;
    }
}

/// Whether the process behind `later` is another one than behind `earlier`, so that its counters began at zero again. Programs that do
/// not report their start are recognised by a counter that has decreased.
pub(crate) fn has_restarted(earlier: &Reading, later: &Reading) -> bool {
    let start = |reading: &Reading| {
        reading.samples.iter().find(|sample| sample.name == "process_start_time_seconds").map(|sample| sample.value)
    };
    match (start(earlier), start(later)) {
        (None, None) => {
            let before = counters(earlier);
            let decreased = |sample: &Sample| before.get(sample.series.as_str()).is_some_and(|was| sample.value < *was);
            later.samples.iter().any(|sample| sample.is_counter && decreased(sample))
        }
        (earlier, later) => earlier != later,
    }
}

fn counters(reading: &Reading) -> HashMap<&str, f64> {
    let counters = reading.samples.iter().filter(|sample| sample.is_counter);
    counters.map(|sample| (sample.series.as_str(), sample.value)).collect()
}

impl Interval {
    /// The interval of one target that ends with `later`. Without an earlier reading of the same process there are no rates.
    pub(crate) fn between(earlier: Option<&Reading>, later: &Reading) -> Interval {
        let seconds = earlier.map(|earlier| later.at.since(earlier.at) as f64 / 1e9).filter(|seconds| *seconds > 0.0);
        let before = earlier.map(counters).unwrap_or_default();
        let mut interval = Interval { seconds, ..Interval::default() };
        for sample in &later.samples {
            let per_s = seconds.filter(|_| sample.is_counter).map(|seconds| {
                // A series that is new began at zero. One that decreased has ended and begun again, as those of a server do that a
                // reload removed and another one added.
                let was = before.get(sample.series.as_str()).filter(|was| **was <= sample.value);
                (sample.value - was.unwrap_or(&0.0)) / seconds
            });
            let Sample { series, name, labels, value, .. } = sample;
            let found = Series { labels: labels.clone(), value: *value, max: *value, per_s, targets: 1 };
            interval.insert(series, name, found);
        }
        interval
    }

    /// Adds another target.
    pub(crate) fn add(&mut self, other: &Interval) {
        let mut names: Vec<(&str, usize)> =
            other.names.iter().flat_map(|(name, found)| found.iter().map(|index| (name.as_str(), *index))).collect();
        names.sort_unstable_by_key(|(_, index)| *index);
        let texts: HashMap<usize, &str> = other.known.iter().map(|(text, index)| (*index, text.as_str())).collect();
        for (name, index) in names {
            self.insert(texts[&index], name, other.series[index].clone());
        }
        self.seconds = match (self.seconds, other.seconds) {
            (Some(mine), Some(theirs)) => Some(mine.max(theirs)),
            (mine, theirs) => mine.or(theirs),
        };
    }

    fn insert(&mut self, text: &str, name: &str, series: Series) {
        if let Some(index) = self.known.get(text) {
            self.series[*index].add(&series);
            return;
        }
        self.known.insert(text.to_owned(), self.series.len());
        self.names.entry(name.to_owned()).or_default().push(self.series.len());
        self.series.push(series);
    }

    /// All series with a name, in the order of the page.
    pub(crate) fn all(&self, name: &str) -> impl Iterator<Item = &Series> {
        self.names.get(name).into_iter().flatten().map(|index| &self.series[*index])
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.names.contains_key(name)
    }

    /// The sum of a gauge, or of a counter since the start. None if the page does not have it.
    pub(crate) fn value(&self, name: &str) -> Option<f64> {
        self.has(name).then(|| self.all(name).map(|series| series.value).sum())
    }

    /// The sum of the rates of a counter.
    pub(crate) fn per_s(&self, name: &str) -> Option<f64> {
        self.per_s_of(name, |_| true)
    }

    /// The sum of the rates of the series of a counter that fit: 0 if none fits, and None while there are no rates.
    pub(crate) fn per_s_of(&self, name: &str, fits: impl Fn(&Series) -> bool) -> Option<f64> {
        self.seconds.filter(|_| self.has(name))?;
        Some(self.all(name).filter(|series| fits(series)).filter_map(|series| series.per_s).sum())
    }

    /// The values of a label of a metric, in the order of the page: the first [`VALUES_MAX`] of them, because each becomes a row and
    /// is searched for in all series of the metric.
    pub(crate) fn label_values<'i>(&'i self, name: &str, label: &str) -> Vec<&'i str> {
        let mut seen = HashSet::new();
        self.all(name).map(|series| series.label(label)).filter(|value| seen.insert(*value)).take(VALUES_MAX).collect()
    }

    /// Quantiles of the series of a histogram that fit, over the interval. None without requests in the interval.
    pub(crate) fn times(&self, name: &str, fits: impl Fn(&Series) -> bool) -> Option<Times> {
        let mut buckets: Vec<(f64, f64)> = Vec::new();
        for series in self.all(&format!("{name}_bucket")).filter(|series| fits(series)) {
            let bound_s = series.label("le").parse().ok().filter(|bound: &f64| !bound.is_nan());
            let (Some(bound_s), Some(per_s)) = (bound_s, series.per_s) else { continue };
            match buckets.binary_search_by(|(other, _)| other.total_cmp(&bound_s)) {
                Ok(index) => buckets[index].1 += per_s,
                Err(index) => buckets.insert(index, (bound_s, per_s)),
            }
        }
        let (p50, p99) = (quantile(&buckets, 0.5)?, quantile(&buckets, 0.99)?);
        Some(Times { per_s: buckets.last()?.1, p50, p99 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::parse;

    fn reading(second: u64, page: &str) -> Reading {
        Reading { at: Nanos(second * 1_000_000_000), samples: parse(page).unwrap() }
    }

    #[test]
    fn counters_become_rates_of_the_interval() {
        let first = reading(1, "# TYPE a counter\na{x=\"1\"} 10\na{x=\"2\"} 5\n# TYPE b gauge\nb 7\n");
        let second = reading(3, "# TYPE a counter\na{x=\"1\"} 30\na{x=\"2\"} 5\na{x=\"3\"} 4\n# TYPE b gauge\nb 3\n");
        let interval = Interval::between(Some(&first), &second);
        assert_eq!(interval.per_s("a"), Some(12.0));
        assert_eq!(interval.per_s_of("a", |series| series.label("x") == "1"), Some(10.0));
        assert_eq!(interval.per_s_of("a", |series| series.label("x") == "9"), Some(0.0));
        assert_eq!((interval.value("b"), interval.all("b").next().unwrap().per_s), (Some(3.0), None));
        assert_eq!((interval.per_s("c"), interval.value("c"), interval.seconds), (None, None, Some(2.0)));
        assert_eq!(interval.label_values("a", "x"), ["1", "2", "3"]);
        let alone = Interval::between(None, &second);
        assert_eq!((alone.per_s("a"), alone.value("a")), (None, Some(39.0)));
    }

    #[test]
    fn a_restart_is_recognised() {
        let page = |start: &str, count: u32| format!("{start}# TYPE a counter\na {count}\n");
        let start =
            |time: u32| format!("# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds {time}.5\n");
        for (earlier, later, expected) in [
            (page("", 5), page("", 5), false),
            (page("", 5), page("", 6), false),
            (page("", 5), page("", 4), true),
            (page(&start(1), 5), page(&start(1), 4), false),
            (page(&start(1), 5), page(&start(2), 9), true),
            (page(&start(1), 5), page("", 9), true),
        ] {
            assert_eq!(has_restarted(&reading(1, &earlier), &reading(2, &later)), expected, "{earlier}{later}");
        }
    }

    #[test]
    fn a_series_that_decreases_began_again() {
        let first = reading(1, "# TYPE a counter\na 100\n");
        let interval = Interval::between(Some(&first), &reading(2, "# TYPE a counter\na 30\n"));
        assert_eq!(interval.per_s("a"), Some(30.0));
    }

    #[test]
    fn targets_add_up() {
        let page = |up: u32, count: u32| {
            format!("# TYPE up gauge\nup{{b=\"1\"}} {up}\n# TYPE a counter\na{{b=\"{up}\"}} {count}\na{{b=\"9\"}} 1\n")
        };
        let of = |up: u32, seconds: u64| {
            Interval::between(Some(&reading(0, &page(up, 0))), &reading(seconds, &page(up, 60)))
        };
        let mut both = of(1, 1);
        both.add(&of(0, 3));
        let up = both.all("up").next().unwrap();
        assert_eq!((up.value, up.max, up.targets), (1.0, 1.0, 2));
        assert_eq!((both.per_s("a"), both.seconds), (Some(80.0), Some(3.0)));
        assert_eq!(both.label_values("a", "b"), ["1", "9", "0"]);
        // A target that has only been read once adds no rates, but its gauges.
        both.add(&Interval::between(None, &reading(9, &page(1, 1_000_000))));
        assert_eq!((both.per_s("a"), both.value("up")), (Some(80.0), Some(2.0)));
    }

    #[test]
    fn quantiles_are_those_of_the_interval() {
        let page = |fast: u32, slow: u32| {
            let all = fast + slow;
            format!(
                "# TYPE t histogram\nt_bucket{{op=\"get\",le=\"1.0\"}} {fast}\nt_bucket{{op=\"get\",le=\"2.0\"}} {all}\n\
                 t_bucket{{op=\"get\",le=\"+Inf\"}} {all}\nt_bucket{{op=\"set\",le=\"+Inf\"}} 0\n"
            )
        };
        let interval = Interval::between(Some(&reading(1, &page(1000, 0))), &reading(2, &page(1000, 100)));
        let times = interval.times("t", |series| series.label("op") == "get").unwrap();
        assert_eq!((times.per_s, times.p50.seconds, times.p99.seconds), (100.0, 1.5, 1.99));
        assert!(interval.times("t", |series| series.label("op") == "set").is_none());
        assert!(Interval::between(None, &reading(1, &page(1, 1))).times("t", |_| true).is_none());
    }
}
