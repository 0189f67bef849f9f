"""Several proxies, twemproxy instead of them, several backends without a proxy: their processes and results."""

import dataclasses
import json
import os
import shutil
import stat

import pytest
from made import made_configuration, made_stages, made_system
from msgspec import convert
from synthetic import WINDOW_S, Truth, joined_records, record_bytes, response_mean_ns, write_trial

from waylab.analysis import analyse
from waylab.analysis.trial.links import hosts_in_use
from waylab.errors import LabError
from waylab.fit.slots import fit_slots
from waylab.plan import make_plan, trial_as_dict
from waylab.run import create_run
from waylab.runfolder.files import read_run
from waylab.runfolder.run import PlannedTrial
from waylab.spec import Assignment, Backends, Load, Proxy, Spec, System, read_spec
from waylab.testbed import Testbed, find_programs, programs_of, running_system
from waylab.testbed.programs import SYSTEM_PROGRAMS
from waylab.testbed.systems.nutcracker import nutcracker_file

WITH_SYSTEM_PROGRAMS = f"{os.environ['PATH']}:{SYSTEM_PROGRAMS}"
HEAD = 'question = "q"\nhypothesis = "h"\nrefuted_by = [{ metric = "failed_trials", above = 0 }]\n'


def a_trial(generators=1, clients=8, **system):
    system = {"backends": Backends(count=3, server="embedded")} | system
    spec = Spec(
        name="x",
        system=System(**system),
        load=Load(clients=clients, test_time_s=0.2, warm_up_s=0.1),
        assignment=Assignment(load=("a",) * generators),
    )
    return make_plan(spec).trials[0]


def commands(trial, directory):
    """Start a system with its load, and return the commands by process name."""
    with running_system(trial, programs_of((trial,)), directory, Testbed()) as system:
        addresses = system.start_servers()
        loads = system.start_load(addresses)
        assert all(load.wait(30) and load.exit_code == 0 for load in loads)
        return addresses, {process.name: process.command for process in system.processes}


def values_of(command, name):
    return [command[index + 1] for index, part in enumerate(command) if part == name]


def test_several_proxies_share_backends_and_the_load_uses_all_proxies(fake, tmp_path):
    addresses, found = commands(a_trial(proxy=Proxy(count=2)), tmp_path)
    assert list(found) == ["backend-0", "backend-1", "backend-2", "proxy-0", "proxy-1", "load"]
    behind = values_of(found["proxy-0"], "--server")
    assert len(behind) == 3 and behind == values_of(found["proxy-1"], "--server")
    assert values_of(found["load"], "--server") == addresses and len(addresses) == 2
    assert values_of(found["load"], "--distribution") == ["any"]


def test_generators_start_with_different_servers(fake, tmp_path):
    addresses, found = commands(a_trial(generators=3, proxy=Proxy(count=2)), tmp_path)
    first = [values_of(found[f"load-{index}"], "--server")[0] for index in range(3)]
    assert first == [addresses[0], addresses[1], addresses[0]]
    assert all(sorted(values_of(found[f"load-{i}"], "--server")) == sorted(addresses) for i in range(3))


def test_the_load_sends_to_a_single_proxy(fake, tmp_path):
    addresses, found = commands(a_trial(), tmp_path)
    assert values_of(found["load"], "--server") == addresses and "--distribution" not in found["load"]
    assert "proxy" in found


def test_without_a_proxy_every_client_selects_backends_by_key(fake, tmp_path):
    addresses, found = commands(a_trial(kind="direct", direct_to="all"), tmp_path)
    assert len(addresses) == 3 and values_of(found["load"], "--server") == addresses
    # With several servers the load generator selects one by key by default.
    assert "--distribution" not in found["load"]


def test_twemproxy_gets_a_file_with_the_key_distribution_of_our_own_proxy():
    text = nutcracker_file(Proxy(backend_timeout="250ms"), "127.0.0.1:1", ["127.0.0.1:2", "127.0.0.1:3"])
    lines = [line.strip() for line in text.splitlines()]
    assert {"listen: 127.0.0.1:1", "hash: md5", "distribution: ketama", "timeout: 250"} <= set(lines)
    assert lines[-2:] == ["- 127.0.0.1:2:1", "- 127.0.0.1:3:1"]


