"""Runs survive kills at any moment, a full disk, a clock that jumps and a machine that is too small.

`WAYSTAGE_KILLS=20 pytest tests/lab/test_robust.py` kills this many times, with the real program at random moments.
"""

import contextlib
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time

import psutil
import pytest
from synthetic import Truth, write_trial

from waylab.analysis import analyse
from waylab.cli.block_rule import TrialJudge
from waylab.errors import LabError
from waylab.plan import make_plan
from waylab.program import find_waystage
from waylab.run import campaign as campaign_module
from waylab.run import create_run, resume_run
from waylab.run import trial as trial_module
from waylab.runfolder.files import read_run, read_stopping
from waylab.spec import read_spec
from waylab.testbed.requirements import check_capacity

SPEC = """
name = "robust"
question = "q"
hypothesis = "h"
refuted_by = [{ metric = "failed_trials", above = 0 }]
[system.backends]
count = 1
server = "embedded"
[load]
test_time_s = 0.2
warm_up_s = 0.0
[factors]
clients = [1, 2]
[stopping]
precision = 1.0
blocks_min = 3
blocks_max = 3
[gates]
foreign_cpu_max = 1.0
steal_max = 1.0
generator_cpu_max = 1.5
interactive_law_max = 0.9
reason = "a test"
"""
# A lab without the report, because importing the report takes longer than the rest.
LAB = """
import sys
from pathlib import Path
from waylab.cli.block_rule import TrialJudge
from waylab.run import resume_run
campaign = resume_run(Path(sys.argv[1]))
campaign.run(lambda step: None, TrialJudge(campaign.directory, campaign.spec.stopping).decide)
"""


@pytest.fixture
def spec(tmp_path):
    path = tmp_path / "robust.toml"
    path.write_text(SPEC)
    return path


def go_on(directory):
    campaign = resume_run(directory)
    campaign.run(lambda step: None, TrialJudge(directory, campaign.spec.stopping).decide)


def finished(directory):
    return {path.parent.name: path.read_bytes() for path in directory.glob("trials/*/trial.json")}


def wait_for(condition, timeout_s=180):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def of_run(directory):
    """Return processes whose command names the run folder or that use a file in it, without this one."""
    found = []
    for process in psutil.process_iter(["cmdline", "pid"]):
        if process.info["pid"] != os.getpid() and str(directory) in " ".join(process.info["cmdline"] or []):
            found.append(process.info["cmdline"])
    return found


def seeds(directory):
    """Return the commands of every finished trial, without random parts: ports and paths."""
    kept = {}
    for name, content in finished(directory).items():
        commands = [process["command"] for process in json.loads(content)["processes"]]
        kept[name] = [command[command.index("--seed") + 1] for command in commands if "--seed" in command]
    return kept


def kill_when(directory, condition):
    with subprocess.Popen([sys.executable, "-c", LAB, str(directory)], stderr=subprocess.PIPE) as process:
        wait_for(lambda: condition() or process.poll() is not None)
        process.send_signal(signal.SIGKILL)
    wait_for(lambda: not of_run(directory))


def check_same(directory, whole):
    """Plan, seeds, decisions and analysis equal those of an uninterrupted run."""
    assert read_stopping(directory).stop
    shared = seeds(directory).keys() & seeds(whole).keys()
    assert len(shared) >= 6 and {n: seeds(directory)[n] for n in shared} == {
        n: seeds(whole)[n] for n in shared
    }
    assert read_run(directory, whole=True).plan == read_run(whole, whole=True).plan
    assert not list(directory.rglob("*.partial"))
    first, second = analyse(directory), analyse(directory)
    assert first == second and first.complete


def test_a_run_killed_repeatedly_gives_the_same_run(fake, spec, tmp_path):
    whole = create_run(spec, tmp_path / "whole").directory
    go_on(whole)
    directory = create_run(spec, tmp_path / "killed").directory
    kept = {}
    moments = [
        lambda: list(directory.glob("trials/*/logs/backend-0.stdout")),
        lambda: len(finished(directory)) == 1 and len(list(directory.glob("trials/*/logs/load.stdout"))) == 2,
        lambda: len(finished(directory)) == 4,
    ]
    for moment in moments:
        kill_when(directory, moment)
        now = finished(directory)
        assert kept.items() <= now.items(), "what was finished is not touched again"
        kept = now
    assert 4 <= len(kept) < 6
    go_on(directory)
    assert kept.items() <= finished(directory).items()
    check_same(directory, whole)


if "WAYSTAGE_KILLS" in os.environ:

    def test_the_real_program_survives_kills_at_random_moments(spec, tmp_path):
        find_waystage()
        whole = create_run(spec, tmp_path / "whole").directory
        go_on(whole)
        directory = create_run(spec, tmp_path / "killed").directory
        for number in range(int(os.environ["WAYSTAGE_KILLS"])):
            before = finished(directory)
            until = time.monotonic() + random.Random(number).uniform(0.3, 4.0)
            kill_when(directory, lambda until=until: time.monotonic() > until)
            assert before.items() <= finished(directory).items()
            if (read_stopping(directory) or {}).get("stop"):
                break
        go_on(directory)
        check_same(directory, whole)


