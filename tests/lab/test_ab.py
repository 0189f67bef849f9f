"""`waylab ab`: two sides interleaved in one run; the verdict is the exit code."""

import json
import math

import numpy as np
import pytest
from conftest import SPEC, true_throughput
from made import made_trial
from msgspec.structs import replace
from synthetic import Truth, write_trial
from test_hostile_folders import changed

from waylab.analysis.across.contrasts.survivors import why_not_no_worse
from waylab.cli import main
from waylab.errors import LabError
from waylab.run import InterruptedRunError
from waylab.runfolder.comparison import RunComparison
from waylab.runfolder.files import read, read_run
from waylab.runfolder.trial_numbers import Gate
from waylab.spec import read_spec
from waylab.spec.arms import arms_spec, read_arm

# One configuration of each side, without comparisons of its own.
SMALL = SPEC[: SPEC.index("[[compare]]")].replace(
    "clients = [4, 16]\nreplicas = [1, 2]", "clients = [4]\nreplicas = [1]"
)
SIDES = ("--a", "proxy.loops=1", "--b", "proxy.loops=2")


@pytest.fixture
def spec(tmp_path):
    path = tmp_path / "synthetic.toml"
    path.write_text(SPEC)
    return path


@pytest.fixture
def measured(fake, monkeypatch):
    """Let a run have trials whose true ratio b / a is given, with noise of this deviation."""

    def prepare(ratio, noise=0.003, lost=lambda planned: None):
        def run(campaign, console, interrupt):
            random = np.random.default_rng(8)
            for planned in read_run(campaign.directory).plan:
                factor = ratio if planned.levels["version"] == "b" else 1.0
                factor *= math.exp(random.normal(0, noise))
                throughput = true_throughput(SimplePlan(planned)) * factor
                reason = lost(planned)
                status = "failed" if reason else "measured"
                write_trial(campaign.directory, planned, Truth(throughput_per_s=throughput), status, reason)

        monkeypatch.setattr("waylab.cli.ab.run_campaign", run)
        monkeypatch.setattr("waylab.cli.commands.write_report", lambda *_: None)

    return prepare


class SimplePlan:
    """A planned trial of a block number that the shared truth knows."""

    def __init__(self, planned):
        self.levels = planned.levels
        self.block = (planned.block - 1) % 3 + 1


def ab(spec, *arguments):
    return main(["ab", str(spec), *map(str, arguments), "--results", str(spec.parent / "results")])


def comparison(spec):
    (path,) = (spec.parent / "results").glob("*/compare.json")
    return read(path, RunComparison)


@pytest.mark.parametrize(
    ("ratio", "code", "verdict"), [(1.0, 0, "no worse"), (1.3, 0, "no worse"), (0.8, 1, "worse")]
)
def test_the_verdict_is_the_exit_code(spec, measured, capsys, ratio, code, verdict):
    measured(ratio)
    assert ab(spec, *SIDES) == code
    content = comparison(spec)
    assert content.verdict == verdict and content.interleaved
    (throughput,) = content.metrics
    assert throughput.overall.ratio == pytest.approx(ratio, rel=0.01)
    assert throughput.overall.low < ratio * 1.005 and throughput.overall.high > ratio * 0.995
    assert [side.arm for side in (*content.baseline, *content.candidate)] == [
        "proxy.loops=1",
        "proxy.loops=2",
    ]
    printed = capsys.readouterr()
    assert verdict in printed.out and "95 % interval" in printed.out
    assert "proxy.loops=1 (a) against proxy.loops=2 (b): 6 mirrored blocks, 48 trials" in printed.err


CRASH = "proxy: ended with -11 during the load"


def trials_of(side, failed=(), configurations=("4", "16")):
    """The trials of a side in six blocks; those in `failed` are lost, each given as clients and block."""
    result = []
    for block in range(1, 7):
        for clients in configurations:
            trial = made_trial({"clients": clients}, block).content
            if (clients, block) in failed:
                gate = Gate(name="complete", passed=False, value=None, limit=None, text=CRASH)
                trial = replace(trial, used=False, gates=[gate])
            result.append(trial)
    return result


@pytest.mark.parametrize(
    ("baseline", "candidate", "words"),
    [
        (
            [],
            [("4", 3)],
            f"the candidate failed in 1 of 12 trials, the baseline in 0 of 12; the first: complete: {CRASH}",
        ),
        (
            [("4", 1)],
            [("4", 3), ("16", 3)],
            "the candidate failed in 2 of 12 trials, the baseline in 1 of 12",
        ),
        ([("4", 1)], [("4", 3)], ""),
        ([("4", 1)], [], ""),
        ([], [], ""),
    ],
)
def test_a_version_that_fails_more_often_cannot_be_no_worse(baseline, candidate, words):
    found = why_not_no_worse(trials_of("a", baseline), trials_of("b", candidate))
    assert found.startswith(words) and bool(found) == bool(words)


