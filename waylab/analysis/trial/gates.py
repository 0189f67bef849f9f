"""Function 10 of docs/life-of-an-experiment.md: the gates of a trial.

The report shows every gate, passed or not, with its value and its limit.
"""

import re
from dataclasses import dataclass

from waylab.analysis.trial.agreement import MEASURED_MIN, shortened
from waylab.analysis.trial.artifacts import Artifacts
from waylab.analysis.trial.links import worst_check
from waylab.runfolder.load import LoadSummary, LoadTotals
from waylab.runfolder.run import GateLimits
from waylab.runfolder.trial import TrialOutcome
from waylab.runfolder.trial_numbers import Gate, LinkUse, TrialNumbers, WithinTrial

# Rates are over the time from the first generator's start to the last one's end. All of them must measure in at
# least this share of it, because the load is lower in the rest.
OVERLAP_MIN = 0.95

# The least share of an open loop's requests that the server must answer. If it answers fewer, its queue grows
# throughout the window.
ACHIEVED_MIN = 0.99

# The gates that fail because of the machine, whatever the system under test does. Measuring again may pass them.
OF_THE_MACHINE = frozenset({"foreign_cpu", "cpu_wait", "steal", "clock", "link_timing"})

# The largest share of packets that the program of an emulated link may forward late. More of them mean that the machine
# was busy, and that the delay was longer than described.
LATE_MAX = 0.05

# A host at a time scale that its CPU quota stops for a larger share of the time is limited by the quota. Other programs
# then reduce its throughput although it never waits for them: they use the caches and the execution units of its core,
# so that each request takes more CPU time.
THROTTLED_MAX = 0.1

# NTP corrects the clock gradually, by at most 0.05 % of the time. After a larger step, the clock was set or the
# machine slept.
CLOCK_STEP_MAX_S = 0.5

# Many contradictions mean that the files are of another trial, so the first few lines are enough.
_NAMED_MAX = 4

# Reasons of the load generator about values and messages.
_OF_VALUES = re.compile(r"\bvalues\b|\bmessages?\b|matched no request")

# What the load generator reports if messages came in another order than they were sent in.
_DISORDER = "arrived after a later message of the same sender"


@dataclass(frozen=True)
class Consistency:
    """Contradictions between files and their manifest (None without one), and between numbers of the files."""

    changed: list[str] | None
    disagreements: list[str]


def judge(
    artifacts: Artifacts,
    outcome: TrialOutcome,
    load: LoadSummary,
    numbers: TrialNumbers,
    limits: GateLimits,
    found: Consistency,
) -> list[Gate]:
    """Judge one trial; a gate that does not apply has `passed` null."""
    plan = artifacts.plan
    described, open_loop = plan.description, bool(plan.load.rate)
    return [
        _programs(artifacts),
        _below(
            "generator_cpu",
            # Of several generators the busiest is the first to be a bottleneck.
            max([load.cpu.share, *(part.cpu.share for part in load.parts)]) if load.cpu else None,
            limits.generator_cpu_max,
            "of one core for each thread of the load",
        ),
        _foreign(numbers.cpu.foreign_share, limits.foreign_cpu_max, numbers.links),
        _cpu_wait(numbers.links.waited_share, limits.cpu_wait_max),
        _below("steal", numbers.cpu.steal_share, limits.steal_max, "of the machine is steal time"),
        _offered(load.totals, open_loop),
        _together(outcome.generators_overlap),
        _hit_ratio(numbers.hit_ratio, limits.hit_ratio_min, described.hit_ratio),
        _law(numbers.interactive_law_error, limits.interactive_law_max, open_loop),
        _records(artifacts, limits.dropped_records_max),
        _clock(outcome.clock_step_s, promised=outcome.manifest),
        _links(artifacts, limits.link_error_max),
        _link_timing(numbers.links.late_share),
        _errors(load, limits.errors_max),
        _verification(load, limits.verification),
        _load_verdict(load, limits.verification, described.keeps_order),
        _steady_state(numbers.within, limits.steady_state),
        _duration(artifacts, load),
        _manifest(found.changed),
        _agreement(found.disagreements),
    ]


def failed_reasons(gates: list[Gate]) -> list[str]:
    """Say in one line each which gates failed."""
    return [f"{gate.name}: {gate.text}" for gate in gates if gate.passed is False]


def _gate(
    name: str, passed: bool | None, text: str, value: float | None = None, limit: float | None = None
) -> Gate:
    return Gate(name=name, passed=passed, value=value, limit=limit, text=text)


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _below(name: str, value: float | None, limit: float, what: str) -> Gate:
    if value is None:
        return _gate(name, False, "was not measured", None, limit)
    return _gate(name, value < limit, f"{_percent(value)} {what}, limit {_percent(limit)}", value, limit)


