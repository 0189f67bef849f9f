"""The exact solvers of closed networks: published answers, rational arithmetic, laws, and bad input."""

import time
from decimal import Decimal, localcontext

import numpy as np
import pytest
import rational
from networks import a16, repairmen, three_tiers, with_rates

from waylab.models import (
    AssumptionError,
    ClosedMMc,
    JobClass,
    ModelError,
    Network,
    Service,
    Station,
    closed_network,
)
from waylab.models.solvers.convolution import solve_convolution
from waylab.models.solvers.mixed import solve_mixed
from waylab.models.solvers.mva import solve_mva


def shared(populations, demands_s, thinks_s=None, discipline="ps", servers=None):
    """Stations that every class visits once. `demands_s[r][k]`."""
    names = [f"class{chain}" for chain in range(len(populations))]
    thinks_s = thinks_s or [0.0] * len(names)
    stations = tuple(
        Station(
            f"station{index}",
            dict(zip(names, times, strict=True)),
            servers=servers[index] if servers else 1,
            discipline=discipline,
        )
        for index, times in enumerate(zip(*demands_s, strict=True))
    )
    classes = tuple(JobClass(*parts) for parts in zip(names, populations, thinks_s, strict=True))
    visits = {name: {station.name: 1 for station in stations} for name in names}
    return Network(classes, stations, visits)


def random_network(seed, servers=True):
    """One to three classes; stations that are shared or not, single, multiple, delays or with rates."""
    rng = np.random.default_rng(seed)
    names = [f"class{index}" for index in range(rng.integers(1, 4))]
    kinds = ["single", "delay"] + (["servers", "rates"] if servers else [])
    stations, visits = [], {name: {} for name in names}
    for index in range(rng.integers(2, 5)):
        kind = rng.choice(kinds) if index else "single"
        coming = names if not index else [name for name in names if rng.random() < 0.7] or names[:1]
        extra = {
            "single": {},
            "delay": {"servers": None},
            "servers": {"servers": int(rng.integers(2, 5))},
            "rates": {"rates": tuple(rng.uniform(0.5, 3.0, rng.integers(1, 5)))},
        }[kind]
        times = dict(zip(coming, rng.uniform(0.1, 2.0, len(coming)), strict=True))
        stations.append(Station(f"station{index}", times, discipline="ps", **extra))
        for name in coming:
            visits[name][f"station{index}"] = float(rng.choice([0.5, 1.0, 2.0]))
    thinks_s = [float(rng.choice([0.0, 0.7])) for _ in names]
    classes = tuple(
        JobClass(name, int(rng.integers(1, 6)), think_s)
        for name, think_s in zip(names, thinks_s, strict=True)
    )
    return Network(classes, tuple(stations), visits)


def exactly(network):
    """The same network in fractions; visits by class, no switching."""
    names, most = network.class_names, network.population
    demands_s = [
        [
            network.visits[name].get(station.name, 0) * station.service[name].mean_s
            if name in station.service
            else 0
            for name in names
        ]
        for station in network.stations
    ]
    rates = [[station.rate(present) for present in range(1, most + 1)] for station in network.stations]
    delay_s = [job_class.think.mean_s for job_class in network.classes]
    return rational.closed([job_class.population for job_class in network.classes], delay_s, demands_s, rates)


# Published answers.


@pytest.mark.parametrize("solver", [solve_convolution, solve_mva, solve_mixed])
def test_one_class_of_single_servers(solver):
    result = solver(closed_network({"a": 0.605, "b": 2.1, "c": 1.35}, 3, 15.0))
    assert result.throughput_per_s[0] == pytest.approx(0.15151649, abs=5e-9)
    assert result.response_s[0] == pytest.approx(4.79982478, abs=5e-9)
    assert result.station_queue_length == pytest.approx((0.097566, 0.394657, 0.235030), abs=5e-7)
    result = solver(closed_network({"a": 0.02, "b": 0.08, "c": 0.08, "d": 0.06}, 6))
    assert result.throughput_per_s[0] == pytest.approx(9.91983634, abs=5e-9)


def test_two_servers_and_a_delay_station():
    demands_s = {"a": 0.5, "b": 0.3, "c": 0.4, "away": 1.0}
    result = solve_convolution(closed_network(demands_s, 3, servers={"a": 2, "away": None}))
    assert result.throughput_per_s[0] == pytest.approx(1.21746063, abs=5e-9)
    assert result.station_queue_length == pytest.approx((0.623679, 0.472872, 0.685988, 1.217461), abs=5e-7)


