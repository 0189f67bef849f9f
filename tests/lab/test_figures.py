"""The data of the figures, for trials with known values; and figures are drawn only if there are data."""

import json
import math
import shutil
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from conftest import BLOCKS, CLIENTS, REPLICAS
from hdrh.histogram import HdrHistogram
from made import made_spec, made_trial
from msgspec import to_builtins
from msgspec.structs import replace
from scipy import stats

from waylab.analysis import read_analysis
from waylab.analysis.across.contrasts.effects import factorial, factorial_facts
from waylab.analysis.across.contrasts.verdicts import verdict, verdict_sentence
from waylab.analysis.across.shapes import shape
from waylab.analysis.statistics.blocks import Contrast
from waylab.analysis.statistics.gamma import fit_gamma
from waylab.analysis.statistics.pairs import ratio_of
from waylab.analysis.trial.histograms import percentiles, values_at
from waylab.analysis.trial.traces import trace
from waylab.errors import LabError
from waylab.report.page.content import read_content
from waylab.report.write import draw
from waylab.runfolder.load import LoadSecond
from waylab.runfolder.numbers import Ratio
from waylab.runfolder.results import seal
from waylab.runfolder.trial_numbers import WarmUpFound, WithinTrial


def test_the_fit_recovers_a_gamma_distribution():
    truth = stats.gamma(2.5, scale=400.0)
    values = truth.ppf((np.arange(20_000) + 0.5) / 20_000)
    found = fit_gamma(values, np.ones(values.size))
    assert (found.shape, found.scale) == pytest.approx((2.5, 400.0), rel=0.002)
    assert found.distance < 0.001
    # The fit also reports its distance from data that follow another distribution.
    two = np.concatenate([np.linspace(10, 11, 500), np.linspace(1000, 1001, 500)])
    assert fit_gamma(two, np.ones(1000)).distance > 0.2


@pytest.mark.parametrize(
    ("values", "counts"), [([1.0], [5]), ([0.0, 1.0], [1, 1]), ([2.0, 2.0 + 1e-9], [1, 1]), ([1.0, 2.0], [1])]
)
def test_values_without_a_gamma_fit_are_refused(values, counts):
    with pytest.raises(LabError, match="gamma fit"):
        fit_gamma(values, counts)


def test_the_bars_of_a_histogram_contain_every_count():
    histogram = HdrHistogram(1, 3_600_000_000_000, 3)
    values_ns = stats.gamma(3, scale=1e6).ppf((np.arange(5000) + 0.5) / 5000)
    for value in values_ns:
        histogram.record_value(int(value))
    found = shape(histogram, "here")
    shares = [bar.density_per_ms * (bar.to_ns - bar.from_ns) * 1e-6 for bar in found.bars]
    assert sum(shares) == pytest.approx(0.99, abs=0.002)
    assert found.gamma.shape == pytest.approx(3, rel=0.01)
    for bar in found.bars:
        assert bar.gamma_per_ms == pytest.approx(bar.density_per_ms, abs=0.012)
    few = HdrHistogram(1, 3_600_000_000_000, 3)
    few.record_value(1000)
    assert shape(few, "here") is None


@pytest.mark.parametrize("count", [1, 7, 150, 1000, 3000])
def test_percentiles_are_those_of_the_nearest_rank(count):
    """Hyndman and Fan's type 1, as the load generator has it; 99 % of 150 values are 149, not 148."""
    values = np.random.default_rng(3).lognormal(12, 2, count).astype(np.int64)
    histogram = HdrHistogram(1, 3_600_000_000_000, 3)
    for value in values:
        histogram.record_value(int(value))
    percents = [0.01, 1.0, 5.0, 50.0, 90.0, 99.0, 99.9, 100.0]
    ranks = [math.ceil(Fraction(str(percent)) * count / 100) for percent in percents]
    exact = [np.sort(values)[rank - 1] for rank in ranks]
    assert values_at(histogram, percents) == [
        histogram.get_highest_equivalent_value(int(value)) for value in exact
    ]
    assert values_at(HdrHistogram(1, 3_600_000_000_000, 3), [50.0]) == [0]


def test_unanswered_requests_are_slower_than_any_value():
    histogram = HdrHistogram(1, 3_600_000_000_000, 3)
    for value in range(1, 1101):
        histogram.record_value(value)
    answered, some, many = (percentiles(histogram, unanswered=count) for count in (0, 10, 110))
    assert answered["99"] == 1089 and some["99"] == 1099
    assert "95" not in many and many["90"] == 1089 and some["50"] == 555


def seconds(count, warm_up):
    return [
        LoadSecond(
            second=number,
            measured=number >= warm_up,
            requests=100 + number,
            mean_ns=5.0,
            hits=3,
            misses=1,
        )
        for number in range(count)
    ]


def within(steady, cut_s):
    return WithinTrial(seconds=9, warm_up=WarmUpFound(cut_s=cut_s, steady=steady, by="throughput", text=""))


