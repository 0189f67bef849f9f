"""The short forms of kill_run.py and failover_run.py, with every message accounted for."""

import tempfile
from pathlib import Path

import failover_run
import pytest
from kill_run import NEVER, Report, run
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
