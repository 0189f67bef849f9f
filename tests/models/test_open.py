"""The solver of open networks: published answers, the queues that each station must be, laws, and bad input."""

import math

import numpy as np
import pytest
from networks import open_tandem, open_two_classes, repairmen

from waylab.models import (
    AssumptionError,
    JobClass,
    MMm,
    Network,
    Route,
    Service,
    Station,
    UnstableError,
    open_network,
)
from waylab.models.solvers.open import solve_open

# Published answers.


def test_two_classes_at_a_cpu_and_a_disk():
    """Lazowska and others, Quantitative System Performance (1984), p. 138."""
    result = solve_open(open_two_classes())
    assert result.station_utilisation == pytest.approx((0.368421, 0.894737), abs=5e-7)
    assert result.response_s == pytest.approx((30.08333, 41.16667), abs=5e-6)


def test_one_server():
    result = solve_open(open_network({"a": 1.0}, 0.8))
    assert result.response_s[0] == pytest.approx(5, rel=1e-13)
    assert result.queue_length[0, 0] == pytest.approx(4, rel=1e-13)
    assert result.station_waiting_s[0, 0] == pytest.approx(4, rel=1e-13)
    assert result.response_quantile_s(0.95) == pytest.approx(14.97866, abs=5e-6)
    assert result.response_quantile_s(0.99) == pytest.approx(23.02585, abs=5e-6)


@pytest.mark.parametrize(
    ("servers", "queue_length", "response_s"), [(2, 7.673684, 1.052632), (4, 0.1051639, 0.2116849)]
)
def test_several_servers(servers, queue_length, response_s):
    result = solve_open(open_network({"a": 0.2}, 9.0, {"a": servers}))
    assert 9 * result.station_waiting_s[0, 0] == pytest.approx(queue_length, rel=5e-7)
    assert result.response_s[0] == pytest.approx(response_s, rel=5e-7)


@pytest.mark.parametrize(
    ("servers", "load", "waits"),
    [(165, 0.8, 0.0034068280), (512, 0.8, 6.295e-7), (100, 0.95, 0.5064568539), (1000, 0.95, 0.0682534154)],
)
def test_many_servers_have_erlangs_probability_of_waiting(servers, load, waits):
    """p(0) is as small as 1e-412 here."""
    result = solve_open(open_network({"a": 1.0}, load * servers, {"a": servers}))
    assert result.station_waiting_s[0, 0] * servers * (1 - load) == pytest.approx(waits, abs=5e-11)
    assert result.present_probability["a"][servers:].sum() == pytest.approx(waits, abs=5e-11)


# Laws.


def test_rates_are_a_birth_death_chain():
    """Against the chain summed term by term, far beyond what matters."""
    rates, arrivals_per_s, service_s = (1.0, 1.7, 1.2, 1.5), 11.0, 0.1
    result = solve_open(open_network({"a": service_s}, arrivals_per_s).with_station("a", rates=rates))
    weights = [1.0]
    for n in range(1, 400):
        weights.append(weights[-1] * arrivals_per_s * service_s / rates[min(n, 4) - 1])
    shares = np.array(weights) / math.fsum(weights)
    assert result.queue_length[0, 0] == pytest.approx(shares @ np.arange(400), rel=1e-12)
    assert result.present_probability["a"][:50] == pytest.approx(shares[:50], rel=1e-12)
    assert result.utilisation[0, 0] == pytest.approx(shares[1:].sum(), rel=1e-12)


def test_rates_of_servers_are_servers():
    servers = solve_open(open_network({"a": 0.3}, 8.0, {"a": 3}))
    rates = solve_open(open_network({"a": 0.3}, 8.0).with_station("a", rates=(1, 2, 3), discipline="ps"))
    assert rates.station_waiting_s == pytest.approx(servers.station_waiting_s, rel=1e-13)
    assert rates.queue_length == pytest.approx(servers.queue_length, rel=1e-13)


def test_a_delay_holds_a_poisson_number_whatever_its_distribution():
    network = open_network({"away": 0.5}, 30.0, {"away": None})
    result = solve_open(network.with_station("away", service={"request": Service(0.5, 4.0, "gamma")}))
    present = result.present_probability["away"]
    assert present[:3] == pytest.approx([math.exp(-15), 15 * math.exp(-15), 112.5 * math.exp(-15)], rel=1e-12)
    assert present.sum() == pytest.approx(1, abs=1e-12)
    assert result.response_s[0] == pytest.approx(0.5, rel=1e-13)
    assert result.station_waiting_s[0, 0] == 0


@pytest.mark.parametrize("name", ["first", "second", "away"])
def test_probabilities_of_the_number_present_sum_to_one_and_give_its_mean(name):
    result = solve_open(open_tandem(7.0))
    present = result.present_probability[name]
    index = result.network.station_names.index(name)
    assert present.sum() == pytest.approx(1, abs=1e-11)
    assert present @ np.arange(len(present)) == pytest.approx(result.station_queue_length[index], rel=1e-8)


def test_feedback_is_more_visits():
    routes = (
        Route("request", "client", "a"),
        Route("request", "a", "a", 0.75),
        Route("request", "a", "client", 0.25),
    )
    network = Network(
        (JobClass("request", arrivals_per_s=2.0),), (Station("a", {"request": 0.1}),), routes=routes
    )
    result = solve_open(network)
    assert result.station_throughput_per_s[0, 0] == pytest.approx(8, rel=1e-12)
    assert result.response_s[0] == pytest.approx(4 * 0.1 / (1 - 0.8), rel=1e-12)
    assert not result.quantiles


