"""The simulation called from Python: known answers, every field of the result, records, and errors of one line."""

import json
import re
import stat
from pathlib import Path

import numpy as np
import pytest

from waylab.errors import LabError
from waylab.models.description import Fork, JobClass, Pool, Route, Station
from waylab.models.errors import ModelError, UnstableError
from waylab.models.network import Network, closed_network, open_network
from waylab.models.network_file import network_from_dict, write_network
from waylab.models.service import Service
from waylab.models.simulate import simulate
from waylab.records import read_records

ROOT = Path(__file__).parents[2]
SHORT = {"replications": 10, "requests": 20_000, "warm_up": 4_000}


def near(result, name, index, truth):
    """The truth lies within twice the half-width, and the half-width is small."""
    mean, half_width = getattr(result, name)[index], result.half_widths[name][index]
    assert abs(mean - truth) <= 2 * half_width, f"{name}: {mean} +- {half_width} is not {truth}"
    assert half_width <= 0.07 * truth


def replicated(population=6):
    """Everything at once: classes that switch, a delay, sharing, a fork, a pool, a full station."""
    return Network(
        classes=(
            JobClass("get", population, Service.erlang(1.0, 2)),
            JobClass("set", think=Service.deterministic(1.0)),
        ),
        stations=(
            Station("net", {"get": 0.1, "set": 0.1}, servers=None),
            Station("cpu", {"get": 0.05, "set": Service.empirical((0.05, 0.15))}, discipline="ps", servers=2),
            Station("x", {"get": 0.2, "set": 0.2}, capacity=2, when_full="block"),
            Station("y", {"set": Service.of_variation(0.2, 2.0)}, rates=(1.0, 1.5)),
        ),
        visits={"get": {"net": 1, "cpu": 1, "x": 1}, "set": {"net": 1, "cpu": 2, "both": 1}},
        switching={"get": {"get": 0.9, "set": 0.1}, "set": {"get": 1.0}},
        forks=(Fork("both", ("x", "y"), "all", 0.01),),
        pools=(Pool("workers", 3, ("cpu",)),),
    )


def test_an_open_queue():
    result = simulate(open_network({"s": 1.0}, 0.7), **SHORT | {"requests": 30_000})
    assert (result.kind, result.method) == ("simulation", "simulation")
    near(result, "response_s", 0, 1 / 0.3)
    near(result, "throughput_per_s", 0, 0.7)
    near(result, "queue_length", (0, 0), 0.7 / 0.3)
    near(result, "station_waiting_s", (0, 0), 0.7 / 0.3)
    near(result, "utilisation", (0, 0), 0.7)
    np.testing.assert_allclose(result.present_probability["s"][:5], 0.3 * 0.7 ** np.arange(5), rtol=0.05)
    # The response time is exponential.
    for share in (0.25, 0.5, 0.9, 0.9502, 0.99):
        assert result.response_quantile_s(share) == pytest.approx(-np.log(1 - share) / 0.3, rel=0.05)
    assert result.lost_per_s[0] == 0


def test_a_closed_network():
    result = simulate(closed_network({"a": 0.605, "b": 2.1, "c": 1.35}, 3, 15.0), **SHORT)
    near(result, "throughput_per_s", 0, 0.15151649)
    near(result, "response_s", 0, 4.79982478)
    near(result, "queue_length", (1, 0), 0.394657)
    assert result.notes[0] == "10 replications of 20000 requests after a warm-up of 4000; intervals of 95 %"


def test_everything_has_its_place_in_the_result():
    result = simulate(replicated(), **SHORT)
    assert set(result.quantiles) == {"get", "set"}
    assert result.fork_response_s.shape == result.pool_waiting_s.shape == (1, 2)
    assert np.isnan(result.fork_response_s[0, 0]) and result.fork_response_s[0, 1] > 0.2
    assert np.isnan(result.station_response_s[3, 0]) and result.station_throughput_per_s[3, 0] == 0
    assert 0 < result.pool_busy[0] <= 3
    for name, half_width in result.half_widths.items():
        values = getattr(result, name)
        assert half_width.shape == values.shape, name
        assert (np.isnan(half_width) == np.isnan(values)).all(), name
    # Little's law for the whole network: customers think for a second on average, or are in the system.
    assert result.throughput_per_s @ (result.response_s + 1.0) == pytest.approx(6, rel=0.01)
    share = result.throughput_per_s[1] / result.throughput_total_per_s
    assert share == pytest.approx(0.1 / 1.1, rel=0.03)


def test_a_network_with_open_classes_and_loss():
    network = Network(
        classes=(JobClass("a", arrivals_per_s=2.0, arrival_squared_variation=1.0),),
        stations=(Station("s", {"a": 1.0}, capacity=3),),
        routes=(Route("a", "client", "s"), Route("a", "s", "client")),
    )
    result = simulate(network, **SHORT)
    near(result, "lost_per_s", 0, 2 * 8 / 15)
    assert result.fork_response_s is None and result.pool_busy is None


def test_the_seed_decides_everything_but_threads_nothing():
    first = simulate(replicated(), seed=5, threads=1, **SHORT)
    again = simulate(replicated(), seed=5, threads=2, **SHORT)
    other = simulate(replicated(), seed=6, **SHORT)
    assert (first.response_s == again.response_s).all() and (first.response_s != other.response_s).all()