def test_a_version_without_trials_of_a_configuration_cannot_be_no_worse():
    """The other configurations say nothing about a missing one, whatever the reason is."""
    found = why_not_no_worse(trials_of("a"), trials_of("b", configurations=("4",)))
    assert found == "no trial of the candidate was used for clients=16"


def test_a_version_that_crashes_is_not_called_no_worse(spec, measured, capsys):
    """The remaining trials of the candidate show a gain. Before, the exit code was 0."""
    spec.write_text(SMALL)
    measured(
        1.1, lost=lambda planned: CRASH if planned.levels["version"] == "b" and planned.block == 3 else None
    )
    assert ab(spec, *SIDES) == 3
    assert comparison(spec).verdict == "undecided"
    assert (
        "undecided: cannot be called no worse, because the candidate failed in 1 of 6"
        in capsys.readouterr().out
    )


def test_a_stopped_run_resumes_and_has_a_verdict(spec, measured, monkeypatch, capsys):
    """Before, the message advised `waylab run --resume`, which gives no verdict and no exit code for it."""

    def stopped(*_):
        raise InterruptedRunError("stopped; continue with: waylab run --resume X")

    spec.write_text(SMALL)
    with monkeypatch.context() as patch:
        patch.setattr("waylab.cli.ab.run_campaign", stopped)
        assert ab(spec, *SIDES) == 130
    (directory,) = [path for path in (spec.parent / "results").iterdir() if path.is_dir()]
    assert capsys.readouterr().err.endswith(
        f"waylab: stopped; continue with: waylab ab --resume {directory}\n"
    )
    for extra, words in (
        ((str(spec),), "leave out a specification"),
        (("--margin", "0.1"), "leave out --margin"),
    ):
        assert main(["ab", "--resume", str(directory), *extra]) == 2
        assert words in capsys.readouterr().err
    measured(0.8)
    assert main(["ab", "--resume", str(directory)]) == 1
    assert comparison(spec).baseline[0].arm == "system.proxy.loops=1"
    assert main(["ab"]) == 2
    changed(directory / "run.json", lambda run: run["spec"].update(compare=[]))
    assert main(["ab", "--resume", str(directory)]) == 2
    assert "is not a run of waylab ab" in capsys.readouterr().err


def test_noise_is_undecided(spec, measured):
    measured(0.97, noise=0.15)
    assert ab(spec, *SIDES) == 3


def test_both_sides_alternate_in_mirrored_blocks(spec):
    name, text = arms_spec(
        spec, (read_arm("proxy.loops=1", "a"), read_arm("loops=2", "b")), ("throughput_per_s",), 0.05, {}
    )
    path = spec.parent / f"{name}.toml"
    path.write_text(text)
    made = read_spec(path)
    assert made.design.order == "mirrored" and made.design.blocks == 6 and name == "synthetic-ab"
    assert {factor.name for factor in made.factors} == {"clients", "replicas", "version"}
    (rule,) = made.refuted_by
    assert rule.kind == "ratio" and rule.below == pytest.approx(1 / 1.05, abs=1e-6)
    # The specification's own questions are not asked.
    assert [one.factor for one in made.compare] == ["version"]


@pytest.mark.parametrize("design", ['kind = "2k"\n', 'kind = "2k-p"\ngenerators = ["B=A"]\n', ""])
def test_every_design_can_have_two_sides(tmp_path, design):
    """A design of listed or fractional combinations becomes a list of them, each with both sides."""
    path = tmp_path / "x.toml"
    factors = "[factors]\nclients = [1, 8]\nreplicas = [1, 3]\nthreads = [1, 1]\n".replace(
        "threads = [1, 1]\n", ""
    )
    if "2k-p" in design:
        factors += "pipeline = [1, 4]\n"
        design = design.replace("B=A", "C=AB")
    rules = 'refuted_by = [{ metric = "failed_trials", above = 0 }]\n'
    path.write_text(f'question = "q"\nhypothesis = "h"\n{rules}{factors}[design]\n{design}blocks = 3\n')
    name, text = arms_spec(
        path, (read_arm("loops=1", "a"), read_arm("loops=2", "b")), ("throughput_per_s",), 0.05, {}
    )
    (tmp_path / "made.toml").write_text(text)
    made = read_spec(tmp_path / "made.toml")
    assert made.name == name and len(made.factors[-1].levels) == 2


def test_a_side_can_be_a_program(tmp_path, spec):
    program = tmp_path / "waystage-new"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    arm = read_arm(str(program), "b")
    assert arm.settings == (("system.program", str(program)),)


