"""Fork and join: formulas with known answers, the solver against the exact chain, and its limits."""

import itertools
import math

import numpy as np
import pytest
from networks import EVERY, open_tandem, replicated, single_servers, slots, three_tiers, two_classes

from waylab.models import (
    AssumptionError,
    Fork,
    JobClass,
    ModelError,
    Network,
    Route,
    Service,
    Station,
    UnstableError,
    solve,
)
from waylab.models.solvers.fork.join import solve_fork_join
from waylab.models.solvers.fork.times import (
    harmonic,
    left_behind,
    order_statistic_s,
)
from waylab.models.solvers.markov.solver import solve_markov
from waylab.models.solvers.stretch import present_given, stretch


def forked(clients, services_s, think_s=1.0, join="all", servers=1, front_s=0.0, send_s=0.0):
    """Every request goes to a front station, if there is one, and forks to all the others."""
    names = tuple(f"r{number}" for number in range(len(services_s)))
    stations = [Station(name, {"set": time}, servers) for name, time in zip(names, services_s, strict=True)]
    visits = {"write": 1.0}
    if front_s:
        stations.insert(0, Station("front", {"set": front_s}))
        visits["front"] = 1.0
    forks = (Fork("write", names, join, send_s),)
    return Network(
        (JobClass("set", clients, Service(think_s)),), tuple(stations), {"set": visits}, forks=forks
    )


def mixed_use(clients, services_s, sets, think_s=1.0):
    """SETs fork to all stations, GETs go to one of them."""
    names = tuple(f"r{number}" for number in range(len(services_s)))
    stations = tuple(Station(name, {"get": s, "set": s}) for name, s in zip(names, services_s, strict=True))
    routes = [Route("set", "client", "write"), Route("set", "write", "client")]
    routes += [Route("get", "client", name, 1 / len(names)) for name in names]
    routes += [Route("get", name, "client") for name in names]
    mix = {"get": 1 - sets, "set": sets}
    classes = (JobClass("get", clients, Service(think_s)), JobClass("set", think=Service(think_s)))
    switching = {"get": mix, "set": mix}
    return Network(
        classes, stations, routes=tuple(routes), switching=switching, forks=(Fork("write", names),)
    )


def errors(network):
    """Relative errors of throughput and response against the exact chain."""
    exact, found = solve_markov(network), solve_fork_join(network)
    return (
        found.throughput_total_per_s / exact.throughput_total_per_s - 1,
        found.response_mean_s / exact.response_mean_s - 1,
    )


def opened_response_s(arrivals_per_s, branches):
    """Response time that the solver finds for K equal branches with arrivals from outside."""
    closed = replicated(1, branches)
    network = closed.with_class("set", population=0, think=Service(0.0), arrivals_per_s=arrivals_per_s)
    return solve_fork_join(network).response_s[0]


@pytest.mark.parametrize(("rho", "two", "three"), [(0.1, 1.6527778, 2.0067059), (0.5, 2.875, 3.3977273)])
def test_open_fork_join_of_the_literature(rho, two, three):
    assert opened_response_s(rho, 2) == pytest.approx(two, abs=6e-8)
    assert opened_response_s(rho, 3) == pytest.approx(three, abs=6e-8)


def test_open_fork_join_in_heavy_traffic():
    assert opened_response_s(0.9, 2) == pytest.approx(13.875, abs=5e-4)
    assert opened_response_s(0.9, 3) == pytest.approx(15.9492424, abs=6e-8)
    for branches in (1, 4, 16, 50):
        assert opened_response_s(1e-9, branches) == pytest.approx(harmonic(branches), rel=1e-8)


@pytest.mark.parametrize("branches", [2, 3, 5])
def test_the_solver_is_nelson_and_tantawi_in_an_open_network(branches):
    """R = (H_K / H_2 + 4/11 (1 - H_K / H_2) rho) (12 - rho) / 8 / (mu - lambda)."""
    closed = replicated(1, branches)
    more = sum(1 / number for number in range(1, branches + 1)) / 1.5
    for arrivals_per_s in (0.1, 0.5, 0.9):
        network = closed.with_class("set", population=0, think=Service(0.0), arrivals_per_s=arrivals_per_s)
        result = solve_fork_join(network)
        wanted = (more + 4 / 11 * (1 - more) * arrivals_per_s) * (12 - arrivals_per_s) / 8
        assert result.response_s[0] == pytest.approx(wanted / (1 - arrivals_per_s), rel=1e-12)
        assert result.station_response_s[:, 0] == pytest.approx(1 / (1 - arrivals_per_s), rel=1e-12)


