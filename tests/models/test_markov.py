"""The chain of all states: known answers, other exact solvers, and each rule of the description on its own."""

import numpy as np
import pytest
from networks import CLOSED, open_tandem, replicated, slots, three_tiers, two_classes

from waylab.models import (
    AssumptionError,
    Fork,
    JobClass,
    ModelError,
    Network,
    Pool,
    Route,
    Service,
    Station,
    closed_network,
    open_network,
    solve,
)
from waylab.models.solvers.markov.solver import solve_markov

PRODUCT_FORM = ("repairmen", "three tiers", "single servers", "delay station", "rates", "two classes")


def one_station(clients, think_s=1.0, **changes):
    return closed_network({"a": 0.5}, clients, think_s).with_station("a", **changes)


@pytest.mark.parametrize(
    ("branches", "clients", "think_s", "throughput"),
    [(2, 5, 1.0, 0.887538949), (2, 20, 5.0, 0.967736110), (3, 5, 1.0, 0.836013309), (3, 1, 1.0, 0.352941176)],
)
def test_closed_fork_join_of_the_literature(branches, clients, think_s, throughput):
    network = replicated(clients, branches).with_class("set", think=Service(think_s))
    result = solve_markov(network)
    assert result.throughput_per_s[0] == pytest.approx(throughput, abs=6e-10)
    assert result.response_s == pytest.approx(result.fork_response_s[0], rel=1e-12)
    assert clients / throughput - think_s == pytest.approx(result.response_s[0], rel=1e-8)
    if (branches, clients) == (2, 5):
        assert result.response_s[0] == pytest.approx(4.633555584, abs=6e-10)


def test_finite_room_of_the_literature():
    queue = open_network({"a": 1 / 30}, 40.0).with_station("a", servers=3, capacity=7)
    result = solve_markov(queue)
    assert result.present_probability["a"][0] == pytest.approx(0.2550369, abs=6e-8)
    assert result.response_s[0] == pytest.approx(0.0365170, abs=6e-8)
    result = solve_markov(open_network({"a": 0.1}, 50.0).with_station("a", servers=4, capacity=6))
    assert result.present_probability["a"][6] == pytest.approx(0.2935430, abs=6e-8)
    assert result.lost_per_s[0] == pytest.approx(50 * 0.2935430, abs=5e-6)
    assert result.throughput_per_s[0] + result.lost_per_s[0] == pytest.approx(50, rel=1e-12)


@pytest.mark.parametrize("name", PRODUCT_FORM)
def test_agrees_with_convolution(name):
    network = CLOSED[name]()
    exact, found = solve(network, "convolution"), solve_markov(network)
    for quantity in ("throughput_per_s", "response_s", "queue_length", "utilisation", "station_waiting_s"):
        assert np.nan_to_num(getattr(found, quantity)) == pytest.approx(
            np.nan_to_num(getattr(exact, quantity)), rel=1e-9, abs=1e-12
        ), quantity
    for station, shares in exact.present_probability.items():
        other = found.present_probability[station]
        assert other == pytest.approx(shares[: len(other)], rel=1e-8, abs=1e-12)


def test_iteration_and_direct_solution_agree(monkeypatch):
    network = three_tiers(12)
    direct = solve_markov(network)
    monkeypatch.setattr("waylab.models.solvers.markov.chain._DIRECT_FIRST", 10)
    iterated = solve_markov(network)
    assert iterated.throughput_per_s == pytest.approx(direct.throughput_per_s, rel=1e-10)
    assert iterated.queue_length == pytest.approx(direct.queue_length, rel=1e-9)


def test_switching_by_routes():
    """Three of four requests are reads; the classes share a queue. By product form the mix does not matter to it."""
    mix = {"get": 0.75, "set": 0.25}
    stations = (Station("front", {"get": 0.2, "set": 0.2}), Station("disk", {"set": 0.5}))
    routes = (
        Route("get", "client", "front"),
        Route("set", "client", "front"),
        Route("get", "front", "client"),
        Route("set", "front", "disk"),
        Route("set", "disk", "client"),
    )
    classes = (JobClass("get", 4, Service(1.0)), JobClass("set", think=Service(1.0)))
    network = Network(classes, stations, routes=routes, switching={"get": mix, "set": mix})
    exact, found = solve(network, "convolution"), solve_markov(network)
    assert found.throughput_per_s == pytest.approx(exact.throughput_per_s, rel=1e-10)
    assert found.response_s == pytest.approx(exact.response_s, rel=1e-10)


