"""The command: bad input is one line and exit code 2, never a traceback."""

import shutil
import subprocess
import sys

import pytest

from waylab.analysis.across.contrasts.versions import MARGIN, METRICS
from waylab.cli import main
from waylab.cli.main import _parser


def outcome(capsys, *arguments):
    try:
        code = main([str(argument) for argument in arguments])
    except SystemExit as error:
        code = error.code
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the following arguments are required: COMMAND"),
        (["fly"], "invalid choice"),
        (["run"], "no specification is given; `waylab demo` measures a proxy"),
        (["run", "none.toml"], "none.toml: no such specification"),
        (["run", "a.toml", "--resume", "b"], "give either a specification or --resume"),
        (["run", "--resume", "none"], "none: no such run folder"),
        (["plan", "none.toml"], "none.toml: no such specification"),
        (["analyse", "none"], "none: no such run folder"),
        (["report", "none"], "none: no such run folder"),
        (["show", "none"], "none: no such run folder"),
        (["show", "."], "run.json: not found; this is not a run folder of waylab"),
        (["show"], "the following arguments are required: RUN"),
        (["show", "x" * 300], f"{'x' * 200}: File name too long"),
        (["report", "x" * 300], f"{'x' * 200}: File name too long"),
        (["compare"], "no runs are given"),
        (["compare", "--a", "none"], "only one side has runs"),
        (["compare", "none", "none", "--margin", "inf"], "above 0 and finite, not inf"),
        (["compare", "none", "none", "--metric", "x" * 300], f"metric '{'x' * 80}' is unknown"),
    ],
)
def test_bad_input(capsys, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    code, out, err = outcome(capsys, *arguments)
    assert code == 2 and out == "" and err.startswith("waylab: ") and message in err and err.count("\n") == 1


def test_the_demonstration_is_a_run_of_demo():
    demo, run = (vars(_parser().parse_args(arguments)) for arguments in (["demo"], ["run", "demo"]))
    assert {key: value for key, value in demo.items() if key != "command"} == {
        key: value for key, value in run.items() if key != "command"
    }


def test_an_error_in_a_specification_prints_one_line(capsys, tmp_path, spec_path):
    spec_path.write_text(spec_path.read_text().replace("blocks = 3", "block = 3"))
    code, _, err = outcome(capsys, "run", spec_path, "--results", tmp_path / "results")
    assert (code, err) == (
        2,
        f"waylab: {spec_path}: design.block is not a key; did you mean design.blocks?\n",
    )
    assert not (tmp_path / "results").exists()


def test_a_missing_program_prints_one_line(capsys, tmp_path, spec_path, monkeypatch):
    monkeypatch.setenv("WAYSTAGE_BIN", str(tmp_path / "none"))
    code, _, err = outcome(capsys, "run", spec_path, "--results", tmp_path / "results")
    assert code == 2 and "WAYSTAGE_BIN" in err and err.count("\n") == 1


def test_plan_shows_the_trials_and_runs_nothing(capsys, spec_path, tmp_path):
    code, out, _ = outcome(capsys, "plan", spec_path)
    assert code == 0 and out.count("clients=16, replicas=2") == 3 and "12 trials, about 43 s" in out
    assert list(tmp_path.iterdir()) == [spec_path]


def test_analyse_report_show(capsys, run_folder):
    code, _, err = outcome(capsys, "report", run_folder)
    assert code == 2 and f"make it with: waylab analyse {run_folder}" in err
    assert outcome(capsys, "analyse", run_folder)[0] == 0
    code, out, _ = outcome(capsys, "show", run_folder)
    assert code == 0 and f"none yet; waylab report {run_folder}" in " ".join(out.split())
    assert outcome(capsys, "report", run_folder)[0] == 0 and (run_folder / "report.html").is_file()


def test_a_run_without_usable_trials_exits_with_code_1(capsys, run_folder):
    shutil.rmtree(run_folder / "trials")
    assert outcome(capsys, "analyse", run_folder)[0] == 1


def test_version_imports_no_slow_module():
    code = (
        "import atexit, sys\n"
        "slow = ('scipy', 'altair', 'pandas', 'statsmodels')\n"
        "atexit.register(lambda: print([name for name in slow if name in sys.modules]))\n"
        "from waylab.cli import main\n"
        "main(['--version'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[1:] == ["[]"]


def test_the_help_of_compare_names_the_metrics_and_the_margin(capsys):
    with pytest.raises(SystemExit):
        main(["compare", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert (
        f"largest loss that is no worse, as a share [{MARGIN}]" in said and f"[{', '.join(METRICS)}]" in said
    )
