"""Approximate mean-value analysis: published values, its error against the exact solution, and its convergence."""

import numpy as np
import pytest
from networks import open_tandem, repairmen, single_servers, switching, two_classes

from waylab.models import AssumptionError, JobClass, Network, Service, Station, closed_network, solve

METHODS = ("schweitzer", "linearizer", "aql")
# The largest error over the networks below; the docstrings state what 400 of them gave.
ERROR_MAX = {"schweitzer": 0.23, "linearizer": 0.02, "aql": 0.035}


def random_network(random):
    """One to three chains at up to five stations of any kind that has a product form."""
    chains, stations = int(random.integers(1, 4)), int(random.integers(1, 6))
    names = [f"class{number}" for number in range(chains)]
    parts = []
    for number in range(stations):
        kind = random.choice(["fcfs", "ps", "delay"], p=[0.4, 0.4, 0.2])
        one_s = random.uniform(0.05, 1)
        times_s = [one_s if kind == "fcfs" else random.uniform(0.05, 1) for _ in names]
        parts.append(
            Station(
                f"station{number}",
                dict(zip(names, times_s, strict=True)),
                None if kind == "delay" else 1,
                "ps" if kind == "ps" else "fcfs",
            )
        )
    visits = {name: {part.name: float(random.uniform(0.1, 2)) for part in parts} for name in names}
    most = [40, 12, 6][chains - 1]
    classes = tuple(
        JobClass(name, int(random.integers(1, most)), Service(float(random.choice([0.0, 0.5, 3.0]))))
        for name in names
    )
    return Network(classes, tuple(parts), visits)


def test_bard_and_schweitzer_as_published():
    result = solve(single_servers(3), "schweitzer")
    assert result.throughput_total_per_s == pytest.approx(0.15098587, abs=5e-9)
    # By the interactive law 3 / X - 15; a published 4.869443 stopped a few steps earlier.
    assert result.response_mean_s == pytest.approx(3 / 0.15098587 - 15, abs=1e-5)


def chandy_neuse():
    """Eight customers with a delay of 8 and one without any, at one queue (cited by the tests of LQNS)."""
    stations = (Station("away", {"many": 8.0}, None), Station("queue", {"many": 1.0, "one": 1.0}))
    visits = {"many": {"away": 1, "queue": 1}, "one": {"queue": 1}}
    return Network((JobClass("many", 8), JobClass("one", 1)), stations, visits)


@pytest.mark.parametrize(
    ("method", "away", "queue"),
    [("convolution", 5.2266, 2.7734), ("linearizer", 5.231, 2.769), ("schweitzer", 5.108, 2.892)],
)
def test_the_example_of_chandy_and_neuse(method, away, queue):
    result = solve(chandy_neuse(), method)
    tolerance = 5e-5 if method == "convolution" else 1.1e-3
    assert result.queue_length[0, 0] == pytest.approx(away, abs=tolerance)
    assert result.queue_length[1, 0] == pytest.approx(queue, abs=tolerance)


def test_errors_over_random_networks():
    random = np.random.default_rng(20)
    errors = {method: [] for method in METHODS}
    for _ in range(40):
        network = random_network(random)
        exact = solve(network, "convolution").throughput_per_s
        for method in METHODS:
            found = solve(network, method).throughput_per_s
            errors[method].append(float(np.max(np.abs(found / exact - 1))))
    for method in METHODS:
        assert max(errors[method]) < ERROR_MAX[method], method
    assert np.median(errors["linearizer"]) < np.median(errors["schweitzer"]) / 5
    assert np.median(errors["aql"]) < np.median(errors["schweitzer"]) / 5


@pytest.mark.parametrize("method", METHODS)
def test_it_converges_near_saturation(method):
    demands_s = {f"s{number}": 1.0 for number in range(4)} | {"t": 0.999999}
    for clients in (1, 2, 50, 1000, 100_000):
        result = solve(closed_network(demands_s, clients, 3.0), method)
        assert result.throughput_total_per_s <= 1 + 1e-9
        assert clients / (result.response_mean_s + 3.0) == pytest.approx(
            result.throughput_total_per_s, rel=1e-9
        )


@pytest.mark.parametrize("method", METHODS)
def test_many_servers_are_named_in_the_notes(method):
    result = solve(repairmen(), method)
    exact = solve(repairmen(), "convolution")
    assert result.kind == "approximation" and "m times faster" in result.notes[0]
    assert result.throughput_total_per_s == pytest.approx(exact.throughput_total_per_s, rel=0.1)
    assert not solve(single_servers(), method).notes


@pytest.mark.parametrize("method", METHODS)
def test_classes_are_kept_apart(method):
    exact = solve(two_classes(), "convolution")
    result = solve(two_classes(), method)
    assert result.throughput_per_s == pytest.approx(exact.throughput_per_s, rel=0.06)
    assert result.response_s == pytest.approx(exact.response_s, rel=0.12)
    mixed = solve(switching(), method)
    assert mixed.throughput_per_s[1] / mixed.throughput_total_per_s == pytest.approx(0.1, rel=1e-9)


def test_uneven_service_first_come_first_served():
    """Against the chain of all states, and refused if the method merges the chains."""
    stations = (Station("a", {"short": 0.1, "long": 0.4}), Station("b", {"short": 0.2, "long": 0.1}))
    classes = (JobClass("short", 3, Service(0.5)), JobClass("long", 2, Service(0.5)))
    network = Network(classes, stations, {name: {"a": 1, "b": 1} for name in ("short", "long")})
    exact = solve(network, "markov").throughput_per_s
    for method in ("schweitzer", "linearizer"):
        result = solve(network, method)
        assert result.throughput_per_s == pytest.approx(exact, rel=0.08)
        assert "waits for the services it finds" in result.notes[0]
        # Every arriving customer waits equally long: only the service differs.
        assert result.station_response_s - result.station_waiting_s == pytest.approx(
            np.array([[0.1, 0.4], [0.2, 0.1]])
        )
    with pytest.raises(AssumptionError, match="aql: assumes the same service time for all classes"):
        solve(network, "aql")


@pytest.mark.parametrize("method", METHODS)
def test_unsupported_networks_are_refused(method):
    with pytest.raises(AssumptionError, match=f"{method}: assumes a fixed population"):
        solve(open_tandem(), method)