def test_order_statistics():
    # By hand: the largest of two, 1/a + 1/b - 1/(a+b) of rates.
    assert order_statistic_s([1.0, 0.5], 2) == pytest.approx(1 + 0.5 - 1 / 3)
    assert order_statistic_s([1.0, 0.5], 1) == pytest.approx(1 / 3)
    assert order_statistic_s([2.0] * 7, 7) == pytest.approx(2 * harmonic(7), rel=1e-14)
    means_s = [0.3, 1.0, 2.5, 0.01]
    # All order statistics sum to all means.
    total = sum(order_statistic_s(means_s, needed) for needed in range(1, 5))
    assert total == pytest.approx(sum(means_s), rel=1e-12)
    assert sum(left_behind(means_s, 3)) == pytest.approx(1, rel=1e-10)
    # Sets and quadrature are two ways to the same number; a delay of nearly nothing takes the second.
    for needed in range(1, 5):
        sets, grid = order_statistic_s(means_s, needed), order_statistic_s(means_s, needed, [0, 0, 0, 1e-13])
        assert grid == pytest.approx(sets, rel=1e-11)
    # A leg that starts later: the largest of T1 and d + T2 is d + E[max(0, T1 - d)] + ..., by memorylessness.
    late = order_statistic_s([1.0, 1.0], 2, [0.0, 0.7])
    assert late == pytest.approx(0.7 + math.exp(-0.7) * 1.5 + (1 - math.exp(-0.7)) * 1.0, rel=1e-11)
    assert order_statistic_s([0.0, 0.0], 2, [0.0, 3.0]) == 3.0


def test_invalid_numbers_are_refused():
    for wrong in (lambda: harmonic(0), lambda: order_statistic_s([], 1), lambda: order_statistic_s([1.0], 2)):
        with pytest.raises(ModelError):
            wrong()
    with pytest.raises(ModelError, match="means_s: must be finite"):
        order_statistic_s([1.0, math.nan], 1)
    with pytest.raises(UnstableError):
        opened_response_s(1.0, 3)


@pytest.mark.parametrize("clients", [1, 2, 7])
def test_varki_is_exact_for_two_branches_without_think_time(clients):
    # The lead of one branch over the other is a fair walk on -N..N, and a branch idles at one end.
    exact = solve_markov(forked(clients, (1.0, 1.0), 0.0))
    assert exact.throughput_per_s[0] == pytest.approx(2 * clients / (2 * clients + 1), rel=1e-10)
    assert solve_fork_join(forked(clients, (1.0, 1.0), 0.0)).throughput_per_s[0] == pytest.approx(
        2 * clients / (2 * clients + 1), rel=1e-12
    )


GRID = [
    (clients, services_s, think_s, front_s)
    for services_s in ((1.0, 1.0), (1.0, 0.5), (1.0, 1.0, 1.0), (1.0, 0.9, 0.8), (1.0, 0.5, 0.25))
    for clients in (1, 2, 4)
    for think_s in (0.0, 0.5, 3.0)
    for front_s in (0.0, 0.7)
    if not (front_s and len(services_s) == 3 and clients == 4)
]


def test_error_against_the_exact_chain():
    """The docstring's bound: 1.9 % in throughput and 2.0 % in response."""
    found = np.array([errors(forked(n, s, z, front_s=front)) for n, s, z, front in GRID])
    found = np.vstack([found, [errors(forked(4, (1.0,) * 5)), errors(forked(20, (1.0, 1.0), 20.0))]])
    assert np.abs(found).max(axis=0)[0] < 0.019
    assert np.abs(found).max(axis=0)[1] < 0.020
    assert np.abs(found).mean(axis=0)[0] < 0.004
    # A single customer never waits, so the result is exact.
    lonely = [
        errors(forked(1, s, z)) for s, z in itertools.product(((1.0, 0.5, 0.25), (1.0, 1.0)), (0.0, 2.0))
    ]
    assert np.abs(lonely).max() < 1e-9


@pytest.mark.parametrize("sets", [0.1, 0.5])
def test_error_where_others_use_the_same_stations(sets):
    for clients, services_s in ((2, (1.0, 1.0)), (4, (1.0, 0.8)), (3, (1.0, 1.0, 1.0))):
        throughput, response = errors(mixed_use(clients, services_s, sets))
        assert abs(throughput) < 0.01
        assert abs(response) < 0.015


