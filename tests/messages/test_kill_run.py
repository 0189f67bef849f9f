"""The short forms of kill_run.py and failover_run.py, with every message accounted for."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import failover_run
import pytest
from kill_run import NEVER, DatabaseDiedError, Report, run
from postgres_peer import postgres_or_skip

SECONDS = 12


@pytest.fixture
def folder():
    postgres_or_skip()
    # A short path that every user can enter: the path of PostgreSQL's socket has a limit, and its user is not root.
    with tempfile.TemporaryDirectory(prefix="waystage-kill-", dir="/tmp") as name:
        yield Path(name)


def test_nothing_is_lost_or_doubled_when_services_and_postgres_are_killed(folder):
    report = run(SECONDS, folder)
    result = "\n".join(report.lines())
    assert not report.broken, result
    assert report.kills["service"] > 0 and report.kills["postgres"] > 0, result
    assert report.messages["received"] > 0, result


def test_nothing_is_lost_doubled_or_held_in_failovers_freezes_silence_and_locks(folder):
    # With this seed, a failover comes first and the locks follow soon.
    report, memory = failover_run.run(60, folder, seed=5, pause_s=3.0)
    result = "\n".join(failover_run.lines(report, memory))
    assert not report.broken, result
    assert report.kills["failover"] > 0, result
    assert report.kills.get("table locked", 0) > 0, result
    assert report.messages["redelivered"] > 0, result


@pytest.mark.parametrize("name", ["one", "two"])
def test_a_run_ends_with_one_line_if_a_database_dies_for_good(folder, name):
    """The server is killed behind the run's back, and cannot start again, as with a full disk."""
    data = folder / name / "data"

    def destroy():
        while not (folder / "load.log").exists():
            time.sleep(0.1)
        process = int((data / "postmaster.pid").read_text().split()[0])
        shutil.rmtree(data / "global")
        os.kill(process, signal.SIGKILL)

    threading.Thread(target=destroy, daemon=True).start()
    with pytest.raises(DatabaseDiedError) as failure:
        failover_run.run(600, folder, seed=5, pause_s=3.0)
    line = str(failure.value)
    assert f"the database {name} " in line and "\n" not in line


def test_the_program_prints_the_line_and_fails():
    code = (
        "import kill_run\n"
        "def main(): raise kill_run.DatabaseDiedError('the database two has ended')\n"
        "kill_run.exit_with(main)"
    )
    command = [sys.executable, "-c", code]
    where = Path(failover_run.__file__).parent
    done = subprocess.run(command, check=False, cwd=where, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "-c: the database two has ended\n")


def test_forbidden_fates_are_reported():
    names = (*NEVER, "out_of_order")
    others = ("acknowledged", "received", "drained", "refused", "sends_in_doubt", "sends_in_doubt_arrived")
    zero = dict.fromkeys((*names, *others, "pops_in_doubt", "taken_in_doubt"), 0)
    for name in names:
        report = Report(1)
        report.summary = {"messages": {**zero, name: 3, "order_promised": True}, "reasons": []}
        report.judge()
        assert report.broken == [f"{name}: 3"]
        assert report.lines()[-1] == f"BROKEN: {name}: 3"
    report = Report(
        1, summary={"messages": {**zero, "out_of_order": 3, "order_promised": False}, "reasons": []}
    )
    report.judge()
    assert report.broken == []
    empty = Report(1)
    empty.judge()
    assert empty.broken == ["there is no account of the messages"]
