"""The knee, the first slow load and the scalability law of measured runs."""

import numpy as np
import pytest
from kneed import KneeLocator

from waylab.analysis.curves import curve_facts, curve_results
from waylab.analysis.statistics.knee import first_slow_load, knee, kneedle, resampled_means
from waylab.analysis.trial import TrialResult
from waylab.errors import LabError
from waylab.fit import NotApplicableError, fit_scalability
from waylab.models import Usl

LOADS = [1.0, 36, 72, 144, 180, 216, 288, 360, 432]
CURVE = [20_000 * (1 - np.exp(-load / 100)) for load in LOADS]


def runs(random, curve, spread, repetitions=3):
    return [(value * random.normal(1, spread, repetitions)).tolist() for value in curve]


def test_it_finds_the_knees_that_kneed_finds():
    random = np.random.default_rng(2)
    found = 0
    for _ in range(400):
        x = np.sort(random.choice(np.arange(1, 600), random.integers(4, 15), replace=False)).astype(float)
        y = x / (1 + x / random.uniform(20, 200)) * random.normal(1, random.choice([0, 0.02, 0.1]), x.size)
        sensitivity = random.choice([0.5, 1, 2])
        theirs = KneeLocator(x, y, S=sensitivity).knee
        ours = kneedle(x, y[None], sensitivity)[0]
        assert (theirs is None and np.isnan(ours)) or theirs == ours
        found += theirs is not None
    assert found > 200


def test_a_knee_with_its_interval():
    found = knee(LOADS, runs(np.random.default_rng(3), CURVE, 0.03))
    truth = kneedle(np.array(LOADS), np.array([CURVE]))[0]
    assert found.low <= truth <= found.high and found.load in LOADS and found.found_share > 0.95
    assert found == knee(LOADS, runs(np.random.default_rng(3), CURVE, 0.03)) and "95 % interval" in found.text


def test_a_line_has_no_knee_and_a_single_run_no_interval():
    assert knee([1, 2, 3, 4, 5], [[10.0 * load] for load in range(1, 6)]).load is None
    single = knee(LOADS, [[value] for value in CURVE])
    assert single.load is not None and single.low is None and "single run" in single.text


def test_the_first_slow_load():
    response = [1.0, 1.1, 1.3, 1.8, 2.2, 3.0, 5.0, 8.0, 12.0]
    found = first_slow_load(LOADS, runs(np.random.default_rng(4), response, 0.05))
    assert found.load in (144, 180, 216) and found.low <= 180 <= found.high
    assert first_slow_load(LOADS, [[value] for value in response]).load == 180
    assert first_slow_load(LOADS, [[1.0]] * 9).load is None


def test_resampled_means_vary_as_means_of_so_many_runs_do():
    random = np.random.default_rng(5)
    spreads = []
    for number in range(200):
        means = resampled_means([np.array(one) for one in runs(random, CURVE, 0.05)], 200, number)
        spreads.append((means.std(axis=0) / means.mean(axis=0)).mean())
    assert np.mean(spreads) == pytest.approx(0.05 / np.sqrt(3), rel=0.05)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: knee([1, 2, 3], [[1.0]] * 3), "4 loads at least"),
        (lambda: knee([1, 3, 2, 4], [[1.0]] * 4), "each larger than the one before"),
        (lambda: knee([1, 2, 3, 4], [[1.0]] * 3), "runs of each of 4 loads"),
        (lambda: knee([1, 2, 3, 4], [[1.0], [], [1.0], [1.0]]), "runs of each of 4 loads"),
        (lambda: knee([1, 2, 3, 4], [[1.0], [0.0], [1.0], [1.0]]), "above zero"),
        (lambda: first_slow_load([1, 2, 3, 4], [[1.0]] * 4, factor=1), "factor must be above 1"),
    ],
)
def test_bad_input_is_one_line(call, message):
    with pytest.raises(LabError, match=message):
        call()


SIZES = [1, 2, 4, 8, 16, 32, 64]


def test_a_law_with_intervals_and_its_reach():
    law = Usl(1000.0, 0.03, 5e-4)
    curve = [law.throughput_per_s(size) for size in SIZES]
    found = fit_scalability(SIZES, runs(np.random.default_rng(6), curve, 0.02))
    content = found.as_dict()
    for name in ("gamma", "alpha", "beta"):
        assert content[name]["low"] <= getattr(law, name) <= content[name]["high"]
    assert content["peak_clients"] == pytest.approx(law.peak_clients, rel=0.2)
    assert content["reach"] == 128 and content["curve"][-1]["clients"] == pytest.approx(128)
    assert all(point["low"] <= point["mean"] <= point["high"] for point in content["curve"])
    with pytest.raises(NotApplicableError, match="beyond twice the 64 that were measured"):
        found.throughput_per_s(129)


def test_a_peak_out_of_reach_is_not_told():
    law = Usl(1000.0, 0.01, 1e-6)
    found = fit_scalability(SIZES, [[law.throughput_per_s(size)] * 2 for size in SIZES]).as_dict()
    assert found["peak_clients"] is None and found["warnings"]


def test_too_little_for_a_law():
    with pytest.raises(NotApplicableError, match="4 numbers of clients at least, not 3"):
        fit_scalability([1, 2, 4], [[1.0]] * 3)
    with pytest.raises(NotApplicableError, match="above 0"):
        fit_scalability([1, 2, 4, 8], [[1.0], [2.0], [-4.0], [8.0]])


def measured(clients, throughput_per_s, p95_ns, used=True):
    name = f"clients={clients}"
    content = {"configuration": name, "throughput_per_s": throughput_per_s, "used": used}
    content["operations"] = {"all": {"percentiles_ns": {"95": p95_ns}}}
    return TrialResult(content), {
        "name": name,
        "series": "all trials",
        "x": float(clients),
        "used": int(used),
    }


def test_the_curves_of_a_run():
    """A closed loop: throughput bends where response times begin to grow."""
    random = np.random.default_rng(9)
    trials, configurations = [], []
    for load, value in zip(LOADS, CURVE, strict=True):
        for _ in range(3):
            trial, configuration = measured(load, value * random.normal(1, 0.02), 1e6 * max(1.0, load / 100))
            trials.append(trial)
        configurations.append(configuration)
    axes = {"x": "clients", "numeric": True}
    spec = {"factors": [{"name": "clients", "key": "load.clients"}]}
    found = curve_results(spec, configurations, trials, axes)
    assert len(found) == 1 and found[0]["knee"]["load"] in LOADS and found[0]["first_slow"]["load"] == 216
    facts = curve_facts(found)
    assert (
        len(facts) == 2
        and facts[0].startswith("all trials, along clients: knee at")
        and facts[1].endswith(".")
    )
    # Three loads are no curve, and the size of values is no load.
    assert curve_results(spec, configurations[:3], trials, axes) == []
    sizes = {"factors": [{"name": "clients", "key": "load.data_size"}]}
    assert curve_results(sizes, configurations, trials, axes) == []
