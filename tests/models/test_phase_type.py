"""Phase-type times against closed forms, against each other, and at sizes and rates where sums get long."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.linalg import expm

from waylab.models import AssumptionError, ModelError, PhaseType, Service

exponential, erlang = PhaseType.exponential, PhaseType.erlang
MIXED = PhaseType.hyperexponential((0.3, 0.7), (2.0, 0.4))
SHARES = (1e-9, 0.01, 0.5, 0.95, 1 - 1e-9)


@pytest.mark.parametrize("share", SHARES)
def test_an_exponential_time(share):
    time = exponential(2.5)
    assert time.quantile(share) == pytest.approx(-2.5 * math.log1p(-share), rel=1e-11)
    assert time.cdf(time.quantile(share)) == pytest.approx(share, rel=1e-9)
    assert (time.mean_s, time.variance_s2, time.moment(3)) == pytest.approx((2.5, 6.25, 6 * 2.5**3))


@pytest.mark.parametrize("stages", [2, 7, 150, 3000])
@pytest.mark.parametrize("share", SHARES)
def test_an_erlang_time(stages, share):
    assert erlang(1.0, stages).quantile(share) == pytest.approx(
        stats.gamma.ppf(share, stages, scale=1 / stages), rel=1e-8
    )


def test_moments_of_an_erlang_time():
    time = erlang(3.0, 400)
    assert time.mean_s == pytest.approx(3.0, rel=1e-12)
    assert time.squared_variation == pytest.approx(1 / 400, rel=1e-9)
    assert time.std_s == pytest.approx(0.15, rel=1e-9)


def test_a_mixture_is_the_weighted_sum():
    for time_s in (0.01, 0.5, 3.0, 20.0):
        assert MIXED.survival(time_s) == pytest.approx(
            0.3 * math.exp(-time_s / 2) + 0.7 * math.exp(-time_s / 0.4), rel=1e-12
        )
    assert MIXED.mean_s == pytest.approx(0.3 * 2 + 0.7 * 0.4)


def test_a_mixture_may_take_no_time_at_all():
    time = PhaseType.mixture_of([0.4], [exponential(1.0)])
    assert time.cdf(0.0) == pytest.approx(0.6) and time.cdf(-1.0) == 0 and time.mean_s == pytest.approx(0.4)
    assert time.quantile(0.6) == 0 and time.quantile(0.8) == pytest.approx(math.log(2), rel=1e-12)
    after = PhaseType.sum_of([time, exponential(2.0)])
    assert after.mean_s == pytest.approx(2.4) and after.cdf(0.0) == 0


def test_a_sum_has_the_sum_of_means_and_variances():
    parts = [erlang(1.0, 3), MIXED, exponential(0.2)]
    time = PhaseType.sum_of(parts)
    assert time.mean_s == pytest.approx(sum(part.mean_s for part in parts), rel=1e-12)
    assert time.variance_s2 == pytest.approx(sum(part.variance_s2 for part in parts), rel=1e-11)
    two = PhaseType.sum_of([exponential(1.0), exponential(1.0)])
    assert two.quantile(0.9) == pytest.approx(erlang(2.0, 2).quantile(0.9), rel=1e-12)


PARTS = (erlang(1.0, 2), exponential(2.0), MIXED, PhaseType.mixture_of([0.8], [exponential(1.5)]))


@pytest.mark.parametrize("needed", [1, 2, 3, 4])
@pytest.mark.parametrize("time_s", [0.0, 0.1, 1.0, 4.0])
def test_the_kth_of_several_is_over_when_k_are(needed, time_s):
    chances = [part.cdf(time_s) for part in PARTS]
    # Probability of so many over, one part after the other.
    over = np.array([1.0])
    for chance in chances:
        over = np.convolve(over, [1 - chance, chance])
    found = PhaseType.order_statistic_of(PARTS, needed)
    assert found.cdf(time_s) == pytest.approx(over[needed:].sum(), rel=1e-11, abs=1e-13)


def test_the_longest_and_the_first_of_equal_exponential_times():
    parts = [exponential(1.0)] * 50
    assert PhaseType.maximum_of(parts).mean_s == pytest.approx(sum(1 / n for n in range(1, 51)), rel=1e-12)
    assert PhaseType.maximum_of(parts).phases == 50
    assert PhaseType.order_statistic_of(parts, 1).quantile(0.5) == pytest.approx(math.log(2) / 50, rel=1e-11)
    # Counted, and followed one by one.
    apart = [erlang(1.0, 1), erlang(1.0, 1), exponential(1.0 + 1e-12)]
    assert PhaseType.order_statistic_of(apart, 2).phases == 4
    assert PhaseType.order_statistic_of(apart, 2).quantile(0.9) == pytest.approx(
        PhaseType.order_statistic_of([exponential(1.0)] * 3, 2).quantile(0.9), rel=1e-9
    )


@settings(max_examples=30, deadline=None)
@given(st.floats(1e-6, 1e6), st.floats(0.02, 20.0))
def test_two_moments_are_matched(mean_s, variation):
    time = PhaseType.fitted(mean_s, variation)
    assert time.mean_s == pytest.approx(mean_s, rel=1e-9)
    assert time.squared_variation == pytest.approx(variation, rel=1e-7)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 5), st.integers(0, 10**6), st.floats(1e-3, 0.999))
def test_any_chain_is_its_matrix_exponential(size, seed, share):
    random = np.random.default_rng(seed)
    rates = random.exponential(1, (size, size))
    np.fill_diagonal(rates, 0)
    np.fill_diagonal(rates, -(rates.sum(axis=1) + random.uniform(0.05, 1, size)))
    start = random.dirichlet(np.ones(size))
    time = PhaseType(start, rates)
    time_s = time.quantile(share)
    assert float((start @ expm(rates * time_s)).sum()) == pytest.approx(1 - share, rel=1e-8)
    assert time.cdf(time_s) == pytest.approx(share, rel=1e-9)


@pytest.mark.parametrize("apart", [1e3, 1e6, 1e9])
def test_fast_and_slow_phases_together(apart):
    """A fast phase before a slow one: too many steps to sum, and still the quantile of the slow phase."""
    time = PhaseType.sum_of([exponential(1 / apart), exponential(1.0)])
    exact = -math.log(0.05 * (apart - 1) / apart)
    assert time.quantile(0.95) == pytest.approx(exact, rel=1e-6)


def test_services_that_are_made_of_phases():
    for service in (Service(2.0), Service.erlang(2.0, 5), Service(2.0, 3.0, "hyperexponential")):
        time = PhaseType.of_service(service)
        assert time.mean_s == pytest.approx(2.0)
        assert time.squared_variation == pytest.approx(service.squared_variation)
    with pytest.raises(AssumptionError, match="made of phases, but it is deterministic"):
        PhaseType.of_service(Service.deterministic(1.0))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PhaseType([1.0], [[1.0]]), "below 0 on the diagonal"),
        (lambda: PhaseType([1.0, 0], [[-1, 1], [1, -1]]), "every phase be absorbed in the end"),
        (lambda: PhaseType([1.0, 0], [[-1, -1], [0, -1]]), "at least 0 off the diagonal"),
        (lambda: PhaseType([1.0, 0], [[-1, 2], [0, -1]]), "a sum of at most 0"),
        (lambda: PhaseType([1.5], [[-1.0]]), "start: must be probabilities"),
        (lambda: PhaseType([-0.5, 1], [[-1, 0], [0, -1]]), "start: must be probabilities"),
        (lambda: PhaseType([1.0], [[-1.0, 0], [0, -1]]), "must be a square of the size of start"),
        (lambda: PhaseType([], np.zeros((0, 0))), "must be a square of the size of start|at least one"),
        (lambda: PhaseType([math.nan], [[-1.0]]), "all numbers must be finite"),
        (lambda: exponential(0.0), "mean_s: must be a finite number > 0"),
        (lambda: erlang(1.0, 0), "stages: must be at least 1"),
        (lambda: PhaseType.fitted(1.0, 0.0), "squared_variation: must be finite and above 0"),
        (lambda: PhaseType.fitted(1.0, 1e-9), "more than 50000"),
        (lambda: PhaseType.sum_of([]), "needs at least one entry"),
        (lambda: PhaseType.mixture_of([0.5], [MIXED, MIXED]), "weights: must be one for each part"),
        (lambda: PhaseType.order_statistic_of([MIXED], 2), "needed: must lie between 1 and 1"),
        (lambda: PhaseType.maximum_of([erlang(1.0, 9)] * 6), "phases side by side"),
        (lambda: MIXED.quantile(1.0), "share: must lie between 0 and 1"),
        (lambda: MIXED.moment(0), "order: must be at least 1"),
    ],
)
def test_invalid_parameters_are_refused(make, message):
    with pytest.raises(ModelError, match=message):
        make()