def test_a_trace_has_every_second_and_the_start_of_the_steady_state():
    found = trace(seconds(12, 2), within(True, 3))
    assert (found.measured_from, found.settled_from) == (2, 5)
    assert [second.throughput_per_s for second in found.seconds] == list(range(100, 112))
    assert found.seconds[0].miss_ratio == 0.25
    assert trace(seconds(12, 2), within(None, 0)).settled_from is None
    assert trace(seconds(5, 2), WithinTrial(seconds=3)) is None


def test_changes_are_ratios_to_the_base_case(reported):
    changes = read_analysis(reported).changes
    assert changes.base == "clients=4, replicas=1"
    found = {(entry.name, entry.metric): entry for entry in changes.entries}
    entry = found["clients=16, replicas=2", "throughput_per_s"]
    assert entry.ratio == pytest.approx(1.8) and entry.blocks == 3 and entry.excludes_1
    assert found["clients=4, replicas=2", "response_mean_ns"].ratio == pytest.approx(1 / 0.9, rel=1e-4)
    assert found[changes.base, "throughput_per_s"].ratio == 1.0
    assert "response_set_mean_ns" not in changes.metrics


def test_effects_of_a_known_design(reported):
    """In the shared run all effects multiply, also those of blocks, and there is no noise."""
    factorial = read_analysis(reported).factorial
    assert factorial.kind == "2k" and factorial.blocks == len(BLOCKS)
    throughput = next(m for m in factorial.metrics if m.metric == "throughput_per_s")
    effects = {effect.name: effect for effect in throughput.effects}
    assert effects["clients 16 / 4"].ratio == pytest.approx(CLIENTS["16"] / CLIENTS["4"])
    assert effects["replicas 2 / 1"].relative == pytest.approx(REPLICAS["2"] / REPLICAS["1"] - 1)
    assert effects["clients x replicas"].ratio == pytest.approx(1)
    shares = {part.name: part.share for part in throughput.shares}
    assert sum(shares.values()) == pytest.approx(1) and shares["error"] == pytest.approx(0, abs=1e-9)


def trials_of(factors, truth, blocks=4, runs=None):
    """Trials with additive noise from a fixed seed; `runs` are the combinations, all unless given."""
    random, trials = np.random.default_rng(5), []
    for block in range(1, blocks + 1):
        for levels in runs or [dict(zip(factors, one, strict=True)) for one in product(*factors.values())]:
            throughput_per_s = truth(levels) + 10 * block + random.normal(0, 5)
            order = len(trials) + 1
            trials.append(made_trial(levels, block, order, throughput_per_s=throughput_per_s).content)
    return trials


def spec_of(factors, **more):
    named = [
        {"name": name, "key": None, "levels": [{"label": label, "settings": {}} for label in levels]}
        for name, levels in factors.items()
    ]
    return made_spec(factors=named, **more)


def with_generators(spec, generators):
    return replace(spec, design=replace(spec.design, generators=generators))


TWO = {"a": ["1", "2"], "b": ["1", "2"]}


def additive(levels):
    return 1000 + 100 * (levels["a"] == "2") + 20 * (levels["b"] == "2")


def test_effects_are_separated_from_noise_and_residuals_are_checked():
    found = factorial(spec_of(TWO), trials_of(TWO, additive))
    (metric,) = found.metrics
    effects = {effect.name: effect for effect in metric.effects}
    assert effects["a 2 / 1"].low < 1.0966 < effects["a 2 / 1"].high and effects["a 2 / 1"].significant
    assert effects["b 2 / 1"].low < 1.0187 < effects["b 2 / 1"].high
    assert not effects["a x b"].significant
    assert {check.name for check in metric.checks} >= {"independence", "order", "normality", "spread"}
    points = metric.residuals
    assert [point.order for point in points] == list(range(1, 17))
    assert [p.previous for p in points[1:]] == [p.residual for p in points[:-1]]
    ranked = sorted(points, key=lambda point: point.residual)
    assert [p.normal for p in ranked] == sorted(p.normal for p in ranked)
    assert "Of the variation of throughput, a 89.8 %" in factorial_facts(found)[0]


def test_factors_with_more_than_two_levels_use_a_general_design():
    factors = {"a": ["1", "2", "3"], "b": ["1", "2"]}
    found = factorial(spec_of(factors), trials_of(factors, additive))
    (metric,) = found.metrics
    assert found.kind == "general"
    assert [effect.name for effect in metric.effects] == ["a 2 / 1", "a 3 / 1", "b 2 / 1"]
    assert [part.name for part in metric.shares] == ["a", "b", "a x b", "blocks", "error"]
    assert sum(part.share for part in metric.shares) == pytest.approx(1)


def test_a_fraction_lists_its_aliases():
    factors = {"a": ["1", "2"], "b": ["1", "2"], "c": ["1", "2"]}
    runs = [{"a": a, "b": b, "c": "2" if a == b else "1"} for a in "12" for b in "12"]
    trials = trials_of(factors, additive, runs=runs)
    found = factorial(with_generators(spec_of(factors), ["C=AB"]), trials)
    assert found.kind == "2k" and len(found.metrics[0].effects) == 3
    assert found.metrics[0].effects[0].aliases == ["b x c"]
    assert "not all combinations" in factorial(spec_of(factors), trials).text


