"""Several load generators: each client and key is assigned once, they start together, and gates judge the worst one."""

import dataclasses
import json
import sys

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import Truth, write_trial

from waylab.analysis import analyse
from waylab.plan import make_plan
from waylab.runfolder.files import read_run
from waylab.spec import Assignment, Load, Spec
from waylab.testbed import Testbed, find_programs, running_system
from waylab.testbed.generators import generators
from waylab.testbed.processes import Process, TestbedError, pause_when_connected

SUMMARIES = ["load-0.json", "load-1.json"]


def a_trial(count, **load):
    spec = Spec(name="x", load=Load(**load), assignment=Assignment(load=("a",) * count))
    return make_plan(spec).trials[0]


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 9), st.integers(0, 50), st.integers(9, 100), st.integers(9, 200))
def test_every_client_and_every_key_goes_to_one_generator(count, minimum, keys, clients):
    trial = a_trial(count, clients=clients, key_minimum=minimum, key_maximum=minimum + keys - 1)
    shares = generators(trial)
    assert len(shares) == count and sum(share.clients for share in shares) == clients
    given_out = [key for share in shares for key in range(share.key_minimum, share.key_maximum + 1)]
    assert given_out == list(range(minimum, minimum + keys))
    for part in ([share.clients for share in shares], [s.key_maximum - s.key_minimum for s in shares]):
        assert max(part) - min(part) <= 1
    assert len({share.seed for share in shares}) == count and shares[0].seed == trial.seed


def test_a_single_generator_keeps_its_name_and_settings():
    (alone,) = generators(a_trial(0))
    assert (alone.name, alone.summary) == ("load", "load.json")
    assert [share.summary for share in generators(a_trial(2))] == SUMMARIES


def test_generators_use_backends_round_robin_and_start_together(fake, tmp_path):
    trial = a_trial(3, test_time_s=0.3, warm_up_s=0.1, clients=7)
    backends = dataclasses.replace(trial.system.backends, count=2, server="embedded")
    system = dataclasses.replace(trial.system, kind="direct", backends=backends)
    trial = dataclasses.replace(trial, system=system)
    with running_system(trial, find_programs(set()), tmp_path, Testbed()) as system:
        addresses = system.start_servers()
        assert len(addresses) == 2
        system.prefill(addresses)
        loads = system.start_load(addresses)
        # It has received SIGCONT: the paused process has become the program, or is about to.
        assert all(load.wait(30) and load.exit_code == 0 for load in loads)
    servers = [load.command[load.command.index("--server") + 1] for load in loads]
    assert servers == [addresses[0], addresses[1], addresses[0]]
    assert [load.command[load.command.index("--clients") + 1] for load in loads] == ["3", "2", "2"]
    assert all("--no-prefill" in load.command for load in loads)
    assert [process.name for process in system.processes[2:5]] == ["fill-0", "fill-1", "fill-2"]


def test_without_a_proxy_at_most_one_backend_per_generator_starts(fake, tmp_path):
    trial = a_trial(1)
    trial = dataclasses.replace(trial, system=dataclasses.replace(trial.system, kind="direct"))
    with running_system(trial, find_programs(set()), tmp_path, Testbed()) as system:
        assert len(system.start_servers()) == 1


def gate_of(empty_run, name, overlap, shares):
    """Analyse a run of two generators, and return one gate of its first trial."""
    for planned in read_run(empty_run).plan:
        trial = write_trial(empty_run, planned, Truth(share=0.3))
        result = json.loads((trial / "trial.json").read_text()) | {"generators_overlap": overlap}
        (trial / "trial.json").write_text(json.dumps(result))
        load = json.loads((trial / "load.json").read_text())
        (trial / "load.json").write_text(
            json.dumps(load | {"parts": [{"cpu": load["cpu"] | {"share": s}} for s in shares]})
        )
    first = analyse(empty_run).trials[0]
    return next(gate for gate in first.gates if gate.name == name)


@pytest.mark.parametrize(("overlap", "passed"), [(None, None), (0.97, True), (0.9, False)])
def test_generators_must_measure_at_the_same_time(empty_run, overlap, passed):
    gate = gate_of(empty_run, "generators", overlap, [])
    assert gate.passed is passed
    assert overlap is None or f"at the same time for {100 * overlap:.1f} % of their windows" in gate.text


def test_the_gate_judges_the_busiest_generator(empty_run):
    gate = gate_of(empty_run, "generator_cpu", 1.0, [0.1, 0.9])
    assert gate.passed is False and gate.value == 0.9
    assert gate_of(empty_run, "generator_cpu", 1.0, [0.1, 0.2]).value == 0.3


def test_a_connected_generator_is_paused_and_one_that_exits_is_an_error(tmp_path):
    script = "import socket, time; kept = [socket.socket() for _ in range(3)]; time.sleep(60)"
    early = Process("early", [sys.executable, "-c", script], tmp_path)
    failing = Process("failing", [sys.executable, "-c", "raise SystemExit('connection refused')"], tmp_path)
    try:
        pause_when_connected([(early, 3)])
        # The kernel stops the signalled process a moment later; this raises if it does not.
        early.wait_until_paused()
        assert psutil.Process(early.pid).status() == psutil.STATUS_STOPPED
        with pytest.raises(
            TestbedError, match="failing: ended with 1 before it was connected: connection refused"
        ):
            pause_when_connected([(early, 3), (failing, 1)])
    finally:
        early.stop()
        failing.stop()
    assert not early.killed


def test_the_time_to_connect_is_on_the_time_scale(tmp_path, monkeypatch):
    """216 clients of a host that is 57 ms away connect in 25 s, one after the other."""
    monkeypatch.setattr("waylab.testbed.processes.READY_WITHIN_S", 0.1)
    script = "import socket, time; time.sleep(0.4); kept = socket.socket(); time.sleep(60)"
    slow = Process("slow", [sys.executable, "-c", script], tmp_path)
    try:
        with pytest.raises(TestbedError, match=r"slow: not connected within 0\.1 s"):
            pause_when_connected([(slow, 1)])
        pause_when_connected([(slow, 1)], time_scale=100)
    finally:
        slow.stop()
