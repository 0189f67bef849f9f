"""Pools of slots: the flow-equivalent solver against the exact chain, and the networks where it is exact."""

from itertools import pairwise

import numpy as np
import pytest
from networks import a16, open_tandem, replicated, slots, three_tiers, two_classes

from waylab.models import (
    AssumptionError,
    ClosedBirthDeath,
    Fork,
    JobClass,
    Network,
    Pool,
    Route,
    Service,
    Station,
    solve,
)
from waylab.models.solvers.layered import solve_layered
from waylab.models.solvers.markov.solver import solve_markov


def workers(random, clients_max=10):
    """A front station, and a CPU and a backend behind fewer slots than clients."""
    clients = int(random.integers(2, clients_max + 1))
    slot_count = int(random.integers(1, clients))
    think_s = float(random.choice([0.0, 0.5, 3.0]))
    front_s, cpu_s, backend_s = random.uniform(0.05, 1, 3)
    stations = (
        Station("front", {"request": front_s}),
        Station("cpu", {"request": cpu_s}, discipline="ps"),
        Station("backend", {"request": backend_s}, servers=int(random.integers(1, 4))),
    )
    return Network(
        (JobClass("request", clients, Service(think_s)),),
        stations,
        {"request": {"front": 1, "cpu": 1, "backend": 1}},
        pools=(Pool("workers", slot_count, ("cpu", "backend")),),
    )


def writers(random, clients_max=6):
    """Requests that occupy a slot until all replicas have answered."""
    clients = int(random.integers(2, clients_max + 1))
    slot_count = int(random.integers(1, clients))
    think_s = float(random.choice([0.0, 0.5, 3.0]))
    cpu_s = float(random.uniform(0.1, 0.6))
    names = tuple(f"r{number}" for number in range(random.integers(2, 4)))
    stations = (
        Station("net", {"set": 0.3}),
        Station("cpu", {"set": cpu_s}, discipline="ps"),
        *(Station(name, {"set": random.uniform(0.4, 1)}) for name in names),
    )
    steps = ("client", "net", "cpu", "write", "client")
    return Network(
        (JobClass("set", clients, Service(think_s)),),
        stations,
        routes=tuple(Route("set", *pair) for pair in pairwise(steps)),
        forks=(Fork("write", names),),
        pools=(Pool("workers", slot_count, ("cpu", "write", *names)),),
    )


def readers_and_writers(clients=4, slot_count=2, sets=0.3):
    """Class switching: GETs go to one backend, SETs fork to both; all share one pool of slots."""
    names = ("r0", "r1")
    stations = (
        Station("cpu", {"get": 0.2, "set": 0.3}, discipline="ps"),
        *(Station(name, {"get": 0.5, "set": 0.5}) for name in names),
    )
    routes = [Route(name, "client", "cpu") for name in ("get", "set")]
    routes += [Route("set", "cpu", "write"), Route("set", "write", "client")]
    routes += [Route("get", "cpu", name, 0.5) for name in names]
    routes += [Route("get", name, "client") for name in names]
    mix = {"get": 1 - sets, "set": sets}
    return Network(
        (JobClass("get", clients, Service(1.0)), JobClass("set", think=Service(1.0))),
        stations,
        routes=tuple(routes),
        switching={"get": mix, "set": mix},
        forks=(Fork("write", names),),
        pools=(Pool("workers", slot_count, ("cpu", "write", *names)),),
    )


def gaps(network):
    exact, found = solve_markov(network), solve_layered(network)
    return (
        float(np.max(np.abs(found.throughput_per_s / exact.throughput_per_s - 1))),
        float(np.max(np.abs(found.response_s / exact.response_s - 1))),
    )


@pytest.mark.parametrize(
    ("make", "count", "throughput", "response", "mean"),
    [(workers, 60, 0.039, 0.060, 0.012), (writers, 20, 0.043, 0.086, 0.022)],
)
def test_error_against_the_exact_chain(make, count, throughput, response, mean):
    """A part of the networks for which the docstring states the error."""
    random = np.random.default_rng(5)
    found = np.array([gaps(make(random)) for _ in range(count)])
    assert found[:, 0].max() < throughput
    assert found[:, 1].max() < response
    assert found[:, 0].mean() < mean
    assert found[:, 0].max() > 1e-4  # an approximation, not the chain itself


def test_classes_that_share_the_slots():
    throughput, response = gaps(readers_and_writers())
    assert throughput < 0.02
    assert response < 0.04
    result = solve_layered(readers_and_writers())
    assert result.throughput_per_s[1] / result.throughput_total_per_s == pytest.approx(0.3, rel=1e-9)
    # Little, over the whole cycle, with the join in place of the legs.
    cycle_s = result.response_s + 1.0
    assert result.throughput_per_s @ cycle_s == pytest.approx(4, rel=1e-9)


@pytest.mark.parametrize("clients", [1, 4, 12])
def test_as_many_slots_as_customers_have_no_effect(clients):
    network = slots(clients, clients)
    plain = Network(network.classes, network.stations, network.visits)
    exact, found = solve(plain, "convolution"), solve_layered(network)
    assert found.throughput_per_s == pytest.approx(exact.throughput_per_s, rel=1e-10)
    assert found.queue_length == pytest.approx(exact.queue_length, rel=1e-9)
    assert found.utilisation == pytest.approx(exact.utilisation, rel=1e-9)
    assert found.pool_waiting_s[0, 0] == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("slot_count", [1, 2, 5])
