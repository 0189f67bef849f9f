"""The explanation of a result: the right bottleneck, and claims that are true for the changed network."""

import random
import re
from dataclasses import replace

import numpy as np
import pytest
from networks import EVERY, a16, a16_switching, open_tandem, open_two_classes, with_rates

from waylab.models import (
    MM1,
    MM1K,
    AssumptionError,
    ClosedMMc,
    MMm,
    ModelError,
    Pool,
    Route,
    UnstableError,
    closed_network,
    open_network,
    solve,
)
from waylab.models.description import JobClass, Station
from waylab.models.network import Network
from waylab.models.service import Service
from waylab.models.summary.explain import LINES_MAX, explain
from waylab.models.summary.findings import find, knee_clients, limit_of
from waylab.models.summary.findings_rows import findings_as_dict, sweep_as_dicts
from waylab.models.summary.result import response_mean_s, result_as_dict, station_loads
from waylab.models.sweep import changed, sweep

KNOWN_DEMANDS_S = {"a": 0.02, "b": 0.08, "c": 0.08, "d": 0.06}


def random_closed(seed):
    draw = random.Random(seed)
    names = [f"station {index}" for index in range(draw.randint(2, 6))]
    demands_s = {name: draw.uniform(0.001, 0.1) for name in names}
    servers = {name: draw.choice([1, 1, 2, 4]) for name in names}
    return closed_network(demands_s, draw.randint(3, 60), draw.uniform(0, 0.5), servers)


def slowest(network):
    """The station with the largest demand per server, and so the highest utilisation, for every solver."""
    return max(network.stations, key=lambda station: station.service["request"].mean_s / station.servers).name


def line(text, beginning):
    return next(line for line in text.splitlines() if line.startswith(beginning))


def claimed(sentence, what):
    """The relative change that a sentence claims."""
    if f"{what} hardly changes" in sentence:
        return 0.0
    if found := re.search(rf"([\d.,]+) times the {what}", sentence):
        return float(found[1].replace(",", "")) - 1
    found = re.search(rf"([\d,]+) % (more|less|longer|shorter) {what}", sentence)
    size = float(found[1].replace(",", "")) / 100
    return size if found[2] in ("more", "longer") else -size


def check_claim(sentence, before, after):
    for what, ratio in (
        ("throughput", after.throughput_total_per_s / before.throughput_total_per_s),
        ("response time", response_mean_s(after) / response_mean_s(before)),
    ):
        assert claimed(sentence, what) == pytest.approx(ratio - 1, abs=0.0051, rel=0.006), sentence


@pytest.mark.parametrize("seed", range(12))
def test_the_bottleneck_and_every_claim_hold(seed):
    network = random_closed(seed)
    before = solve(network)
    text = explain(before)
    worst = slowest(network)
    assert text.startswith(f"The bottleneck is '{worst}': ")
    assert len(text.splitlines()) <= LINES_MAX and "nan" not in text
    station = network.station(worst)
    faster = {"request": Service(station.service["request"].mean_s / 2)}
    changes = {
        "Twice the servers": network.with_station(worst, servers=2 * station.servers),
        "Half the service time": network.with_station(worst, service=faster),
    }
    clients = network.population
    for word, factor in (("fewer", 0.75), ("more", 1.25)):
        new = round(factor * clients)
        if new != clients:
            share = f"{100 * abs(new / clients - 1):.0f} %"
            changes[f"{share} {word} clients ({new})"] = network.with_class("request", population=new)
    for beginning, after in changes.items():
        sentence = line(text, beginning)
        result = solve(after)
        check_claim(sentence, before, result)
        if slowest(after) == worst:
            assert "it stays the bottleneck" in sentence
        else:
            assert f"then the bottleneck is '{slowest(after)}'" in sentence


@pytest.mark.parametrize("seed", range(6))
def test_the_share_of_the_time_at_the_bottleneck(seed):
    network = random_closed(seed)
    result = solve(network)
    findings = find(result)
    index = network.station_names.index(slowest(network))
    there_s = result.station_response_s[index, 0]
    waiting_s = there_s - network.stations[index].service["request"].mean_s
    assert findings.time_share == pytest.approx(there_s / result.response_mean_s, rel=1e-9)
    assert findings.waiting_share == pytest.approx(waiting_s / there_s, rel=1e-6, abs=1e-9)
    assert findings.longest[1] >= findings.time_share * (1 - 1e-12)


def test_bound_and_knee_of_the_known_network():
    network = closed_network(KNOWN_DEMANDS_S, 6, think_s=1.0)
    findings = find(solve(network))
    assert findings.bound_per_s == pytest.approx(1 / 0.08, rel=1e-9)
    assert findings.knee_clients == pytest.approx((0.24 + 1.0) / 0.08, rel=1e-9)
    assert findings.limit.names == ("b", "c")
    assert "The knee lies at 15.5 clients, and there are 6: below it" in explain(solve(network))
    many = explain(solve(network.with_class("request", population=200)))
    assert "above it, so that more clients only wait longer" in many