@pytest.mark.parametrize(
    ("demands_s", "throughput", "lengths"),
    [
        ((2, 2), 0.84341, (2.9009, 3.3616, 1.7375)),
        ((2, 8), 0.48245, (0.8712, 1.1982, 5.9306)),
        ((4, 2), 0.49588, (0.9487, 6.0540, 0.9973)),
        ((1, 8), 0.49269, (0.9202, 0.5221, 6.5577)),
    ],
)
def test_stations_of_one_two_and_four_servers(demands_s, throughput, lengths):
    two, four = demands_s
    result = solve_convolution(
        closed_network({"one": 1, "two": two, "four": four}, 8, servers={"two": 2, "four": 4})
    )
    assert result.throughput_per_s[0] == pytest.approx(throughput, abs=5e-6)
    assert result.station_queue_length == pytest.approx(lengths, abs=5.1e-5)


@pytest.mark.parametrize(
    ("clients", "response_s"),
    [(10, 4.000157012), (30, 5.766437887), (50, 15.000022354), (90, 35.0), (1000, 490.0)],
)
def test_eight_servers_where_the_textbook_recursion_breaks(clients, response_s):
    result = solve_convolution(closed_network({"a": 4.0}, clients, 10.0, {"a": 8}))
    assert result.response_s[0] == pytest.approx(response_s, abs=5e-10)


def test_sixty_four_servers_where_the_textbook_recursion_turns_negative():
    result = solve_convolution(closed_network({"a": 0.0045}, 192, 0.0012, {"a": 64}))
    assert result.throughput_per_s[0] == pytest.approx(14222.2, abs=0.05)


@pytest.mark.parametrize("solver", [solve_convolution, solve_mva, solve_mixed])
def test_two_classes_of_single_servers(solver):
    result = solver(shared([1, 1], [(1, 3), (2, 4)]))
    assert result.throughput_per_s == pytest.approx((3 / 19, 2 / 19), rel=1e-12)
    result = solver(shared([15, 5], [(0.025,), (0.5,)], [1.0, 15.0]))
    assert result.throughput_per_s == pytest.approx((14.32312, 0.313799), abs=5e-6)
    result = solver(shared([10, 25], [(1, 0.09), (0.1, 0.9)], [0.0, 30.0]))
    assert result.throughput_per_s == pytest.approx((0.92646573, 0.73534236), abs=5e-9)


@pytest.mark.parametrize("solver", [solve_convolution, solve_mva])
def test_the_example_of_chandy_and_neuse(solver):
    """Linearizer (1982): eight customers with a delay of 8 and a queue of 1, and one who never leaves the queue."""
    stations = (
        Station("away", {"first": 8.0}, servers=None),
        Station("queue", {"first": 1.0, "second": 1.0}),
    )
    visits = {"first": {"away": 1, "queue": 1}, "second": {"queue": 1}}
    result = solver(Network((JobClass("first", 8), JobClass("second", 1)), stations, visits))
    assert result.queue_length[:, 0] == pytest.approx((5.2266, 2.7734), abs=5e-5)
    assert result.queue_length[:, 1] == pytest.approx((0.0, 1.0), rel=1e-12)


def test_the_field_report_with_two_populations():
    result = solve_convolution(a16())
    assert result.throughput_per_s == pytest.approx((19718, 806), abs=0.5)
    response_ms = 1e3 * (result.response_s + np.array([5.654e-3, 5.712e-3]))
    assert response_ms == pytest.approx((8.67, 11.17), abs=5e-3)


def test_a_station_and_clients_who_think():
    result = solve_convolution(closed_network({"a": 0.63}, 100, 300.0))
    assert result.throughput_per_s[0] == pytest.approx(0.33245315, abs=5e-9)
    assert result.response_s[0] == pytest.approx(0.79425969, abs=5e-9)
    result = solve_convolution(closed_network({"a": 0.25}, 3, 2.0, {"a": 2}))
    assert result.throughput_per_s[0] == pytest.approx(1.33241947, abs=5e-9)
    result = solve_convolution(closed_network({"a": 0.444}, 400, 0.0, {"a": 300}))
    assert result.throughput_per_s[0] == pytest.approx(675.6757, abs=5e-5)
    assert result.response_s[0] == pytest.approx(0.5920, abs=5e-5)


# Rational arithmetic.