@pytest.mark.parametrize("servers", [2, 3])
def test_error_with_several_servers(servers):
    for clients, think_s in ((3, 0.0), (5, 1.0), (5, 5.0)):
        throughput, response = errors(forked(clients, (float(servers),) * 2, think_s, servers=servers))
        assert abs(throughput) < 0.01
        assert abs(response) < 0.015


@pytest.mark.parametrize("join", ["majority", "first"])
def test_error_where_legs_are_left_behind(join):
    for clients, services_s, think_s in (
        (1, (1.0, 1.0), 5.0),
        (2, (1.0, 0.5), 5.0),
        (1, (1.0, 0.8, 0.5), 5.0),
    ):
        throughput, response = errors(forked(clients, services_s, think_s, join))
        assert abs(throughput) < 0.015
        assert abs(response) < 0.06


def test_joins_are_ordered_and_sending_takes_time():
    responses = [
        solve_fork_join(forked(3, (1.0,) * 3, 9.0, join)).response_s[0]
        for join in ("first", "majority", "all")
    ]
    assert responses == sorted(responses)
    sent = [
        solve_fork_join(forked(3, (1.0,) * 3, 9.0, send_s=send_s)).response_s[0] for send_s in (0, 0.1, 1, 50)
    ]
    assert sent == sorted(sent)
    # When sending takes far longer than serving, the last leg decides.
    assert sent[-1] == pytest.approx(100 + 1, rel=0.01)


@pytest.mark.parametrize("make", [three_tiers, single_servers])
def test_without_forks_it_is_a_product_form(make):
    exact, found = solve(make(), "convolution"), solve_fork_join(make())
    assert found.throughput_per_s == pytest.approx(exact.throughput_per_s, rel=5e-3)
    if make is single_servers:
        assert found.throughput_per_s == pytest.approx(exact.throughput_per_s, rel=1e-12)
        assert found.response_s == pytest.approx(exact.response_s, rel=1e-12)


def test_a_fork_of_one_is_no_fork():
    exact = solve(
        Network((JobClass("set", 6, Service(1.0)),), (Station("a", {"set": 1.0}),), {"set": {"a": 1}})
    )
    found = solve_fork_join(replicated(6, 1))
    assert found.throughput_per_s == pytest.approx(exact.throughput_per_s, rel=1e-12)
    assert found.fork_response_s[0, 0] == pytest.approx(exact.response_s[0], rel=1e-12)


def test_more_customers_and_never_more_than_all_of_the_time():
    for services_s, servers in (((1.0, 1.1, 1.2), 1), ((1.0, 1.1, 1.2), 4), ((1.0, 1.0), 2)):
        before = None
        for clients in (1, 2, 5, 20, 40, 60, 90, 150):
            result = solve_fork_join(forked(clients, services_s, 10.0, servers=servers))
            assert result.station_utilisation.max() <= 1 + 1e-9
            assert clients / result.throughput_per_s[0] == pytest.approx(
                result.response_s[0] + 10.0, rel=1e-9
            )
            if before:
                assert result.throughput_per_s[0] >= before.throughput_per_s[0] * (1 - 1e-9)
                assert result.response_s[0] >= before.response_s[0] * (1 - 1e-9)
            before = result


def test_who_is_seen():
    for servers, others in ((1, 9), (3, 9), (50, 60)):
        rates = np.arange(1.0, servers + 1)
        for mean in (1e-9, 0.3, 2.0, 8.999):
            shares = present_given(rates, others, mean)
            assert shares @ np.arange(others + 1) == pytest.approx(mean, rel=1e-9)
        assert stretch(rates, others, 0.0) == pytest.approx(1.0)
    assert stretch(np.ones(1), 9, 2.5) == pytest.approx(3.5)
    assert stretch(np.arange(1.0, 4.0), 9, 9.0) == pytest.approx(10 / 3, rel=1e-9)
    unlimited = present_given(np.arange(1.0, 4.0), None, 2.0)
    assert unlimited @ np.arange(len(unlimited)) == pytest.approx(2.0, rel=1e-9)


def test_unsupported_networks_are_refused():
    with pytest.raises(AssumptionError, match="fork-join: assumes that a request occupies no slot"):
        solve_fork_join(slots())
    with pytest.raises(AssumptionError, match="one chain of classes"):
        solve_fork_join(two_classes())
    with pytest.raises(AssumptionError, match="either closed or open"):
        solve_fork_join(EVERY["mixed"]())
    with pytest.raises(UnstableError, match="station 'second'"):
        solve_fork_join(open_tandem(9.0))
