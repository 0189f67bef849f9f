"""What fault_run.py judges when the machine stood still: the clock, and the verdicts with made-up stalls."""

import signal
import sys
import time

import fault_run
import pytest
from fault_clients import Connection, Counts, Lost, LostError
from fault_policies import POLICIES
from fault_report import LATE, LOAD_CLIENTS, Report, judge, lines
from fault_stalls import Stall, StallClock, summary
from programs import free_ports

# The machine stood still from 1830 s to 1844 s of a run that began at 100 s.
START = 100.0
LONG = Stall(1930.0, 1944.0)


def judged(stalls, missing=0, late=None, lost=()):
    """The report of a run with this number of missing replies to the load generator, and these to clients."""
    report = Report(POLICIES[0], events={"reload": 1}, load_time=(START, START + 3600))
    report.clients = Counts(lost=[Lost("writer 0: no reply", *time) for time in lost])
    verification = dict.fromkeys(("checked", "wrong", "torn", "stale", "unexpected_reply"), 0)
    errors = {LATE: missing if late is None else late} if missing else {}
    totals = {"requests_sent": 1000, "requests_answered": 1000 - missing}
    report.load = {"totals": totals, "verification": verification, "errors": errors}
    judge(report, stalls, START)
    return report


def test_a_stall_leaves_missing_replies_of_the_load_generator_undecided():
    report = judged([Stall(200.0, 201.0), LONG], missing=LOAD_CLIENTS)
    assert report.broken == []
    assert report.undecided == [
        "the machine stood still for 14 s at 1830 s: 8 requests of the load generator of plain-failover "
        "without a reply are not judged; repeat the run"
    ]
    assert lines(report)[-1] == f"  UNDECIDED: {report.undecided[0]}"


@pytest.mark.parametrize(
    ("stalls", "missing", "late"),
    [
        ([], 1, 1),
        # Not longer than half of the deadline of 10 s.
        ([Stall(1930.0, 1935.0)] * 9, 1, 1),
        # Before the load generator, and after it.
        ([Stall(90.0, 102.0), Stall(3698.0, 3720.0)], 1, 1),
        # Each client has one request in flight.
        ([LONG], LOAD_CLIENTS + 1, LOAD_CLIENTS + 1),
        # A reply whose connection was closed is not late.
        ([LONG], 3, 2),
    ],
)
def test_other_missing_replies_of_the_load_generator_are_lost(stalls, missing, late):
    report = judged(stalls, missing, late)
    assert (report.undecided, report.broken[0]) == ([], f"1000 sent, {1000 - missing} answered")
    assert report.broken[1:] == [f"an error of another kind: {LATE}"]
    assert "BROKEN: 1000 sent" in lines(report)[-1]


def test_a_reply_to_a_client_is_lost_unless_a_stall_lies_within_its_time():
    within, before, partly = (1925.0, 1950.0), (1900.0, 1925.0), (1932.0, 1957.0)
    report = judged([LONG], lost=[within, within])
    assert report.broken == []
    assert report.undecided[0].endswith(
        ": 2 requests of clients of plain-failover without a reply are not judged; repeat the run"
    )
    report = judged([LONG], lost=[before, within, partly])
    assert report.broken == ["2 lost, the first: writer 0: no reply"]
    assert [line.split(":")[0].strip() for line in lines(report)[-2:]] == ["BROKEN", "UNDECIDED"]


def test_stalls_excuse_nothing_else():
    report = judged([LONG])
    assert (report.broken, report.undecided, lines(report)[-1]) == ([], [], "  as promised")
    report = Report(POLICIES[0], clients=Counts(wrong=["a"], stale=["b"]), is_stopped=True)
    judge(report, [LONG], START)
    assert report.broken == ["1 wrong, the first: a", "1 stale, the first: b"]


@pytest.mark.parametrize(
    ("broken", "undecided", "code"), [([], ["x"], 3), (["x"], ["x"], 1), (["x"], [], 1), ([], [], None)]
)
def test_an_undecided_run_has_an_exit_code_of_its_own(monkeypatch, capsys, broken, undecided, code):
    def fill(_seconds, _seed, _folder, reports, _stop):
        reports[0].broken, reports[0].undecided, reports[0].proxy = broken, undecided, {"ejections": 1}
        return [LONG]

    monkeypatch.setattr(fault_run, "run", fill)
    monkeypatch.setattr(fault_run, "WAYSTAGE", fault_run.Path(sys.executable))
    monkeypatch.setattr(sys, "argv", ["fault_run.py", "--policy", "plain-shared"])
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    if code is None:
        fault_run.main()
    else:
        with pytest.raises(SystemExit, match=str(code)):
            fault_run.main()
    assert "stood still 1 times" in capsys.readouterr().out


def test_the_clock_records_a_stall_and_ends(tmp_path):
    start, clock = time.monotonic(), StallClock(tmp_path)
    # The first stop may come before the clock has started.
    while not clock.file.read_text():
        assert time.monotonic() < start + 60
        clock.process.send_signal(signal.SIGSTOP)
        time.sleep(1.0)
        clock.process.send_signal(signal.SIGCONT)
        time.sleep(0.2)
    stalls = clock.end()
    assert clock.process.returncode == 0
    longest = max(stalls, key=lambda stall: stall.seconds)
    assert longest.seconds >= 0.9 and start < longest.began < longest.ended < time.monotonic()
    assert f"lasted {longest.seconds:.1f} s" in summary(stalls, start)
    assert summary([], start) == "machine: it never stood still for more than 0.5 s"


def test_a_lost_reply_has_its_time():
    (port,) = free_ports(1)
    before = time.monotonic()
    with pytest.raises(LostError, match="while connecting") as caught:
        Connection(port)
    assert before <= caught.value.since <= caught.value.until <= time.monotonic()
    counts = Counts()
    counts.lose("writer 1", caught.value)
    assert counts.lost[0].text.startswith("writer 1: ConnectionRefusedError")
    assert (counts.lost[0].since, counts.lost[0].until) == (caught.value.since, caught.value.until)