@pytest.mark.parametrize("seed", range(30))
def test_convolution_equals_rational_arithmetic(seed):
    network = random_network(seed)
    throughput, lengths, present = exactly(network)
    result = solve_convolution(network)
    assert result.throughput_per_s == pytest.approx([float(rate) for rate in throughput], rel=1e-12)
    for index, station in enumerate(network.stations):
        assert result.queue_length[index] == pytest.approx(
            [float(x) for x in lengths[index]], rel=1e-11, abs=1e-15
        )
        if station.name in result.present_probability:
            found = result.present_probability[station.name]
            assert found == pytest.approx(
                [float(x) for x in present[index][: len(found)]], rel=1e-11, abs=1e-15
            )
            assert not any(present[index][len(found) :])


@pytest.mark.parametrize("clients", [90, 400])
def test_large_populations_equal_decimals(clients):
    """Where rounding adds up: many servers, and demands that are close to each other."""
    servers = {"a": 1, "b": 8, "c": 30}
    demands_s = {"a": 0.4, "b": 3.3, "c": 12.1}
    speeds = [range(1, count + 1) for count in servers.values()]
    throughput, lengths, busy = rational.closed_chain(clients, 5.0, list(demands_s.values()), speeds)
    result = solve_convolution(closed_network(demands_s, clients, 5.0, servers))
    assert result.throughput_per_s[0] == pytest.approx(throughput, rel=1e-12)
    assert result.station_queue_length == pytest.approx(lengths, rel=1e-11)
    found = [result.present_probability[name][1:].sum() for name in servers]
    assert found == pytest.approx(busy, rel=1e-11)


def test_a_thousand_servers_and_ten_thousand_customers():
    """Against the birth-death chain in decimals of fifty digits; and fast."""
    clients, servers, service_s, think_s = 10_000, 1000, 0.0045, 0.041
    with localcontext() as context:
        context.prec = 50
        weight, total, busy, present = Decimal(1), Decimal(1), Decimal(0), Decimal(0)
        for n in range(1, clients + 1):
            weight *= (clients - n + 1) * Decimal(service_s) / (Decimal(think_s) * min(n, servers))
            total, busy, present = total + weight, busy + min(n, servers) * weight, present + n * weight
        throughput, length = float(busy / total / Decimal(service_s)), float(present / total)
    started = time.perf_counter()
    result = solve_convolution(closed_network({"a": service_s}, clients, think_s, {"a": servers}))
    assert time.perf_counter() - started < 2
    assert result.throughput_per_s[0] == pytest.approx(throughput, rel=1e-10)
    assert result.station_queue_length[0] == pytest.approx(length, rel=1e-10)
    assert result.utilisation[0, 0] < 0.9999


@pytest.mark.parametrize("seed", range(20))
def test_convolution_equals_mean_values(seed):
    network = random_network(seed, servers=False)
    first, second = solve_convolution(network), solve_mva(network)
    for quantity in ("throughput_per_s", "response_s", "queue_length", "station_waiting_s", "utilisation"):
        assert getattr(first, quantity) == pytest.approx(
            getattr(second, quantity), rel=1e-10, abs=1e-13, nan_ok=True
        )


def test_hundreds_of_customers_equal_mean_values():
    network = shared([120, 60], [(0.3, 0.1, 0.2), (0.05, 0.4, 0.2)], [1.0, 3.0])
    first, second = solve_convolution(network), solve_mva(network)
    assert first.throughput_per_s == pytest.approx(second.throughput_per_s, rel=1e-11)
    assert first.queue_length == pytest.approx(second.queue_length, rel=1e-10)
    network = closed_network({str(index): 0.1 + 0.01 * index for index in range(12)}, 3000, 5.0)
    assert solve_convolution(network).queue_length == pytest.approx(
        solve_mva(network).queue_length, rel=1e-10
    )


# Laws.


def test_as_many_servers_as_customers_are_a_delay():
    many = solve_convolution(three_tiers().with_station("store", servers=12))
    more = solve_convolution(three_tiers().with_station("store", servers=5000))
    delay = solve_convolution(three_tiers().with_station("store", servers=None))
    assert many.throughput_per_s == pytest.approx(delay.throughput_per_s, rel=1e-13)
    assert more.queue_length == pytest.approx(delay.queue_length, rel=1e-12)
    assert many.station_waiting_s[1] == pytest.approx(0.0, abs=1e-15)


def test_servers_are_rates_that_rise_by_one():
    servers = solve_convolution(three_tiers().with_station("store", servers=3))
    rates = solve_convolution(
        three_tiers().with_station("store", servers=1, rates=(1, 2, 3), discipline="ps")
    )
    assert servers.queue_length == pytest.approx(rates.queue_length, rel=1e-13)
    assert servers.station_waiting_s == pytest.approx(rates.station_waiting_s, rel=1e-12)
    assert rates.utilisation[1, 0] == pytest.approx(1 - rates.present_probability["store"][0], rel=1e-12)


