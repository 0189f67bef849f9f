"""The command `waylab calibrate`: emulated hosts beside their targets, and the recommended time scale."""

import subprocess
import sys

import pytest
from test_netns import KERNEL, nothing_is_left
from test_requirements import AMachine, ATrial, settings

from waylab.cli import calibrate as command
from waylab.cli import main
from waylab.testbed import calibration
from waylab.testbed.calibration import Calibration, Reading, smallest_time_scale
from waylab.testbed.netns import burner

__all__ = ["nothing_is_left"]

SPEC = """
name = "calibrated"
question = "q"
hypothesis = "h"
refuted_by = [{ metric = "failed_trials", above = 0 }]
[system]
kind = "direct"
[system.backends]
count = 1
[testbed]
kind = "netns"
time_scale = 5
[testbed.hosts]
client = { up_mbit = 40 }
server = { cores = 1, delay_ms = 1 }
[assignment]
load = ["client"]
backends = ["server"]
"""


def test_the_smallest_time_scale_leaves_room():
    described = settings({"cores": 8.0}, {"cores": 9.0, "core_speed": 0.5}, time_scale=50)
    assert smallest_time_scale(described, (ATrial(),), AMachine(2)) == 9, "12.5 cores / (0.7 * 2)"
    assert smallest_time_scale(settings(), (ATrial(),), AMachine(2)) == 1


def test_hosts_are_measured_and_compared(tmp_path, monkeypatch, capsys):
    path = tmp_path / "calibrated.toml"
    path.write_text(SPEC)
    monkeypatch.setattr(calibration, "_SECONDS", 0.5)
    monkeypatch.setattr(calibration, "_PERIODS", 20)
    # The figures have to be right on a machine that may be busy; the 3 % are for one that is not.
    monkeypatch.setattr(calibration, "ERROR_MAX", 0.5)
    code = main(["calibrate", str(path)])
    out, err = capsys.readouterr()
    if "namespaces" not in KERNEL:
        assert code == 2 and 'set testbed.kind = "local"' in err
        return
    assert code == 0, out
    names = [line.split()[:2] for line in out.splitlines() if line.split()[:1] in (["client"], ["server"])]
    assert names == [["client", "up_mbit"], ["server", "delay_ms"], ["server", "cores"]]
    assert "3 of 3 values" in out and "time scale 5: the hosts have 0.2 of" in out
    assert (
        "not scaled: wake-ups are" in out and "server stops up to 10 ms for its CPU quota, 2 ms on the" in out
    )


def test_a_value_that_is_too_far_off_is_shown_and_fails(tmp_path, monkeypatch, capsys):
    path = tmp_path / "calibrated.toml"
    path.write_text(SPEC)
    readings = [Reading("server", "cores", 1.0, 0.05, 0.05 * error, "cores") for error in (1.029, 1.031)]
    found = Calibration(readings, 5.0, 0.05, [0.1] * 100, {})
    monkeypatch.setattr(command, "calibrate", lambda *_: found)
    assert main(["calibrate", str(path)]) == 1
    out = capsys.readouterr().out
    assert "+2.90 %" in out and "+3.10 %" in out and "1 of 2 values are within 3 %" in out


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        (
            SPEC.replace('"netns"', '"local"').replace("time_scale = 5", ""),
            [],
            "has no emulated hosts to calibrate",
        ),
        (SPEC, ["--time-scale", "0.5"], "argument --time-scale: '0.5' should be a number from 1 up to 1000"),
        (SPEC.replace('"server"', '"sever"'), [], "assignment.backends: 'sever' is not one of testbed.hosts"),
        (
            SPEC.replace("cores = 1,", "cores = 0.05,"),
            ["--time-scale", "100"],
            "kernel's smallest share is 0.001",
        ),
    ],
)
def test_bad_input_is_one_line(tmp_path, capsys, text, arguments, message):
    path = tmp_path / "calibrated.toml"
    path.write_text(text)
    try:
        assert main(["calibrate", str(path), *arguments]) == 2
    except SystemExit as end:
        assert end.code == 2
    err = capsys.readouterr().err
    assert err.startswith("waylab: ") and err.count("\n") == 1
    assert message in err or "needs root" in err or "namespaces cannot be created" in err


def test_the_burner_reports_the_share_of_a_core_that_it_got():
    done = subprocess.run(
        [sys.executable, "-IS", burner.__file__, "0.1", "0"], capture_output=True, text=True, check=True
    )
    assert 0.0 < float(done.stdout) < 1.1