def _foreign(share: float | None, limit: float, hosts: LinkUse) -> Gate:
    if hosts.paced and share is not None and share >= 0:
        # Its speed is measured, but programs that drive its data from the caches slow the host down more than that.
        what = f"of the machine for other programs, while {hosts.paced[0]} paced itself"
        return _below("foreign_cpu", share, limit, what)
    if share is not None and share >= 0 and hosts.waited_share:
        slowest = max(hosts.throttled_share, key=lambda name: hosts.throttled_share[name])
        stopped = hosts.throttled_share[slowest]
        if stopped > THROTTLED_MAX:
            what = (
                f"of the machine for other programs, while {slowest} was limited by its CPU quota "
                f"({100 * stopped:.0f} % of the time)"
            )
            return _below("foreign_cpu", share, limit, what)
        text = "does not apply, because no CPU quota was the limit; "
        text += f"{_percent(share)} of the machine for other programs"
        return _gate("foreign_cpu", None, text, share, limit)
    if share is not None and share < 0:
        text = f"{_percent(share)} of the machine for other programs is impossible: "
        text += "the machine's CPU time is less than ours"
        return _gate("foreign_cpu", False, text, share, limit)
    return _below("foreign_cpu", share, limit, "of the machine for other programs")


def _cpu_wait(waited: dict[str, float], limit: float) -> Gate:
    if not waited:
        text = "does not apply: no host with a time scale has a share of the CPUs"
        return _gate("cpu_wait", None, text, None, limit)
    host = max(waited, key=lambda name: waited[name])
    text = (
        f"{host} waited for a CPU in {100 * waited[host]:.1f} % of the time although its quota was not used up, "
        f"limit {100 * limit:g} %"
    )
    return _gate("cpu_wait", waited[host] <= limit, text, waited[host], limit)


def _programs(artifacts: Artifacts) -> Gate:
    if artifacts.problems:
        return _gate("complete", False, "; ".join(artifacts.problems))
    return _gate("complete", True, "all programs came up, stopped in order and left their files")


def _offered(totals: LoadTotals, open_loop: bool) -> Gate:
    if not open_loop:
        return _gate(
            "achieved_offered", None, "does not apply to a closed loop, which offers what is answered"
        )
    share = totals.achieved_share
    if share is None:
        return _gate("achieved_offered", False, "was not measured", None, ACHIEVED_MIN)
    text = f"{100 * share:.2f} % of the requests that were due were answered within the window"
    if totals.unsent:
        text += f", {totals.unsent} were never sent"
    return _gate(
        "achieved_offered",
        share >= ACHIEVED_MIN,
        f"{text}, at least {100 * ACHIEVED_MIN:g} %",
        share,
        ACHIEVED_MIN,
    )


def _together(overlap: float | None) -> Gate:
    if overlap is None:
        return _gate("generators", None, "does not apply to a single load generator", None, OVERLAP_MIN)
    text = f"the load generators measured at the same time for {100 * overlap:.1f} % of their windows"
    return _gate(
        "generators",
        overlap >= OVERLAP_MIN,
        f"{text}, at least {100 * OVERLAP_MIN:g} %",
        overlap,
        OVERLAP_MIN,
    )


def _hit_ratio(value: float | None, limit: float, applies: bool) -> Gate:
    if not applies:
        return _gate(
            "hit_ratio", None, "does not apply: a read of this system may find nothing", value, limit
        )
    if value is None:
        return _gate("hit_ratio", None, "no key was read", None, limit)
    return _gate(
        "hit_ratio",
        value >= limit,
        f"{100 * value:.5g} % of the keys read were found, at least {_percent(limit)}",
        value,
        limit,
    )


def _law(error: float | None, limit: float, open_loop: bool) -> Gate:
    if open_loop:
        return _gate(
            "interactive_law", None, "does not apply to an open loop, which waits for no reply", None, limit
        )
    if error is None:
        return _gate("interactive_law", False, "nothing was measured", None, limit)
    text = f"X(R+Z) differs from N by {100 * error:+.2f} %, limit {100 * limit:g} %"
    return _gate("interactive_law", abs(error) <= limit, text, error, limit)


def _records(artifacts: Artifacts, limit: int) -> Gate:
    spoiled = sum((records.dropped or 0) + (records.lost or 0) for records in artifacts.records.values())
    text = f"{spoiled} records dropped or lost, at most {limit}"
    return _gate("dropped_records", spoiled <= limit, text, spoiled, limit)


