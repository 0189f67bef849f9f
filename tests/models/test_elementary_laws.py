"""Laws that every elementary queue obeys, and queues that equal a special case of another."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from waylab.models import (
    MG1,
    MM1,
    MM1K,
    AssumptionError,
    BirthDeath,
    BulkService,
    ClosedBirthDeath,
    ClosedMMc,
    GGm,
    MMm,
    MMmK,
    ModelError,
    ProcessorSharing,
    Service,
    as_table,
)

QUEUES = (
    MM1(0.8, 1.0),
    MMm(9, 5, 4),
    MM1K(1.5, 1.0, 6),
    MMmK(40, 30, 3, 7),
    MMmK(3, 1, 3, 3),
    ClosedMMc(12, 3, 0.5, 1.0),
    ClosedMMc(5, 2, 1.0, 0.0),
    ClosedBirthDeath(14, 0.3, (1.0, 1.7, 2.1, 2.0)),
    MG1(0.5, Service.erlang(1.0, 3)),
    MG1(0.5, Service(1.0, 4.0, "hyperexponential")),
    MG1(0.5, Service(1.0, 2.0, "gamma")),
    MG1(0.5, Service(1.0, 2.0, "lognormal")),
    MG1(0.5, Service.empirical((0.2, 0.9, 0.9, 2.5))),
    MG1(0.5, 1.0, 2.0, 20.0),
    MG1(0.7, 1.0, 0.0),
    GGm(3, 1, 4, 1.0, 0.5),
    BulkService(3, 1, 4),
    ProcessorSharing(0.6, 1.0),
    BirthDeath([3, 2, 1], [1, 2, 2.5], servers=2),
    BirthDeath([1.0], [1.0], 0.9, 2.0, servers=3),
)
# Queues with a distribution of the number present, and the number of terms to sum.
COUNTED = tuple(
    queue
    for queue in QUEUES
    if not isinstance(queue, GGm) and not (isinstance(queue, MG1) and queue.squared_variation)
)
TIMED = tuple(queue for queue in QUEUES if "response time, median" in {row[0] for row in as_table(queue)})


def names(queue):
    return queue.name


def close(first, second, tolerance=1e-9):
    for name in first:
        assert first[name] == pytest.approx(second[name], rel=tolerance, abs=1e-13), name


def rows(queue):
    return {name: value for name, value, _ in as_table(queue)}


@pytest.mark.parametrize("queue", QUEUES, ids=names)
def test_little_and_the_utilisation_law(queue):
    rate = queue.throughput_per_s
    assert queue.in_system_mean == pytest.approx(rate * queue.response_mean_s, rel=1e-12)
    assert queue.queue_length_mean == pytest.approx(rate * queue.waiting_mean_s, rel=1e-12, abs=1e-14)
    assert rate == pytest.approx(queue.arrivals_per_s * (1 - queue.loss_probability), rel=1e-12)
    assert 0 <= queue.utilisation <= 1 + 1e-12
    assert queue.response_mean_s > queue.waiting_mean_s >= 0


@pytest.mark.parametrize("queue", QUEUES, ids=names)
def test_a_table_holds_finite_numbers_that_are_not_negative(queue):
    assert len(rows(queue)) >= 9
    assert all(math.isfinite(value) and value >= 0 for value in rows(queue).values())


@pytest.mark.parametrize("queue", COUNTED, ids=names)
def test_the_distribution_of_the_number_present_has_the_moments(queue):
    probabilities = np.array([queue.probability(n) for n in range(400)])
    counts = np.arange(400)
    # A lognormal service has a heavy tail: some of it lies beyond.
    beyond = 1e-9 if "lognormal" in repr(queue) else 1e-12
    assert probabilities.min() >= 0 and probabilities.sum() == pytest.approx(1, abs=beyond)
    assert probabilities @ counts == pytest.approx(queue.in_system_mean, rel=1e3 * beyond)
    variance = probabilities @ (counts - queue.in_system_mean) ** 2
    assert math.sqrt(variance) == pytest.approx(queue.in_system_std, rel=1e5 * beyond)


@pytest.mark.parametrize("queue", TIMED, ids=names)
@pytest.mark.parametrize("share", [1e-6, 0.1, 0.5, 0.9, 0.99, 1 - 1e-9])
def test_a_quantile_is_the_inverse_of_the_distribution(queue, share):
    response_s = queue.response_quantile_s(share)
    assert queue.response_cdf(response_s) == pytest.approx(share, rel=1e-9, abs=1e-12)
    waiting_s = queue.waiting_quantile_s(share)
    if waiting_s == 0:
        assert share <= queue.waiting_cdf(0) + 1e-12
    else:
        assert queue.waiting_cdf(waiting_s) == pytest.approx(share, rel=1e-9)
    assert queue.waiting_cdf(0) == pytest.approx(1 - queue.waits_probability, abs=1e-12)
    assert queue.waiting_cdf(-1) == queue.response_cdf(-1) == 0


@pytest.mark.parametrize("queue", TIMED, ids=names)
def test_the_distributions_have_the_moments(queue):
    # Mean = integral of P(T > t); the second moment of 2 t P(T > t). Fine steps, and far enough.
    last_s = max(queue.response_quantile_s(1 - 1e-12), 1e-9)
    nodes, weights = np.polynomial.legendre.leggauss(12)
    edges = np.linspace(0, last_s, 121)
    times = np.concatenate([(high + low) / 2 + nodes * (high - low) / 2 for low, high in pairwise(edges)])
    steps = np.tile(weights, 120) * (edges[1] / 2)
    for cdf, mean_s, std_s in (
        (queue.waiting_cdf, queue.waiting_mean_s, queue.waiting_std_s),
        (queue.response_cdf, queue.response_mean_s, queue.response_std_s),
    ):
        more = np.array([1 - cdf(time) for time in times])
        assert steps @ more == pytest.approx(mean_s, rel=1e-6, abs=1e-12)
        second = steps @ (2 * times * more)
        assert second - mean_s**2 == pytest.approx(std_s**2, rel=1e-6, abs=1e-12)


# One queue as a case of another.

loads = st.floats(0.01, 0.99)


@settings(max_examples=20, deadline=None)
@given(loads)
def test_every_single_server_with_exponential_service_is_the_same(rho):
    one = rows(MM1(rho, 1.0))
    close(rows(MMm(rho, 1.0, 1)), one)
    close(rows(BirthDeath([], [], rho, 1.0)), one)
    close(rows(MG1(rho, 1.0)), one)
    close(rows(BulkService(rho, 1.0, 1)), one)
    close(rows(GGm(rho, 1.0, 1)), one)
    sharing = rows(ProcessorSharing(rho, 1.0))
    del sharing["response time, deviation"]
    close(sharing, one)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 60), st.floats(0.05, 0.9))
def test_a_large_buffer_equals_an_infinite_one(servers, rho):
    endless, finite = MMm(rho * servers, 1.0, servers), MMmK(rho * servers, 1.0, servers, servers + 500)
    close(rows(finite), rows(endless), 1e-8)
    if servers == 1:
        close(rows(MM1K(rho, 1.0, 501)), rows(endless), 1e-8)


@settings(max_examples=10, deadline=None)
@given(st.integers(1, 40), st.integers(1, 12), st.floats(0.01, 5), st.floats(0.0, 5))
def test_rates_that_grow_with_the_number_are_servers(clients, servers, service_s, think_s):
    rates = [n / service_s for n in range(1, servers + 1)]
    close(
        rows(ClosedBirthDeath(clients, think_s, rates)), rows(ClosedMMc(clients, servers, service_s, think_s))
    )


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 10), st.integers(1, 30), st.floats(0.1, 10))
def test_the_interactive_law(slots, clients, think_s):
    queue = ClosedBirthDeath(clients, think_s, [n**0.7 for n in range(1, slots + 1)])
    assert queue.throughput_per_s * (queue.response_mean_s + think_s) == pytest.approx(clients, rel=1e-12)
    assert queue.response_mean_s == pytest.approx(queue.waiting_mean_s + queue.holding_mean_s, rel=1e-12)


@pytest.mark.parametrize("think_s", [5e-324, 1e-300, 1e-20])
@pytest.mark.parametrize("rates", [(1.0, 2.0), (1.0, 1.5)])
def test_a_think_time_of_next_to_nothing_is_none(think_s, rates):
    near, none = ClosedBirthDeath(9, think_s, rates), ClosedBirthDeath(9, 0.0, rates)
    for name in ("throughput_per_s", "response_mean_s", "response_std_s", "waiting_std_s"):
        assert getattr(near, name) == pytest.approx(getattr(none, name), rel=1e-9)
    assert near.response_quantile_s(0.9) == pytest.approx(none.response_quantile_s(0.9), rel=1e-9)


def test_endless_clients_are_poisson_arrivals():
    closed, opened = ClosedMMc(100_000, 3, 1.0, 40_000.0), MMm(2.5, 1.0, 3)
    for name in ("waits_probability", "waiting_std_s", "response_mean_s", "in_system_std"):
        assert getattr(closed, name) == pytest.approx(getattr(opened, name), rel=1e-3)
    assert closed.response_quantile_s(0.99) == pytest.approx(opened.response_quantile_s(0.99), rel=1e-3)


def test_an_erlang_time_of_many_stages_is_constant():
    many, constant = MG1(0.7, Service.erlang(1.0, 2000)), MG1(0.7, 1.0, 0.0)
    assert many.waiting_mean_s == pytest.approx(constant.waiting_mean_s, rel=1e-3)
    assert many.probability(3) == pytest.approx(constant.probability(3), rel=1e-3)


@pytest.mark.parametrize(
    "make",
    [
        lambda rho: MM1(rho, 1.0),
        lambda rho: MMm(8 * rho, 1.0, 8),
        lambda rho: MM1K(2 * rho, 1.0, 5),
        lambda rho: MMmK(8 * rho, 1.0, 4, 9),
        lambda rho: ClosedMMc(20, 3, 1.0, 5 / rho),
        lambda rho: MG1(rho, Service(1.0, 3.0, "hyperexponential")),
        lambda rho: BulkService(4 * rho, 1.0, 4),
        lambda rho: ClosedBirthDeath(20, 5 / rho, (1.0, 1.5, 1.8)),
    ],
)
def test_everything_grows_with_the_load(make):
    queues = [make(rho) for rho in np.linspace(0.1, 0.95, 12)]
    for measure in (
        lambda queue: queue.waiting_mean_s,
        lambda queue: queue.in_system_mean,
        lambda queue: queue.utilisation,
        lambda queue: queue.waits_probability,
        lambda queue: queue.response_quantile_s(0.95),
    ):
        assert np.all(np.diff([measure(queue) for queue in queues]) > 0)


# Sizes at which sums underflow and recursions turn negative.


@pytest.mark.parametrize(
    "queue",
    [
        MMm(990, 1.0, 1000),
        MMm(9_900, 1.0, 10_000),
        MMmK(12_000, 1.0, 10_000, 10_500),
        MM1K(5.0, 1.0, 10_000),
        ClosedMMc(10_000, 1000, 1.0, 5.0),
        ClosedMMc(10_000, 10_000, 1.0, 1.0),
        ClosedBirthDeath(10_000, 5.0, np.arange(1, 1001) ** 0.9),
        BulkService(9_000, 1.0, 10_000),
    ],
    ids=names,
)
def test_huge_sizes_are_exact(queue):
    found = rows(queue)
    assert all(math.isfinite(value) and value >= 0 for value in found.values())
    rate = found["throughput"]
    assert found["number in system, mean"] == pytest.approx(rate * found["response time, mean"], rel=1e-9)
    assert 0 < found["waiting time, deviation"] or found["probability of queueing"] < 1e-12


def test_a_very_long_or_endless_busy_period_raises():
    with pytest.raises(ModelError, match="busy_period_mean_s: is larger than"):
        _ = MMm(9_900, 1.0, 10_000).busy_period_mean_s
    with pytest.raises(AssumptionError, match="without it the busy period never ends"):
        _ = ClosedMMc(5, 2, 1.0, 0.0).busy_period_mean_s
