"""Runs with a stopping rule: their decisions, their files, and the same decisions after a resume."""

import json
import random

import pytest
from made import made_trial
from msgspec import convert
from synthetic import Truth, write_trial

from waylab.analysis import analyse
from waylab.analysis.across.precision import gating_values
from waylab.cli import main
from waylab.cli.block_rule import TrialJudge
from waylab.errors import LabError
from waylab.plan import trial_as_dict
from waylab.run import campaign as campaign_module
from waylab.run import create_run, resume_run, unfinished_runs
from waylab.runfolder.files import read_run, read_stopping, read_trial
from waylab.runfolder.run import PlannedTrial

SPEC = """
name = "stopping"
question = "q"
hypothesis = "h"
refuted_by = [{{ metric = "failed_trials", above = 0 }}]
[system.backends]
server = "embedded"
[system.proxy]
sample = 1
[load]
test_time_s = 2.0
[factors]
clients = [4, 16]
[stopping]
precision = {precision}
metrics = ["throughput_per_s", "response_mean_ns"]
blocks_min = 3
blocks_max = 8
budget_s = {budget_s}
"""


@pytest.fixture
def synthetic_trials(monkeypatch):
    """Trials that take no time; a trial's throughput is random but reproducible. Returns the trials that ran."""
    ran = []
    state = {"spread": 0.005, "broken": ()}

    def run_trial(trial, programs, directory, testbed, tick, database, refused):
        ran.append(trial.id)
        rate = 500.0 * trial.load.clients * (1 + state["spread"] * random.Random(trial.id).uniform(-1, 1))
        wrong = 1 if trial.configuration in state["broken"] else 0
        planned = convert(trial_as_dict(trial), PlannedTrial)
        write_trial(directory.parents[1], planned, Truth(throughput_per_s=rate, wrong=wrong))
        return read_trial(directory.parents[1], trial.id)

    monkeypatch.setattr(campaign_module, "run_trial", run_trial)
    return ran, state


def new_run(tmp_path, precision=0.05, budget_s=0):
    path = tmp_path / "stopping.toml"
    path.write_text(SPEC.format(precision=precision, budget_s=budget_s))
    return create_run(path, tmp_path / "results")


def run(campaign, tell=lambda step: None):
    campaign.run(tell, TrialJudge(campaign.directory, campaign.spec.stopping).decide)
    return read_stopping(campaign.directory)


def test_it_stops_when_every_metric_is_precise_and_records_why(fake, tmp_path, synthetic_trials):
    campaign = new_run(tmp_path)
    stopping = run(campaign)
    # At least three blocks run, and two more confirm the decision.
    assert (stopping.kind, stopping.block, len(synthetic_trials[0])) == ("precision", 5, 10)
    assert "every metric was precise enough 3 times in a row" in stopping.reason
    assert [d.block for d in stopping.decisions] == [1, 2, 3, 4, 5]
    assert stopping.decisions[-1].widths.keys() == {
        f"{metric} of clients={clients}"
        for metric in ("throughput_per_s", "response_mean_ns")
        for clients in (4, 16)
    }
    assert len(read_run(campaign.directory).plan) == 10
    assert len(read_run(campaign.directory, whole=True).plan) == 16
    analysis = analyse(campaign.directory)
    assert analysis.complete and analysis.trials_total == 10
    assert analysis.stopping.reason == stopping.reason
    assert unfinished_runs(tmp_path / "results", tmp_path / "stopping.toml") == []
    # The run is complete.
    run(resume_run(campaign.directory))
    assert len(synthetic_trials[0]) == 10


def test_it_continues_to_the_maximum_when_the_spread_is_wide(fake, tmp_path, synthetic_trials):
    synthetic_trials[1]["spread"] = 0.6
    stopping = run(new_run(tmp_path, precision=0.01))
    assert (stopping.kind, stopping.block) == ("maximum", 8)


def test_no_block_starts_that_exceeds_the_budget(fake, tmp_path, synthetic_trials):
    synthetic_trials[1]["spread"] = 0.6
    # A synthetic trial reports 3.25 s, so a block takes 6.5 s.
    stopping = run(new_run(tmp_path, precision=0.01, budget_s=30))
    assert (stopping.kind, stopping.block) == ("budget", 4)


def test_a_configuration_that_never_passes_does_not_block_the_others(fake, tmp_path, synthetic_trials):
    synthetic_trials[1]["broken"] = ("clients=16",)
    stopping = run(new_run(tmp_path))
    assert (stopping.kind, stopping.block) == ("precision", 5)
    assert stopping.decisions[-1].left_out == ["clients=16 was used in no block"]
    synthetic_trials[1]["broken"] = ("clients=4", "clients=16")
    assert run(new_run(tmp_path)).kind == "maximum"


@pytest.mark.parametrize("killed_at", [1, 4, 5, 9, 10])
def test_a_resumed_run_makes_the_same_decisions(fake, tmp_path, synthetic_trials, killed_at):
    whole = new_run(tmp_path)
    wanted = run(whole)
    campaign = new_run(tmp_path)
    ended = []

    def die(step):
        if step.result is not None:
            ended.append(step.trial.id)
            if len(ended) == killed_at:
                raise MemoryError("as if it were killed, after the trial and before its decision")

    with pytest.raises(MemoryError):
        run(campaign, die)
    stopping = run(resume_run(campaign.directory))
    assert stopping == wanted
    numbers = [
        [(t.id, t.seed, t.measured().throughput_per_s) for t in analyse(directory).trials]
        for directory in (whole.directory, campaign.directory)
    ]
    assert numbers[0] == numbers[1]


def test_only_complete_blocks_count():
    def content(block, name, rate, used=True):
        return made_trial({"arm": name}, block, used=used, throughput_per_s=rate).content

    contents = [
        content(1, "a", 10.0),
        content(1, "b", 20.0),
        content(2, "a", 11.0),
        content(2, "b", 21.0, False),
    ]
    contents += [content(3, "a", 12.0), content(3, "b", 22.0), content(4, "a", 13.0)]
    values, left_out = gating_values(contents, ["throughput_per_s"])
    assert values == {
        "throughput_per_s of arm=a": [10.0, 12.0],
        "throughput_per_s of arm=b": [20.0, 22.0],
    }
    assert left_out == []


def test_the_plan_prints_the_minimum_and_the_maximum(capsys, tmp_path):
    path = tmp_path / "stopping.toml"
    path.write_text(SPEC.format(precision=0.05, budget_s=300))
    assert main(["plan", str(path)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "at least 10 trials, about 36 s; at most 16, about 58 s; no block starts after 5 min 00 s" in said


def test_a_damaged_decision_raises_one_line(fake, tmp_path, synthetic_trials):
    campaign = new_run(tmp_path)
    run(campaign)
    path = campaign.directory / "stopping.json"
    path.write_text(json.dumps({"format": "other/1"}))
    with pytest.raises(LabError, match=r"stopping\.json: format is 'other/1'"):
        read_run(campaign.directory)