def test_precision_adds_replications():
    result = simulate(open_network({"s": 1.0}, 0.7), requests=5_000, replications=4, precision=0.02)
    assert result.half_widths["response_s"][0] <= 0.02 * result.response_s[0]
    assert int(result.notes[0].split()[0]) > 4


def test_records_are_read_by_the_lab(tmp_path):
    stamps = {
        "received": "enter net",
        "dispatched": "acquire workers",
        "sent": "start cpu",
        "answered": "leave cpu",
    }
    result = simulate(replicated(), records=tmp_path, stamps=stamps, **SHORT)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *(f"cache-{index}.way" for index in range(4)),
        "load-0.way",
        "proxy-0.way",
    ]
    load = read_records(tmp_path / "load-0.way")
    assert load.header.clock == "simulated" and load.dropped == load.lost == 0
    gets = load.rows[load.rows["operation"] == 1]
    assert load.total_ns(gets).mean() / 1e9 == pytest.approx(result.response_s[0], rel=0.05)
    keys = load.rows["port"].astype(np.int64) << 32 | load.rows["sequence"]
    assert len(np.unique(keys)) == len(keys) >= 24_000
    delay = read_records(tmp_path / "cache-0.way")
    assert delay.interval_ns(delay.rows, "wait").max() == 0
    assert delay.interval_ns(delay.rows, "service").mean() / 1e9 == pytest.approx(0.1, rel=0.03)
    # Both legs of a fork can be present only if there is room for two.
    legs = read_records(tmp_path / "cache-3.way").rows
    assert set(legs["leg"]) == {1} and set(legs["legs"]) == {2}
    proxy = read_records(tmp_path / "proxy-0.way")
    assert proxy.interval_ns(proxy.rows, "admit").max() == 0
    waiting_s = proxy.interval_ns(proxy.rows, "queue").sum() / 1e9
    assert waiting_s > 0


def test_the_sample_is_kept(tmp_path):
    simulate(open_network({"s": 1.0}, 0.5), records=tmp_path, sample=20, **SHORT)
    rows = read_records(tmp_path / "load-0.way").rows
    assert 900 < len(rows) < 1_600


def test_an_unstable_model_raises():
    with pytest.raises(
        UnstableError, match=r"station 's': is unstable: utilisation 1\.2 is not below 1"
    ) as caught:
        simulate(open_network({"s": 1.0}, 1.2))
    assert caught.value.utilisation == pytest.approx(1.2)


def test_an_error_of_the_program_raises_a_model_error():
    full = Station("one", {"a": 1.0}, capacity=1, when_full="block")
    network = Network(
        classes=(JobClass("a", population=2),),
        stations=(full, Station("two", {"a": 1.0}, capacity=1, when_full="block")),
        routes=(
            Route("a", "client", "one"),
            Route("a", "one", "two"),
            Route("a", "two", "one", 0.5),
            Route("a", "two", "client", 0.5),
        ),
    )
    with pytest.raises(ModelError, match="are full and wait for room at each other"):
        simulate(network, **SHORT)
    with pytest.raises(ModelError, match="replications: must be from 2"):
        simulate(replicated(), replications=1)


def test_a_share_beyond_the_table_is_refused():
    result = simulate(open_network({"s": 1.0}, 0.5), replications=2, requests=1_000, warm_up=10)
    with pytest.raises(
        ModelError, match=r"must lie between 0\.001 and 0\.9999 of a simulation, not 0\.99999"
    ):
        result.response_quantile_s(0.99999)


def test_a_missing_program_raises_one_line(tmp_path, monkeypatch):
    network = open_network({"s": 1.0}, 0.5)
    with pytest.raises(ModelError, match="cannot be started: No such file"):
        simulate(network, program=tmp_path / "waystage")
    monkeypatch.setenv("WAYSTAGE_BIN", str(tmp_path))
    with pytest.raises(LabError, match="not a program; build it with `make build`"):
        simulate(network)
    # Another program of that name.
    other = tmp_path / "waystage"
    other.write_text('#!/bin/sh\necho \'{"format": "other/1"}\'\n')
    other.chmod(other.stat().st_mode | stat.S_IXUSR)
    with pytest.raises(ModelError, match="writes 'other/1', not 'waystage-simulation/1'"):
        simulate(replicated(), program=other)
    other.write_text("#!/bin/sh\nexit 3\n")
    with pytest.raises(ModelError, match="exited with code 3"):
        simulate(replicated(), program=other)


def test_the_example_of_the_format_is_a_model(tmp_path):
    page = (ROOT / "docs/model-format.md").read_text(encoding="utf-8")
    example = json.loads(re.search(r"```json\n(.*?)```", page, re.DOTALL).group(1))
    network = network_from_dict(example)
    write_network(network, tmp_path / "model.json")
    result = simulate(network, **SHORT)
    # A replicated write waits for the slowest of three servers, each at least as slow as an idle one.
    assert result.fork_response_s[0, 1] > 0.0004 * (1 + 1 / 2 + 1 / 3)