def test_a_pool_around_one_station_is_exact(slot_count):
    network = three_tiers(6)
    limited = Network(
        network.classes, network.stations, network.visits, pools=(Pool("p", slot_count, ("store",)),)
    )
    exact, found = solve_markov(limited), solve_layered(limited)
    assert found.throughput_per_s == pytest.approx(exact.throughput_per_s, rel=1e-10)
    assert found.response_s == pytest.approx(exact.response_s, rel=1e-10)
    assert found.queue_length == pytest.approx(exact.queue_length, rel=1e-9)
    assert found.pool_busy == pytest.approx(exact.pool_busy, rel=1e-9)
    assert found.pool_waiting_s == pytest.approx(exact.pool_waiting_s, rel=1e-8, abs=1e-12)
    if slot_count == 1:
        # One slot makes two servers one.
        single = solve(network.with_station("store", servers=1), "convolution")
        assert found.throughput_per_s == pytest.approx(single.throughput_per_s, rel=1e-10)


def test_a_capped_holding_time_is_a_station_with_rates():
    """The table w(n), capped at the slots, as an elementary chain and as a network: the same numbers."""
    clients, cap, think_s = 40, 12, 0.02
    holding_s = [1e-3 * (1 + 0.15 * n) for n in range(1, cap + 1)]
    rates = tuple(n / holding_s[n - 1] for n in range(1, cap + 1))
    chain = ClosedBirthDeath(clients=clients, think_s=think_s, rates_per_s=rates)
    network = Network(
        (JobClass("set", clients, Service(think_s)),),
        (Station("pool", {"set": 1.0}, rates=rates),),
        {"set": {"pool": 1}},
    )
    result = solve(network)
    assert result.throughput_total_per_s == pytest.approx(chain.throughput_per_s, rel=1e-12)
    assert result.response_s[0] == pytest.approx(chain.response_mean_s, rel=1e-11)
    delay = Station("work", {"set": holding_s[0]}, servers=None)
    # Without contention the holding time is constant: the rate is n / w for n slots.
    layered = Network(
        (JobClass("set", clients, Service(think_s)),),
        (delay,),
        {"set": {"work": 1}},
        pools=(Pool("p", cap, ("work",)),),
    )
    plain = solve(network.with_station("pool", rates=tuple(n / holding_s[0] for n in range(1, cap + 1))))
    assert solve_layered(layered).throughput_per_s == pytest.approx(plain.throughput_per_s, rel=1e-10)


def test_several_pools_and_coming_back():
    stations = (
        Station("a", {"r": 0.5}),
        Station("b", {"r": 0.4}, discipline="ps"),
        Station("c", {"r": 0.3}, servers=2),
        Station("d", {"r": 0.6}),
    )
    network = Network(
        (JobClass("r", 5, Service(1.0)),),
        stations,
        {"r": {"a": 1, "b": 1.5, "c": 1, "d": 0.5}},
        pools=(Pool("p", 2, ("b",)), Pool("q", 1, ("c", "d"))),
    )
    exact, found = solve_markov(network), solve_layered(network)
    assert found.throughput_per_s == pytest.approx(exact.throughput_per_s, rel=0.01)
    assert found.pool_busy == pytest.approx(exact.pool_busy, rel=0.02)
    assert found.pool_waiting_s == pytest.approx(exact.pool_waiting_s, rel=0.08)
    # A request that returns by routes counts once for each slot that it takes.
    steps = [
        Route("r", "client", "b"),
        Route("r", "b", "a", 0.5),
        Route("r", "b", "client", 0.5),
        Route("r", "a", "b"),
    ]
    again = Network(network.classes, stations[:2], routes=tuple(steps), pools=(Pool("p", 2, ("b",)),))
    exact, found = solve_markov(again), solve_layered(again)
    assert found.throughput_per_s == pytest.approx(exact.throughput_per_s, rel=1e-9)
    assert found.pool_waiting_s == pytest.approx(exact.pool_waiting_s, rel=1e-8)


def test_forks_outside_a_pool():
    names = ("r0", "r1")
    stations = (Station("work", {"set": 0.4}, servers=3), *(Station(name, {"set": 0.5}) for name in names))
    steps = ("client", "work", "write", "client")
    network = Network(
        (JobClass("set", 4, Service(1.0)),),
        stations,
        routes=tuple(Route("set", *pair) for pair in pairwise(steps)),
        forks=(Fork("write", names),),
        pools=(Pool("p", 2, ("work",)),),
    )
    throughput, response = gaps(network)
    assert throughput < 0.01
    assert response < 0.015


def test_more_slots_help_and_large_numbers_are_fast():
    before = 0.0
    for slot_count in (1, 2, 4, 8, 16, 64):
        result = solve_layered(slots(200, slot_count))
        assert result.throughput_total_per_s >= before * (1 - 1e-9)
        assert result.pool_busy[0] <= slot_count * (1 + 1e-9)
        assert result.queue_length[1:].sum() == pytest.approx(result.pool_busy[0], rel=1e-9)
        before = result.throughput_total_per_s
    # Two backend servers of 0.03 s and a CPU of 0.02 s: 50 per second at most.
    assert before == pytest.approx(50, rel=1e-3)


def test_unsupported_networks_are_refused():
    with pytest.raises(AssumptionError, match="layered: assumes one chain"):
        solve_layered(two_classes())
    with pytest.raises(AssumptionError, match="layered: assumes one chain"):
        solve_layered(a16())
    with pytest.raises(AssumptionError, match="layered: assumes a fixed population"):
        solve_layered(open_tandem())
    shared = Network(
        replicated().classes,
        replicated().stations,
        {"set": {"write": 1, "replica0": 1}},
        forks=replicated().forks,
        pools=(Pool("p", 2, ("write",)),),
    )
    with pytest.raises(AssumptionError, match="'replica0' is also used without a slot of 'p'"):
        solve_layered(shared)
