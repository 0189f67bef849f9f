"""Processes: they start, their failures are one line, and none remains after any failure."""

import dataclasses
import os
import signal
import time

import psutil
import pytest

from waylab.errors import LabError
from waylab.plan import make_plan
from waylab.spec import read_spec
from waylab.testbed import Testbed, find_programs, running_system
from waylab.testbed.processes import Process, TestbedError


def gone(pids):
    """Return whether the processes have exited; the kernel may take a moment."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        alive = [pid for pid in pids if psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie"]
        if not alive:
            return True
        time.sleep(0.02)
    return False


@pytest.fixture
def trial(spec_path):
    return make_plan(read_spec(spec_path)).trials[0]


def test_the_error_lists_the_searched_paths(monkeypatch, tmp_path):
    monkeypatch.setenv("WAYSTAGE_BIN", str(tmp_path / "none"))
    with pytest.raises(LabError, match=r"WAYSTAGE_BIN=.*none: not a program"):
        find_programs(set())
    monkeypatch.delenv("WAYSTAGE_BIN")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("waylab.program._PACKAGE", tmp_path / "a" / "waylab")
    with pytest.raises(LabError, match=r"make build.*target/release/waystage.*PATH"):
        find_programs(set())


def test_a_missing_memcached_is_an_error(fake, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LabError, match="memcached: not found on PATH"):
        find_programs({"memcached"})
    programs = find_programs({"auto"})
    assert programs.server_for("auto", "none") == "embedded"


def test_a_configured_service_time_selects_the_embedded_server(fake):
    programs = dataclasses.replace(find_programs({"auto"}), memcached="/usr/bin/memcached")
    assert programs.server_for("auto", "none") == "memcached"
    assert programs.server_for("auto", "exp:1ms") == "embedded"
    assert programs.server_for("embedded", "none") == "embedded"


def test_all_processes_start_and_stop(fake, trial, tmp_path):
    with running_system(trial, find_programs(set()), tmp_path, Testbed()) as testbed:
        (address,) = testbed.start_servers()
        pids = [process.pid for process in testbed.processes]
        assert [process.name for process in testbed.processes] == ["backend-0", "backend-1", "proxy"]
        assert address.startswith("127.0.0.1:") and all(process.running() for process in testbed.processes)
    assert gone(pids) and all(process.exit_code == 0 and not process.killed for process in testbed.processes)


@pytest.mark.parametrize(
    ("settings", "flags"),
    [
        ({}, ["--dispatch", "pipelined"]),
        (
            {"dispatch": "per-backend", "readers": 4, "workers": 9},
            ["--dispatch", "per-backend", "--readers", "4", "--writers", "1"],
        ),
        (
            {"dispatch": "shared", "workers": 8, "multi_get": "whole"},
            ["--dispatch", "shared", "--workers", "8", "--multi-get", "whole"],
        ),
    ],
)
def test_the_proxy_receives_its_discipline_and_only_its_own_slots(fake, trial, tmp_path, settings, flags):
    proxy = dataclasses.replace(trial.system.proxy, **settings)
    trial = dataclasses.replace(trial, system=dataclasses.replace(trial.system, proxy=proxy))
    with running_system(trial, find_programs(set()), tmp_path, Testbed()) as testbed:
        testbed.start_servers()
        command = testbed.processes[-1].command
    begin = command.index("--dispatch")
    assert command[begin : begin + len(flags)] == flags
    assert not {"--readers", "--writers", "--workers", "--multi-get"} & set(command[begin + len(flags) :])


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, SystemExit])
def test_no_process_remains_after_an_exception(fake, trial, tmp_path, error):
    pids = []
    with pytest.raises(error), running_system(trial, find_programs(set()), tmp_path, Testbed()) as testbed:
        testbed.start_servers()
        pids += [process.pid for process in testbed.processes]
        raise error
    assert pids and gone(pids)


def test_a_program_that_exits_at_once_is_an_error(fake, trial, tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_FAIL", "proxy")
    with (
        pytest.raises(
            TestbedError, match="proxy: ended with 1 before it was ready: waystage: FAKE_FAIL makes"
        ),
        running_system(trial, find_programs(set()), tmp_path, Testbed()) as testbed,
    ):
        testbed.start_servers()
    assert gone([process.pid for process in testbed.processes])


def test_a_program_that_ignores_the_request_to_stop_is_killed_with_its_children(tmp_path, monkeypatch):
    monkeypatch.setattr("waylab.testbed.processes.STOP_WITHIN_S", 0.3)
    script = "trap '' TERM; sleep 60 & echo ready on 127.0.0.1:1; while true; do sleep 1; done"
    process = Process("stubborn", ["sh", "-c", script], tmp_path)
    assert process.wait_until_ready() == "127.0.0.1:1"
    children = [child.pid for child in psutil.Process(process.pid).children(recursive=True)]
    process.stop()
    assert process.killed and process.exit_code == -9 and children and gone([process.pid, *children])


def test_a_program_that_is_never_ready_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr("waylab.testbed.processes.READY_WITHIN_S", 0.2)
    process = Process("slow", ["sleep", "60"], tmp_path)
    with pytest.raises(TestbedError, match=r"slow: not ready within 0.2 s"):
        process.wait_until_ready()
    process.stop()
    assert gone([process.pid])


def test_a_missing_program_is_an_error(tmp_path):
    with pytest.raises(TestbedError, match="none: /does/not/exist cannot be started: No such file"):
        Process("none", ["/does/not/exist"], tmp_path)


def test_the_output_of_a_process_is_kept(tmp_path):
    process = Process("talker", ["sh", "-c", "echo out; echo err >&2"], tmp_path)
    assert process.wait(5)
    process.stop()
    assert (tmp_path / "talker.stdout").read_text() == "out\n" and process.last_error_line() == ": err"
    assert os.WEXITSTATUS(0) == process.exit_code


def test_a_signal_during_the_start_of_a_process_is_not_lost(tmp_path):
    armed = [True]

    def send_once():
        if armed:
            armed.clear()
            os.kill(os.getpid(), signal.SIGTERM)

    class StoppedError(Exception):
        pass

    def stop(number, frame):
        raise StoppedError

    # An exception raised here, inside `fork`, would be dropped by Python.
    os.register_at_fork(before=send_once)
    previous = signal.signal(signal.SIGTERM, stop)
    try:
        with pytest.raises(StoppedError):
            Process("sleeper", ["sleep", "60"], tmp_path)
    finally:
        signal.signal(signal.SIGTERM, previous)
