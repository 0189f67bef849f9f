"""Fixtures of the lab's tests: a fake program, a small specification, a synthetic run folder."""

import socket
import sys
from pathlib import Path

import pytest
from synthetic import Truth, write_trial

from waylab.analysis import analyse
from waylab.predict import predict
from waylab.report import write_report
from waylab.run import create_run
from waylab.runfolder.files import read_run

SPEC = """
name = "synthetic"
question = "Is the lab right?"
hypothesis = "It is <b>right</b> & exact."
refuted_by = [{ metric = "failed_trials", above = 0 }]
[system.backends]
count = 2
server = "embedded"
[system.proxy]
sample = 1
[load]
test_time_s = 2.0
warm_up_s = 1.0
[factors]
clients = [4, 16]
replicas = [1, 2]
[design]
blocks = 3
seed = 7
[[compare]]
factor = "replicas"
baseline = 1
candidate = 2
metric = "throughput_per_s"
margin = 0.5
"""
# The effect of each block on the truth, as a factor.
BLOCKS = {1: 0.98, 2: 1.0, 3: 1.03}
REPLICAS = {"1": 1.0, "2": 0.9}
CLIENTS = {"4": 10_000.0, "16": 20_000.0}


def true_throughput(planned: dict) -> float:
    levels = planned.levels
    return CLIENTS[levels["clients"]] * REPLICAS[levels["replicas"]] * BLOCKS[planned.block]


@pytest.fixture
def fake(tmp_path_factory, monkeypatch) -> Path:
    """Replace the real program with the fake one."""
    return put_fake(tmp_path_factory, monkeypatch)


def put_fake(tmp_path_factory, monkeypatch) -> Path:
    program = tmp_path_factory.mktemp("bin") / "waystage"
    program.write_text(
        f'#!/bin/sh\nexec "{sys.executable}" "{Path(__file__).with_name("fake_waystage.py")}" "$@"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("WAYSTAGE_BIN", str(program))
    return program


@pytest.fixture
def spec_path(tmp_path) -> Path:
    path = tmp_path / "synthetic.toml"
    path.write_text(SPEC)
    return path


@pytest.fixture
def empty_run(fake, spec_path, tmp_path) -> Path:
    """A run folder with a plan and no trials."""
    return create_run(spec_path, tmp_path / "results").directory


@pytest.fixture
def run_folder(empty_run) -> Path:
    """A complete run folder whose true values are known."""
    for planned in read_run(empty_run).plan:
        write_trial(empty_run, planned, Truth(throughput_per_s=true_throughput(planned)))
    return empty_run


@pytest.fixture(scope="session")
def reported(tmp_path_factory) -> Path:
    """A run folder with its report. Tests share it, because drawing all figures takes seconds."""
    with pytest.MonkeyPatch.context() as patch:
        put_fake(tmp_path_factory, patch)
        place = tmp_path_factory.mktemp("reported")
        spec = place / "synthetic.toml"
        spec.write_text(SPEC)
        directory = create_run(spec, place / "results").directory
        for planned in read_run(directory).plan:
            write_trial(directory, planned, Truth(throughput_per_s=true_throughput(planned)))
        analyse(directory)
        predict(directory)

        def refuse(*arguments, **settings):
            raise AssertionError("the report needs no network")

        patch.setattr(socket.socket, "connect", refuse)
        write_report(directory)
    return directory