def test_a_class_that_changes_on_its_way():
    """A request is answered from a cache or becomes a miss, which is another class with another service time."""
    stations = (Station("cache", {"get": 0.1}), Station("store", {"miss": 0.5}, discipline="ps"))
    routes = (
        Route("get", "client", "cache"),
        Route("get", "cache", "client", 0.8),
        Route("get", "cache", "store", 0.2, to_class="miss"),
        Route("miss", "store", "client"),
    )
    network = Network((JobClass("get", arrivals_per_s=5.0), JobClass("miss")), stations, routes=routes)
    result = solve_open(network)
    assert result.throughput_per_s == pytest.approx((5, 0))
    assert result.station_throughput_per_s == pytest.approx(np.array([[5, 0], [0, 1]]), rel=1e-12)
    assert result.response_s[0] == pytest.approx(0.1 / 0.5 + 0.2 * 0.5 / 0.5, rel=1e-12)
    assert np.isnan(result.response_s[1])


def test_a_station_without_service_time_is_empty():
    network = open_network({"a": 0.0, "b": 0.1}, 5.0)
    result = solve_open(network)
    assert result.queue_length[0, 0] == 0
    assert result.station_response_s[0, 0] == 0
    assert result.response_s[0] == pytest.approx(0.2, rel=1e-12)


# Distributions of the response time.


def test_single_servers_in_a_row_give_a_sum_of_exponential_times():
    """P(R > t) = sum over i of the product over j of d_j / (d_j - d_i) times exp(-d_i t)."""
    result = solve_open(open_network({"a": 0.1, "b": 0.05, "c": 0.02}, 6.0))
    leave_per_s = [10 - 6, 20 - 6, 50 - 6]
    for share in (0.5, 0.95, 0.999):
        time_s = result.response_quantile_s(share)
        left = sum(
            math.prod(other / (other - one) for other in leave_per_s if other != one)
            * math.exp(-one * time_s)
            for one in leave_per_s
        )
        assert left == pytest.approx(1 - share, rel=1e-8)


def test_several_servers_alone_give_the_quantiles_of_their_queue():
    result = solve_open(open_network({"a": 0.2}, 13.0, {"a": 3}))
    queue = MMm(13.0, 5.0, 3)
    for share in (0.5, 0.95, 0.999):
        assert result.response_quantile_s(share) == pytest.approx(queue.response_quantile_s(share), rel=1e-8)


def test_several_servers_before_and_behind_a_single_one():
    """Times at the three stations are independent; here their distribution is integrated numerically."""
    result = solve_open(open_network({"a": 0.3, "b": 0.1, "c": 0.4}, 6.0, {"a": 3, "c": None}))
    step_s = 5e-4
    grid = (np.arange(40_000) + 0.5) * step_s
    queue = MMm(6.0, 1 / 0.3, 3)
    edges = np.concatenate([[0.0], grid + step_s / 2])
    first = -np.diff([queue._response_survival(time_s) for time_s in edges])
    second = -np.diff(np.exp(-4.0 * edges))
    third = -np.diff(np.exp(-edges / 0.4))
    size = 2 * len(grid)
    whole = np.fft.irfft(
        np.fft.rfft(first, size) * np.fft.rfft(second, size) * np.fft.rfft(third, size), size
    )
    below = np.cumsum(whole[: len(grid)])
    for share in (0.5, 0.9, 0.99):
        # Each of the three times was put at the middle of its step: the sum is 1.5 steps later than the index.
        time_s = (np.searchsorted(below, share) + 1.5) * step_s
        assert result.response_quantile_s(share) == pytest.approx(time_s, abs=2 * step_s)


@pytest.mark.parametrize(
    "network",
    [
        open_network({"a": 0.1, "b": 0.1, "c": 0.1}, 3.0, {"b": 2}),
        open_network({"a": 0.1, "b": 0.1, "c": 0.1}, 3.0, {"b": None}),
        open_network({"a": 0.1, "b": 0.1}, 3.0).with_station("a", discipline="ps"),
        open_network({"a": 0.1, "b": 0.1}, 3.0).with_station("b", rates=(1.0, 1.5)),
        open_two_classes(),
    ],
)
def test_where_requests_overtake_there_is_no_exact_distribution(network):
    with pytest.raises(AssumptionError, match="simulate"):
        solve_open(network).response_quantile_s(0.95)


# Bad input.


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (open_tandem(8.0), r"^station 'second': .*unstable: utilisation 1 is not below 1$"),
        (open_two_classes(2.0), r"^station 'disk': .*unstable: utilisation 1.789 is not below 1$"),
        (
            open_network({"a": 1.0}, 1.6).with_station("a", rates=(1.0, 2.0, 1.5)),
            r"^station 'a': .*unstable: utilisation 1.067 is not below 1$",
        ),
    ],
)
def test_an_unstable_station_is_named(network, message):
    with pytest.raises(UnstableError, match=message):
        solve_open(network)


@pytest.mark.parametrize(
    ("network", "assumption"),
    [
        (repairmen(), "all requests arrive from outside"),
        (open_tandem().with_class("request", arrival_squared_variation=2.0), "Poisson arrivals"),
        (
            open_tandem().with_station("second", service={"request": Service.deterministic(0.1)}),
            "exponential",
        ),
        (open_tandem().with_station("second", capacity=4), "room for every request"),
        (open_tandem().with_station("second", batch=2), "one request at a time"),
    ],
)
def test_networks_without_a_product_form_are_refused(network, assumption):
    with pytest.raises(AssumptionError, match=f"^open: assumes .*{assumption}"):
        solve_open(network)
