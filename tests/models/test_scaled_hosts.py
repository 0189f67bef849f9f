"""The layered model on emulated hosts: quotas of CPU time, groups of equal hosts, delays, links and readers."""

import dataclasses
import math
from types import SimpleNamespace

import numpy as np
import pytest

from waylab.errors import LabError
from waylab.fit.interface import RefusedFitError
from waylab.fit.layered import LayeredModel
from waylab.fit.layered.demands import network_of
from waylab.fit.layered.links import link_bytes
from waylab.fit.layered.network import Centre, CycleNetwork, solve_cycles
from waylab.fit.layered.sharing import crowding
from waylab.fit.observations import ModelSettings, TrialObservation, changed_settings
from waylab.fit.observations.hosts import placement_of
from waylab.models import JobClass, Network, Service, Station, solve
from waylab.predict.runs import explain_run, fit_runs, judge_runs
from waylab.predict.runs.judge import run_scores
from waylab.predict.runs.splits import run_hold_outs

WORK_S, QUOTA, AWAY_S = 50e-6, 0.02, 0.1


def one_host(clients: int, queues: int = 1, copies: int = 1) -> CycleNetwork:
    """Threads on hosts that have a fiftieth of a core each, and a delay."""
    centre = Centre("proxy", queues, 1, 1, WORK_S, WORK_S, "small")
    return CycleNetwork((centre,), (("small", QUOTA),), AWAY_S, clients, quotas=(("small", copies),))


def test_work_that_is_alone_runs_at_full_speed_and_a_quota_limits_the_throughput():
    few, many = solve_cycles([one_host(1)]), solve_cycles([one_host(200)])
    assert few.response_s[0] == pytest.approx(AWAY_S + WORK_S, rel=1e-3)
    assert many.throughput_per_s[0] == pytest.approx(QUOTA / WORK_S, rel=1e-3)
    assert many.host_use[0, 0] == pytest.approx(1, abs=1e-3)
    # Whoever is not away waits for the quota.
    assert many.present[0, 0] == pytest.approx(200 - AWAY_S * QUOTA / WORK_S, rel=0.01)


def test_equal_hosts_do_not_share_their_cores():
    """Three servers on hosts of their own can do three times as much as one, and never borrow from each other."""
    three = solve_cycles([one_host(600, queues=3, copies=3)])
    assert three.throughput_per_s[0] == pytest.approx(3 * QUOTA / WORK_S, rel=0.01)
    together = dataclasses.replace(one_host(600, queues=3), cores=(("small", 3 * QUOTA),))
    assert solve_cycles([together]).throughput_per_s[0] == pytest.approx(3 * QUOTA / WORK_S, rel=0.02)


def test_hosts_with_few_and_with_many_threads_are_solved_together():
    """Without a warning: what the smaller host cannot have is no number that overflows."""
    with np.errstate(all="raise", under="ignore"):
        stretch = crowding(np.array([[1.0], [60.0]]), np.array([[1.0], [59.999]]), np.array([[0.5], [0.5]]))
    assert stretch[:, 0] == pytest.approx([2, 120], rel=1e-3)


def proxy_settings(clients: int = 100, **others: object) -> ModelSettings:
    """A proxy with its own small host before servers on hosts of their own, behind long links."""
    base = ModelSettings(
        clients=clients,
        proxies=1,
        servers=3,
        value_bytes=128,
        outer_delay_s=0.1,
        inner_delay_s=0.05,
        hosts=(("backends", "hosts of backends"), ("load", "client"), ("proxy", "middle")),
        cores=(("client", 0.1), ("hosts of backends", 0.05), ("middle", 0.02)),
        programs=(("hosts of backends", 1),),
    )
    return dataclasses.replace(base, **others)


def test_further_servers_bring_further_hosts():
    network = network_of(proxy_settings(servers=7), parameters(), 0.0)
    assert network.cores_of("hosts of backends") == pytest.approx(7 * 0.05)
    assert network.cores_of("middle") == pytest.approx(0.02)


def parameters(**others: float) -> dict[str, float]:
    found = {
        f"{role}.{name}": 1e-7 for role in ("load", "proxy", "backends") for name in ("batched_s", "alone_s")
    }
    return found | {"delay_s": 1e-6, "held": 0.0} | others


@pytest.mark.parametrize(("clients", "readers"), [(20, 8), (100, 8), (400, 8), (400, 1)])
def test_readers_are_servers_of_several_slots(clients: int, readers: int):
    """Beside the exact network of stations with so many servers each."""
    one = proxy_settings(clients, readers=readers)
    found = solve_cycles([network_of(one, parameters(), 0.0)])
    names = [f"server {place}" for place in range(3)]
    stations = (
        Station("away", {"get": one.outer_delay_s}, None),
        *(Station(name, {"get": one.inner_delay_s}, readers) for name in names),
    )
    visits = {"get": {"away": 1.0} | dict.fromkeys(names, 1 / 3)}
    exact = solve(Network((JobClass("get", clients, Service(0.0)),), stations, visits))
    assert found.throughput_per_s[0] == pytest.approx(exact.throughput_total_per_s, rel=0.06)
    assert found.throughput_per_s[0] <= 1.001 * 3 * readers / one.inner_delay_s


