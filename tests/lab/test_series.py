"""Inside one run: warm-up, batch means, percentiles of correlated seconds, and when they are refused."""

import math

import numpy as np
import pytest
from honesty import autoregressive, waiting_times
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.tsa.stattools import acf

from waylab.analysis.statistics.correlation import batch_means, lag_1_of, ratio_residuals, spreads
from waylab.analysis.statistics.percentiles import percentile_intervals, values_needed
from waylab.analysis.statistics.warm_up import mser, standard_errors
from waylab.errors import LabError


def test_the_mser_statistic_follows_its_formula():
    values = np.random.default_rng(1).normal(size=17)
    expected = [((values[d:] - values[d:].mean()) ** 2).sum() / (17 - d) ** 2 for d in range(16)]
    assert standard_errors(values) == pytest.approx(expected)


def test_a_planted_warm_up_is_cut():
    values = np.concatenate([np.full(20, 5.0), np.full(180, 10.0)]) + np.random.default_rng(2).normal(
        0, 0.1, 200
    )
    found = mser(values)
    assert found.cut == 20 and found.batch == 5 and found.steady


def test_a_short_series_has_smaller_batches():
    values = np.concatenate([np.full(7, 5.0), np.full(53, 10.0)]) + np.random.default_rng(3).normal(
        0, 0.1, 60
    )
    found = mser(values)
    assert found.batch == 3 and 9 <= found.cut <= 18


def test_a_warm_up_of_half_the_series_is_not_a_steady_state():
    values = np.concatenate([np.linspace(0, 60, 60), np.full(40, 60.0)])
    found = mser(values + np.random.default_rng(4).normal(0, 0.1, 100))
    assert found.steady is False and found.cut == 0


def test_a_constant_series_needs_no_cut():
    assert mser([7.0] * 30).cut == 0 and mser([7.0] * 30).steady


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mser([math.nan] * 30), "warm-up: needs finite values"),
        (lambda: mser([1.0] * 30, batch=0), "at least one value, not 0"),
        (lambda: batch_means([]), "batch means: need finite values"),
        (lambda: batch_means([math.inf] * 50), "batch means: need finite values"),
        (lambda: ratio_residuals([1.0], [0.0]), "sum above zero"),
        (lambda: percentile_intervals([[0, 0]], [1, 2], [50]), "not all zero"),
        (lambda: percentile_intervals([[1, 2]], [1, 2, 3], [50]), "one value for each bucket"),
        (lambda: percentile_intervals([[1, 2]], [1, 2], [100]), "100 does not lie between"),
        (lambda: values_needed(0), "must lie between 0 and 100"),
    ],
)
def test_invalid_input_raises_one_line(call, message):
    with pytest.raises(LabError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-1e3, 1e3), min_size=5, max_size=60).filter(lambda values: np.std(values) > 1e-3))
def test_the_lag_1_autocorrelation_equals_that_of_statsmodels(values):
    assert lag_1_of(np.array([values]))[0] == pytest.approx(acf(values, nlags=1, fft=False)[1], abs=1e-9)


def test_independent_values_have_the_t_interval_or_nearly():
    values = np.random.default_rng(7).normal(50, 3, 400)
    found = batch_means(values)
    low, high = stats.t.interval(0.95, 399, loc=values.mean(), scale=stats.sem(values))
    assert found.refused is None and found.batch == 1 and found.effective > 350
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.1 * (high - low))


def test_correlated_values_have_a_smaller_effective_size():
    """AR(1) with 0.8: (1 + 0.8) / (1 - 0.8) = 9 values have the information of one."""
    found = spreads(autoregressive(np.random.default_rng(8), 200, 2000, 0.8))
    assert np.median(found.effective) == pytest.approx(2000 / 9, rel=0.1)
    assert (found.batch >= 8).all() and found.enough.mean() > 0.98


def test_doubling_ends_with_twenty_batches():
    found = spreads(autoregressive(np.random.default_rng(9), 200, 100, 0.9))
    assert found.batch.max() == 4 and found.enough.mean() < 0.1


def test_a_series_whose_correlation_may_be_much_larger_is_refused():
    """Among short series of AR(1) 0.9, those with an interval are the ones whose correlation is underestimated."""
    for values in (40, 60, 120):
        found = spreads(autoregressive(np.random.default_rng(16), 1000, values, 0.9))
        assert found.enough.mean() < 0.02
    assert spreads(autoregressive(np.random.default_rng(17), 1000, 60, 0.3)).enough.mean() > 0.85


def test_a_short_series_is_refused_with_a_reason():
    assert (
        batch_means([1.0, 2.0]).refused
        == "too short: 2 values, and it takes 40 to see how they depend on each other"
    )
    values = np.cumsum(np.random.default_rng(10).normal(size=100))
    found = batch_means(values)
    assert found.low is None and "are independent" in found.refused and "values are needed" in found.refused
    assert found.mean == pytest.approx(values.mean())


def test_a_constant_series_is_known_exactly():
    found = batch_means([3.0] * 50)
    assert (found.low, found.high, found.effective) == (3.0, 3.0, 50)


def test_a_skewed_series_has_a_skewed_interval():
    found = batch_means(waiting_times(np.random.default_rng(12), 1, 10_000, 0.7)[0])
    assert found.refused is None and found.high - found.mean > 1.02 * (found.mean - found.low)


def counts_of(samples, values):
    """Return one row of counts for each second."""
    return np.array(
        [np.bincount(np.searchsorted(values, second), minlength=len(values)) for second in samples]
    )


VALUES = np.geomspace(1, 1000, 700)


def test_percentiles_of_independent_values_have_binomial_limits():
    samples = np.random.default_rng(13).exponential(50, (400, 50)) + 1
    found = percentile_intervals(counts_of(samples, VALUES), VALUES, [50, 99])
    ordered = np.sort(samples.ravel())
    for one in found:
        share, count = one.percent / 100, samples.size
        spread = 1.96 * math.sqrt(count * share * (1 - share))
        expected = [ordered[int(count * share + side * spread)] for side in (-1, 1)]
        assert (one.low, one.high) == pytest.approx(expected, rel=0.03)
        assert one.low < one.value < one.high and one.effective > 0.6 * count


def test_a_drifting_level_leaves_fewer_effective_values():
    random = np.random.default_rng(14)
    level = np.exp(0.5 * autoregressive(random, 1, 400, 0.5)[0])
    samples = 20 * level[:, None] * random.exponential(1, (400, 50)) + 1
    median = percentile_intervals(counts_of(samples, VALUES), VALUES, [50])[0]
    assert median.effective < 0.1 * samples.size


def test_a_rare_percentile_is_not_shown_without_ten_effective_values_above_it():
    samples = np.random.default_rng(15).exponential(50, (100, 20)) + 1
    rare = percentile_intervals(counts_of(samples, VALUES), VALUES, [99.9])[0]
    assert not rare.shown and rare.low is None and "effective values lie above it" in rare.refused
    assert values_needed(99.9) == 10_000 and values_needed(99, 0.1) == 10_000


def test_few_seconds_give_a_percentile_without_an_interval():
    found = percentile_intervals([[5, 5]] * 10, [1.0, 2.0], [50])[0]
    assert found.shown and found.low is None and found.refused.startswith("too short: 10 seconds")