def test_twemproxy_replaces_the_proxy(fake, tmp_path, monkeypatch):
    double = tmp_path / "bin" / "nutcracker"
    double.parent.mkdir()
    double.write_text("#!/bin/sh\nexec sleep 60\n")
    double.chmod(double.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{double.parent}:/usr/bin:/bin")
    monkeypatch.setattr("waylab.testbed.hosts.Host.answers", lambda host, port: True)
    trial = a_trial(kind="nutcracker", proxy=Proxy(count=2))
    addresses, found = commands(trial, tmp_path / "trial")
    assert found["proxy-1"][0] == str(double)
    described = (tmp_path / "trial" / "proxy-1.yml").read_text()
    assert f"listen: {addresses[1]}" in described and described.count(":1\n") == 3
    assert values_of(found["proxy-0"], "--stats-port") != values_of(found["proxy-1"], "--stats-port")


def test_a_missing_twemproxy_is_an_error(fake, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("waylab.testbed.programs.SYSTEM_PROGRAMS", str(tmp_path))
    with pytest.raises(LabError, match="nutcracker: not found on PATH; install twemproxy"):
        find_programs(set(), frozenset({"nutcracker"}))


def test_the_real_twemproxy_serves_a_load(tmp_path):
    if not shutil.which("nutcracker", path=WITH_SYSTEM_PROGRAMS):
        assert "WAYSTAGE_REQUIRE_PEERS" not in os.environ, "nutcracker is required here"
        pytest.skip("nutcracker is not installed; the test above uses a double")
    trial = a_trial(kind="nutcracker", proxy=Proxy(count=2))
    with running_system(trial, programs_of((trial,)), tmp_path, Testbed()) as system:
        (load,) = system.start_load(system.start_servers())
        assert load.wait(30) and load.exit_code == 0, load.last_error_line()
    found = json.loads((tmp_path / "load.json").read_text())
    assert found["totals"]["hits"] > 0 and found["totals"]["errors"] == 0
    proxies = [process for process in system.processes if process.name.startswith("proxy")]
    assert len(proxies) == 2 and all(one.exit_code in (0, -15) and not one.killed for one in proxies)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '[system]\nkind = "nutcracker"\n[system.proxy]\nreplicas = 2',
            'system.kind = "nutcracker" keeps one replica',
        ),
        ("[system.proxy]\ncount = 9\n[load]\nclients = 8", "system.proxy.count = 9: more than the 8 clients"),
        ('[system]\ndirect_to = "some"', "should be one of one, all"),
        ("[factors]\ncount = [1, 2]", "ambiguous: system.backends.count or system.proxy.count"),
    ],
)
def test_an_invalid_system_raises_one_line(tmp_path, text, message):
    path = tmp_path / "x.toml"
    path.write_text(HEAD + text)
    with pytest.raises(LabError) as caught:
        read_spec(path)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_only_hosts_with_a_process_are_in_use():
    assignment = Assignment(load=("c",), proxy=("m1", "m2"), backends=("s1", "s2", "s3"))
    for system, used in [
        (System(backends=Backends(count=2)), ["c", "m1", "s1", "s2"]),
        (System(kind="nutcracker", proxy=Proxy(count=2)), ["c", "m1", "m2", "s1", "s2", "s3"]),
        (System(kind="direct"), ["c", "s1"]),
        (System(kind="direct", direct_to="all"), ["c", "s1", "s2", "s3"]),
    ]:
        assert assignment.hosts(system.programs(1)) == used
        trial = dataclasses.replace(a_trial(), system=system, assignment=assignment)
        assert hosts_in_use(convert(trial_as_dict(trial), PlannedTrial)) == used


@pytest.fixture
def two_proxies(fake, tmp_path):
    """A run folder of a system with two proxies, each with its own half of the records."""
    text = HEAD + '[system.backends]\nserver = "embedded"\n[system.proxy]\ncount = 2\n[load]\nsample = 1\n'
    path = tmp_path / "two.toml"
    path.write_text(text + "test_time_s = 2.0\n[design]\nblocks = 1\n")
    directory = create_run(path, tmp_path / "results").directory
    truth = Truth(cpu_s={"proxy-0": 0.8, "proxy-1": 0.4, "backend-0": 0.2})
    (planned,) = read_run(directory).plan
    trial = write_trial(directory, planned, truth)
    client, proxy = joined_records(truth, response_mean_ns(truth, planned.load.clients, 0.0))
    sample = round(truth.throughput_per_s * WINDOW_S / len(client))
    proxy["port"][::2], client["port"][::-2] = 41000, 41000
    (trial / "records" / "load-2.way").write_bytes(record_bytes("load", client, sample=sample))
    for index in range(2):
        content = record_bytes("proxy", proxy[index::2], sample=sample)
        (trial / "records" / f"proxy-{index + 1}.way").write_bytes(content)
    return directory, trial


def test_the_records_of_all_proxies_are_joined(two_proxies):
    content = analyse(two_proxies[0]).trials[0]
    assert content.used, content.reasons
    assert content.numbers.stages["all"].count == 400 and content.numbers.proxy_view.joined == 400


def test_the_cpu_time_of_proxies_is_summed_over_the_role(two_proxies):
    trial = analyse(two_proxies[0]).trials[0]
    assert trial.numbers.cpu.cpu_s["proxy"] == pytest.approx(1.2, rel=1e-3)


def test_a_missing_or_surplus_record_file_fails_the_trial(two_proxies):
    directory, trial = two_proxies
    records = trial / "records" / "proxy-2.way"
    shutil.copyfile(records, records.with_name("proxy-3.way"))
    assert "one record file of proxy too many" in analyse(directory).trials[0].reasons[0]
    records.unlink()
    records.with_name("proxy-3.way").unlink()
    assert "proxy: 1 of 2 left records" in analyse(directory).trials[0].reasons[0]


@pytest.mark.parametrize(("dispatch", "slots"), [("shared", 16), ("per-backend", 24)])
def test_slots_are_summed_over_all_proxies(dispatch, slots):
    system = System(proxy=Proxy(dispatch=dispatch, workers=8, readers=4, loops=1, count=2))
    stages = {"all": made_stages(send=1e6, backend=1e6, total=1e6)}
    configuration = made_configuration(system=made_system(system), stages=stages)
    assert fit_slots(configuration).parameters.servers == slots