@contextlib.contextmanager
def small_disk(path, size):
    """A small file system that fills up soon; needs root."""
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def mountable(tmp_path):
    with contextlib.suppress(OSError, subprocess.CalledProcessError), small_disk(tmp_path / "try", "64k"):
        return True
    return False


def test_a_full_disk_prints_one_line_and_the_run_resumes_when_there_is_room(
    fake, spec, tmp_path, monkeypatch
):
    if not mountable(tmp_path):
        pytest.skip("cannot mount a small file system here")
    monkeypatch.setattr(campaign_module, "_DISK_SPACE_BYTES", 0)
    with small_disk(tmp_path / "disk", "2m") as disk:
        directory = create_run(spec, disk).directory
        with (disk / "filler").open("wb", buffering=0) as filler, contextlib.suppress(OSError):
            while True:
                filler.write(b"x" * 4096)
        with pytest.raises(LabError) as caught:
            go_on(directory)
        line = str(caught.value)
        assert "No space left on device" in line and "\n" not in line and str(disk) in line
        assert not of_run(directory) and not list(directory.rglob("*.partial"))
        assert analyse_or_why(directory)
        (disk / "filler").unlink()
        go_on(directory)
        assert analyse(directory).complete


def analyse_or_why(directory):
    """The folder stays readable: the error is one line, and no file is incomplete."""
    assert read_run(directory).plan
    with pytest.raises(LabError, match="cannot be written: No space left on device"):
        analyse(directory)
    return not (directory / "analysis.json").exists()


def test_a_nearly_full_disk_is_detected_before_a_trial(fake, spec, tmp_path, monkeypatch):
    campaign = create_run(spec, tmp_path / "results")
    monkeypatch.setattr(campaign_module, "_DISK_SPACE_BYTES", 1 << 62)
    with pytest.raises(LabError, match=r"only \d+ MiB left on its disk.*waylab run --resume"):
        campaign.run(lambda step: None)
    assert not finished(campaign.directory)


def test_a_clock_jump_invalidates_the_trial(fake, spec, tmp_path, monkeypatch):
    campaign = create_run(spec, tmp_path / "results")

    class Jumping:
        """A wall clock that goes back an hour in the second trial."""

        calls = 0

        def __getattr__(self, name):
            return getattr(time, name)

        def time(self):
            Jumping.calls += 1
            return time.time() - (3600 if Jumping.calls == 4 else 0)

    monkeypatch.setattr(trial_module, "time", Jumping())
    monkeypatch.setattr(campaign_module, "_FAILURES_IN_A_ROW", 99)

    def two(step):
        if step.done == 2:
            raise KeyboardInterrupt

    with pytest.raises(LabError, match="stopped"):
        campaign.run(two)
    steps = sorted(json.loads(content)["clock_step_s"] for content in finished(campaign.directory).values())
    assert steps[0] == pytest.approx(-3600, abs=1) and abs(steps[1]) < 0.4
    judged = {trial.id: trial for trial in analyse(campaign.directory).trials if trial.run}
    reasons = [reason for trial in judged.values() for reason in trial.reasons if reason.startswith("clock")]
    assert len(reasons) == 1 and "against the monotonic one" in reasons[0]


def test_a_run_without_the_check_of_the_clock_can_still_be_read(fake, spec, tmp_path):
    directory = create_run(spec, tmp_path / "results").directory
    for planned in read_run(directory).plan:
        write_trial(directory, planned, Truth())
    gates = {gate.name: gate.passed for gate in analyse(directory).trials[0].gates}
    assert gates["clock"] is None


def test_trials_that_are_never_ready_fail_with_the_reason(fake, spec, tmp_path, monkeypatch):
    campaign = create_run(spec, tmp_path / "results")
    monkeypatch.setenv("FAKE_MUTE", "proxy")
    monkeypatch.setattr("waylab.testbed.processes.READY_WITHIN_S", 0.5)
    with pytest.raises(LabError, match=r"3 trials failed in a row.*(not ready within 0.5 s)"):
        campaign.run(lambda step: None)
    assert not of_run(campaign.directory)
    monkeypatch.undo()


def test_a_machine_that_is_too_small_is_reported_before_the_run(tmp_path, spec):
    for change, message in [
        ('memory = "4000g"', r"1 servers of 4000g may take \d+ MiB, this machine has \d+"),
        ("[load]\nclients = 60000", r"needs 60064 open files in one program, 4000 are allowed"),
    ]:
        text = SPEC.replace('server = "embedded"\n', f'server = "embedded"\n{change}\n')
        text = text.replace("[load]\ntest_time_s", "test_time_s") if "[load]" in change else text
        path = tmp_path / "small.toml"
        path.write_text(text.replace("clients = [1, 2]", "replicas = [1]"))
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (4000, limits[1]))
        try:
            with pytest.raises(LabError, match=message):
                check_capacity(make_plan(read_spec(path)).trials)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
