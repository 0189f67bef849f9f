"""The analysis within a run: warm-up, effective sizes, percentiles, laws."""

import numpy as np
import pytest
from honesty import autoregressive
from made import made_load, made_numbers, made_trial
from msgspec.structs import replace
from synthetic import START_NS, WINDOW_S, histogram_text, record_bytes, rows

from waylab.analysis.trial.histograms import decode, matrix, percentiles
from waylab.analysis.trial.law_checks import interactive_law, record_laws, worst_laws
from waylab.analysis.trial.within import effective_counts, steady_state, within_trial
from waylab.errors import LabError
from waylab.records import read_records
from waylab.runfolder.load import LoadSecond
from waylab.runfolder.trial_numbers import WarmUpFound, WithinTrial


def second(number, values_ns, measured=True, split=False, exact=True):
    """One second of a load's summary."""
    half = len(values_ns) // 2
    parts = {"get": values_ns[:half], "set": values_ns[half:]} if split else {"all": values_ns}
    return LoadSecond(
        second=number,
        measured=measured,
        requests=len(values_ns),
        sum_ns=int(values_ns.sum()) if exact else None,
        mean_ns=float(values_ns.mean()),
        histograms={name: histogram_text(values) for name, values in parts.items()},
    )


def load_of(count, slow=0, split=False, exact=True, seed=1):
    """Exponential responses of 1 ms, after `slow` seconds of ten times that."""
    random = np.random.default_rng(seed)
    values = [
        random.exponential(1e7 if number < slow else 1e6, 100).astype(np.int64) + 1 for number in range(count)
    ]
    return values, [second(n, one, split=split, exact=exact) for n, one in enumerate(values)]


def test_a_steady_run_has_intervals():
    values, load = load_of(120)
    found = within_trial(load, "here")
    everything = np.concatenate(values)
    assert found.seconds == 120 and found.warm_up.steady is True
    cut = found.warm_up.cut_s
    kept = np.concatenate(values[cut:])
    assert found.response_mean_ns.mean == pytest.approx(kept.mean())
    assert found.response_mean_ns.low < 1e6 < found.response_mean_ns.high
    assert found.throughput_per_s.mean == 100
    median = found.percentiles_ns["50"]
    assert median.low < 1e6 * np.log(2) < median.high and median.effective > 0.4 * everything.size
    assert within_trial(load_of(90)[1], "here").percentiles_ns["99.9"].value is None


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("exact", [False, True])
def test_a_warm_up_is_found_and_excluded(split, exact):
    _, load = load_of(120, slow=10, split=split, exact=exact)
    found = within_trial(load, "here")
    assert found.warm_up.cut_s in (10, 15, 20) and found.warm_up.by == "mean response"
    assert "is steady from" in found.warm_up.text
    assert found.percentiles_ns["95"].high < 4e6 and found.response_mean_ns.high < 1.2e6


def test_only_whole_seconds_of_the_window_count():
    _, load = load_of(120)
    for number in (0, 1, 119):
        load[number] = replace(load[number], measured=False)
    assert within_trial(load, "here").seconds == 117


def test_a_short_run_gives_the_reason_for_missing_results():
    found = within_trial(load_of(5)[1], "here")
    assert found.warm_up.steady is None and found.warm_up.text.startswith("too short: 5 seconds")
    assert found.throughput_per_s.low is None and "5 seconds" in found.throughput_per_s.text
    assert found.percentiles_ns["50"].value and found.percentiles_ns["50"].low is None
    assert effective_counts(found) == {}
    assert within_trial([], "here").warm_up is None


def test_summaries_without_histograms_have_no_percentiles():
    _, load = load_of(120)
    found = within_trial([replace(one, histograms={}) for one in load], "here")
    assert found.percentiles_ns == {} and found.response_mean_ns.low is not None


def test_a_stall_does_not_divide_by_zero():
    _, load = load_of(120)
    load[30] = replace(load[30], requests=0, sum_ns=0, mean_ns=None, histograms={"all": ""})
    assert within_trial(load, "here").response_mean_ns.low is not None


def test_a_damaged_histogram_raises_one_line():
    _, load = load_of(120)
    load[30] = replace(load[30], histograms={"all": "AAAA"})
    with pytest.raises(LabError, match="here, a second: the histogram cannot be decoded"):
        within_trial(load, "here")


