"""Intervals compared with those of scipy, and their coverage of a known truth."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from synthetic import histogram_text

from waylab.analysis.statistics import mean_interval, paired_ratio
from waylab.analysis.statistics.repetitions import MeanInterval
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


def test_the_null_comparison_is_flagged_at_most_one_time_in_twenty():
    generator = np.random.default_rng(21)
    flagged = sum(paired_ratio(list(generator.normal(0, 0.1, 6))).excludes_1 for _ in range(4000))
    assert flagged / 4000 <= 0.06


def test_a_ratio_and_its_interval():
    found = paired_ratio([math.log(1.1), math.log(1.2), math.log(1.15)], margin=0.5)
    assert found.ratio == pytest.approx((1.1 * 1.2 * 1.15) ** (1 / 3))
    assert found.low < found.ratio < found.high and found.excludes_1 and found.equivalent
    assert paired_ratio([0.5, 0.6], margin=0.05).equivalent is False
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
