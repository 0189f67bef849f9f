//! Merging: the sum of the parts is exactly the whole, and summaries of different runs are rejected.

use super::*;
use crate::config::{Arrivals, Config};
use crate::measure::request::{EndedRequest, Operation};
use crate::measure::seconds::{Handover, SecondsCollector};
use crate::measure::tally::Tally;
use crate::report::summarise::{MeasuredRun, summarise};
use clock::{CpuTime, Nanos};
use proptest::prelude::*;

const START: u64 = 5_000_000_000;
const SECOND: u64 = 1_000_000_000;

/// A request of a run of four seconds. Its window reaches from 0.5 s to the end of the third second.
#[derive(Clone, Debug)]
struct Request {
    part: usize,
    is_get: bool,
    failed: bool,
    completed_after_ns: u64,
    service_ns: u64,
    slip_ns: u64,
}

impl Request {
    fn ended(&self) -> EndedRequest {
        let completed = START + 4 * SECOND + self.completed_after_ns;
        EndedRequest {
            operation: if self.is_get { Operation::Get } else { Operation::Set },
            intended: Nanos(completed - self.service_ns - self.slip_ns),
            sent: Nanos(completed - self.service_ns),
            completed: Nanos(completed),
            keys: 2,
            hits: u32::from(self.service_ns.is_multiple_of(2)),
            request_bytes: self.slip_ns % 100,
            reply_bytes: self.service_ns % 100,
            failed: self.failed,
            message: None,
        }
    }
}

fn measured(cpu_s: f64) -> MeasuredRun {
    let start = START + 4 * SECOND;
    MeasuredRun {
        started_unix_ns: 1_700_000_000 * SECOND,
        start: Nanos(start),
        from: Nanos(start + SECOND / 2),
        to: Nanos(start + 3 * SECOND),
        cpu_from: CpuTime::default(),
        cpu_to: CpuTime { user_s: cpu_s, system_s: cpu_s },
        keys_uncertain: 1,
        stopped: false,
        broken: None,
        messages: None,
    }
}

fn config(part: u64, generators: usize) -> Config {
    let arrivals = Arrivals::Constant { per_s: 100.0 * generators as f64 };
    Config { clients: 3 * generators, threads: generators, seed: part, arrivals, ..Config::default() }
}

/// The summary of requests in the order of their completion.
fn summary(config: &Config, cpu_s: f64, requests: &[Request]) -> Summary {
    let (mut tally, mut seconds) = (Tally::new(), SecondsCollector::new(1));
    let measured = measured(cpu_s);
    let mut requests = requests.to_vec();
    requests.sort_by_key(|request| request.completed_after_ns);
    for request in requests {
        let ended = request.ended();
        let second = request.completed_after_ns / SECOND;
        let in_window = ended.completed >= measured.from && ended.completed < measured.to;
        if let Some(past) = tally.roll(second) {
            seconds.take(Handover { thread: 0, now_in: second, past });
        }
        if request.slip_ns % 9 == 0 {
            tally.count_unsent(second, in_window);
        }
        tally.count_arrival(second, in_window, request.slip_ns);
        tally.record(&ended, in_window);
        tally.completed += u64::from(in_window && !request.failed);
        if request.failed {
            tally.error("ERROR");
        }
        tally.requests_sent += 1;
        tally.verified.checked += 1;
    }
    let mut whole = Tally::new();
    whole.merge(&tally);
    let (window, seconds) = seconds.close([tally.into_part()], 0);
    summarise(config, &measured, &whole, &window, seconds)
}

fn request() -> impl Strategy<Value = Request> {
    (0usize..3, any::<bool>(), 0u8..10, 0..4 * SECOND, 0u64..5 * SECOND, 0u64..4 * SECOND).prop_map(
        |(part, is_get, failed, completed_after_ns, service_ns, slip_ns)| Request {
            part,
            is_get,
            failed: failed == 0,
            completed_after_ns,
            service_ns,
            slip_ns,
        },
    )
}

