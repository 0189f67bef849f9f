"""One population that switches between classes: chains of classes in the exact solvers."""

import numpy as np
import pytest
from networks import a16, a16_switching

from waylab.models import JobClass, Network, Route, Station, closed_network
from waylab.models.solvers.convolution import solve_convolution


def test_one_population_of_equal_classes_is_one_class():
    """Customers who switch between classes of the same demands are customers of one class."""
    mixed = {"get": 0.7, "set": 0.3}
    stations = (Station("a", {"get": 0.2, "set": 0.2}, servers=2), Station("b", {"get": 0.3, "set": 0.3}))
    visits = {name: {"a": 1, "b": 0.5} for name in mixed}
    classes = (JobClass("get", 9, 1.0), JobClass("set", think=1.0))
    both = solve_convolution(Network(classes, stations, visits, switching={"get": mixed, "set": mixed}))
    one = solve_convolution(
        Network(
            (JobClass("get", 9, 1.0),),
            tuple(Station(part.name, {"get": part.service["get"]}, part.servers) for part in stations),
            {"get": visits["get"]},
        )
    )
    assert both.throughput_per_s == pytest.approx(np.array([0.7, 0.3]) * one.throughput_per_s[0], rel=1e-13)
    assert both.queue_length == pytest.approx(one.queue_length * [[0.7, 0.3]], rel=1e-13)
    assert both.response_s == pytest.approx([one.response_s[0]] * 2, rel=1e-13)


def test_one_population_has_the_configured_share_of_sets():
    """Two populations, as the report had it, give 3.9 % SETs; one population gives the 5 % that its clients drew."""
    two, one = solve_convolution(a16()), solve_convolution(a16_switching())
    assert two.throughput_per_s[1] / two.throughput_total_per_s == pytest.approx(0.0393, abs=5e-5)
    assert one.throughput_per_s[1] / one.throughput_total_per_s == pytest.approx(0.05, rel=1e-12)


def test_a_class_that_changes_on_its_way():
    """A request that comes back to a station as another class: its response is the sum over both visits."""
    stations = (Station("a", {"new": 0.2, "old": 0.5}, discipline="ps"), Station("b", {"new": 0.3}))
    routes = (
        Route("new", "client", "a"),
        Route("new", "a", "b"),
        Route("new", "b", "a", to_class="old"),
        Route("old", "a", "client", to_class="new"),
    )
    network = Network((JobClass("new", 6, 1.0), JobClass("old")), stations, routes=routes)
    result = solve_convolution(network)
    plain = solve_convolution(closed_network({"a": 0.7, "b": 0.3}, 6, 1.0))
    assert result.throughput_per_s == pytest.approx((plain.throughput_per_s[0], 0.0), rel=1e-13)
    assert result.response_s[0] == pytest.approx(plain.response_s[0], rel=1e-13)
    assert np.isnan(result.response_s[1])
    assert result.queue_length[0] == pytest.approx(plain.queue_length[0, 0] * np.array([2, 5]) / 7, rel=1e-13)
