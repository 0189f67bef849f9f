"""Intervals compared with those of scipy, and their coverage of a known truth."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from synthetic import histogram_text

from waylab.analysis.statistics import mean_interval, paired_ratio
from waylab.analysis.statistics.repetitions import MeanInterval, positive_mean_interval
from waylab.analysis.trial.histograms import curve, decode, merge, percentiles
from waylab.errors import LabError


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=20).filter(lambda values: np.std(values) > 1e-3))
def test_the_interval_is_the_t_interval(values):
    found = mean_interval(values)
    low, high = stats.t.interval(0.95, len(values) - 1, loc=np.mean(values), scale=stats.sem(values))
    assert found.mean == pytest.approx(np.mean(values), abs=1e-6)
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-6, rel=1e-9)


def test_too_few_values_have_no_interval():
    assert mean_interval([]) == MeanInterval(0, None, None, None)
    assert mean_interval([3.0]) == MeanInterval(1, 3.0, None, None)


def test_intervals_have_their_nominal_coverage():
    generator = np.random.default_rng(20)
    covered = 0
    for _ in range(4000):
        found = mean_interval(list(generator.normal(10, 2, 4)))
        covered += found.low <= 10 <= found.high
    assert 0.93 <= covered / 4000 <= 0.97


def test_the_interval_of_a_positive_quantity_is_never_below_zero():
    """Two trials of 3,400 and 11,664 requests/s had the interval -12,976 to 28,039."""
    found = positive_mean_interval([3_400.0, 11_664.0])
    assert found.mean == 7_532 and 0 < found.low < 3_400 and found.high > 11_664
    near, plain = positive_mean_interval([99.0, 100.0, 101.0]), mean_interval([99.0, 100.0, 101.0])
    assert (near.low, near.high) == pytest.approx((plain.low, plain.high), rel=1e-3)
    assert positive_mean_interval([0.0, 0.0]) == MeanInterval(2, 0.0, 0.0, 0.0)
    assert positive_mean_interval([5.0]) == MeanInterval(1, 5.0, None, None)
    assert positive_mean_interval([0.0, 1e9]).low > 0
    with pytest.raises(LabError, match="below zero"):
        positive_mean_interval([-1.0, 2.0])


@pytest.mark.parametrize("count", [2, 3, 10])
@pytest.mark.parametrize("deviation", [0.05, 0.3])
def test_intervals_of_positive_quantities_have_their_nominal_coverage(count, deviation):
    generator = np.random.default_rng(7)
    campaigns = 4000
    for logarithm in (False, True):
        shape = (campaigns, count)
        if logarithm:
            sigma = math.sqrt(math.log1p(deviation**2))
            values = np.exp(generator.normal(-(sigma**2) / 2, sigma, shape))
        else:
            values = np.maximum(generator.normal(1.0, deviation, shape), 0.0)
        found = [positive_mean_interval(row.tolist()) for row in values]
        covered = sum(one.low <= 1.0 <= one.high for one in found)
        assert 0.93 <= covered / campaigns <= 0.97


def test_the_null_comparison_is_flagged_at_most_one_time_in_twenty():
    generator = np.random.default_rng(21)
    flagged = sum(paired_ratio(list(generator.normal(0, 0.1, 6))).excludes_1 for _ in range(4000))
    assert flagged / 4000 <= 0.06


def test_a_ratio_and_its_interval():
    found = paired_ratio([math.log(1.1), math.log(1.2), math.log(1.15)], margin=0.5)
    assert found.ratio == pytest.approx((1.1 * 1.2 * 1.15) ** (1 / 3))
    assert found.low < found.ratio < found.high and found.excludes_1 and found.equivalent
    assert paired_ratio([0.5, 0.6, 0.5], margin=0.05).equivalent is False
    assert paired_ratio([0.1]).low is None and paired_ratio([]).ratio is None


def test_histograms_are_merged_not_averaged():
    low, high = np.full(900, 1000), np.full(100, 1_000_000)
    merged = merge([decode(histogram_text(low), "a"), decode(histogram_text(high), "b")])
    assert merged.get_total_count() == 1000
    found = percentiles(merged)
    assert found["50"] == pytest.approx(1000, rel=0.002) and found["95"] == pytest.approx(1e6, rel=0.002)


def test_a_rare_percentile_needs_ten_values_above_it():
    assert "99.9" not in percentiles(decode(histogram_text(np.arange(1, 9999)), "a"))
    assert "99.9" in percentiles(decode(histogram_text(np.arange(1, 10002)), "a"))
    assert max(point.share for point in curve(decode(histogram_text(np.arange(1, 101)), "a"))) <= 0.9
    assert percentiles(decode("", "a")) == {}


def test_a_damaged_histogram_raises_one_line():
    with pytest.raises(LabError, match="here: the histogram cannot be decoded"):
        decode("AAAA", "here")