def test_with_rates_the_load_counts_and_not_the_presence():
    network = with_rates(40)
    result = solve(network)
    assert result.station_utilisation[0] > 0.99
    # 2.5 is the highest rate: 0.1 s / 2.5 against 0.04 s.
    assert station_loads(result) == pytest.approx([result.throughput_total_per_s * 0.04] * 2, rel=1e-9)
    slower = network.with_station("single", service={"request": 0.05})
    assert limit_of(solve(slower)).names == ("single",)
    faster = network.with_station("single", service={"request": 0.02})
    assert explain(solve(faster)).startswith("The bottleneck is 'shared': ")
    assert "of its highest speed used" in explain(solve(faster))


def test_stations_that_are_alike_are_one_bottleneck():
    text = explain(solve(a16()))
    assert text.startswith("The bottlenecks are 'writer0' and 4 others like it: 50 % busy each.")
    assert "(set " in text.splitlines()[0]
    twice = replace(
        a16(),
        stations=tuple(
            replace(station, servers=2) if station.name.startswith("writer") else station
            for station in a16().stations
        ),
    )
    check_claim(line(text, "Twice the servers at each of them (2)"), solve(a16()), solve(twice))
    assert "'reader0' and 4 others like it" in line(text, "Twice the servers")


def test_one_population_has_a_knee_and_two_have_none():
    assert knee_clients(solve(a16())) is None
    result = solve(a16_switching())
    alone = solve(a16_switching(1)).throughput_total_per_s
    bound_per_s = result.throughput_total_per_s / station_loads(result).max()
    assert knee_clients(result) == pytest.approx(bound_per_s / alone, rel=1e-9)


def test_an_open_network_and_its_room_to_grow():
    network = open_two_classes(0.9)
    text = explain(solve(network))
    growth = find(solve(network)).arrivals_growth
    assert text.startswith("The bottleneck is 'disk'")
    for factor, holds in ((0.999 * growth, True), (1.001 * growth, False)):
        grown = replace(
            network,
            classes=tuple(
                replace(part, arrivals_per_s=factor * part.arrivals_per_s) for part in network.classes
            ),
        )
        if holds:
            solve(grown)
        else:
            with pytest.raises(UnstableError):
                solve(grown)
    assert f"can grow by {100 * (growth - 1):.0f} %" in text
    assert "25 % more arrivals: no steady state" in text


def test_open_claims_hold():
    before = solve(open_tandem())
    after = solve(open_tandem(6.0 * 1.25))
    sentence = line(explain(before), "25 % more arrivals")
    ratio = response_mean_s(after) / response_mean_s(before)
    assert claimed(sentence, "response time") == pytest.approx(ratio - 1, abs=0.0051)
    assert "throughput" not in sentence


def test_a_network_of_delays_has_no_bottleneck():
    network = open_network({"away": 0.3}, 2.0, {"away": None})
    text = explain(solve(network))
    assert text.startswith("There is no bottleneck") and find(solve(network)).changes[0].limit.kind == "none"


@pytest.mark.parametrize("name", EVERY)
def test_every_shared_network_is_explained(name):
    try:
        result = solve(EVERY[name]())
    except AssumptionError:
        pytest.skip("no solver but simulation")
    text = explain(result)
    assert 3 <= len(text.splitlines()) <= LINES_MAX
    assert not re.search(r"nan|inf\b|None|array", text), text
    content = findings_as_dict(find(result))
    assert content["limit"]["kind"] in ("station", "pool", "none")


def test_a_full_pool_is_the_bottleneck():
    network = EVERY["slots"]()
    result = solve(network)
    full = replace(result, pool_busy=np.array([3.99]), pool_waiting_s=np.array([[0.02]]))
    assert limit_of(full).names == ("workers",)
    text = explain(full)
    assert text.startswith("The bottleneck is the pool 'workers': 99.8 % of its slots are busy")
    assert "A request waits 20 ms for a slot." in text
    more = replace(network, pools=(Pool("workers", 8, ("cpu", "backend")),))
    check_claim(line(text, "Twice the slots (8)"), result, solve(more))
    assert "Half the service time at 'backend'" in text or "Half the service time at 'cpu'" in text


def test_a_simulated_result_needs_its_simulation():
    result = replace(solve(closed_network(KNOWN_DEMANDS_S, 6)), kind="simulation", method="simulation")
    with pytest.raises(ModelError, match="simulat"):
        explain(result)
    text = explain(result, lambda network: replace(solve(network), kind="simulation", method="simulation"))
    check_claim(line(text, "33 % more clients (8)"), result, solve(closed_network(KNOWN_DEMANDS_S, 8)))


