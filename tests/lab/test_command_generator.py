"""`system.generator.kind = "command"`: other generators make the load, and adapters read what they print."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest
from own_system import Described, web
from programs import need

from waylab.analysis import analyse
from waylab.errors import LabError
from waylab.outputs import pgbench
from waylab.run import create_run
from waylab.runfolder.files import read_run
from waylab.runfolder.load import LoadSummary
from waylab.runfolder.paths import LOAD_FORMAT

ROOT = Path(__file__).parents[2]
GENERATOR = """
[system.generator]
kind = "command"
program = "PYTHON"
arguments = "SCRIPT {output} {clients} {total_s} {endpoint}"
adapter = "ADAPTER"
"""
# Spends the time of the trial, and writes a log of pgbench with one request of 10 ms after the other.
WRITES = """
import sys, time
output, clients, total_s = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
begun = time.time()
sum(range(2_000_000))
time.sleep(total_s)
with open(output + ".1", "w") as log:
    for step in range(1, int(total_s * 100)):
        for client in range(clients):
            end = begun + 0.01 * step
            log.write(f"{client} {step} 10000 0 {int(end)} {int(end % 1 * 1e6)}\\n")
"""
# A summary with a chosen length of the window: by its clock in ns, and as seconds.
NO_WINDOW = """
import json, sys
none = {"mean_ns": None, "std_ns": None, "histogram": "", "percentiles": {}}
totals = dict.fromkeys(("requests", "hits", "misses", "errors", "completed"), 0)
content = {
    "format": FORMAT, "measure_from_clock_ns": 5, "measure_to_clock_ns": CLOCK, "measured_s": MEASURED,
    "totals": totals, "throughput_per_s": 0.0, "seconds": [],
    "operations": {"all": {"count": 0, "errors": 0, "response": none}},
    "verification": dict.fromkeys(("checked", "wrong", "torn", "stale", "unexpected_reply"), 0),
    "cpu": {"user_s": 0.1, "system_s": 0.1, "share": 0.1}, "valid": True, "reasons": [], "settings": {},
}
with open(sys.argv[1], "w") as file:
    json.dump(content, file)
