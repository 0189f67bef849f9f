"""Runs: the content of the run folder, and how a stopped or killed run resumes."""

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from waylab.analysis import read_analysis
from waylab.cli.commands import EXIT_NOTHING_USABLE
from waylab.errors import LabError
from waylab.run import create_run, resume_run, unfinished_runs
from waylab.runfolder.environment import Environment
from waylab.runfolder.files import read, read_run
from waylab.runfolder.trial import TrialOutcome

QUICK_SPEC = """
name = "quick"
question = "q"
hypothesis = "h"
refuted_by = [{ metric = "failed_trials", above = 0 }]
[system.backends]
count = 1
server = "embedded"
[load]
test_time_s = 0.6
warm_up_s = 0.1
[factors]
clients = [1, 2]
[design]
blocks = 2
[gates]
foreign_cpu_max = 1.0
steal_max = 1.0
reason = "a test"
"""


@pytest.fixture
def quick_spec(tmp_path, fake):
    path = tmp_path / "quick.toml"
    path.write_text(QUICK_SPEC)
    return path


def trial_files(directory):
    return {path.parent.name: path for path in directory.glob("trials/*/trial.json")}


def ignore(step):
    pass


def processes_of(directory):
    """Return processes whose command line names a run folder, without the lab itself."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        command = " ".join(process.info["cmdline"] or [])
        if str(directory) in command and "waylab" not in command.split(str(directory))[0]:
            found.append(command)
    return found


def test_the_run_folder_keeps_everything(quick_spec, tmp_path):
    campaign = create_run(quick_spec, tmp_path / "results")
    steps = []
    campaign.run(steps.append)
    directory = campaign.directory
    assert directory.name.endswith("Z-quick") and (directory / "spec.toml").read_text() == QUICK_SPEC
    run = read_run(directory)
    assert run.format == "waylab-run/2" and len(run.plan) == 4
    assert run.reproduce[0] == f"waylab run {quick_spec}"
    environment = read(directory / "environment.json", Environment)
    assert len(environment.programs["waystage"].sha256) == 64 and environment.kernel and environment.cores
    assert set(trial_files(directory)) == {planned.id for planned in run.plan}
    for path in trial_files(directory).values():
        result = read(path, TrialOutcome)
        assert result.status == "measured" and result.before.load_average
        names = [process.name for process in result.processes]
        assert names == ["backend-0", "proxy", "load"]
        assert all(process.command and process.exit_code == 0 for process in result.processes)
        assert {log.name for log in (path.parent / "logs").iterdir()} == {
            f"{name}.{stream}" for name in names for stream in ("stdout", "stderr")
        }
        telemetry = (path.parent / "processes.csv").read_text()
        assert all(f",{name}," in telemetry for name in ("load", "proxy", "backend-0", "waylab"))
    finished = [step for step in steps if step.result]
    assert [step.done for step in finished] == [1, 2, 3, 4] and finished[-1].left_s == 0
    assert max(step.left_s for step in steps) < 120


def test_disturbed_trials_run_again_at_the_end_of_their_block(quick_spec, tmp_path):
    campaign = create_run(quick_spec, tmp_path / "results")
    first, second, third, fourth = (trial.id for trial in campaign.plan.trials)
    spoiled = {first: 1, third: 9}
    ran, totals = [], []

    def disturbed(trial_id):
        return ["cpu_wait: too long"] if ran.count(trial_id) <= spoiled.get(trial_id, 0) else []

    def note(step):
        if step.result:
            ran.append(step.trial.id)
            totals.append((step.done, step.total))

    campaign.run(note, disturbed=disturbed)
    assert ran == [first, second, first, third, fourth, third, third], "at most twice, before the next block"
    assert totals[0] == (1, 4) and totals[-1] == (7, 7)
    refused = {
        name: read(path, TrialOutcome).refused for name, path in trial_files(campaign.directory).items()
    }
    assert refused == {
        first: ["cpu_wait: too long"],
        second: [],
        third: ["cpu_wait: too long"] * 2,
        fourth: [],
    }

    resumed = resume_run(campaign.directory)
    assert resumed.waiting() == [], "nothing is measured again unless asked for"
    assert [trial.id for trial in resumed.waiting(disturbed)] == [third]
    spoiled[third] = 0
    assert resumed.waiting(disturbed) == []


def test_a_run_that_stops_while_a_trial_is_measured_again_keeps_the_reasons(quick_spec, tmp_path):
    campaign = create_run(quick_spec, tmp_path / "results")
    first = campaign.plan.trials[0].id
    path = campaign.directory / "trials" / first / "trial.json"
    disturbed_now = {first}

    def disturbed(trial_id):
        return ["steal: 0.5"] if trial_id in disturbed_now else []

    campaign.run(ignore, disturbed=lambda trial_id: [])

    def stop(step):
        if step.trial.id == first and not path.is_file():
            raise KeyboardInterrupt

    for _ in range(2):
        with pytest.raises(LabError, match="stopped"):
            resume_run(campaign.directory).run(stop, disturbed=disturbed)
        assert not path.is_file()
    disturbed_now.clear()
    resume_run(campaign.directory).run(ignore, disturbed=disturbed)
    assert read(path, TrialOutcome).refused == ["steal: 0.5"]
    assert not path.with_name("refused.json").exists()
    path.with_name("refused.json").write_text("[1")
    path.unlink()
    with pytest.raises(LabError, match=r"refused.json: .*; delete the file, then resume the run"):
        resume_run(campaign.directory).run(ignore)


def test_a_stopped_run_resumes_and_keeps_finished_trials(quick_spec, tmp_path):
    campaign = create_run(quick_spec, tmp_path / "results")

    def stop_in_the_second(step):
        if step.done == 1 and step.result is None and step.trial.order == 2:
            raise KeyboardInterrupt

    with pytest.raises(LabError, match=f"stopped; continue with: waylab run --resume {campaign.directory}"):
        campaign.run(stop_in_the_second)
    kept = {name: path.read_bytes() for name, path in trial_files(campaign.directory).items()}
    assert len(kept) == 1 and unfinished_runs(tmp_path / "results", quick_spec) == [campaign.directory]
    half = campaign.directory / "trials" / campaign.plan.trials[1].id
    half.mkdir(exist_ok=True)
    (half / "rubbish").write_text("from the half-finished trial")
    done = []
    resume_run(campaign.directory).run(lambda step: done.append(step.trial.order) if step.result else None)
    assert done == [2, 3, 4] and not (half / "rubbish").exists()
    assert all(
        trial_files(campaign.directory)[name].read_bytes() == content for name, content in kept.items()
    )
    assert unfinished_runs(tmp_path / "results", quick_spec) == []


def lab(*arguments, **settings):
    command = [sys.executable, "-m", "waylab", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **settings)


def wait_for(condition, timeout_s=180):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_no_process_and_the_run_resumes(quick_spec, tmp_path, number):
    results = tmp_path / "results"
    # The second trial's load never exits by itself, so that the signal reaches it even on a slow machine.
    with lab("run", quick_spec, "--results", results, env=os.environ | {"FAKE_HANG": "load"}) as process:
        wait_for(lambda: list(results.glob("*/trials/*/trial.json")))
        directory = next(results.iterdir())
        wait_for(lambda: len(list(directory.glob("trials/*/logs/load.stdout"))) == 2)
        os.kill(process.pid, number)
        _, errors = process.communicate(timeout=300)
    if number == signal.SIGKILL:
        assert process.returncode == -signal.SIGKILL
    else:
        assert process.returncode == 130, errors
        assert f"waylab: stopped; continue with: waylab run --resume {directory}" in errors
        assert "Traceback" not in errors
    wait_for(lambda: not processes_of(directory))
    kept = {name: path.stat().st_mtime_ns for name, path in trial_files(directory).items()}
    assert len(kept) == 1
    with lab("run", "--resume", directory) as process:
        _, errors = process.communicate(timeout=600)
    # A busy machine may fail gates; the test requires only that every trial ran.
    assert process.returncode in (0, EXIT_NOTHING_USABLE), errors
    assert all(trial_files(directory)[name].stat().st_mtime_ns == at for name, at in kept.items())
    assert len(trial_files(directory)) == 4 and (directory / "report.html").is_file()
    assert read_analysis(directory).trials_total == 4


def test_a_failing_program_fails_the_trial_and_three_failures_end_the_run(quick_spec, tmp_path, monkeypatch):
    campaign = create_run(quick_spec, tmp_path / "results")
    monkeypatch.setenv("FAKE_FAIL", "load")
    with pytest.raises(LabError, match=r"3 trials failed in a row.*wrote no summary: .*FAKE_FAIL makes"):
        campaign.run(ignore)
    results = [read(path, TrialOutcome) for path in trial_files(campaign.directory).values()]
    assert [result.status for result in results] == ["failed"] * 3
    monkeypatch.delenv("FAKE_FAIL")
    resume_run(campaign.directory).run(ignore)
    results = [read(path, TrialOutcome) for path in trial_files(campaign.directory).values()]
    assert [result.status for result in results] == ["measured"] * 4


def test_only_one_lab_uses_a_run_folder_at_a_time(quick_spec, tmp_path):
    campaign = create_run(quick_spec, tmp_path / "results")

    def second(step):
        with pytest.raises(LabError, match="another waylab is running it"):
            resume_run(campaign.directory).run(ignore)
        raise KeyboardInterrupt

    with pytest.raises(LabError, match="stopped"):
        campaign.run(second)


def test_a_disk_without_any_room_prints_one_line(quick_spec, tmp_path):
    """The copy of the specification is the first file. Before, an error there was a traceback."""
    command = [sys.executable, "-m", "waylab", "run", str(quick_spec), "--results", str(tmp_path / "results")]
    limit = (0, resource.getrlimit(resource.RLIMIT_FSIZE)[1])
    full = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit),
    )
    assert full.returncode == 2 and full.stderr.count("\n") == 1
    assert "spec.toml: cannot be written: File too large" in full.stderr


def test_a_parent_of_run_folders_that_leads_nowhere_is_named(quick_spec, tmp_path):
    link = tmp_path / "results"
    link.symlink_to(tmp_path / "nothing")
    with pytest.raises(LabError, match=f"{link}: cannot create a run folder: File exists"):
        create_run(quick_spec, link)


def test_a_program_that_is_replaced_ends_the_run(quick_spec, tmp_path, fake):
    """Otherwise the trials of one side would be of two versions, recorded with the hash of the first."""
    campaign = create_run(quick_spec, tmp_path / "results")
    other = fake.with_name("new")
    other.write_text(fake.read_text() + "# newer\n")
    other.chmod(0o755)
    other.replace(fake)
    with pytest.raises(
        LabError, match=f"{fake}: was replaced during the run, so its trials are of two versions"
    ):
        campaign.run(ignore)
    fake.unlink()
    with pytest.raises(LabError, match=f"{fake}: cannot be found during the run"):
        campaign.run(ignore)
    assert not trial_files(campaign.directory)


def test_a_run_is_not_resumed_with_another_plan_or_program(quick_spec, tmp_path, fake):
    directory = create_run(quick_spec, tmp_path / "results").directory
    fake.write_text(fake.read_text() + "# rebuilt\n")
    with pytest.raises(LabError, match="is not the program that the run was started with"):
        resume_run(directory)
    (directory / "spec.toml").write_text(QUICK_SPEC.replace("[1, 2]", "[1, 3]"))
    with pytest.raises(LabError, match="yields another plan"):
        resume_run(directory)


def test_two_runs_in_the_same_second_have_different_folders(quick_spec, tmp_path):
    folders = {create_run(quick_spec, tmp_path / "results", "quick").directory for _ in range(3)}
    assert len(folders) == 3 and all(isinstance(path, Path) for path in folders)