def test_a_reader_is_held_while_the_proxy_does_not_read_its_reply():
    """A proxy that has no time for replies makes the readers a limit, too."""
    values = parameters(**{"proxy.batched_s": 50e-6})
    one = proxy_settings(300, readers=8)
    free, held = (solve_cycles([network_of(one, values | {"held": share}, 0.0)]) for share in (0.0, 0.5))
    place = [centre.name for centre in network_of(one, values, 0.0).centres].index("readers")
    assert held.utilisation[0, place] > 1.15 * free.utilisation[0, place]


@pytest.mark.parametrize(
    ("writes", "group", "way", "measured"),
    [
        # Seconds of utilised link for each request, times its rate, in trials of the proxy with values of 4 KiB.
        (0.0, "hosts of backends", "up", 4328),
        (1.0, "hosts of backends", "up", 141),
        (1.0, "middle", "up", 4543),
    ],
)
def test_bytes_of_links_are_those_that_were_measured(writes: float, group: str, way: str, measured: float):
    one = proxy_settings(value_bytes=4096, writes_share=writes, servers=1)
    assert link_bytes(one, group, way) == pytest.approx(measured, rel=0.03)


def test_what_stays_on_a_host_uses_no_link():
    one = proxy_settings(
        hosts=(("backends", "middle"), ("load", "client"), ("proxy", "middle")), value_bytes=4096
    )
    apart = proxy_settings(value_bytes=4096)
    assert link_bytes(one, "middle", "down") < 0.1 * link_bytes(apart, "middle", "down")


def test_a_full_link_limits_the_throughput():
    one = proxy_settings(400, value_bytes=4096, links=(("hosts of backends", "up", 625_000.0),))
    found = solve_cycles([network_of(one, parameters(), 0.0)])
    assert found.throughput_per_s[0] == pytest.approx(
        3 * 625_000 / link_bytes(one, "hosts of backends", "up"), rel=0.02
    )


def planned(servers: int, hosts: int) -> SimpleNamespace:
    names = [f"server-{place}" for place in range(1, hosts + 1)]
    return SimpleNamespace(
        assignment={"load": ["client-1", "client-2"], "proxy": ["middle"], "backends": names},
        description=SimpleNamespace(programs={"proxy": 1, "backends": servers}),
        load=SimpleNamespace(threads=2),
        time_scale=20.0,
    )


DESCRIBED = {
    "middle": {"cores": 0.4, "up_mbit": 800},
    **{f"client-{place}": {"cores": 2, "delay_ms": 2.5} for place in (1, 2)},
    **{
        f"server-{place}": {"cores": 1, "core_speed": 0.5, "delay_ms": 1.4, "up_mbit": 100}
        for place in range(1, 8)
    },
}


def test_hosts_are_read_in_the_time_of_this_machine():
    found = placement_of(planned(3, 7), DESCRIBED, 2)
    assert found.cores == pytest.approx(
        {"machine": 2.0, "hosts of load": 0.1, "middle": 0.02, "hosts of backends": 0.025}
    )
    assert found.outer_delay_s == pytest.approx(2 * 20 * 2.5e-3)
    assert found.inner_delay_s == pytest.approx(2 * 20 * 1.4e-3)
    assert found.links == pytest.approx({("middle", "up"): 5e6, ("hosts of backends", "up"): 625_000.0})
    # Two threads of a generator on each host; one server on each of its own.
    assert found.programs == {"hosts of load": 2, "hosts of backends": 1}


def test_runs_with_other_numbers_of_hosts_are_of_one_system():
    """A specification with five servers lists five hosts, and one with three to seven lists seven."""
    assert placement_of(planned(5, 5), DESCRIBED, 2) == placement_of(planned(5, 7), DESCRIBED, 2)


def trial(one: ModelSettings, random: np.random.Generator, noise: float = 0.02) -> TrialObservation:
    """A trial of a system whose truth is the network itself."""
    truth = parameters(**{"proxy.batched_s": 20e-6, "proxy.alone_s": 60e-6, "held": 0.4})
    network = network_of(one, truth, 0.0)
    # As in the measured proxy, the CPU time falls with the root of what waits.
    centres = tuple(dataclasses.replace(centre, power=0.5) for centre in network.centres)
    found = solve_cycles([dataclasses.replace(network, centres=centres)])
    rate = float(found.throughput_per_s[0]) * math.exp(noise * random.standard_normal())
    names = [centre.name for centre in network.centres]
    return TrialObservation(
        run="known",
        trial="t",
        configuration=f"clients={one.clients}, servers={one.servers}, readers={one.readers}",
        block=1,
        role="",
        settings=one,
        throughput_per_s=rate,
        response_s=one.clients / rate,
        responses_s={"all": one.clients / rate},
        percentiles_s={"all": {"50": 0.9 * one.clients / rate, "95": 1.5 * one.clients / rate}},
        stages_s={},
        cpu_s={"proxy": float(found.cpu_s[0, names.index("proxy")])},
    )