""".replace("FORMAT", repr(LOAD_FORMAT))
LINES = "0 1 1000 0 1700000000 {:06}\n"


@pytest.fixture
def described(fake, tmp_path):
    made = Described(tmp_path)
    yield made
    assert made.left() == []


def run(described, script, adapter="pgbench"):
    """Run one trial, and return its outcome and its analysis."""
    path = described.folder / "generator.py"
    path.write_text(script)
    text = web() + GENERATOR.replace("SCRIPT", str(path)).replace("ADAPTER", adapter)
    campaign = create_run(described.path(text), described.folder / "results")
    results = []
    campaign.run(lambda step: results.append(step.result))
    (outcome,) = [result for result in results if result]
    return outcome, campaign.directory


def test_a_generator_of_ones_own_is_measured(described):
    outcome, directory = run(described, WRITES)
    assert outcome.status == "measured", outcome.reason
    (trial,) = analyse(directory).trials
    assert trial.used, trial.reasons
    numbers = trial.measured()
    assert numbers.throughput_per_s == pytest.approx(200, rel=0.1)
    assert numbers.operations["all"].response_mean_ns == pytest.approx(10e6, rel=0.02)
    assert set(numbers.cpu.cpu_per_request_ns) == {"load", "cache", "total", "interrupts"}
    assert read_run(directory).plan[0].description.protocol == "pgbench"


@pytest.mark.parametrize(
    ("script", "adapter", "reason"),
    [
        ("import sys\nsys.exit('cannot connect')", "pgbench", r"load: ended with 1.*: cannot connect"),
        ("", "pgbench", r"out: there is no log of pgbench of that name"),
        (
            WRITES.replace("{client} {step}", "Requests:"),
            "pgbench",
            r"out\.1:1: is no line of a log of pgbench: ",
        ),
        (WRITES, "summary", r"out: not found; the load wrote no summary"),
        ("import sys\nopen(sys.argv[1], 'w').write('{')", "summary", r"out: is not JSON"),
        (
            NO_WINDOW.replace("CLOCK", "2_000_000_005").replace("MEASURED", "0.0"),
            "summary",
            r"out: its window has no length: measured_s is 0 and its clocks are 2 s apart",
        ),
        (
            NO_WINDOW.replace("CLOCK", "5").replace("MEASURED", "1.0"),
            "summary",
            r"out: its window has no length: measured_s is 1 and its clocks are 0 s apart",
        ),
        (
            "while True:\n    print('x' * 65536)",
            "pgbench",
            r"load: .*printed more than 64 MiB, and was killed",
        ),
    ],
)
def test_a_generator_that_fails_or_prints_something_else(described, script, adapter, reason):
    outcome, _ = run(described, script, adapter)
    assert outcome.status == "failed"
    assert outcome.reason and "\n" not in outcome.reason
    assert re.search(reason, outcome.reason), outcome.reason


def test_an_unknown_adapter_is_refused_before_the_run(described):
    with pytest.raises(
        LabError, match=r"system\.generator\.adapter = 'ab': is unknown; known: pgbench, summary"
    ):
        run(described, WRITES, "ab")
    assert not (described.folder / "results").exists()


def test_a_system_that_dies_under_the_load_fails_the_trial(described):
    text = described.server.read_text().replace(
        "server.serve_forever()",
        "import threading\nthreading.Timer(1.0, lambda: os._exit(7)).start()\nserver.serve_forever()",
    )
    described.server.write_text(text)
    outcome, _ = run(described, "import time\ntime.sleep(30)")
    assert outcome.status == "failed" and outcome.reason.startswith("cache: ended with 7 during the load")


def log_of(tmp_path, text, name="log"):
    path = tmp_path / name
    path.write_text(text)
    return path


def test_a_log_becomes_a_summary(tmp_path):
    text = "".join(LINES.format(1000 * step) for step in range(1, 1001)) + "0 1001 failed 0 1700000001 5\n"
    path = log_of(tmp_path, text)
    log_of(tmp_path, text.replace("0 1 1000", "1 1 1000"), "log.1")
    log_of(tmp_path, text, "logs")
    found = pgbench.read(path, offset_ns=1_600_000_000 * 10**9)
    assert isinstance(found, LoadSummary)
    assert (found.totals.requests, found.totals.errors, found.settings["clients"]) == (2000, 2, 2)
    assert found.operations.all.response.mean_ns == pytest.approx(1e6)
    assert found.measured_s == pytest.approx(1.0) and found.throughput_per_s == pytest.approx(2000)
    part = pgbench.read(path, pgbench.Window(0.25, 0.5), 0)
    assert part.totals.requests == pytest.approx(1000, abs=4) and part.measured_s == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"pgbench: logged nothing in .*log"),
        ("Type,Ops/sec\nSets,1\n", r"log:1: is no line of a log of pgbench: 'Type,Ops/sec'"),
        (LINES.format(1) + "0 2 10", r"log:2: is no line of a log of pgbench: '0 2 10'"),
        (LINES.format(1) + "0 2 oops 0 1 1\n", r"log:2: is no line of a log of pgbench"),
        (f"0 2 {'9' * 23} 0 1700000000 1\n", r"log:1: is no line of a log of pgbench"),
        (f"{'9' * 23} 2 10 0 1700000000 1\n", r"log:1: is no line of a log of pgbench"),
        (f"0 2 10 0 {'9' * 15} 1\n", r"log:1: ends after the year 2100"),
        (
            LINES.format(1) + "0 2 10 0 0 0\n",
            r"log: its requests lie 1700000000 s apart, so one of its times",
        ),
        (LINES.format(1) + f"0 2 {10**13} 0 1700000000 2\n", r"log: its requests lie 10000000 s apart"),
        ("\x00\x01\xff" * 40, r"log:1: is no line of a log of pgbench"),
    ],
)
def test_another_or_a_truncated_file_is_refused(tmp_path, text, message):
    with pytest.raises(LabError, match=message) as error:
        pgbench.read(log_of(tmp_path, text))
    assert "\n" not in str(error.value)


def example(name, tmp_path):
    """Run one short block of an example, and return its trials."""
    path = tmp_path / f"{name}.toml"
    path.write_text((ROOT / f"experiments/{name}.toml").read_text())
    campaign = create_run(path, tmp_path / "results", "quick")
    results = []
    campaign.run(lambda step: results.append(step.result))
    failed = [result.reason for result in results if result and result.status != "measured"]
    assert failed == []
    trials = analyse(campaign.directory).trials
    complete = [gate for trial in trials for gate in trial.gates if gate.name in ("complete", "agreement")]
    assert complete and [gate.text for gate in complete if not gate.passed] == []
    return campaign.directory, trials


def test_the_example_of_memcached_runs(tmp_path):
    need("memcached", instead="nothing")
    directory, trials = example("own-memcached", tmp_path)
    assert {trial.configuration for trial in trials} == {"cache.threads=1", "cache.threads=4"}
    assert all(trial.measured().cpu.cpu_per_request_ns["cache"] > 0 for trial in trials)
    environment = json.loads((directory / "environment.json").read_text())
    assert environment["programs"]["command memcached"]["version"].startswith("memcached")


def test_the_example_of_postgresql_runs(tmp_path, monkeypatch):
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if folders:
        monkeypatch.setenv("PATH", f"{folders[-1]}:{os.environ['PATH']}")
    if not all(shutil.which(name) for name in ("postgres", "initdb", "pgbench")):
        need("postgres", "initdb", "pgbench", instead="the tests with a server of Python")
    _, trials = example("own-postgresql", tmp_path)
    assert {trial.configuration for trial in trials} == {"commit=durable", "commit=late"}
    assert all(trial.measured().cpu.cpu_per_request_ns["db"] > 0 for trial in trials)
