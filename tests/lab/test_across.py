"""Across runs: means, the stopping rule, pairs, null arm, positive control; the operational laws."""

import math

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.weightstats import ttost_paired

from waylab.analysis.statistics.blocks import contrast_of_mean
from waylab.analysis.statistics.laws import bytes_balance, forced_flow, interactive, little
from waylab.analysis.statistics.pairs import (
    equivalence_p,
    log_ratios,
    null_arm,
    paired_ratio,
    positive_control,
)
from waylab.analysis.statistics.repetitions import (
    corrected_precision,
    geometric_interval,
    relative_half_width,
    repetitions_needed,
)
from waylab.analysis.statistics.stopping import StoppingRule, decide
from waylab.errors import LabError


def test_the_geometric_mean_is_the_mean_of_logarithms():
    found = geometric_interval([1.0, 10.0, 100.0])
    assert found.mean == pytest.approx(10) and found.low * found.high == pytest.approx(100)
    assert geometric_interval([5.0]).low is None
    with pytest.raises(LabError, match="must be above zero"):
        geometric_interval([1.0, 0.0])


def test_repetitions_needed():
    """The smallest number whose t interval is narrow enough (Jain, 13.9), to a hundredth."""
    values = np.random.default_rng(1).normal(20, 5, 30).tolist()
    count = repetitions_needed(values, 0.05)
    spread = np.std(values, ddof=1) / np.mean(values)

    def width(repetitions):
        return stats.t.ppf(0.975, repetitions - 1) * spread / math.sqrt(repetitions)

    assert width(count) <= corrected_precision(0.05) < width(count - 1 - count // 100)
    assert repetitions_needed([1.0], 0.05) is None and relative_half_width([1.0, -1.0]) is None
    with pytest.raises(LabError, match="precision"):
        corrected_precision(0)


RULE = StoppingRule(precision=0.05, blocks_min=3, confirmations=1, blocks_max=10, budget_s=600)


def test_it_stops_when_every_metric_stays_precise():
    steady, wild = [100.0, 101, 100, 99, 100], [10.0, 12, 9, 11, 10]
    once = decide({"a": steady[:3]}, RULE)
    assert not once.stop and once.kind == "continue" and "1 times in a row, 2 are wanted" in once.reason
    found = decide({"a": steady[:4]}, RULE)
    assert found.stop and found.kind == "precision" and found.blocks == 4
    found = decide({"a": steady, "b": wild}, RULE)
    assert not found.stop and found.reason.startswith("b is not precise enough") and found.blocks_expected > 5
    assert found.widths["a"] < 0.05 < found.widths["b"]


def test_precision_that_does_not_last_does_not_stop():
    found = decide({"a": [100.0, 100.1, 99.9, 150.0]}, RULE)
    assert not found.stop


def test_it_stops_at_the_maximum_and_when_another_block_does_not_fit():
    wild = [10.0, 14, 8, 11, 15, 9, 10, 13, 8, 12]
    found = decide({"a": wild}, RULE)
    assert found.stop and found.kind == "maximum" and "10 blocks are the maximum" in found.reason
    found = decide({"a": wild[:4]}, RULE, elapsed_s=500, block_s=101)
    assert found.stop and found.kind == "budget" and "exceed the budget of 600 s" in found.reason
    assert not decide({"a": wild[:4]}, RULE, elapsed_s=500, block_s=100).stop
    # At least three blocks run, whatever the budget.
    assert not decide({"a": wild[:2]}, RULE, elapsed_s=5000, block_s=1).stop


def test_a_large_difference_does_not_stop_the_run():
    """Precision alone decides; the values of the metrics do not matter."""
    one, other = [100.0, 130, 80], [900.0, 1300, 700]
    assert not decide({"a": one, "b": other}, StoppingRule()).stop


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: decide({}, RULE), "no metric to decide by"),
        (lambda: decide({"a": [1.0], "b": [1.0, 2.0]}, RULE), "only whole blocks count"),
        (lambda: StoppingRule(blocks_min=2), "at least 3 blocks"),
        (lambda: StoppingRule(blocks_max=2), "below 3"),
        (lambda: StoppingRule(budget_s=0), "budget must be above 0"),
        (lambda: StoppingRule(precision=-1), "precision: must be above 0"),
        (lambda: StoppingRule(confirmations=-1), "confirmations must be 0 or more"),
        (lambda: log_ratios([1.0], [1.0, 2.0]), "are no pairs"),
        (lambda: log_ratios([0.0], [1.0]), "above zero"),
        (lambda: equivalence_p(contrast_of_mean([0.0, 0.1, 0.2]), 0), "margin must be above 0"),
        (lambda: contrast_of_mean([]), "needs a value"),
        (lambda: positive_control([1.0], [2.0], 0), "nothing was added"),
        (lambda: positive_control([1.0], [2.0, 3.0], 1), "are no pairs"),
        (lambda: interactive(1, math.inf, 1, 1), "must be finite"),
        (lambda: interactive(1, 1, 1, 1, limit=0), "limit must be above 0"),
    ],
)
def test_invalid_input_raises_one_line(call, message):
    with pytest.raises(LabError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_equivalence_equals_that_of_statsmodels():
    random = np.random.default_rng(2)
    for spread in (0.005, 0.02, 0.05):
        one, other = random.lognormal(0, spread, 8), random.lognormal(0, spread, 8)
        logs = log_ratios(one, other)
        expected = ttost_paired(other, one, 1 / 1.03, 1.03, transform=np.log)[0]
        assert equivalence_p(contrast_of_mean(logs), 0.03) == pytest.approx(expected)
        assert paired_ratio(logs, 0.03).equivalent == (expected < 0.05)
    assert paired_ratio([0.01] * 3, 0.03).equivalent and not paired_ratio([0.1] * 3, 0.03).equivalent


def test_not_significant_is_not_equivalent():
    found = paired_ratio([0.3, -0.3, 0.2, -0.25], 0.05)
    assert not found.equivalent and not null_arm(found).flagged


def test_the_null_arm():
    good = null_arm(paired_ratio([0.01, -0.01, 0.005, -0.004], 0.05), 0.05)
    assert good.flagged is False and "does not differ" in good.text and "noisy" not in good.text
    bad = null_arm(paired_ratio([0.10, 0.11, 0.09, 0.10]))
    assert bad.flagged is True and "do not trust" in bad.text and "differs" in bad.text
    # A noisy arm beyond its margin is no alarm, since noise alone carries it there more often than once in twenty.
    beyond = null_arm(paired_ratio([0.5, -0.2, 0.4, -0.1], 0.05), 0.05)
    assert beyond.flagged is False and "too noisy to show that it lies within 5 %" in beyond.text
    assert null_arm(paired_ratio([0.1])).flagged is None


def test_two_blocks_decide_nothing_and_the_reason_names_the_number_that_does():
    found = paired_ratio([0.05, -0.02])
    assert found.ratio and found.low is None and found.excludes_1 is None and found.p is None
    assert found.reason == "2 blocks cannot decide; it takes 3"
    assert null_arm(found).text == "the null arm is not judged: 2 blocks cannot decide; it takes 3"


def test_the_positive_control():
    base = [200.0, 210, 190, 205]
    found = positive_control(
        base, [value + added for value, added in zip(base, [49, 52, 51, 48], strict=True)], 50
    )
    assert found.found and found.exact and found.mean == pytest.approx(50)
    missed = positive_control(base, [230.0, 180, 260, 190], 50)
    assert not missed.found and "was NOT found" in missed.text
    wrong = positive_control(base, [value + 20 + 0.1 * value for value in base], 70)
    assert wrong.found and not wrong.exact
    assert positive_control(base, [value - 50 - value / 100 for value in base], -52).found
    assert positive_control([1.0], [2.0], 1).found is None


def test_the_laws():
    law = interactive(clients=100, throughput_per_s=20_000, response_s=0.004, think_s=0.001)
    assert law.holds and law.residual == pytest.approx(0) and law.expected == 100
    assert not interactive(100, 20_000, 0.005, 0.001).holds
    assert little(1000, 0.010, 10.2).holds and not little(1000, 0.010, 11).holds
    assert forced_flow(1000, 2.5, 2500).holds
    assert "differs from bytes sent by -10.00 %, limit 3 %" in bytes_balance(1000, 900).text
    assert bytes_balance(0, 0).holds is None and bytes_balance(0, 5).holds is False