def _clock(step_s: float | None, promised: bool) -> Gate:
    if step_s is None:
        if promised:
            return _gate("clock", False, "is missing from the trial's outcome", None, CLOCK_STEP_MAX_S)
        return _gate("clock", None, "was not measured", None, CLOCK_STEP_MAX_S)
    text = f"the wall clock moved {1000 * step_s:+.1f} ms against the monotonic one, limit {1000 * CLOCK_STEP_MAX_S:g}"
    return _gate("clock", abs(step_s) <= CLOCK_STEP_MAX_S, text, step_s, CLOCK_STEP_MAX_S)


def _links(artifacts: Artifacts, limit: float) -> Gate:
    worst = worst_check(artifacts.testbed, artifacts.plan)
    if worst is None:
        return _gate(
            "links", None, "does not apply: no link has a rate or a delay that was asked for", None, limit
        )
    host, check = worst
    unit = "ms there and back" if check.name == "delay_ms" else "Mbit/s of payload"
    text = (
        f"{host}.{check.name} = {check.asked:g}: {check.measured:.4g} {unit} measured, "
        f"{check.expected:.4g} expected, {100 * check.error:+.2f} %, limit {100 * limit:g} %"
    )
    return _gate("links", abs(check.error) <= limit, text, check.error, limit)


def _link_timing(late: dict[str, float]) -> Gate:
    if not late:
        return _gate("link_timing", None, "does not apply: the kernel emulates the links", None, LATE_MAX)
    host = max(late, key=lambda name: late[name])
    text = f"{100 * late[host]:.2f} % of the packets of {host} left its emulated link late, limit {100 * LATE_MAX:g} %"
    return _gate("link_timing", late[host] <= LATE_MAX, text, late[host], LATE_MAX)


def _errors(load: LoadSummary, limit: int) -> Gate:
    errors = load.totals.errors
    kinds = ", ".join(f"{count} x {line!r}" for line, count in list(load.errors.items())[:3])
    text = f"{errors} error replies, at most {limit}" + (f" ({kinds})" if kinds and errors else "")
    return _gate("errors", errors <= limit, text, errors, limit)


def _steady_state(within: WithinTrial, wanted: bool) -> Gate:
    found = within.warm_up
    if found is None or found.steady is None:
        text = f"cannot be judged: {found.text if found else 'nothing was answered'}"
        return _gate("steady_state", None, text)
    if not wanted:
        return _gate("steady_state", None, f"switched off; {found.text}")
    return _gate("steady_state", found.steady, found.text)


def _duration(artifacts: Artifacts, load: LoadSummary) -> Gate:
    planned_s = artifacts.plan.load.test_time_s
    text = shortened(artifacts.plan, load)
    words = text or f"{load.measured_s:g} s of {planned_s:g} s were measured"
    return _gate("duration", text is None, words, load.measured_s, MEASURED_MIN * planned_s)


def _manifest(changed: list[str] | None) -> Gate:
    if changed is None:
        return _gate("manifest", None, "no manifest: an older version of the lab ran this trial")
    text = "; ".join(changed[:_NAMED_MAX]) or "every file is as the trial left it"
    return _gate("manifest", not changed, text, len(changed), 0)


def _agreement(found: list[str]) -> Gate:
    text = "; ".join(found[:_NAMED_MAX]) or "counts, times, settings and laws of all files agree"
    return _gate("agreement", not found, text, len(found), 0)


def _load_verdict(load: LoadSummary, verified: bool, keeps_order: bool) -> Gate:
    """Return the load generator's own verdict, without the reasons that other gates judge."""
    reasons = [reason for reason in load.reasons if keeps_order or _DISORDER not in reason]
    if not verified:
        reasons = [reason for reason in reasons if not _OF_VALUES.search(reason)]
    passed = load.valid or (not reasons and bool(load.reasons))
    text = "; ".join(reasons) or "the load generator found its run valid"
    return _gate("load_verdict", passed, text if not passed else "the load generator found its run valid")


def _verification(load: LoadSummary, wanted: bool) -> Gate:
    found = load.verification
    wrong = found.wrong + found.torn + found.stale + found.unexpected_reply
    checked = found.checked
    if load.messages is not None and load.messages.verified:
        checked += load.messages.received + load.messages.peeked
    text = f"{checked} values checked, {wrong} wrong, torn, stale or unexpected"
    if found.unjudged:
        text += f", {found.unjudged} not judged for staleness"
    if not wanted:
        return _gate("verification", None, f"switched off; {text}", wrong, 0)
    if wrong == 0 and not checked:
        if load.messages is not None and not load.messages.verified:
            return _gate("verification", None, "does not apply: the messages are not real", None, 0)
        if not load.totals.hits:
            return _gate("verification", None, "no value was read", None, 0)
        return _gate("verification", False, f"none of {load.totals.hits} values was checked", None, 0)
    return _gate("verification", wrong == 0, text, wrong, 0)
