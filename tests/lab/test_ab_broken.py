"""`waylab ab` with a real baseline and a candidate that is broken: one line, exit code 3, and nothing left running."""

import time

import psutil
import pytest
from test_end_to_end import SPEC

from waylab.cli import main
from waylab.program import find_waystage
from waylab.testbed import processes

# One short trial of each side in each of six blocks.
SHORT = {
    "test_time_s = 1.0": "test_time_s = 0.8",
    "warm_up_s = 1.0": "warm_up_s = 0.1",
    "clients = [1, 4]": "clients = [2]",
    "interactive_law_max = 0.1": "interactive_law_max = 10.0",
    "sample = 2": "sample = 10",
}
SHELL, PYTHON = "#!/bin/sh\n", "#!/usr/bin/env python3\n"
# Candidates that report no version, as a program that is not waystage.
OTHERS = {
    "text": "this is not a program\n",
    "empty": "",
    "another program": SHELL + "echo boom >&2; exit 7\n",
}
# It reports its version as waystage does.
VERSION = SHELL + '[ "$1" = --version ] && exec {good} --version\n'
# Each is a candidate, and what the line about its failures says.
BROKEN = {
    "ends at its start": (
        VERSION + "echo boom >&2; exit 7\n",
        "backend-0: ended with 7 before it was ready: boom",
    ),
    "never listens": (VERSION + "exec sleep 1000\n", "backend-0: not ready within 5 s"),
    "never answers": (
        PYTHON
        + "import os, socket, sys\n"
        + "if sys.argv[1] == '--version': os.execv('{good}', sys.argv)\n"
        + "listener = socket.create_server(('127.0.0.1', 0))\n"
        + "print('waystage ready on 127.0.0.1:%d (mute)' % listener.getsockname()[1], flush=True)\n"
        + "kept = []\n"
        + "while True: kept.append(listener.accept())\n",
        "no reply within 1s",
    ),
    "ends in the middle of a trial": (
        SHELL
        + '[ "$1" = proxy ] || exec {good} "$@"\n'
        + '{good} "$@" & child=$!\n'
        + "trap 'kill $child; wait $child; exit' TERM\n"
        + "(sleep 0.5; kill -KILL $child) &\n"
        + "wait $child\n"
        + "exit 139\n",
        "proxy: ended with 139 during the load",
    ),
}


@pytest.fixture
def ab(tmp_path, monkeypatch):
    """Run `waylab ab` with a script as the candidate."""
    spec, good = tmp_path / "broken.toml", find_waystage()
    text = SPEC.format(kind="proxy", count=1, service_time="none")
    for old, new in SHORT.items():
        assert old in text
        text = text.replace(old, new)
    spec.write_text(text)
    monkeypatch.setattr("waylab.cli.commands.write_report", lambda *_: None)
    # A machine under load starts a good program within this time, and the broken one shall not take minutes.
    monkeypatch.setattr(processes, "READY_WITHIN_S", 5.0)
    patient = tmp_path / "waystage"
    patient.write_text(
        f'{SHELL}[ "$1" = load ] || exec {good} "$@"\nshift\nexec {good} load --reply-timeout 1s "$@"\n'
    )
    patient.chmod(0o755)
    monkeypatch.setenv("WAYSTAGE_BIN", str(patient))

    def run(script):
        candidate = tmp_path / "candidate"
        candidate.write_text(script.replace("{good}", str(good)))
        candidate.chmod(0o755)
        arguments = ["ab", str(spec), "--a", str(patient), "--b", str(candidate)]
        return main([*arguments, "--results", str(tmp_path / "results")]), candidate

    return run


def left_running(path):
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if any(str(path) in word for word in process.info["cmdline"] or ()):
            found.append(process.info["cmdline"])
    return found


@pytest.mark.parametrize("name", OTHERS)
def test_a_candidate_that_is_not_waystage_is_one_line_before_anything_runs(ab, tmp_path, capsys, name):
    code, candidate = ab(OTHERS[name])
    said = capsys.readouterr().err
    assert code == 2 and said.count("\n") == 1, said
    assert f"{str(candidate)!r}: is not waystage, because --version gives no version of it" in said
    assert not list((tmp_path / "results").glob("*/run.json")) and left_running(tmp_path) == []


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_candidate_is_undecided_and_named(ab, tmp_path, capsys, name):
    script, words = BROKEN[name]
    start_s = time.monotonic()
    code, candidate = ab(script)
    printed = " ".join(capsys.readouterr().out.split())
    assert code == 3, printed
    assert "cannot be called no worse, because the candidate failed in 6 of 6 trials" in printed
    assert words.format(path=candidate) in printed
    assert "Traceback" not in printed and left_running(tmp_path) == []
    # Six trials of each side; the limit is a bound, not a speed.
    assert time.monotonic() - start_s < 300


def test_a_candidate_that_is_many_times_slower_is_worse(ab, tmp_path, capsys):
    """The embedded server of the candidate takes 4 ms for each request."""
    slow = '[ "$1" = cache ] || exec {good} "$@"\n'
    slow += "for word; do\n  shift\n"
    slow += (
        '  [ "$before" = --service-time ] && word=fixed:4ms\n  before=$word\n  set -- "$@" "$word"\ndone\n'
    )
    code, _ = ab(SHELL + slow + 'exec {good} "$@"\n')
    printed = capsys.readouterr().out
    assert code == 1, printed
    assert "worse" in printed and left_running(tmp_path) == []
