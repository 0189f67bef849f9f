"""The knee, the first slow load and the scalability law of measured runs."""

import numpy as np
import pytest
from made import made_configuration, made_spec, made_trial

from waylab.analysis.across.curves import curve_facts, curve_results
from waylab.analysis.statistics.knee import asymptotes_crossing, first_slow_load, knee, resampled_means
from waylab.errors import LabError
from waylab.runfolder.analysis import Axes

LOADS = [1.0, 36, 72, 144, 180, 216, 288, 360, 432]
CURVE = [20_000 * (1 - np.exp(-load / 100)) for load in LOADS]


def runs(random, curve, spread, repetitions=3):
    return [(value * random.normal(1, spread, repetitions)).tolist() for value in curve]


def test_a_knee_with_its_interval():
    found = knee(LOADS, runs(np.random.default_rng(3), CURVE, 0.03))
    # 1 - exp(-x/100) reaches 90 % of its value at 432 at 228.
    assert found.low <= 288 <= found.high and found.load in LOADS and found.found_share > 0.95
    assert found == knee(LOADS, runs(np.random.default_rng(3), CURVE, 0.03)) and "95 % interval" in found.text


def test_a_straight_line_has_no_knee_and_a_single_run_no_interval():
    rising = knee([1, 2, 3, 4, 5], [[10.0 * load] for load in range(1, 6)])
    assert rising.load is None and rising.text == (
        "no knee: throughput still rises by 25 % from 4 to 5; measure larger loads"
    )
    flat = knee([1, 2, 3, 4], [[10.0], [10.5], [10.1], [10.3]])
    assert flat.load is None and "the smallest load, 1, already has 90 %" in flat.text
    single = knee(LOADS, [[value] for value in CURVE])
    assert single.load is not None and single.low is None and "single run" in single.text


def test_four_geometric_loads_whose_throughput_still_rises_have_no_knee():
    """Kneedle found "32, 95 % interval 32 to 32" here, while the throughput rises by 42 % beyond it."""
    curve = [8_000.0, 21_000, 52_000, 74_000]
    found = knee([1, 8, 32, 128], runs(np.random.default_rng(1), curve, 0.02))
    assert found.load is None and "still rises by 4" in found.text and "from 32 to 128" in found.text


@pytest.mark.parametrize(
    ("loads", "curve"),
    [
        ([16, 32, 64, 120, 128], lambda load: load),
        ([*range(10, 101, 10), 105], lambda load: load),
        ([*range(10, 101, 10)], np.sqrt),
        # 90 % of what it can reach are at 1800 clients.
        ([1, 36, 72, 144, 216, 288, 360, 432], lambda load: load / (load + 200)),
    ],
)
@pytest.mark.parametrize("spread", [0.0, 0.02, 0.05])
def test_a_curve_that_still_rises_has_no_knee_however_close_its_last_loads_are(loads, curve, spread):
    """The last load but one has 90 % of the throughput at the last one, because it is nearly as large."""
    values = [float(curve(load)) for load in loads]
    claimed = [knee(loads, runs(np.random.default_rng(seed), values, spread)).load for seed in range(40)]
    assert sum(load is not None for load in claimed) <= 2, claimed


def test_a_level_curve_between_close_loads_has_a_knee_only_if_the_runs_show_it():
    loads, curve = [8, 16, 32, 64, 66], [25.0, 50, 80, 100, 100]
    clear = knee(loads, runs(np.random.default_rng(1), curve, 0.002))
    assert (clear.load, clear.high) == (64, 64)
    unclear = [knee(loads, runs(np.random.default_rng(seed), curve, 0.05)) for seed in range(20)]
    assert sum(one.load is None and "measure" in one.text for one in unclear) > 15
    assert any("64 to 66 is too narrow a range" in one.text for one in unclear)


def test_a_knee_that_the_runs_cannot_decide_is_refused():
    """The third load has 91 % of the best, with runs that vary by 5 %."""
    found = knee([1, 8, 32, 128], runs(np.random.default_rng(8), [8e3, 5e4, 9.4e4, 1e5], 0.05))
    assert found.load is None and "of the resampled curves still rise at the largest load" in found.text, (
        found.text
    )


def test_the_asymptotes_cross_where_theory_says():
    """X = min(N / (R + Z), X_max) has its corner at N* = (R + Z) X_max = 40."""
    loads = [1.0, 8, 32, 64, 128]
    curve = [min(load / 0.004, 10_000.0) for load in loads]
    assert asymptotes_crossing(loads, [[value] for value in curve]).load == pytest.approx(40)
    found = asymptotes_crossing(loads, runs(np.random.default_rng(2), curve, 0.03))
    assert found.low < 40 < found.high and 36 < found.low and found.high < 46


def test_the_first_slow_load():
    response = [1.0, 1.1, 1.3, 1.8, 2.2, 3.0, 5.0, 8.0, 12.0]
    found = first_slow_load(LOADS, runs(np.random.default_rng(4), response, 0.05))
    assert found.load in (144, 180, 216) and found.low <= 180 <= found.high
    assert first_slow_load(LOADS, [[value] for value in response]).load == 180
    assert first_slow_load(LOADS, [[1.0]] * 9).load is None


def test_resampled_means_have_the_variance_of_the_mean():
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
def test_invalid_input_raises_one_line(call, message):
    with pytest.raises(LabError, match=message):
        call()


def measured(clients, throughput_per_s, p95_ns):
    percentiles = {
        "count": 1,
        "response_mean_ns": 1e6,
        "response_std_ns": 0.0,
        "percentiles_ns": {"95": int(p95_ns)},
    }
    trial = made_trial(
        {"clients": str(clients)}, throughput_per_s=throughput_per_s, operations={"all": percentiles}
    )
    return trial, made_configuration(name=trial.content.configuration, x=float(clients))


def test_the_curves_of_a_run():
    """A closed loop: throughput bends where response times begin to grow."""
    random = np.random.default_rng(9)
    trials, configurations = [], []
    for load, value in zip(LOADS, CURVE, strict=True):
        for _ in range(3):
            trial, configuration = measured(load, value * random.normal(1, 0.02), 1e6 * max(1.0, load / 100))
            trials.append(trial)
        configurations.append(configuration)
    axes = Axes(x="clients", numeric=True, logarithmic=True, levels=[*LOADS], series=[], views=[])
    clients = {"name": "clients", "key": "load.clients", "levels": []}
    spec = made_spec(factors=[clients])
    found = curve_results(spec, configurations, trials, axes)
    assert len(found) == 1 and found[0].knee.load in LOADS and found[0].first_slow.load == 216
    facts = curve_facts(found)
    assert (
        len(facts) == 2
        and facts[0].startswith("all trials, throughput along clients: knee (90 % of the best throughput) at")
        and facts[1].endswith(".")
    )
    # Three loads are too few for a curve, and the value size is not a load.
    assert curve_results(spec, configurations[:3], trials, axes) == []
    sizes = made_spec(factors=[clients | {"key": "load.data_size"}])
    assert curve_results(sizes, configurations, trials, axes) == []
