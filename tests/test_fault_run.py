"""The short form of fault_run.py: a quarter of a minute of faults, and no policy violates its guarantees."""

from fault_run import POLICIES, Report, judge, lines, run

SECONDS = 13


def test_no_policy_breaks_its_guarantees_under_faults(tmp_path):
    reports = run(SECONDS, 1, tmp_path)
    output = "\n".join("\n".join(lines(report)) for report in reports)
    assert not [report for report in reports if report.broken], output
    assert sum(report.faults["killed"] for report in reports) > 0
    assert sum(report.faults["frozen"] for report in reports) > 0


def test_broken_guarantees_are_reported():
    for policy in POLICIES:
        report = Report(policy, faults={"killed": 1, "frozen": 0}, proxy={"ejections": 3})
        verification = {"checked": 9, "wrong": 0, "torn": 2, "stale": 1, "unexpected_reply": 0}
        totals = {"requests_sent": 9, "requests_answered": 8}
        report.load = {"totals": totals, "verification": verification, "errors": {"ERROR": 1}}
        judge(report)
        stale = [] if policy.may_be_stale else ["1 stale"]
        expected = ["2 torn", *stale, "9 sent, 8 answered", "an error of another kind: ERROR"]
        assert report.broken == expected
        assert lines(report)[-1] == f"  BROKEN: {'; '.join(expected)}"