@pytest.fixture(scope="module")
def known() -> list[TrialObservation]:
    """Two trials of each configuration of a proxy on scaled hosts."""
    random = np.random.default_rng(1)
    sizes = [(clients, 5) for clients in (20, 100, 180, 260, 400)] + [(180, 3), (180, 7)]
    settings = [proxy_settings(clients, servers=servers, readers=24) for clients, servers in sizes]
    return [trial(one, random) for one in settings for _ in range(2)]


def test_clients_beyond_half_are_predicted_with_intervals(known: list[TrialObservation]):
    _, judged = judge_runs(known, split="clients")
    scores = {one.model: one for one in run_scores(judged)}
    chosen = scores["chosen"]
    assert chosen.throughput[0] < 0.05 and chosen.response[0] < 0.05
    assert chosen.throughput_coverage >= 0.5
    assert chosen.p95 is not None and chosen.p95[0] < 0.1 and chosen.p95_coverage is not None
    assert chosen.throughput[0] < scores["usl"].throughput[0]
    row = next(one for one in judged if one.model == "chosen").as_row()
    assert row["split"] == "clients" and row["held_out"] == "clients > 180"
    low, high = row["response_p95_interval_s"]
    assert low < row["response_p95_predicted_s"] < high


def test_each_number_of_servers_is_held_out_in_turn(known: list[TrialObservation]):
    found = run_hold_outs(known, "servers")
    assert [(one.factor, one.level) for one in found] == [("servers", level) for level in ("3", "5", "7")]
    for one in found:
        assert {x.settings.servers for x in one.held} == {int(one.level)}
        assert int(one.level) not in {x.settings.servers for x in one.known}


def test_a_factor_with_one_level_cannot_be_split(known: list[TrialObservation]):
    with pytest.raises(LabError, match=r"--split levels.*one level each; measure a second"):
        judge_runs(known, split="levels")
    alone = [one for one in known if one.settings.clients == 180]
    with pytest.raises(LabError, match=r"--split clients.*measure a second number of clients"):
        judge_runs(alone, split="clients")


def test_a_hold_out_that_leaves_too_little_is_refused_with_the_reason(known: list[TrialObservation]):
    """The others of the split are judged nevertheless."""
    few = [one for one in known if one.settings.servers == 3 or one.settings.clients >= 180]
    _, judged = judge_runs(few, split="servers")
    refused = [one for one in judged if one.refused and one.held_out == "servers 5" and one.model == "chosen"]
    assert refused and all("too few" in one.refused and "measure" in one.refused for one in refused)
    assert any(one.predicted is not None for one in judged if one.held_out == "servers 7")


def test_service_times_with_and_without_are_fitted_together():
    """A level without a service time has the same centres as one with it."""
    random = np.random.default_rng(2)
    settings = [
        proxy_settings(clients, readers=0, service_s=service_s)
        for clients in (20, 100)
        for service_s in (0.0, 2e-3)
    ]
    values = parameters(**{"service.factor": 1.0})
    found = solve_cycles([network_of(one, values, 0.0) for one in settings])
    trials = [
        dataclasses.replace(
            trial(one, random), throughput_per_s=float(rate), response_s=one.clients / float(rate)
        )
        for one, rate in zip(settings, found.throughput_per_s, strict=True)
    ]
    fitted = LayeredModel().fit(trials)
    for one in trials:
        assert fitted.predict(one.settings).throughput_per_s.value == pytest.approx(
            one.throughput_per_s, rel=0.05
        )


def test_one_load_needs_a_second_pool():
    random = np.random.default_rng(3)
    same = [trial(proxy_settings(200, servers=servers), random) for servers in (3, 5, 7)]
    with pytest.raises(
        RefusedFitError, match="two different loads or pools; measure another number of clients"
    ):
        LayeredModel().fit(same)


def test_trials_on_other_hosts_are_of_another_system(known: list[TrialObservation]):
    here = dataclasses.replace(
        known[0].settings,
        clients=50,
        hosts=tuple((role, "machine") for role in ("backends", "load", "proxy")),
    )
    with pytest.raises(RefusedFitError, match=r"other hosts.*fit each apart"):
        LayeredModel().fit([*known, dataclasses.replace(known[0], settings=here)])


def test_the_explanation_names_hosts_and_no_way(known: list[TrialObservation]):
    fitted = fit_runs(known, models=[LayeredModel()])
    found = explain_run(fitted, proxy_settings(400, servers=5, readers=24))
    assert found.limits[0].name == "CPU of middle"
    assert all("way" not in one.name for one in found.limits)
    assert found.gains[0].change == "twice the cores of middle"
    assert sum(part.time_s for part in found.parts) == pytest.approx(found.prediction.response_s.value)


def test_readers_can_be_set():
    assert changed_settings(proxy_settings(readers=8), {"readers": "32"}).readers == 32
    with pytest.raises(LabError, match="the measured system has none"):
        changed_settings(proxy_settings(), {"readers": "32"})
