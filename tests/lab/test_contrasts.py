"""One ratio, one interval: the model of all contrasts, with statsmodels as a second opinion."""

import math

import numpy as np
import pandas as pd
import pytest
from made import made_configuration, made_spec, made_trial
from statsmodels.formula.api import ols
from statsmodels.stats.multitest import multipletests

from waylab.analysis.across.contrasts.changes import changes
from waylab.analysis.across.contrasts.comparisons import comparison_results
from waylab.analysis.across.contrasts.effects import factorial
from waylab.analysis.across.contrasts.model import as_family, metric_model, significant
from waylab.analysis.statistics.blocks import blocks_for, contrast_of_mean, fit_blocks, holm
from waylab.errors import LabError
from waylab.runfolder.numbers import Ratio
from waylab.runfolder.run import AnnouncedComparison

COMPARE = {
    "factor": "replicas",
    "baseline": "1",
    "candidate": "3",
    "metric": "throughput_per_s",
    "margin": 0.0,
    "role": "effect",
    "added": "",
    "ratio": 0.0,
    "added_ns": None,
}


def made_trials(seed=1, blocks=3, clients=("1", "8", "32"), replicas=("1", "3"), spread=0.05):
    """Trials of two crossed factors with noise and drifting blocks."""
    random = np.random.default_rng(seed)
    trials = []
    for block in range(1, blocks + 1):
        shift = random.normal(0, 0.2)
        for one in clients:
            for other in replicas:
                log = math.log(1000 * (1 + 0.1 * (other == "3")) * int(one) ** 0.5) + shift
                levels = {"clients": one, "replicas": other}
                value = math.exp(log + random.normal(0, spread))
                order = len(trials) + 1
                trials.append(made_trial(levels, block, order, throughput_per_s=value).content)
    return trials


def factors(**levels):
    return [
        {"name": name, "key": None, "levels": [{"label": label, "settings": {}} for label in labels]}
        for name, labels in levels.items()
    ]


SPEC = made_spec(factors=factors(clients=["1", "8", "32"], replicas=["1", "3"]))


@pytest.mark.parametrize("dropped", [(), (3,), (0, 7, 11)])
def test_the_model_equals_least_squares_of_statsmodels(dropped):
    trials = [trial for place, trial in enumerate(made_trials()) if place not in dropped]
    model = metric_model(trials, "throughput_per_s")
    ours = model.ratio({"replicas": ["3"]}, {"replicas": ["1"]})
    frame = pd.DataFrame(
        {
            "y": [math.log(trial.numbers.throughput_per_s) for trial in trials],
            "c": [f"{trial.levels['clients']}-{trial.levels['replicas']}" for trial in trials],
            "block": [trial.block for trial in trials],
        }
    )
    fit = ols("y ~ C(c) - 1 + C(block)", frame).fit()
    row = [0.0] * len(fit.params)
    for place, name in enumerate(fit.params.index):
        if name.startswith("C(c)"):
            row[place] = (1 if "-3]" in name else -1) / 3
    theirs = fit.t_test(row)
    assert math.log(ours.ratio) == pytest.approx(theirs.effect[0])
    assert np.log([ours.low, ours.high]) == pytest.approx(theirs.conf_int()[0])
    assert ours.degrees == fit.df_resid and ours.p == pytest.approx(float(theirs.pvalue))


def test_the_same_contrast_is_the_same_number_wherever_it_is_shown():
    trials = made_trials()
    (compared,) = comparison_results([AnnouncedComparison(**COMPARE)], trials)
    found = factorial(SPEC, trials)
    (throughput,) = [metric for metric in found.metrics if metric.metric == "throughput_per_s"]
    effect = next(effect for effect in throughput.effects if effect.name == "replicas 3 / 1")
    assert (effect.ratio, effect.low, effect.high) == (
        compared.overall.ratio,
        compared.overall.low,
        compared.overall.high,
    )


def test_changes_against_the_base_case_are_contrasts_of_the_same_model():
    trials = made_trials(clients=("1",))
    (compared,) = comparison_results([AnnouncedComparison(**COMPARE)], trials)
    spec = made_spec(factors=factors(clients=["1"], replicas=["1", "3"]))
    configurations = [made_configuration(name=one.configuration, levels=one.levels) for one in trials[:2]]
    found = changes(spec, configurations, trials)
    (entry,) = [one for one in found.entries if one.name == "clients=1, replicas=3"]
    assert (entry.ratio, entry.low, entry.high) == (
        compared.overall.ratio,
        compared.overall.low,
        compared.overall.high,
    )
    assert found.family == 1