def test_percentiles_need_ten_effective_values():
    random = np.random.default_rng(3)
    level = np.exp(0.6 * autoregressive(random, 1, 100, 0.6)[0])
    seconds = [
        second(n, (1e6 * one * random.exponential(1, 100)).astype(np.int64) + 1)
        for n, one in enumerate(level)
    ]
    found = within_trial(seconds, "here")
    effective = effective_counts(found)
    assert effective["50"] < 2000 < 100 * 100
    merged = decode(histogram_text(np.arange(1, 10_001)), "all")
    assert "99" in percentiles(merged) and "99" not in percentiles(merged, {"99": 900.0})


def test_the_matrix_equals_the_values_of_hdrhistogram():
    one = decode(histogram_text(np.array([1, 5, 2047, 2048, 4097, 10**6, 10**9])), "a")
    counts, values_ns = matrix([[one], [one, one]], "a")
    assert counts.sum(axis=1).tolist() == [7, 14]
    expected = [one.get_highest_equivalent_value(value) for value in (1, 5, 2047, 2048, 4097, 10**6, 10**9)]
    assert values_ns.tolist() == expected


def test_steady_states_are_summed_up():
    found = [(True, 0), (True, 5), (False, 0)]
    withins = [
        WithinTrial(seconds=9, warm_up=WarmUpFound(cut_s=cut_s, steady=steady, by="throughput", text=""))
        for steady, cut_s in found
    ]
    trials = [made_trial({}, within=within).content for within in [*withins, WithinTrial(seconds=0)]]
    found = steady_state([*trials, replace(trials[0], numbers=None)])
    assert (found.judged, found.late, found.unsteady) == (3, 1, 1) and "Of 3 trials" in found.text
    assert "No trial was long enough" in steady_state([]).text


def records_of(tmp_path, program, table, sample=1):
    path = tmp_path / f"{program}-1.way"
    path.write_bytes(record_bytes(program, table, sample=sample))
    return read_records(path)


def test_the_laws_of_records(tmp_path):
    """Two thousand requests of 1 ms in two seconds, all recorded: one request in the system on average."""
    count, window_ns = 2000, (START_NS, START_NS + round(WINDOW_S * 1e9))
    load, proxy = rows("load", count), rows("proxy", count)
    start = START_NS + np.arange(count, dtype=np.uint64) * np.uint64(1_000_000)
    for name in ("intended", "issued", "sent"):
        load[name] = start
    load["completed"] = start + np.uint64(999_000)
    for name in proxy.dtype.names[-8:]:
        proxy[name] = start + np.uint64(1000)
    proxy["request_bytes"], proxy["reply_bytes"] = 20, 130
    response = {"mean_ns": 999_000.0, "std_ns": 0.0, "histogram": ""}
    summary = made_load(
        operations={"all": {"count": count, "response": response}},
        totals={
            "requests": count,
            "hits": 0,
            "misses": 0,
            "errors": 0,
            "sent_bytes": 20 * count,
            "received_bytes": 100 * count,
        },
    )
    records = {"load": records_of(tmp_path, "load", load), "proxy": records_of(tmp_path, "proxy", proxy)}
    found = {law.name: law for law in record_laws(summary, records, window_ns, 1000.0)}
    assert set(found) == {"little", "forced flow, proxy", "bytes to the proxy", "bytes from the proxy"}
    assert found["little"].holds and found["forced flow, proxy"].holds and found["bytes to the proxy"].holds
    assert found["bytes from the proxy"].holds is False
    assert found["bytes from the proxy"].residual == pytest.approx(0.3)
    worst = worst_laws([made_numbers(laws=list(found.values()))] * 2)
    assert [(law.trials, law.broken) for law in worst] == [(2, 0), (2, 0), (2, 0), (2, 2)]
    # A sample of one in twenty has an error of 3 / sqrt(100 records), which the check states.
    few = {"load": records_of(tmp_path, "load", load[::20], sample=20)}
    law = record_laws(summary, few, window_ns, 1000.0)[0]
    assert (
        law.holds
        and law.limit == pytest.approx(3 * np.sqrt(0.95 / 100), rel=0.01)
        and "in 20 is kept" in law.text
    )


def test_the_interactive_law_needs_requests_and_a_response_time():
    assert interactive_law(10, 1000.0, 1e7, 0.0, 0.03).holds
    assert (
        interactive_law(10, 0.0, 1e7, 0.0, 0.03) is None
        and interactive_law(10, 10.0, None, 0.0, 0.03) is None
    )