def test_visits_are_made_in_a_row_and_the_last_by_chance():
    network = closed_network({"a": 0.2, "b": 0.3}, 3, 1.0)
    twice = Network(network.classes, network.stations, {"request": {"a": 2.25, "b": 0.5}})
    exact, found = solve(twice, "convolution"), solve_markov(twice)
    assert found.throughput_per_s == pytest.approx(exact.throughput_per_s, rel=1e-10)
    assert found.station_throughput_per_s[:, 0] == pytest.approx(
        found.throughput_per_s[0] * np.array([2.25, 0.5])
    )


def test_order_matters_where_service_differs():
    """First come first served with different services has no product form: one of each class, by hand.

    Both think 1 s; the states are who is in service and who waits. Balance equations solved by least squares.
    """
    short, long = 4.0, 1.0
    states = ["", "s", "l", "sl", "ls"]
    moves = {
        ("", "s"): 1.0,
        ("", "l"): 1.0,
        ("s", "sl"): 1.0,
        ("l", "ls"): 1.0,
        ("s", ""): short,
        ("l", ""): long,
        ("sl", "l"): short,
        ("ls", "s"): long,
    }
    balance = np.zeros((5, 5))
    for (origin, target), rate in moves.items():
        balance[states.index(origin), states.index(target)] += rate
        balance[states.index(origin), states.index(origin)] -= rate
    shares = np.linalg.lstsq(np.vstack([balance.T, np.ones(5)]), np.array([0, 0, 0, 0, 0, 1.0]), rcond=None)[
        0
    ]
    stations = (Station("a", {"short": 1 / short, "long": 1 / long}),)
    classes = (JobClass("short", 1, Service(1.0)), JobClass("long", 1, Service(1.0)))
    result = solve_markov(Network(classes, stations, {"short": {"a": 1}, "long": {"a": 1}}))
    assert result.throughput_per_s[0] == pytest.approx(short * (shares[1] + shares[3]), rel=1e-10)
    assert result.throughput_per_s[1] == pytest.approx(long * (shares[2] + shares[4]), rel=1e-10)


@pytest.mark.parametrize("discipline", ["priority", "preemptive"])
def test_priorities(discipline):
    network = two_classes(2, 2).with_station("disk", discipline=discipline)
    first = solve_markov(network.with_class("query", priority=1))
    last = solve_markov(network.with_class("batch", priority=1))
    assert first.throughput_per_s[0] > last.throughput_per_s[0]
    assert first.throughput_per_s[1] < last.throughput_per_s[1]


def test_preemption_makes_the_others_invisible():
    stations = (Station("a", {"high": 0.5, "low": 0.5}, discipline="preemptive"),)
    classes = (JobClass("high", 2, Service(1.0)), JobClass("low", 3, Service(1.0), priority=1))
    both = solve_markov(Network(classes, stations, {"high": {"a": 1}, "low": {"a": 1}}))
    alone = solve_markov(one_station(2))
    assert both.throughput_per_s[0] == pytest.approx(alone.throughput_per_s[0], rel=1e-10)
    # The order does not change the amount of work if all service times have the same distribution.
    together = solve_markov(one_station(5))
    assert both.throughput_per_s.sum() == pytest.approx(together.throughput_per_s[0], rel=1e-10)


def test_a_full_station_turns_away():
    """N sources and room for one: the balance of two states by hand."""
    result = solve_markov(one_station(3, capacity=1))
    # Empty: 3 sources; full: 2 in vain, and a service. p(1) / p(0) = 3 / 2.
    busy = 3 / 5
    assert result.throughput_per_s[0] == pytest.approx(2 * busy, rel=1e-12)
    assert result.lost_per_s[0] == pytest.approx(2 * busy, rel=1e-12)


def test_blocking_after_service():
    """Two stations without buffers, and the first is never idle: a cycle takes the longer of two services."""
    base = closed_network({"a": 1.0, "b": 1.0}, 3, 0.0)
    blocked = base.with_station("b", capacity=1, when_full="block").with_station(
        "a", capacity=1, when_full="block"
    )
    result = solve_markov(blocked)
    # Both serve; whichever is done first waits for the other: H_2 = 1.5 services.
    assert result.throughput_per_s[0] == pytest.approx(1 / 1.5, rel=1e-10)
    free = solve_markov(base)
    assert free.throughput_per_s[0] > result.throughput_per_s[0]
    roomy = solve_markov(base.with_station("b", capacity=3, when_full="block"))
    assert roomy.throughput_per_s == pytest.approx(free.throughput_per_s, rel=1e-10)