def test_the_level_of_a_null_arm_is_not_analysed_as_a_level():
    factors = {"a": ["1", "2", "1-again"], "b": ["1", "2"]}
    null = {
        "factor": "a",
        "baseline": "1",
        "candidate": "1-again",
        "role": "null",
        "metric": "throughput_per_s",
    }
    null |= {"margin": 0.0, "added": "", "ratio": 0.0, "added_ns": None}
    found = factorial(spec_of(factors, compare=[null]), trials_of(factors, additive))
    assert found.kind == "2k" and found.levels["a"] == ["1", "2"]


def test_a_block_with_a_missing_trial_is_excluded():
    trials = trials_of(TWO, additive)
    trials[0] = replace(trials[0], used=False)
    assert factorial(spec_of(TWO), trials).blocks == 3
    for place, trial in enumerate(trials):
        if trial.block == 1 or trial.configuration == "a=1, b=1":
            trials[place] = replace(trial, used=False)
    assert "no block" in factorial(spec_of(TWO), trials).text


def a_ratio(ratio, low, high, **more):
    more = {"excludes_1": not low <= 1 <= high, "equivalent": None, "degrees": 4, "error": 0.03} | more
    return Ratio(blocks=5, ratio=ratio, low=low, high=high, **more)


def test_the_verdict_follows_from_the_tests_of_the_ratio():
    ratio = a_ratio(0.8, 0.7, 0.9, p=0.001, equivalent=False)
    assert verdict(ratio, "throughput_per_s") == "worse" and verdict(ratio, "response_mean_ns") == "better"
    assert verdict(replace(ratio, equivalent=True), "throughput_per_s") == "equivalent"
    # The interval excludes 1, but not in its family of comparisons.
    alone = replace(ratio, p=0.03, p_family=0.09)
    assert verdict(alone, "throughput_per_s") == "undecided"
    assert "but not in its family" in verdict_sentence(alone, "throughput_per_s", 0.05)
    assert "the candidate is worse" in verdict_sentence(ratio, "throughput_per_s", 0.05)
    why = {"excludes_1": None, "equivalent": None, "reason": "1 block cannot decide; it takes 3"}
    single = Ratio(ratio=0.8, low=None, high=None, blocks=1, **why)
    assert "it takes 3" in verdict_sentence(single, "throughput_per_s", 0.05)


def test_no_worse_is_a_one_sided_test():
    """A ratio of 1.043, 95 % interval 0.987 to 1.101, is no worse by more than 5 %, although 1.101 is beyond 5 %."""
    error = math.log(1.101 / 0.987) / 2 / 2.776
    found = Ratio(**vars(ratio_of(Contrast(math.log(1.043), error, 4), 5, 0.05, better=1)))
    assert (found.low, found.high) == pytest.approx((0.987, 1.101), abs=0.001)
    assert found.equivalent is False and found.no_worse is True
    assert verdict(found, "throughput_per_s") == "no worse"
    assert "no worse by more than 5 %" in verdict_sentence(found, "throughput_per_s", 0.05)
    # Of a time, the same ratio may be a loss of 10 %.
    assert Ratio(**vars(ratio_of(Contrast(math.log(1.043), error, 4), 5, 0.05, better=-1))).no_worse is False


def test_figures_appear_only_if_there_are_data(reported, tmp_path):
    """Traces, misses, queues, and separate GET and SET; the shared run has none of them."""
    directory = tmp_path / "more"
    shutil.copytree(reported, directory, ignore=shutil.ignore_patterns("trials", "figures"))
    content = json.loads((directory / "analysis.json").read_text())
    before = {figure.name for figure in draw(read_content(directory))}
    drawn = to_builtins(trace(seconds(30, 5), within(True, 4)))
    for trial in content["trials"]:
        trial["numbers"]["trace"] = drawn
    for c in content["configurations"]:
        c["operations"]["set"] = c["operations"]["get"]
        c["shapes"]["set"] = c["shapes"]["get"]
        c["miss_ratio"] |= {"mean": 0.01, "low": 0.0, "high": 0.02}
        alone = {"count": 1, "mean": 2.5, "low": None, "high": None}
        c["queue_length"] = dict.fromkeys(("mean", "p50", "p95", "largest"), alone)
    (directory / "analysis.json").write_text(json.dumps(content))
    seal(directory)
    figures = {figure.name: figure for figure in draw(read_content(directory))}
    assert set(figures) - before == {
        "trace-throughput",
        "trace-response",
        "queue-length",
        "miss-ratio",
        "response-by-clients",
    }
    # GET and SET share a figure with a list to choose from; files have one drawing of each.
    for name in ("response-by-clients", "response-by-replicas", "response-histogram"):
        assert figures[name].further == {"set": "SET"}
    drawn = [
        json.dumps({**figure.chart.to_dict(), "title": None}, sort_keys=True) for figure in figures.values()
    ]
    assert len(set(drawn)) == len(drawn)
    for name in set(figures) - before:
        figures[name].chart.to_dict()
