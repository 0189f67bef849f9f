"""Bounds: known answers, the truth between them, and the better ones inside the simpler ones."""

import numpy as np
import pytest
from networks import a16, open_tandem, three_tiers, two_classes, with_rates

from waylab.models import AssumptionError, JobClass, Network, Service, Station, closed_network, solve
from waylab.models.bounds import (
    asymptotic_bounds,
    balanced_job_bounds,
    bottlenecks,
    geometric_bounds,
    saturation_factor,
)

SINGLE = (asymptotic_bounds, balanced_job_bounds, geometric_bounds)


def casale(clients, think_s=0.0):
    """Demands of MODELS: four stations, two of them equally busy."""
    return closed_network({"a": 0.1, "b": 0.1, "c": 0.09, "d": 0.08}, clients, think_s)


@pytest.mark.parametrize(
    ("clients", "think_s", "lower", "upper"),
    [(10, 0.0, 8.1521, 8.2690), (80, 0.0, 9.8233, 9.8765), (10, 1.0, 5.7569, 6.1410)],
)
def test_geometric_bounds_of_the_literature(clients, think_s, lower, upper):
    bounds = geometric_bounds(casale(clients, think_s))
    assert bounds.throughput_lower_per_s[0] == pytest.approx(lower, abs=6e-5)
    assert bounds.throughput_upper_per_s[0] == pytest.approx(upper, abs=6e-5)
    exact = solve(casale(clients, think_s)).throughput_total_per_s
    assert lower < exact < upper
    if (clients, think_s) == (10, 0.0):
        assert exact == pytest.approx(8.206171, abs=5e-7)


def test_asymptotes_and_knee():
    network = closed_network({"a": 0.2, "b": 0.05}, 3, 1.75)
    bounds = asymptotic_bounds(network)
    assert bounds.throughput_upper_per_s[0] == pytest.approx(3 / 2.0)
    assert bounds.throughput_lower_per_s[0] == pytest.approx(3 / (1.75 + 3 * 0.25))
    assert bounds.knee_customers == pytest.approx(10)
    crowded = asymptotic_bounds(network.with_class("request", population=50))
    assert crowded.throughput_upper_per_s[0] == pytest.approx(5)
    assert crowded.response_lower_s[0] == pytest.approx(50 / 5 - 1.75)


def test_the_truth_lies_between():
    random = np.random.default_rng(7)
    for _ in range(200):
        names = [f"s{number}" for number in range(random.integers(1, 6))]
        demands_s = dict(zip(names, random.uniform(0.01, 1.0, len(names)), strict=True))
        network = closed_network(
            demands_s, int(random.integers(1, 40)), float(random.choice([0.0, 0.5, 5.0]))
        )
        exact = solve(network).throughput_total_per_s
        before = None
        for make in SINGLE:
            bounds = make(network)
            low, high = bounds.throughput_lower_per_s[0], bounds.throughput_upper_per_s[0]
            assert low <= exact * (1 + 1e-9), (make, network)
            assert high >= exact * (1 - 1e-9), (make, network)
            if before:
                assert low >= before[0] * (1 - 1e-9) or make is geometric_bounds
            before = (low, high)


@pytest.mark.parametrize("make", [three_tiers, with_rates, two_classes])
def test_asymptotes_hold_for_servers_rates_and_classes(make):
    network = make()
    bounds = asymptotic_bounds(network)
    exact = solve(network).throughput_per_s
    assert np.all(exact <= bounds.throughput_upper_per_s * (1 + 1e-9))
    assert np.all(exact >= bounds.throughput_lower_per_s * (1 - 1e-9))


def test_a_longer_service_of_others_counts():
    """First come first served with different service times: a customer waits for the service of others."""
    stations = (Station("a", {"short": 0.01, "long": 1.0}),)
    network = Network(
        (JobClass("short", 1), JobClass("long", 1)), stations, {name: {"a": 1} for name in ("short", "long")}
    )
    bounds = asymptotic_bounds(network)
    exact = solve(network, "markov").throughput_per_s
    assert np.all(bounds.throughput_lower_per_s <= exact)
    assert np.all(exact <= bounds.throughput_upper_per_s)


def test_bottlenecks_by_what_they_allow():
    limits = bottlenecks(a16())
    assert limits[0].station.startswith("writer") or limits[0].station.startswith("reader")
    tiers = bottlenecks(three_tiers())
    assert [limit.station for limit in tiers] == ["disk", "store", "front"]
    assert tiers[0].throughput_per_s == pytest.approx(40)
    assert saturation_factor(open_tandem(6.0)) == pytest.approx(min(1 / 0.1, 2 / 0.25) / 6)


def test_bounds_refuse_unsupported_networks():
    for make in (balanced_job_bounds, geometric_bounds):
        with pytest.raises(AssumptionError, match="one server at each station, but station 'store' has 2"):
            make(three_tiers())
    with pytest.raises(AssumptionError, match="fixed population"):
        asymptotic_bounds(open_tandem())
    with pytest.raises(AssumptionError, match="closed classes"):
        saturation_factor(three_tiers())
    only_delay = closed_network({"away": 1.0}, 4, 1.0, {"away": None})
    assert balanced_job_bounds(only_delay).throughput_upper_per_s[0] == pytest.approx(2.0)


def test_any_service_time_of_the_same_mean_keeps_the_asymptotes():
    network = closed_network({"a": 0.2}, 4).with_station("a", service={"request": Service.deterministic(0.2)})
    assert asymptotic_bounds(network).throughput_upper_per_s[0] == pytest.approx(5)