def test_rates_that_fall_again_have_a_product_form_too():
    rates = (1.0, 1.8, 2.4, 2.0, 1.5)
    network = with_rates().with_station("shared", rates=rates)
    throughput, lengths, _ = exactly(network)
    result = solve_convolution(network)
    assert result.throughput_per_s[0] == pytest.approx(float(throughput[0]), rel=1e-12)
    assert result.queue_length[0, 0] == pytest.approx(float(lengths[0][0]), rel=1e-12)


def test_tiny_waiting_is_not_rounded_away():
    """P(wait) is about 1e-19 here: response less service would be nothing but rounding."""
    queue = ClosedMMc(clients=40, servers=30, service_s=0.1, think_s=1.9)
    result = solve_convolution(repairmen(40, 30, 0.1, 1.9))
    waiting = float(queue.probabilities @ np.maximum(np.arange(41) - 30, 0)) / queue.throughput_per_s
    assert 0 < result.station_waiting_s[0, 0] < 1e-19
    assert result.station_waiting_s[0, 0] == pytest.approx(waiting, rel=1e-9)


def test_the_response_time_of_repairmen_has_a_distribution():
    result = solve_convolution(repairmen())
    queue = ClosedMMc(20, 4, 0.2, 1.0)
    assert result.response_quantile_s(0.95) == pytest.approx(queue.response_quantile_s(0.95), rel=1e-12)
    with pytest.raises(AssumptionError, match="simulate"):
        solve_convolution(three_tiers()).response_quantile_s(0.95)


# Bad input.


def test_a_lattice_that_is_too_large_is_refused_with_its_size():
    network = shared([999] * 3, [(0.1, 0.2)] * 3)
    with pytest.raises(AssumptionError, match=r"1,000,000,000; use linearizer, or simulate$"):
        solve_convolution(network)
    with pytest.raises(AssumptionError, match=r"1,000,000,000 times 2; use linearizer, or simulate$"):
        solve_mva(network)


def test_chains_that_never_meet_need_no_lattice():
    clients, names = 9_000, ("one", "two", "three")
    stations = tuple(Station(name, {name: 0.1}) for name in names)
    classes = tuple(JobClass(name, clients, 800.0) for name in names)
    result = solve_convolution(Network(classes, stations, {name: {name: 1} for name in names}))
    alone = solve_convolution(closed_network({"one": 0.1}, clients, 800.0))
    assert result.throughput_per_s == pytest.approx([alone.throughput_per_s[0]] * 3, rel=1e-13)


def test_chains_that_meet_only_through_a_third():
    stations = (Station("left", {"a": 0.2, "c": 0.2}), Station("right", {"b": 0.3, "c": 0.3}))
    visits = {"a": {"left": 1}, "b": {"right": 1}, "c": {"left": 1, "right": 1}}
    network = Network(tuple(JobClass(name, 4, 0.5) for name in visits), stations, visits)
    assert solve_convolution(network).queue_length == pytest.approx(
        solve_mva(network).queue_length, rel=1e-12
    )


def test_a_class_that_takes_no_time_is_refused():
    with pytest.raises(ModelError, match=r"^class 'request': has no service and no think time"):
        solve_convolution(closed_network({"a": 0.0}, 3))


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        ({"service": {"request": Service(0.04, 2.0, "gamma")}}, "exponential service"),
        ({"capacity": 5}, "room for every request"),
        ({"batch": 3}, "one request at a time"),
        ({"discipline": "priority"}, "has priority over another"),
    ],
)
def test_networks_without_a_product_form_are_refused(change, fact):
    network = three_tiers().with_station("store", servers=1).with_station("disk", **change)
    for solver in (solve_convolution, solve_mva, solve_mixed):
        with pytest.raises(AssumptionError, match=fact):
            solver(network)


def test_mean_values_refuse_what_convolution_takes():
    with pytest.raises(
        AssumptionError, match=r"^mva: assumes one server at each station, but station 'store' has 2$"
    ):
        solve_mva(three_tiers())
    with pytest.raises(AssumptionError, match=r"^mva: assumes that a station's speed does not depend"):
        solve_mva(with_rates())


def test_different_service_in_one_line_is_refused():
    with pytest.raises(AssumptionError, match="the same service time for all classes"):
        solve_convolution(shared([2, 2], [(0.1,), (0.2,)], discipline="fcfs"))
