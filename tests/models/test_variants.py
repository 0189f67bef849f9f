"""Thousands of variants at once: the same answers as one by one, quickly, and bad input refused."""

import time

import numpy as np
import pytest

from waylab.models import ModelError, closed_network
from waylab.models.solvers.convolution import solve_convolution
from waylab.models.solvers.mva import solve_mva
from waylab.models.solvers.variants import closed_throughput


def demands(variants, stations, seed=5):
    return np.random.default_rng(seed).exponential(0.1, (variants, stations))


def one_by_one(demands_s, clients, thinks_s, servers, solver):
    for row, think_s in zip(demands_s, thinks_s, strict=True):
        names = [str(index) for index in range(len(row))]
        yield solver(
            closed_network(
                dict(zip(names, row, strict=True)), clients, think_s, dict(zip(names, servers, strict=True))
            )
        )


@pytest.mark.parametrize("clients", [1, 2, 30, 250])
def test_single_servers_and_delays_equal_mean_values(clients):
    variants, servers = demands(12, 4), (1, 1, None, 1)
    thinks_s = np.linspace(0, 3, 12)
    found = closed_throughput(variants, clients, thinks_s, servers)
    for index, result in enumerate(one_by_one(variants, clients, thinks_s, servers, solve_mva)):
        assert found.throughput_per_s[index] == pytest.approx(result.throughput_per_s[0], rel=1e-12)
        assert found.response_s[index] == pytest.approx(result.response_s[0], rel=1e-12)
        assert found.queue_length[index] == pytest.approx(result.station_queue_length, rel=1e-12)


@pytest.mark.parametrize("clients", [1, 7, 120, 290, 310, 700])
def test_several_servers_equal_convolution(clients):
    variants, servers = demands(6, 5), (1, 4, None, 32, 280)
    variants[:, 3] *= 30
    variants[:, 4] *= 200
    variants[2, 1] = 0.0
    variants[3, 0] *= 1e-6
    thinks_s = np.array([0.0, 0.0, 1.0, 2.0, 5.0, 1000.0])
    found = closed_throughput(variants, clients, thinks_s, servers)
    for index, result in enumerate(one_by_one(variants, clients, thinks_s, servers, solve_convolution)):
        assert found.throughput_per_s[index] == pytest.approx(result.throughput_per_s[0], rel=1e-11)
        assert found.response_s[index] == pytest.approx(result.response_s[0], rel=1e-11)
        assert found.queue_length[index] == pytest.approx(result.station_queue_length, rel=1e-9, abs=1e-14)


def test_the_largest_products_that_are_done_with_plain_numbers_fit_into_floats():
    """A hundred alike stations weigh 1e96 together, a crowd in a delay next to one station weighs e^300."""
    variants = np.full((2, 100), 1.0)
    variants[1, 1:] = 1e-12
    servers = [1] * 99 + [2]
    found = closed_throughput(variants, 300, [0.0, 299.0], servers)
    # All alike: N / (N + K - 1) of a station's rate, but for the second server of one of them.
    assert found.throughput_per_s[0] == pytest.approx(300 / 399, rel=5e-3)
    assert found.queue_length[0].sum() == pytest.approx(300, rel=1e-11)
    one = solve_convolution(closed_network({"a": 1.0}, 300, 299.0))
    assert found.throughput_per_s[1] == pytest.approx(one.throughput_per_s[0], rel=1e-10)


@pytest.mark.parametrize("clients", [149, 150, 151, 299, 301])
def test_both_ways_meet_where_one_takes_over(clients):
    """151 servers, or 301 clients, are done with logarithms."""
    for count in (150, 151):
        found = closed_throughput([[0.2, 40.0, 0.1]], clients, 5.0, [1, count, 2])
        servers = {"a": 1, "b": count, "c": 2}
        result = solve_convolution(closed_network({"a": 0.2, "b": 40.0, "c": 0.1}, clients, 5.0, servers))
        assert found.throughput_per_s == pytest.approx(result.throughput_per_s, rel=1e-11)
        assert found.queue_length[0] == pytest.approx(result.station_queue_length, rel=1e-9)


def test_one_row_and_one_think_time_are_enough():
    found = closed_throughput([0.605, 2.1, 1.35], 3, 15.0)
    assert found.throughput_per_s == pytest.approx([0.15151649], abs=5e-9)
    assert found.response_s == pytest.approx([4.79982478], abs=5e-9)
    assert found.queue_length == pytest.approx(np.array([[0.097566, 0.394657, 0.235030]]), abs=5e-7)


def test_only_delays():
    found = closed_throughput([[1.0, 3.0]], 8, 4.0, [None, None])
    assert found.throughput_per_s == pytest.approx([1.0])
    assert found.response_s == pytest.approx([4.0])


def test_ten_thousand_variants_take_less_than_a_second():
    variants = demands(10_000, 10)
    started = time.perf_counter()
    found = closed_throughput(variants, 100, 0.5)
    assert time.perf_counter() - started < 0.5
    assert np.all(found.throughput_per_s <= 1 / variants.max(axis=1) * (1 + 1e-12))
    assert found.queue_length.sum(axis=1) + 0.5 * found.throughput_per_s == pytest.approx(
        np.full(10_000, 100.0)
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[0.1, -0.2]], 3), r"^demands_s: must be finite numbers of seconds >= 0$"),
        (([[0.1, float("nan")]], 3), r"^demands_s: must be finite"),
        ((np.zeros((2, 2, 2)), 3), r"^demands_s: must have the shape"),
        (([[0.1]], 0), r"^clients: must be a whole number >= 1, not 0$"),
        (([[0.1]], 2.5), r"^clients: must be a whole number >= 1, not 2.5$"),
        (([[0.1]], 3, -1.0), r"^think_s: must be finite"),
        (([[0.1]], 3, [1.0, 2.0]), r"^think_s: must be one number or one for each of 1 variants$"),
        (([[0.1]], 3, 0.0, [1, 1]), r"^servers: must name 1 stations, as demands_s does, not 2$"),
        (([[0.1]], 3, 0.0, [0]), r"^servers: must be whole numbers >= 1 or None, not 0$"),
        (([[0.1], [0.0]], 3), r"^demands_s\[1\]: has no service and no think time"),
    ],
)
def test_bad_input_is_refused(arguments, message):
    with pytest.raises(ModelError, match=message):
        closed_throughput(*arguments)
