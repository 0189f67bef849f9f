"""Open and closed classes together: the open classes reduce the capacity that the solver gives to the closed ones."""

import math

import numpy as np
import pytest
from networks import a16, repairmen, switching, three_tiers, two_classes, with_rates

from waylab.models import (
    AssumptionError,
    JobClass,
    Network,
    Station,
    UnstableError,
    closed_network,
    open_network,
)
from waylab.models.solvers.convolution import solve_convolution
from waylab.models.solvers.mixed import solve_mixed
from waylab.models.solvers.mva import solve_mva
from waylab.models.solvers.open import solve_open
from waylab.models.solvers.weights import rates_beside_open


@pytest.mark.parametrize("make", [repairmen, three_tiers, two_classes, switching, with_rates, a16])
def test_mixed_without_arrivals_is_closed(make):
    first, second = solve_mixed(make()), solve_convolution(make())
    assert first.queue_length == pytest.approx(second.queue_length, rel=1e-13)
    assert first.response_s == pytest.approx(second.response_s, rel=1e-13)


def test_mixed_without_customers_is_open():
    network = open_network({"a": 0.1, "b": 0.4, "away": 0.3}, 6.0, {"b": 3, "away": None})
    network = network.with_station("a", rates=(1.0, 1.5, 1.2))
    first, second = solve_mixed(network), solve_open(network)
    for quantity in ("queue_length", "station_waiting_s", "utilisation", "response_s"):
        assert getattr(first, quantity) == pytest.approx(getattr(second, quantity), rel=1e-12)


def beside_open(station, clients=5, arrivals_per_s=1.1):
    times = {"inside": 0.4, "outside": 0.4}
    stations = (Station("a", times, **station), Station("b", {"inside": 0.3}))
    classes = (JobClass("inside", clients, 0.5), JobClass("outside", arrivals_per_s=arrivals_per_s))
    return Network(classes, stations, {"inside": {"a": 1, "b": 1}, "outside": {"a": 1}})


@pytest.mark.parametrize(
    "station", [{}, {"servers": 2}, {"servers": 7}, {"rates": (0.8, 1.4, 1.6)}, {"servers": None}]
)
def test_open_requests_are_many_customers_of_a_long_cycle(station):
    """An open class is the limit of ever more closed customers who think for ever longer."""
    mixed = solve_mixed(beside_open(station))
    clients = 3000
    network = Network(
        (JobClass("inside", 5, 0.5), JobClass("outside", clients, clients / 1.1)),
        beside_open(station).stations,
        {"inside": {"a": 1, "b": 1}, "outside": {"a": 1}},
    )
    closed = solve_convolution(network)
    for quantity in ("throughput_per_s", "queue_length", "response_s", "station_waiting_s", "utilisation"):
        assert getattr(mixed, quantity) == pytest.approx(getattr(closed, quantity), rel=4e-3, nan_ok=True)


def test_a_single_server_is_slowed_by_what_the_open_class_takes():
    """Lavenberg and Reiser: inflated demands for the closed ones, and (1 + Q) / (1 - U) for the open ones."""
    result = solve_mixed(beside_open({}))
    taken = 1.1 * 0.4
    closed = solve_mva(closed_network({"a": 0.4 / (1 - taken), "b": 0.3}, 5, 0.5))
    assert result.throughput_per_s[0] == pytest.approx(closed.throughput_per_s[0], rel=1e-12)
    assert result.queue_length[0, 1] == pytest.approx(
        taken * (1 + closed.queue_length[0, 0]) / (1 - taken), rel=1e-12
    )
    assert result.utilisation[0].sum() == pytest.approx(taken + 0.4 * closed.throughput_per_s[0], rel=1e-12)


def test_waiting_is_response_less_service_for_every_class():
    times = {"one": 0.3, "two": 0.2, "outside": 0.1}
    classes = (JobClass("one", 3, 0.5), JobClass("two", 2), JobClass("outside", arrivals_per_s=4.0))
    visits = {name: {"a": 1, "b": 2} for name in times}
    stations = (Station("a", times, discipline="ps"), Station("b", dict.fromkeys(times, 0.1), servers=2))
    result = solve_mixed(Network(classes, stations, visits))
    service_s = np.array([[0.3, 0.2, 0.1], [0.1, 0.1, 0.1]])
    assert result.station_waiting_s == pytest.approx(result.station_response_s - service_s, rel=1e-10)


def test_more_arrivals_than_a_station_can_serve_are_refused_by_name():
    with pytest.raises(UnstableError, match=r"^station 'a': .*unstable: utilisation 1.2 is not below 1$"):
        solve_mixed(beside_open({}, arrivals_per_s=3.0))


@pytest.mark.parametrize("rates", [(1.0,), (1, 2, 3, 4), (0.8, 1.9, 1.4, 1.6), (3.0, 1.0)])
@pytest.mark.parametrize("load", [0.05, 0.9])
def test_speeds_beside_an_open_class_sum_over_all_numbers_of_its_requests(rates, load):
    """c'(n) = sum over j of C(n+j, j) load^j c(n+j), added up until nothing is left."""
    terms = 500
    capacities = [1.0]
    for n in range(1, terms + 8):
        capacities.append(capacities[-1] / rates[min(n, len(rates)) - 1])
    summed = [
        math.fsum(math.comb(n + j, j) * load**j * capacities[n + j] for j in range(terms)) for n in range(8)
    ]
    found = rates_beside_open(np.array(rates, dtype=float), load)
    speeds = [found[min(n, len(found)) - 1] for n in range(1, 8)]
    assert speeds == pytest.approx([summed[n - 1] / summed[n] for n in range(1, 8)], rel=1e-11)


def test_networks_without_a_product_form_are_refused():
    network = beside_open({}).with_class("outside", arrival_squared_variation=4.0)
    with pytest.raises(AssumptionError, match=r"^mixed: assumes Poisson arrivals, but class 'outside'"):
        solve_mixed(network)