def test_a_queue_in_words():
    text = explain(MM1(0.8, 1.0))
    assert "busy 80 % of the time" in text and "A response takes 5 s on average: 4 s waiting" in text
    ratio = MMm(0.8, 1.0, 2).response_mean_s / 5
    assert claimed(line(text, "Twice the servers (2)"), "response time") == pytest.approx(
        ratio - 1, abs=0.0051
    )
    assert "25 % more arrivals: no steady state" in text
    closed = ClosedMMc(100, 1, 0.63, 300.0)
    more = ClosedMMc(125, 1, 0.63, 300.0)
    sentence = line(explain(closed), "25 % more clients (125)")
    assert claimed(sentence, "throughput") == pytest.approx(
        more.throughput_per_s / closed.throughput_per_s - 1, abs=0.0051
    )
    assert "find no room" in explain(MM1K(0.9, 1.0, 3))


def test_a_sweep_follows_each_parameter():
    network = closed_network(KNOWN_DEMANDS_S, 6, think_s=0.5)
    values = list(range(1, 40, 3))
    results = sweep(network, "clients", values)
    throughput = [result.throughput_total_per_s for result in results]
    assert throughput == sorted(throughput)
    assert [result.response_mean_s for result in results] == sorted(r.response_mean_s for r in results)
    rows = sweep_as_dicts(values, results)
    assert rows[5]["value"] == 16 and rows[-1]["limit"] == "b" and len(rows) == len(values)
    assert solve(network).throughput_total_per_s == pytest.approx(
        sweep(network, "b.service", [1.0])[0].throughput_total_per_s
    )
    for parameter, falls in (("b.servers", False), ("b.service", True), ("request.think_s", True)):
        found = [r.throughput_total_per_s for r in sweep(network, parameter, [1, 2, 4, 8])]
        assert found == sorted(found, reverse=falls), parameter
    open_found = sweep(open_tandem(), "request.arrivals_per_s", [1, 2, 4])
    assert [r.throughput_total_per_s for r in open_found] == pytest.approx([1, 2, 4])
    assert changed(EVERY["slots"](), "workers.slots", 9).pools[0].slots == 9


def test_clients_keep_their_proportions():
    network = a16()
    assert [part.population for part in changed(network, "clients", 360).classes] == [342, 18]
    for clients in (2, 3, 7, 50, 181):
        found = [part.population for part in changed(network, "clients", clients).classes]
        assert sum(found) == clients and min(found) >= 1
        assert abs(found[0] - clients * 0.95) <= 1


@pytest.mark.parametrize(
    ("parameter", "value", "message"),
    [
        ("clients", 0, "at least 1"),
        ("clients", 2.5, "whole number"),
        ("nothing.servers", 2, "is none of clients"),
        ("a.slots", 2, "is none of clients"),
        ("a.servers", 0, "servers"),
        ("a.service", 0, "factor above 0"),
        ("request.think_s", -1, "finite number"),
        ("request.population", 1.5, "whole number"),
        ("clients", "six", "must be a number"),
    ],
)
def test_a_sweep_refuses(parameter, value, message):
    with pytest.raises(ModelError, match=message):
        changed(closed_network(KNOWN_DEMANDS_S, 6), parameter, value)


def test_a_sweep_says_at_which_value_a_network_is_unstable():
    with pytest.raises(UnstableError, match=r"request\.arrivals_per_s = 40"):
        sweep(open_tandem(), "request.arrivals_per_s", [1, 40])
    with pytest.raises(ModelError, match="open"):
        sweep(open_tandem(), "clients", [1])
    with pytest.raises(ModelError, match="at least one value"):
        sweep(open_tandem(), "clients", [])


def test_measured_times_keep_their_shape():
    times = Service.empirical((0.01, 0.02, 0.06))
    network = closed_network({"a": 0.02}, 3).with_station("a", service={"request": times}, discipline="ps")
    slower = changed(network, "a.service", 2).station("a").service["request"]
    assert slower.values_s == pytest.approx((0.02, 0.04, 0.12))
    assert slower.squared_variation == pytest.approx(times.squared_variation)


def test_a_result_as_plain_numbers():
    content = result_as_dict(solve(open_two_classes(0.9)))
    assert content["throughput_per_s"] == pytest.approx(0.9 * 5 / 19)
    disk = content["stations"][1]
    assert disk["utilisation"] == pytest.approx(0.9 * 0.894737, abs=1e-6)
    assert [part["visits"] for part in disk["classes"]] == pytest.approx([1, 1])
    assert disk["queue_length"] == pytest.approx(sum(part["queue_length"] for part in disk["classes"]))
    assert disk["response_s"] == pytest.approx(disk["waiting_s"] + disk["service_s"])


def test_a_class_that_changes_on_the_way_has_no_share():
    stations = (Station("a", {"x": 0.1, "y": 0.1}), Station("b", {"x": 0.2, "y": 0.2}))
    routes = (
        Route("x", "client", "a"),
        Route("x", "a", "b", to_class="y"),
        Route("y", "b", "client", to_class="x"),
    )
    network = Network((JobClass("x", 3), JobClass("y")), stations, routes=routes)
    findings = find(solve(network))
    assert findings.class_time_shares == {} and findings.limit.names == ("b",)
    content = result_as_dict(solve(network))
    assert content["stations"][1]["classes"][0]["visits"] is None