def test_a_setting_may_contain_commas():
    arm = read_arm("proxy.loops=2,key_pattern=zipf:0.9,clients=64", "a")
    assert dict(arm.settings) == {"system.proxy.loops": 2, "load.key_pattern": "zipf:0.9", "load.clients": 64}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--a", "proxy.loops=1"), "ab: --b is missing (--a proxy.loops=1 is only one side)"),
        (("--b", "proxy.loops=1"), "ab: --a is missing"),
        ((), "ab: --a is missing"),
        (
            ("--a", "proxy.lops=1", "--b", "proxy.loops=2"),
            "--a proxy.lops=1: proxy.lops is not a setting; did you mean",
        ),
        (
            ("--a", "proxy.loops=1,loops=2", "--b", "proxy.loops=2"),
            "--a proxy.loops=1,loops=2: system.proxy.loops is given twice",
        ),
        (("--a", "=1", "--b", "proxy.loops=2"), "--a =1: the empty name is not a setting; known: "),
        (
            ("--a", "proxy.loops=many", "--b", "proxy.loops=2"),
            "proxy.loops = 'many': should be a whole number",
        ),
        (("--a", "none/waystage", "--b", "proxy.loops=2"), "--a none/waystage: is no file"),
        (("--a", "loops=2", "--b", "proxy.loops=2"), "--a and --b are the same"),
        (("--a", "replicas=1", "--b", "replicas=3"), "varies replicas already"),
        ((*SIDES, "--metric", "beauty"), "--metric beauty: should be throughput_per_s"),
        ((*SIDES, "--margin", "0"), "--margin must be above 0"),
        ((*SIDES, "--blocks", "2"), "--blocks 2 is too few to decide anything"),
        ((*SIDES, "--test-time", "-1"), "--test-time must be above 0"),
        ((*SIDES, "--test-time", "inf"), "--test-time must be above 0 and finite, not inf"),
        ((*SIDES, "--margin", "nan"), "--margin must be above 0"),
    ],
)
def test_bad_input_is_one_line_before_anything_runs(fake, spec, capsys, arguments, message):
    assert ab(spec, *arguments) == 2
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1
    assert not (spec.parent / "results").exists()


def test_a_program_that_cannot_run_is_one_line(fake, spec, tmp_path, capsys):
    text = tmp_path / "not-a-program"
    text.write_text("x")
    assert ab(spec, "--a", text, "--b", "proxy.loops=2") == 2
    assert "not a program that can be run" in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"#!/bin/sh\necho other 1.0\n", b"#!/bin/sh\nexit 3\n", b"\x7fELF\xff"])
def test_another_program_is_one_line_before_anything_runs(fake, spec, tmp_path, capsys, content):
    other = tmp_path / "other"
    other.write_bytes(content)
    other.chmod(0o755)
    assert ab(spec, "--a", "proxy.loops=2", "--b", other) == 2
    said = capsys.readouterr().err
    assert f"{str(other)!r}: is not waystage" in said and said.count("\n") == 1
    assert not list((spec.parent / "results").glob("*/run.json"))


def test_both_programs_run_and_are_recorded(fake, spec, tmp_path):
    """Each arm runs its own program; the load generator is the same for both."""
    other = tmp_path / "waystage-b"
    other.write_text(fake.read_text())
    other.chmod(0o755)
    # One short trial of each side and block is enough to see which programs ran.
    quick = SPEC.replace("test_time_s = 2.0", "test_time_s = 0.3").replace(
        "warm_up_s = 1.0", "warm_up_s = 0.0"
    )
    quick = quick.replace("clients = [4, 16]", "clients = [4]").replace(
        "replicas = [1, 2]", "data_size = [128]"
    )
    spec.write_text(quick[: quick.index("[[compare]]")])
    ab(spec, "--a", fake, "--b", other)
    (directory,) = [path for path in (spec.parent / "results").iterdir() if path.is_dir()]
    environment = json.loads((directory / "environment.json").read_text())
    assert {f"waystage {fake}", f"waystage {other}"} <= set(environment["programs"])
    commands = {}
    for planned in read_run(directory).plan:
        trial = json.loads((directory / "trials" / planned.id / "trial.json").read_text())
        for process in trial["processes"]:
            kind = "load" if process["name"].startswith("load") else "system"
            commands.setdefault((planned.levels["version"], kind), set()).add(process["command"][0])
    assert commands["a", "system"] == {str(fake)} and commands["b", "system"] == {str(other)}
    assert commands["a", "load"] == commands["b", "load"] == {str(fake)}


def test_a_side_with_an_unknown_setting_names_its_side():
    with pytest.raises(LabError, match="--b nothing=1"):
        read_arm("nothing=1", "b")