/// A summary without the fields that differ between a whole run and a merged one: the parts and their messages.
fn comparable(summary: &Summary) -> Summary {
    let mut summary = summary.clone();
    (summary.reasons, summary.notes, summary.parts) = Default::default();
    summary.valid = true;
    summary.settings.arrivals = None;
    summary.settings.seed = 0;
    summary.verification.keys_uncertain = 0;
    summary
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn the_merged_summary_of_parts_is_the_summary_of_all(requests in proptest::collection::vec(request(), 0..200)) {
        let of = |part: usize| -> Vec<Request> { requests.iter().filter(|request| request.part == part).cloned().collect() };
        let parts: Vec<Summary> = (0..3)
            .map(|part| {
                let written = summary(&config(part as u64, 1), 0.25, &of(part)).to_json().unwrap();
                serde_json::from_str(&written).unwrap()
            })
            .collect();
        let merged = merge(&parts).unwrap();
        let whole = summary(&config(0, 3), 0.75, &requests);
        let (merged, whole) = (comparable(&merged), comparable(&whole));
        // Nothing is known of a part after its last request, so later seconds are not measured.
        for (merged, whole) in merged.seconds.iter().zip(&whole.seconds) {
            prop_assert_eq!(&Second { measured: whole.measured, ..merged.clone() }, whole);
            prop_assert!(whole.measured || !merged.measured);
        }
        let without_seconds = |summary: &Summary| Summary { seconds: Vec::new(), ..summary.clone() };
        prop_assert_eq!(merged.seconds.len(), whole.seconds.len());
        prop_assert_eq!(without_seconds(&merged).to_json().unwrap(), without_seconds(&whole).to_json().unwrap());
    }
}

fn some(part: u64) -> Summary {
    let request = Request {
        part: 0,
        is_get: true,
        failed: false,
        completed_after_ns: 2 * SECOND,
        service_ns: 1000 + part,
        slip_ns: 1,
    };
    Summary { notes: Vec::new(), ..summary(&config(part, 1), 0.1, &[request]) }
}

