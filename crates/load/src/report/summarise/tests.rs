//! The summary of known counts.

use super::*;
use crate::measure::part::Part;
use crate::measure::request::{EndedRequest, Operation};
use crate::measure::seconds::{Handover, SecondsCollector};
use base64::Engine;
use std::sync::mpsc::channel;

fn measured() -> MeasuredRun {
    MeasuredRun {
        started_unix_ns: 7,
        start: Nanos(1_000_000_000),
        from: Nanos(1_500_000_000),
        to: Nanos(3_500_000_000),
        cpu_from: CpuTime::default(),
        cpu_to: CpuTime { user_s: 0.5, system_s: 0.5 },
        keys_uncertain: 3,
        stopped: false,
        broken: None,
        messages: None,
    }
}

fn gets(responses_ns: impl IntoIterator<Item = u64>) -> Counts {
    let mut counts = Counts::new();
    for response_ns in responses_ns {
        counts.record(&EndedRequest {
            operation: Operation::Get,
            intended: Nanos(10),
            sent: Nanos(10),
            completed: Nanos(10 + response_ns),
            keys: 1,
            hits: 1,
            request_bytes: 10,
            reply_bytes: 20,
            failed: false,
            message: None,
        });
    }
    counts
}

fn summary(tally: &Tally, window: &Counts) -> Summary {
    summarise(&Config::default(), &measured(), tally, window, Vec::new())
}

#[test]
fn a_run_without_requests_is_invalid() {
    let summary = summary(&Tally::new(), &Counts::new());
    assert!(!summary.valid && summary.reasons[0].contains("nothing was measured"), "{:?}", summary.reasons);
    assert_eq!(summary.operations.all.response.min_ns, 0);
    assert!(summary.operations.all.response.percentiles.is_empty());
}

#[test]
fn a_second_is_measured_when_all_of_it_is() {
    let mut seconds = SecondsCollector::new(1);
    let past = Box::new(Part::new(channel().0));
    seconds.take(Handover { thread: 0, now_in: 4, past });
    let (window, seconds) = seconds.close(Vec::new(), 0);
    let summary = summarise(&Config::default(), &measured(), &Tally::new(), &window, seconds);
    assert_eq!(summary.seconds.iter().map(|second| second.measured).collect::<Vec<_>>(), [false, true, false, false]);
    assert_eq!((summary.measured_s, summary.cpu.share), (2.0, 0.5));
}

#[test]
fn the_histogram_can_be_decoded() {
    let summary = summary(&Tally::new(), &gets((1..=1000).map(|time| time * 1000)));
    let bytes = base64::engine::general_purpose::STANDARD.decode(&summary.operations.get.response.histogram).unwrap();
    let read: hdrhistogram::Histogram<u64> =
        hdrhistogram::serialization::Deserializer::new().deserialize(&mut bytes.as_slice()).unwrap();
    assert_eq!(read.len(), 1000);
    assert_eq!(summary.operations.get.response.percentiles["50"], Some(read.value_at_quantile(0.5)));
    assert!(!summary.operations.get.response.percentiles.contains_key("99.9"));
    let json: serde_json::Value = serde_json::from_str(&summary.to_json().unwrap()).unwrap();
    assert_eq!(json["format"], FORMAT);
    assert_eq!(json["operations"]["all"]["count"], 1000);
    assert_eq!(json["settings"]["test_time_s"], 10.0);
    assert_eq!(json["settings"]["loop"], "closed");
}

#[test]
fn percentiles_are_those_requested() {
    let config = Config { percentiles: vec![50.0, 99.5], ..Config::default() };
    let summary = summarise(&config, &measured(), &Tally::new(), &gets(1..=2000), Vec::new());
    let names: Vec<&String> = summary.operations.all.response.percentiles.keys().collect();
    assert_eq!(names, ["50", "99.5"]);
}

#[test]
fn an_open_loop_reports_offered_and_achieved_requests() {
    let arrivals = crate::config::Arrivals::Poisson { per_s: 500.0 };
    let config = Config { arrivals, clients: 4, ..Config::default() };
    let mut tally = Tally::new();
    (0..990).for_each(|_| tally.count_arrival(1, true, 7));
    (0..10).for_each(|_| tally.count_unsent(2, true));
    (0..50).for_each(|_| tally.count_arrival(0, false, 9));
    tally.completed = 980;
    let summary = summarise(&config, &measured(), &tally, &gets(1..=990), SecondsCollector::new(1).close(None, 3).1);
    let totals = &summary.totals;
    assert_eq!((totals.intended, totals.unsent, totals.offered_per_s), (Some(1000), Some(10), Some(500.0)));
    assert_eq!((totals.requests, totals.achieved_share, summary.throughput_per_s), (990, Some(0.98), 490.0));
    assert_eq!(summary.seconds.iter().map(|second| second.intended).collect::<Vec<_>>(), [50, 990, 10].map(Some));
    assert_eq!(summary.lateness.as_ref().map(|times| (times.max_ns, times.percentiles["50"])), Some((7, Some(7))));
    let closed = super::tests::summary(&Tally::new(), &gets([1]));
    assert_eq!((closed.totals.intended, closed.totals.achieved_share, closed.lateness), (None, None, None));
}

#[test]
fn the_json_is_parsed_back_exactly() {
    let mut seconds = SecondsCollector::new(1);
    let mut part = Part::new(channel().0);
    part.inside.merge(&gets(1..=100));
    seconds.take(Handover { thread: 0, now_in: 1, past: Box::new(part) });
    let (_, seconds) = seconds.close(Vec::new(), 0);
    let written = summarise(&Config::default(), &measured(), &Tally::new(), &gets(1..=100), seconds);
    let json = written.to_json().unwrap();
    assert_eq!(Summary::from_json(&json).unwrap(), written);
    let refused = |text: &str| Summary::from_json(text).unwrap_err();
    assert!(refused("{").contains("is not a summary") && refused("{}").contains("missing field `format`"));
    assert!(refused(&json.replace(FORMAT, "waystage-load/9")).contains("the format is \"waystage-load/9\""));
    assert!(refused(&json.replace("sum_ns", "sum")).contains("another version of waystage: missing field"));
}
