"""One suite for every solver: the laws that each result must keep, whatever the method.

A solver that refuses a network must name the assumption; each must answer enough of them to mean something.
"""

import numpy as np
import pytest
from networks import CLOSED, EVERY, open_tandem, repairmen, replicated, single_servers, slots, three_tiers

from waylab.models import (
    AssumptionError,
    Service,
    Station,
    asymptotic_bounds,
    closed_network,
    open_network,
    solve,
)
from waylab.models.solvers import SOLVERS
from waylab.models.traffic import traffic

# Closed in the mean by construction, or by a fixed point that stops at 1e-10.
TOLERANCE = 1e-6
# The number of shared networks that each solver must solve.
ANSWERS_AT_LEAST = {
    "open": 2,
    "convolution": 7,
    "mva": 2,
    "mixed": 3,
    "schweitzer": 6,
    "linearizer": 6,
    "aql": 6,
    "fork-join": 1,
    "layered": 1,
    "markov": 6,
}


def answered(method):
    """Every shared network that a solver accepts, with its result."""
    for name, make in EVERY.items():
        try:
            yield name, solve(make(), method)
        except AssumptionError as error:
            assert error.assumption and error.fact


def test_every_solver_is_in_the_suite():
    assert set(ANSWERS_AT_LEAST) == set(SOLVERS)


@pytest.mark.parametrize("method", SOLVERS)
def test_results_keep_the_operational_laws(method):
    results = dict(answered(method))
    assert len(results) >= ANSWERS_AT_LEAST[method], sorted(results)
    for name, result in results.items():
        network = result.network
        described = traffic(network)
        starts = result.throughput_per_s
        # Forced flow: visits per request times requests.
        flow = np.einsum("c,ckd->kd", starts, described.station_visits)
        assert result.station_throughput_per_s == pytest.approx(flow, rel=TOLERANCE), name
        # Little, at each station and for each chain of customers.
        present = np.where(flow > 0, flow * np.nan_to_num(result.station_response_s), 0.0)
        assert result.queue_length == pytest.approx(present, rel=TOLERANCE, abs=1e-12), name
        for chain in described.chains:
            members = list(chain.classes)
            if chain.population:
                think_s = np.array([network.classes[index].think.mean_s for index in members])
                cycle_s = np.nan_to_num(result.response_s[members]) + think_s
                assert starts[members] @ cycle_s == pytest.approx(chain.population, rel=TOLERANCE), name
                shares = starts[members] / starts[members].sum()
                assert shares == pytest.approx(chain.shares, rel=TOLERANCE, abs=1e-9), name
        # Utilisation law, where a station has a number of servers.
        for index, station in enumerate(network.stations):
            if station.servers is None or station.rates:
                continue
            service_s = np.array(
                [
                    station.service[name].mean_s if name in station.service else 0
                    for name in network.class_names
                ]
            )
            busy = result.station_throughput_per_s[index] * service_s / station.servers
            assert result.utilisation[index] == pytest.approx(busy, rel=TOLERANCE, abs=1e-12), name
            assert result.utilisation[index].sum() <= 1 + TOLERANCE, name


@pytest.mark.parametrize("method", SOLVERS)
def test_throughput_and_response_rise_with_the_customers(method):
    for make in CLOSED.values():
        network = make()
        first = network.classes[0]
        before = None
        for clients in (1, 2, 3, 5):
            try:
                result = solve(network.with_class(first.name, population=clients), method)
            except AssumptionError:
                break
            if before:
                assert result.throughput_per_s[0] >= before.throughput_per_s[0] * (1 - TOLERANCE)
                assert result.response_mean_s >= before.response_mean_s * (1 - TOLERANCE)
            before = result


@pytest.mark.parametrize("method", sorted(set(SOLVERS) - {"open", "mixed", "fork-join", "layered"}))
def test_one_customer_never_waits(method):
    for make in (repairmen, three_tiers, single_servers):
        network = make(clients=1)
        try:
            result = solve(network, method)
        except AssumptionError:
            continue
        alone_s = sum(station.service["request"].mean_s for station in network.stations)
        assert result.response_s[0] == pytest.approx(alone_s, rel=1e-9)
        assert result.throughput_per_s[0] == pytest.approx(
            1 / (alone_s + network.classes[0].think.mean_s), rel=1e-9
        )


@pytest.mark.parametrize("method", ["convolution", "markov"])
def test_enough_servers_are_a_delay(method):
    many = solve(repairmen(6, servers=6), method)
    delay = solve(closed_network({"server": 0.2}, 6, 1.0, {"server": None}), method)
    assert many.throughput_per_s == pytest.approx(delay.throughput_per_s, rel=1e-9)
    assert many.station_waiting_s == pytest.approx(delay.station_waiting_s, abs=1e-12)


def test_one_of_m_servers_is_a_single_server():
    single = solve(open_network({"a": 0.1}, 7.0), "open")
    rates = solve(
        open_network({"a": 0.1}, 7.0).with_station("a", rates=(1.0, 1.0)),
        "open",
    )
    assert single.response_mean_s == pytest.approx(1 / (10 - 7), rel=1e-12)
    assert rates.response_mean_s == pytest.approx(single.response_mean_s, rel=1e-12)


@pytest.mark.parametrize("name", sorted(set(CLOSED) - {"replicated", "slots"}))
def test_exact_results_lie_inside_the_bounds(name):
    network = CLOSED[name]()
    bounds = asymptotic_bounds(network)
    result = solve(network, "convolution")
    chains = traffic(network).chains
    totals = np.array([result.throughput_per_s[list(chain.classes)].sum() for chain in chains])
    assert np.all(totals <= bounds.throughput_upper_per_s * (1 + 1e-9))
    assert np.all(totals >= bounds.throughput_lower_per_s * (1 - 1e-9))


def test_the_chosen_method_is_the_most_exact_one():
    assert solve(three_tiers()).kind == "exact"
    # The chain of all states is the only exact solver for forks.
    assert solve(replicated()).method == "markov"
    assert solve(slots()).method == "markov"
    assert solve(three_tiers().with_station("store", capacity=3)).method == "markov"
    # With too many states for it, an approximation, or the reason why there is none.
    assert solve(replicated(clients=200)).method == "fork-join"
    with pytest.raises(AssumptionError, match="room for 90"):
        solve(closed_network({"a": 1.0, "b": 1.0}, 200, 1.0).with_station("b", capacity=90))


@pytest.mark.parametrize("method", sorted(set(SOLVERS) - {"markov"}))
def test_a_solver_that_cannot_names_the_assumption(method):
    make = open_tandem if method == "open" else three_tiers
    crowded = make().with_station(make().stations[1].name, batch=2, servers=1)
    with pytest.raises(
        AssumptionError, match=f"^{method}: assumes that a server serves one request at a time, but"
    ):
        solve(crowded, method)
    uneven = make().with_station(make().stations[0].name, service={"request": Service(0.04, 2.0, "gamma")})
    try:
        solve(uneven, method)
    except AssumptionError as error:
        assert error.fact.startswith(f"station '{make().stations[0].name}' has gamma service")
    else:
        assert method in ("schweitzer", "linearizer", "aql")


def test_a_station_without_a_queue_needs_no_exponential_service():
    steady = three_tiers().with_station(
        "disk", service={"request": Service.deterministic(0.025)}, discipline="ps"
    )
    assert solve(steady).throughput_per_s == pytest.approx(solve(three_tiers()).throughput_per_s, rel=1e-12)
    assert Station("a", {"x": 1.0}).service["x"].is_exponential