#[test]
fn summaries_of_different_runs_are_rejected_in_one_line() {
    let (one, other) = (some(1), some(2));
    let refused = |parts: &[Named<'_>]| merge_named(parts).unwrap_err().to_string();
    assert!(refused(&[]).contains("nothing to merge"));
    assert!(refused(&[("a", &one), ("b", &one)]).starts_with("a and b are the same run"));
    let newer = Summary { format: "waystage-load/9".into(), ..other.clone() };
    assert!(refused(&[("a", &one), ("b", &newer)]).starts_with("b: the format is \"waystage-load/9\""));
    let later = Summary { started_unix_ns: other.started_unix_ns + 10 * SECOND, ..other.clone() };
    let line = refused(&[("b", &later), ("a", &one)]);
    assert!(line.starts_with("a and b were not measured at the same time: the first ended 7.500 s"), "{line}");
    for (change, what) in [
        ((|one| one.started_unix_ns = u64::MAX) as fn(&mut Summary), "times"),
        (|one| one.totals.requests = u64::MAX, "counts"),
        (|one| one.seconds[0].second = u64::MAX, "seconds"),
        (|one| one.operations.get.response.unanswered = u64::MAX, "counts"),
    ] {
        let mut hostile = other.clone();
        change(&mut hostile);
        assert!(refused(&[("a", &one), ("b", &hostile)]).contains(what), "{what}");
    }
    let mut damaged = other.clone();
    damaged.operations.get.response.histogram = "A".into();
    assert!(refused(&[("a", &one), ("b", &damaged)]).starts_with("b: cannot be merged: a histogram is not base64"));
    damaged.operations = other.operations.clone();
    damaged.operations.get.count = 7;
    assert!(refused(&[("a", &one), ("b", &damaged)]).contains("7 requests are counted, and 1 are in their histogram"));
}

#[test]
fn seconds_are_aligned_by_their_time() {
    let (one, mut other) = (some(1), some(2));
    other.started_unix_ns += SECOND + 200_000_000;
    let merged = merge(&[other, one]).unwrap();
    let requests: Vec<u64> = merged.seconds.iter().map(|second| second.requests).collect();
    assert_eq!(requests, [0, 0, 1, 1]);
    assert_eq!(merged.started_unix_ns, 1_700_000_000 * SECOND);
    assert_eq!(merged.measured_s, 3.7);
    assert_eq!(merged.measure_to_clock_ns - merged.measure_from_clock_ns, 3_700_000_000);
    let notes = merged.notes.join("\n");
    assert!(notes.contains("together for 1.300 s of 3.700 s"), "{notes}");
    assert!(notes.contains("from whole seconds by up to 0.200 s"), "{notes}");
    assert!(merged.seconds.iter().all(|second| !second.measured || second.second == 2), "{:?}", merged.seconds);
}

#[test]
fn lines_about_a_part_name_it() {
    let (mut one, other) = (some(1), some(2));
    (one.valid, one.reasons) = (false, vec!["3 of 9 values are stale".into()]);
    let merged = merge_named(&[("a.json", &one), ("b.json", &other)]).unwrap();
    let of_the_first: Vec<&str> =
        merged.reasons.iter().map(String::as_str).filter(|line| line.starts_with("a.json")).collect();
    assert_eq!((merged.valid, of_the_first), (false, vec!["a.json: 3 of 9 values are stale"]));
    assert_eq!(merged.parts.iter().map(|part| part.name.as_str()).collect::<Vec<_>>(), ["a.json", "b.json"]);
    // A merged summary can be merged again, and keeps its parts.
    let third = some(3);
    let again = merge_named(&[("m.json", &merged), ("c.json", &third)]).unwrap();
    assert_eq!(again.parts.iter().map(|part| part.name.as_str()).collect::<Vec<_>>(), ["a.json", "b.json", "c.json"]);
    assert_eq!((again.totals.requests, again.settings.clients, again.settings.threads), (3, 9, 3));
}

#[test]
fn settings_add_up_or_a_note_lists_the_differences() {
    let (one, mut other) = (some(1), some(2));
    other.settings.servers = vec!["127.0.0.1:1".into()];
    let merged = merge(&[one.clone(), other.clone()]).unwrap();
    assert_eq!(merged.settings.arrivals.as_deref(), Some("2 x constant 100/s"));
    assert_eq!((merged.settings.offered_per_s, merged.settings.servers.len()), (Some(200.0), 1));
    assert!(merged.notes.is_empty(), "{:?}", merged.notes);
    (other.settings.pipeline, other.settings.r#loop) = (9, "closed".into());
    (other.settings.arrivals, other.settings.offered_per_s) = (None, None);
    let merged = merge(&[one, other]).unwrap();
    assert_eq!((merged.settings.r#loop.as_str(), merged.settings.pipeline), ("mixed", 1));
    assert_eq!(merged.settings.arrivals.as_deref(), Some("constant 100/s"));
    assert!(merged.notes[0].contains("differ in pipeline; `settings` has those of part 1"), "{:?}", merged.notes);
    assert!(merged.notes[1].contains("open and closed loops are merged"), "{:?}", merged.notes);
}

#[test]
fn the_achieved_share_of_mixed_loops_is_that_of_the_open_ones() {
    let (mut open, mut closed) = (some(1), some(2));
    (open.totals.intended, open.totals.completed) = (Some(100), 75);
    (closed.totals.intended, closed.totals.unsent, closed.totals.completed) = (None, None, 1_000);
    (closed.settings.r#loop, closed.settings.arrivals, closed.settings.offered_per_s) = ("closed".into(), None, None);
    let merged = merge(&[open.clone(), closed]).unwrap();
    assert_eq!((merged.totals.intended, merged.totals.achieved_share), (Some(100), Some(0.75)));
    assert!(crate::report::print::render(&merged).contains("open loops: offered"), "it says what the share is of");
    // A merged summary can be merged again.
    (open.totals.completed, open.started_unix_ns) = (25, open.started_unix_ns + 1);
    let again = merge(&[merged, open]).unwrap();
    assert_eq!((again.totals.intended, again.totals.achieved_share), (Some(200), Some(0.5)));
}