def test_deadlock_is_found():
    stations = (
        Station("a", {"request": 1.0}, capacity=1, when_full="block"),
        Station("b", {"request": 1.0}, capacity=1, when_full="block"),
    )
    routes = (
        Route("request", "client", "a", 0.5),
        Route("request", "client", "b", 0.5),
        Route("request", "a", "b", 0.5),
        Route("request", "a", "client", 0.5),
        Route("request", "b", "a", 0.5),
        Route("request", "b", "client", 0.5),
    )
    network = Network((JobClass("request", 2, Service(1.0)),), stations, routes=routes)
    with pytest.raises(ModelError, match="network deadlocks"):
        solve_markov(network)


def test_bulk_service_of_two_by_hand():
    """Two sources, one server that takes up to two: states are how many wait and how many are in service."""
    result = solve_markov(one_station(2, batch=2, service={"request": 0.5}))
    # (serving, waiting): 00 -2-> 10, 10 -1-> 11, 10 -2-> 00, 11 -2-> 10. Both never arrive at once.
    weights = {"00": 1.0, "10": 1.0, "11": 0.5}
    assert result.throughput_per_s[0] == pytest.approx(2 * 1.5 / sum(weights.values()), rel=1e-10)


def test_slots():
    network = slots(5, 2)
    result = solve_markov(network)
    assert 0 < result.pool_busy[0] <= 2
    assert result.pool_waiting_s[0, 0] > 0
    # Little: those inside the pool, over the rate at which they come.
    inside = result.queue_length[1:].sum()
    assert inside == pytest.approx(result.pool_busy[0], rel=1e-10)
    whole = result.station_response_s.sum() + result.pool_waiting_s[0, 0]
    assert whole == pytest.approx(result.response_s[0], rel=1e-10)
    free = solve_markov(slots(5, 5))
    plain = solve_markov(Network(network.classes, network.stations, network.visits))
    assert free.throughput_per_s == pytest.approx(plain.throughput_per_s, rel=1e-10)


def test_one_slot_serves_one_request_at_a_time():
    """One slot around a station of many servers is one server."""
    station = (Station("a", {"request": 0.5}, servers=4),)
    network = Network(
        (JobClass("request", 4, Service(1.0)),),
        station,
        {"request": {"a": 1}},
        pools=(Pool("one", 1, ("a",)),),
    )
    assert solve_markov(network).throughput_per_s == pytest.approx(
        solve_markov(one_station(4)).throughput_per_s, rel=1e-10
    )


@pytest.mark.parametrize(("join", "mean_s"), [("all", 11 / 6), ("majority", 5 / 6), ("first", 1 / 3)])
def test_joins_of_a_single_customer(join, mean_s):
    """With a long think time no leg of the last request is left, and the join is an order statistic."""
    network = replicated(1, 3, join).with_class("set", think=Service(2000.0))
    assert solve_markov(network).response_s[0] == pytest.approx(mean_s, rel=2e-3)


def test_legs_beyond_the_join_are_served():
    result = solve_markov(replicated(1, 2, "first").with_class("set", think=Service(4.0)))
    assert result.station_throughput_per_s[:, 0] == pytest.approx(
        np.full(2, result.throughput_per_s[0]), rel=1e-6
    )
    assert result.queue_length.sum() > result.throughput_per_s[0] * result.response_s[0] * 2
    with pytest.raises(AssumptionError, match="do not accumulate"):
        solve_markov(replicated(1, 2, "first").with_class("set", think=Service(0.01)), unawaited_max=6)


def test_a_fork_of_one_is_no_fork():
    forked = solve_markov(replicated(4, 1))
    plain = solve_markov(closed_network({"a": 1.0}, 4, 1.0))
    assert forked.throughput_per_s == pytest.approx(plain.throughput_per_s, rel=1e-12)


def test_unsupported_networks_are_refused():
    steady = three_tiers().with_station("disk", service={"request": Service.deterministic(0.02)})
    with pytest.raises(AssumptionError, match=r"exponential service.* 'disk' has deterministic"):
        solve_markov(steady)
    with pytest.raises(AssumptionError, match=r"exponential times everywhere.* 'disk'"):
        solve_markov(steady.with_station("disk", discipline="ps"))
    with pytest.raises(AssumptionError, match="think times"):
        solve_markov(three_tiers().with_class("request", think=Service.deterministic(1.0)))
    with pytest.raises(AssumptionError, match=r"limited number of requests.* 'first'"):
        solve_markov(open_tandem())
    with pytest.raises(AssumptionError, match="at most 100 states"):
        solve_markov(three_tiers(), states_max=100)
    late = Network(
        replicated().classes,
        replicated().stations,
        replicated().visits,
        forks=(Fork("write", ("replica0", "replica1"), send_s=0.1),),
    )
    with pytest.raises(AssumptionError, match="at the same moment"):
        solve_markov(late)