def test_two_blocks_of_two_configurations_have_no_interval():
    trials = made_trials(blocks=2, clients=("1",))
    found = metric_model(trials, "throughput_per_s").ratio({"replicas": ["3"]}, {"replicas": ["1"]})
    assert found.ratio and found.low is None and found.p is None
    assert found.reason == "2 blocks cannot decide; it takes 3"
    # More configurations of both sides know more about the error.
    more = metric_model(made_trials(blocks=2), "throughput_per_s")
    assert more.ratio({"replicas": ["3"]}, {"replicas": ["1"]}).low is not None


def test_sides_that_no_block_connects_have_no_ratio():
    trials = [
        trial
        for trial in made_trials(blocks=4, clients=("1",))
        if (trial.block <= 2) == (trial.levels["replicas"] == "1")
    ]
    found = metric_model(trials, "throughput_per_s").ratio({"replicas": ["3"]}, {"replicas": ["1"]})
    assert found.ratio is None and "no pair" in found.reason


def test_a_family_is_adjusted_by_holm():
    random = np.random.default_rng(4)
    p_values = random.uniform(0, 0.1, 12).tolist()
    assert holm(p_values) == pytest.approx(multipletests(p_values, method="holm")[1])
    assert holm([]) == []
    ratios = [_ratio(p) for p in (0.01, 0.03, 0.04)]
    family = as_family(
        [*ratios, Ratio(blocks=1, ratio=1.1, low=None, high=None, excludes_1=None, equivalent=None)]
    )
    assert [one.p_family for one in family] == pytest.approx([0.03, 0.06, 0.06, None])
    assert [significant(one) for one in family] == [True, False, False, False]
    # The simultaneous interval is wider than that of one ratio alone.
    assert all(one.family_low < one.low < one.high < one.family_high for one in family[:3])


def _ratio(p):
    half = math.exp(0.1 * 2.228)
    return Ratio(
        blocks=6,
        ratio=1.0,
        low=1 / half,
        high=half,
        excludes_1=p < 0.05,
        equivalent=None,
        degrees=10,
        error=0.1,
        p=p,
    )


def test_the_forecast_of_blocks_falls_with_the_width():
    contrast = contrast_of_mean([0.1, -0.1, 0.15, 0.0])
    few, many = blocks_for(contrast, 4, 0.1), blocks_for(contrast, 4, 0.02)
    assert 4 < few < many
    assert blocks_for(contrast, 4, 0) is None and blocks_for(contrast_of_mean([0.1]), 1, 0.1) is None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fit_blocks([], [], []), "at least one value"),
        (lambda: fit_blocks(["a"], [1], [0.0]), "above zero"),
        (lambda: fit_blocks(["a"], [1, 2], [1.0]), "a treatment and a block"),
        (lambda: fit_blocks(["a", "b"], [1, 1], [1.0, 2.0]).contrast({"c": 1}), "is not a treatment"),
        (lambda: fit_blocks(["a", "b"], [1, 1], [1.0, 2.0]).contrast({"a": 1}), "must sum to 0"),
        (lambda: fit_blocks(["a", "b"], [1, 2], [1.0, 2.0]).contrast({"a": 1, "b": -1}), "no block connects"),
    ],
)
def test_invalid_input_raises_one_line(call, message):
    with pytest.raises(LabError, match=message):
        call()


def test_the_shares_of_the_variation_sum_to_one():
    for clients, kind in ((("1", "8"), "2k"), (("1", "8", "32"), "general")):
        spec = made_spec(factors=factors(clients=clients, replicas=["1", "3"]))
        found = factorial(spec, made_trials(clients=clients))
        assert found.kind == kind
        for metric in found.metrics:
            assert sum(part.share for part in metric.shares) == pytest.approx(1)
            assert {"blocks", "error"} <= {part.name for part in metric.shares}


def test_a_contrast_has_the_error_of_the_configurations_that_it_names():
    """Noisier configurations beside a comparison do not widen its interval, and quieter ones do not narrow it."""
    quiet = made_trials(clients=("1",), blocks=4, spread=0.01)
    noisy = made_trials(clients=("32",), blocks=4, spread=0.5, seed=2)
    sides = {"clients": ["1"], "replicas": ["3"]}, {"clients": ["1"], "replicas": ["1"]}
    alone = metric_model(quiet, "throughput_per_s").ratio(*sides)
    among = metric_model([*quiet, *noisy], "throughput_per_s").ratio(*sides)
    assert (among.ratio, among.low, among.high) == pytest.approx((alone.ratio, alone.low, alone.high))
