"""`waylab run --live` with the real program: the page has the seconds and the figures of the report."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from live_page import Events

import waylab
from waylab.analysis import read_analysis
from waylab.program import find_waystage
from waylab.runfolder.files import read_trial

SPEC = """
name = "live"
question = "Does the page show the run?"
hypothesis = "It does."
refuted_by = [{ metric = "failed_trials", above = 0 }]
[system.backends]
count = 2
server = "embedded"
[system.proxy]
sample = 1
[load]
clients = 4
ratio = "1:4"
key_maximum = 200
test_time_s = 6.0
warm_up_s = 1.0
[factors]
clients = [4]
[design]
blocks = 1
[testbed.hosts]
here = {}
[assignment]
load = LOAD
"""


def started(tmp_path, generators):
    """Start a run with its page; return the process, its address, and a function that returns its other lines."""
    find_waystage()
    spec = tmp_path / "spec.toml"
    spec.write_text(SPEC.replace("LOAD", json.dumps(["here"] * generators)))
    command = [sys.executable, "-m", "waylab", "run", str(spec), "--results", str(tmp_path / "results")]
    process = subprocess.Popen(
        [*command, "--live"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(waylab.__file__).parents[1])},
    )
    lines = []
    for line in process.stderr:
        lines.append(line)
        found = re.search(r"live page: (\S+)", line)
        if found:
            break
    else:
        pytest.fail("".join(lines))
    rest = threading.Thread(target=lambda: lines.extend(process.stderr))
    rest.start()

    def printed():
        rest.join()
        process.stderr.close()
        return "".join(lines)

    return process, found[1], printed


@pytest.mark.parametrize("generators", [1, 2])
def test_the_page_has_the_figures_of_the_report(tmp_path, generators):
    process, address, printed = started(tmp_path, generators)
    seconds, stages, finished, notes, over = [], [], [], [], None
    page = Events(address)
    try:
        while found := page.next():
            name, content = found
            if name == "seconds":
                seconds += content
            elif name == "stages" and content:
                stages.append(content)
            elif name == "finished":
                finished += content
            elif name == "state":
                notes.append(content["note"])
            elif name == "over":
                over = content
    finally:
        page.close()
        if over is None:
            process.send_signal(signal.SIGTERM)
        process.wait(timeout=120)
    text = printed()
    assert over == {"type": "over", "text": "The run is over.", "report": True}, text
    assert "analysing" in notes and "drawing" in notes
    (directory,) = (path for path in (tmp_path / "results").iterdir() if path.is_dir())
    (trial,) = read_analysis(directory).trials
    (row,) = finished
    assert (row["trial"], row["passed"]) == (trial.id, trial.used)
    assert row["throughput_per_s"] == trial.numbers.throughput_per_s
    response = trial.numbers.operations["all"]
    assert row["response_mean_ns"] == response.response_mean_ns
    assert row["response_p99_ns"] == response.percentiles_ns["99"]
    assert len(row["gates"]) == sum(gate.passed is not None for gate in trial.gates) > 10
    folder = directory / "trials" / trial.id
    summary = json.loads((folder / "load.json").read_text())
    starts_ns = [json.loads(path.read_text())["started_unix_ns"] for path in folder.glob("load-*.json")]
    kept = {one["second"]: one for one in summary["seconds"]}
    assert len(seconds) >= 5
    for one in seconds:
        same = kept[one["second"]]
        if generators == 1:
            assert one == {key: same[key] for key in one}
            continue
        # A merged summary shifts the seconds of a generator that started late.
        if max(starts_ns) - min(starts_ns) > 400_000_000:
            break
        assert (one["requests"], one["errors"]) == (same["requests"], same["errors"])
        assert one["mean_ns"] == pytest.approx(same["mean_ns"])
        assert (one["p50_ns"], one["p99_ns"]) == (same["p50_ns"], same["p99_ns"])
    assert [one["stage"] for one in stages[-1]] == "parse route admit queue send backend reply total".split()
    assert all(one["window_ns"] is not None for one in stages[-1])
    # The stages of a mean request add up to its total.
    *parts, total = (one["window_ns"] for one in stages[-1])
    assert sum(parts) == pytest.approx(total, rel=0.01)
    commands = {one.name: one.command for one in read_trial(directory, trial.id).processes}
    assert "--metrics" in commands["proxy"] and sum("--seconds-file" in one for one in commands.values()) == (
        generators
    )


def test_a_stopped_run_tells_its_page_how_to_continue(tmp_path):
    process, address, printed = started(tmp_path, 1)
    page = Events(address)
    page.until("seconds")
    process.send_signal(signal.SIGTERM)
    over = page.until("over")
    page.close()
    assert process.wait(timeout=120) == 130 and "waylab run --resume" in printed()
    assert not over["report"] and "stopped; continue with: waylab run --resume" in over["text"]
