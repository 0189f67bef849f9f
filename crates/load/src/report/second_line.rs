//! A second as one line of JSON, written as soon as it has passed, for programs that follow a run. docs/load-summary.md
//! describes the keys.

use crate::measure::seconds::{Second, SecondHistograms};
use serde::Serialize;

/// The keys of a second that are final when it has passed. Whether it was measured, and what was intended in it, is
/// known only at the end of the run.
#[derive(Debug, Serialize)]
struct Line<'a> {
    second: u64,
    requests: u64,
    errors: u64,
    hits: u64,
    misses: u64,
    sent_bytes: u64,
    received_bytes: u64,
    mean_ns: f64,
    p50_ns: Option<u64>,
    p99_ns: Option<u64>,
    max_ns: u64,
    sum_ns: u128,
    service_sum_ns: u128,
    slip_sum_ns: u128,
    slip_max_ns: u64,
    histograms: &'a SecondHistograms,
}

/// The line of a second, with its line feed.
///
/// # Errors
/// It cannot be written as JSON, which is a bug.
pub fn second_line(second: &Second) -> Result<String, String> {
    // Every field is named, so that the compiler finds a new one.
    let &Second {
        second,
        measured: _,
        intended: _,
        requests,
        errors,
        hits,
        misses,
        sent_bytes,
        received_bytes,
        mean_ns,
        p50_ns,
        p99_ns,
        max_ns,
        sum_ns,
        service_sum_ns,
        slip_sum_ns,
        slip_max_ns,
        ref histograms,
    } = second;
    let line = Line {
        second,
        requests,
        errors,
        hits,
        misses,
        sent_bytes,
        received_bytes,
        mean_ns,
        p50_ns,
        p99_ns,
        max_ns,
        sum_ns,
        service_sum_ns,
        slip_sum_ns,
        slip_max_ns,
        histograms,
    };
    serde_json::to_string(&line).map(|text| text + "\n").map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::seconds::SecondsCollector;
    use serde_json::{Value, from_str, to_value};

    #[test]
    fn a_line_is_the_second_of_the_summary_without_what_only_its_end_knows() {
        let (_, mut seconds) = SecondsCollector::new(1).close(None, 1);
        let mut second = seconds.remove(0);
        (second.requests, second.errors, second.p99_ns, second.max_ns) = (7, 1, Some(90), 91);
        (second.measured, second.intended) = (true, Some(8));
        second.histograms.get = "HISTF".into();
        let line = second_line(&second).unwrap();
        assert_eq!((line.ends_with("}\n"), line.lines().count()), (true, 1));
        let mut expected = to_value(&second).unwrap();
        for key in ["measured", "intended"] {
            expected.as_object_mut().unwrap().remove(key).unwrap();
        }
        assert_eq!(from_str::<Value>(&line).unwrap(), expected);
    }
}
