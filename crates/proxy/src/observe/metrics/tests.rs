//! Tests of the metrics' text.

use super::*;
use crate::observe::histograms::StageHistograms;
use crate::observe::hot_keys::HotKeysBoard;
use crate::observe::metrics::Subject;
use crate::observe::metrics_text::classic;
use crate::observe::tally::CountedNames;
use clock::{Clock, Nanos, Stage, StageClock};
use std::collections::BTreeSet;
use std::time::Duration;

fn snapshot(hot_keys: Option<HotKeysBoard>) -> Snapshot {
    let mut histograms = StageHistograms::default();
    let mut clock = StageClock::started(Nanos(1_000));
    clock.stamp(Stage::Answered, Nanos(151_000));
    clock.finish();
    histograms.record(Verb::Get, &clock);
    let named = CountedNames {
        pools: vec!["main".into()],
        servers: vec![ServerName { pool: "main".into(), address: "a:1".into() }],
        queues: vec!["a:1".into()],
    };
    let mut tally = Tally::new(Arc::new(named), 1);
    let counters = tally.loops[0].clone();
    // Both loops have the same counters.
    tally.loops.push(counters.clone());
    let tally = Arc::new(tally);
    counters.queues[0].length.set(3);
    counters.queues[0].full.add(2);
    counters.requests[Verb::Get as usize][Outcome::Answered as usize].add(7);
    counters.pools[0].hedges_won.add(4);
    counters.backends[0].connection_up(0, 2);
    counters.backends[0].connection_up(1, 0);
    counters.backends[0].connection_up(1, 0);
    let mut counts = ProcessCounts::new(&Clock::monotonic());
    counts.started_unix_ns = 1_700_000_000_500_000_000;
    let subject = Subject {
        tally: tally.clone(),
        counts: Arc::new(counts),
        invalidations_pending: vec![Arc::new(AtomicUsize::new(1))],
        clients_max: 9,
        dispatch: "pipelined",
        hot_keys,
    };
    Snapshot { subject: Arc::new(subject), sums: Sums { own: tally, others: None }, histograms }
}

#[test]
fn the_text_contains_every_stage_and_is_complete() {
    let text = snapshot(None).render();
    for line in [
        "waystage_queue_length{loop=\"1\",queue=\"a:1\"} 3",
        "waystage_queue_full_total{loop=\"0\",queue=\"a:1\"} 2",
        "waystage_requests_total{operation=\"get\",outcome=\"answered\"} 14",
        "waystage_stage_seconds_bucket{le=\"0.0002\",operation=\"get\",stage=\"total\"} 1",
        "waystage_stage_seconds_bucket{le=\"0.0001\",operation=\"get\",stage=\"total\"} 0",
        "process_start_time_seconds 1700000000.5",
        "waystage_clients_max 9",
        "waystage_hedges_won_total{pool=\"main\"} 8",
        "waystage_pool_requests_total{pool=\"main\",kind=\"read\"} 0",
        "waystage_backend_invalidations_pending{pool=\"main\",backend=\"a:1\"} 1",
        "waystage_backend_ejected{pool=\"main\",backend=\"a:1\"} 2",
        "waystage_backend_ejections_total{pool=\"main\",backend=\"a:1\"} 2",
    ] {
        assert!(text.lines().any(|other| other == line), "{line} is not in\n{text}");
    }
    for interval in clock::INTERVALS {
        assert!(text.contains(&format!("stage=\"{}\"", interval.name)), "{text}");
    }
    assert!(text.ends_with("# EOF\n"));
}

#[test]
fn every_metric_of_the_catalogue_is_shown_and_no_other() {
    let (clock, hand) = Clock::manual(Nanos(1));
    let board = HotKeysBoard::new(1, 4, &clock).unwrap();
    hand.advance(Duration::from_secs(1));
    let (without, with) = (classic(&snapshot(None).render()), classic(&snapshot(Some(board)).render()));
    let heads = |text: &str| -> BTreeSet<String> {
        let lines = text.lines().filter_map(|line| line.strip_prefix("# HELP "));
        lines.filter_map(|line| line.split(' ').next().map(String::from)).collect()
    };
    let known: BTreeSet<String> = catalogue::ALL.iter().map(|definition| definition.name.to_string()).collect();
    assert_eq!(heads(&with), known);
    let missing: Vec<_> = known.difference(&heads(&without)).cloned().collect();
    assert!(missing.len() == 3 && missing.iter().all(|name| name.starts_with("waystage_hot_key")), "{missing:?}");
}
