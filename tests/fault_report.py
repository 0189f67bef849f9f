"""The result of one policy of fault_run.py: what is judged, and the text that is printed."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fault_clients import PATIENCE_S, Counts
from fault_policies import Policy
from fault_stalls import Stall

# What a proxy may hold at most: three times the 64 MiB of `memory` in its configuration, because glibc keeps freed
# large buffers, and 128 MiB for its code, the buffers of connections, and the other event loops during reloads.
MEMORY_MIB = 320
# Connections to servers that are open at the end and were not yet at the start, on a busy machine.
SPARE = {"descriptors": 12}
# Values that no policy may return. An older value is allowed where not all replicas must accept a write.
NEVER = ("wrong", "torn", "unexpected_reply")
# The load generator has this many clients with one request in flight each, and a reply may take this long.
LOAD_CLIENTS = 8
LOAD_PATIENCE_S = 10.0
# Lines of its summary: replies that took longer, and lines that it does not list one by one.
LATE = "reply timed out"
FURTHER = "errors of further kinds"


@dataclass
class Report:
    """The result of one policy."""

    policy: Policy
    events: dict[str, int] = field(default_factory=dict)
    load: dict[str, Any] = field(default_factory=dict)
    # When the load generator began, and when it had ended, in seconds of the monotonic clock.
    load_time: tuple[float, float] = (0.0, 0.0)
    clients: Counts = field(default_factory=Counts)
    proxy: dict[str, int] = field(default_factory=dict)
    before: dict[str, int] = field(default_factory=dict)
    after: dict[str, int] = field(default_factory=dict)
    peak_mib: int = 0
    # A signal has ended the run. Descriptors and threads are then not counted at the end.
    is_stopped: bool = False
    # The run has come to its end, or was stopped. Otherwise it has failed, and there is nothing to judge.
    has_played: bool = False
    broken: list[str] = field(default_factory=list)
    # Replies that are missing, but whose time is also that of a stall of the machine.
    undecided: list[str] = field(default_factory=list)


def judge(report: Report, stalls: Sequence[Stall], start: float) -> None:
    """Record every violation of the policy's guarantees, and what the stalls of the machine leave undecided.

    The run began at `start`.
    """
    judge_load(report, stalls, start)
    judge_lost(report, stalls, start)
    for name in ("wrong", "stale"):
        found = getattr(report.clients, name)
        if found:
            report.broken.append(f"{len(found)} {name}, the first: {found[0]}")
    if report.peak_mib > MEMORY_MIB:
        report.broken.append(f"{report.peak_mib} MiB of memory, more than {MEMORY_MIB}")
    for name, count in report.before.items():
        if report.after.get(name, 0) > count + SPARE.get(name, 0):
            report.broken.append(f"{report.after[name]} {name}, {count} at the start")
    if not report.events and not report.is_stopped:
        report.broken.append("nothing happened: give more seconds")


def judge_load(report: Report, stalls: Sequence[Stall], start: float) -> None:
    """Judge the summary of the load generator.

    It does not have the time of a missing reply. A stall can only cost one reply for each client.
    """
    if not report.load:
        return
    totals, verification, errors = (report.load[name] for name in ("totals", "verification", "errors"))
    for name in (*NEVER, *(() if report.policy.may_be_late else ("stale",))):
        if verification[name]:
            report.broken.append(f"{verification[name]} {name}")
    missing, late = totals["requests_sent"] - totals["requests_answered"], errors.get(LATE, 0)
    excuses = [stall for stall in stalls if stall.is_excuse(*report.load_time, LOAD_PATIENCE_S)]
    is_undecided = 0 < missing == late <= LOAD_CLIENTS * len(excuses)
    if is_undecided:
        doubt(report, f"{missing} requests of the load generator", excuses, start)
    elif missing:
        report.broken.append(f"{totals['requests_sent']} sent, {totals['requests_answered']} answered")
    known = ("SERVER_ERROR ", FURTHER, *((LATE,) if is_undecided else ()))
    unknown = [line for line in errors if not line.startswith(known)]
    if unknown:
        report.broken.append(f"an error of another kind: {unknown[0]}")


def judge_lost(report: Report, stalls: Sequence[Stall], start: float) -> None:
    """Judge the replies that the clients of the test have not received, whose times are known."""
    excused, excuses = [], list[Stall]()
    for lost in report.clients.lost:
        found = [stall for stall in stalls if stall.is_excuse(lost.since, lost.until, PATIENCE_S)]
        excused += [lost] if found else []
        excuses += found
    if excused:
        doubt(report, f"{len(excused)} requests of clients", excuses, start)
    left = [lost for lost in report.clients.lost if lost not in excused]
    if left:
        report.broken.append(f"{len(left)} lost, the first: {left[0].text}")


def doubt(report: Report, what: str, stalls: Sequence[Stall], start: float) -> None:
    """Record that a missing reply is not judged."""
    longest = max(stalls, key=lambda stall: stall.seconds)
    report.undecided.append(
        f"the machine stood still for {longest.seconds:.0f} s at {longest.began - start:.0f} s: "
        f"{what} of {report.policy.name} without a reply are not judged; repeat the run"
    )


def lines(report: Report) -> list[str]:
    """Return the report as lines of text."""
    clients, policy = report.clients, report.policy
    shown = (
        "failovers",
        "hedges",
        "degraded_writes",
        "withheld_reads",
        "ejections",
        "invalidations_sent",
        "near_cache_hits",
    )
    counts = ", ".join(
        f"{report.proxy[name]} {name.replace('_', ' ')}" for name in shown if report.proxy.get(name)
    )
    events = ", ".join(f"{name} {count}" for name, count in sorted(report.events.items()))
    text = [f"{policy.name}: {events}"]
    if report.load:
        totals, verification = report.load["totals"], report.load["verification"]
        stale = f"{verification['stale']} stale{' (allowed)' if policy.may_be_late else ''}"
        text.append(
            f"  load: {totals['requests_answered']} of {totals['requests_sent']} requests answered, "
            f"{sum(report.load['errors'].values())} of them by an error; {verification['checked']} values checked: "
            f"{verification['wrong']} wrong, {verification['torn']} torn, {stale}, "
            f"{verification['unexpected_reply']} unexpected replies"
        )
    resources = ", ".join(
        f"{name} {count} to {report.after.get(name, '?')}" for name, count in report.before.items()
    )
    text += [
        f"  clients: {clients.answered} replies and {clients.failed} errors, {clients.checked} values checked: "
        f"{len(clients.lost)} lost, {len(clients.wrong)} wrong, {len(clients.stale)} stale beyond what is allowed",
        f"  proxy: {counts}; memory {report.peak_mib} of at most {MEMORY_MIB} MiB; {resources}",
    ]
    verdicts = [("BROKEN", report.broken), ("UNDECIDED", report.undecided)]
    return text + (
        [f"  {name}: {'; '.join(found)}" for name, found in verdicts if found] or ["  as promised"]
    )
