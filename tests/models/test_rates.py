"""Stations with rates: waiting time and utilisation by their definitions in docs/model-format.md."""

import numpy as np
import pytest

from waylab.models import JobClass, Network, Service, Station, closed_network, simulate, solve

RATES = (1.0, 2.0)


def repairmen(discipline, rates=RATES, population=2):
    """Two customers who think for 1 s; p(0), p(1), p(2) = 1/4, 1/2, 1/4 and X = 1."""
    network = closed_network({"s": 1.0}, population=population, think_s=1.0)
    return network.with_station("s", rates=rates, discipline=discipline)


@pytest.mark.parametrize("method", ["convolution", "markov"])
def test_in_order_of_arrival_all_but_the_first_wait(method):
    """The definition gives (1/4 x 1) / 1 = 250 ms; that of processor sharing gives R - S = 0."""
    assert solve(repairmen("fcfs"), method).station_waiting_s[0, 0] == pytest.approx(0.25)
    assert solve(repairmen("ps"), method).station_waiting_s[0, 0] == pytest.approx(0.0, abs=1e-12)


def test_the_simulator_has_the_same_definition():
    simulated = simulate(repairmen("fcfs"), replications=10, requests=20_000, warm_up=1000)
    assert simulated.station_waiting_s[0, 0] == pytest.approx(0.25, rel=0.05)


def test_an_open_queue_in_order_of_arrival():
    """M/M/2 as one server of rates 1, 2: all but one wait, (L - P(busy)) / lambda."""
    network = Network(
        classes=(JobClass("a", arrivals_per_s=1.2),),
        stations=(Station("s", {"a": Service(1.0)}, rates=RATES),),
        visits={"a": {"s": 1.0}},
    )
    found = solve(network, "open")
    idle = (1 - 0.6) / (1 + 0.6)
    length = 2 * 0.6 / (1 - 0.36)
    assert found.queue_length[0, 0] == pytest.approx(length)
    assert found.station_waiting_s[0, 0] == pytest.approx((length - (1 - idle)) / 1.2)
    assert found.utilisation[0, 0] == pytest.approx(1 - idle)


def two_kinds(discipline, open_per_s):
    """Two closed classes, and an open one, at a station with rates and at one server."""
    station = Station(
        "s",
        dict.fromkeys("abc" if open_per_s else "ab", Service(0.2)),
        rates=(1.0, 1.7, 2.1),
        discipline=discipline,
    )
    other = Station("t", {"a": Service(0.3), "b": Service(0.3)})
    arrivals = (JobClass("c", arrivals_per_s=open_per_s),) if open_per_s else ()
    return Network(
        classes=(
            JobClass("a", population=3, think=Service(0.5)),
            JobClass("b", population=2, think=Service(0.1)),
            *arrivals,
        ),
        stations=(station, other),
        visits={"a": {"s": 1.0, "t": 1.0}, "b": {"s": 2.0, "t": 1.0}}
        | ({"c": {"s": 1.0}} if arrivals else {}),
    )


@pytest.mark.parametrize("discipline", ["fcfs", "ps"])
def test_several_chains_against_the_chain_of_all_states(discipline):
    network = two_kinds(discipline, 0.0)
    exact, found = solve(network, "markov"), solve(network, "convolution")
    for name in ("station_waiting_s", "utilisation", "queue_length"):
        assert np.allclose(getattr(exact, name), getattr(found, name), rtol=1e-6), name


@pytest.mark.parametrize("discipline", ["fcfs", "ps"])
def test_open_and_closed_classes_against_simulation(discipline):
    network = two_kinds(discipline, 2.0)
    found = solve(network, "mixed")
    simulated = simulate(network, replications=10, requests=40_000, warm_up=4000)
    for name in ("station_waiting_s", "queue_length"):
        assert np.allclose(getattr(simulated, name)[0], getattr(found, name)[0], rtol=0.05), name


def test_utilisation_is_divided_by_the_work_of_the_classes():
    for method in ("markov", "convolution"):
        found = solve(two_kinds("ps", 0.0), method)
        work = found.station_throughput_per_s[0] * 0.2
        busy = 1 - found.present_probability["s"][0]
        assert found.utilisation[0].sum() == pytest.approx(busy)
        assert found.utilisation[0] == pytest.approx(busy * work / work.sum())
