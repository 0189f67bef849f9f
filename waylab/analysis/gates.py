"""Station 10 of docs/life-of-an-experiment.md: the gates of a trial.

The report shows every gate, passed or not, with its value and its limit.
"""

from typing import Any

from waylab.analysis.artifacts import Artifacts
from waylab.analysis.links import worst_check

# For runs of earlier versions, whose specification does not have this gate.
LINK_ERROR_MAX = 0.05

# Outside of what several generators measured together the load was another one, and rates are over all of it.
OVERLAP_MIN = 0.95

# Of what an open loop offered; a server that answers less has a queue that grows as long as one measures.
ACHIEVED_MIN = 0.99

# Beyond what is corrected gradually (0.05 % of the time): the clock was set, or the machine slept meanwhile.
CLOCK_STEP_MAX_S = 0.5

# What the load says of messages that came in another order than they were sent in.
_DISORDER = "arrived after a later message of the same sender"

Gate = dict[str, Any]


def judge(artifacts: Artifacts, numbers: dict[str, Any], gates: dict[str, Any]) -> list[Gate]:
    """Judge one trial; a gate that does not apply has `passed` null."""
    load = artifacts.load
    assert load is not None
    described = artifacts.plan["system"]["description"]
    judged = [
        _programs(artifacts),
        _below(
            "generator_cpu",
            # Of several generators the busiest is the first to be a bottleneck.
            max([load["cpu"]["share"], *(part["cpu"]["share"] for part in load.get("parts", []))]),
            gates["generator_cpu_max"],
            "of one core for each thread of the load",
        ),
        _below(
            "foreign_cpu",
            numbers["processor"]["foreign_share"],
            gates["foreign_cpu_max"],
            "of the machine for other programs",
        ),
        _below(
            "steal",
            numbers["processor"]["steal_share"],
            gates["steal_max"],
            "of the machine taken by its neighbours",
        ),
        _offered(load, artifacts.plan["load"]),
        _together(artifacts.result.get("generators_overlap") if artifacts.result else None),
        _hit_ratio(numbers["hit_ratio"], gates["hit_ratio_min"], described["hit_ratio"]),
        _law(numbers["interactive_law_error"], gates["interactive_law_max"], artifacts.plan["load"]),
        _records(artifacts, gates["dropped_records_max"]),
        _clock((artifacts.result or {}).get("clock_step_s")),
        _links(artifacts, gates.get("link_error_max", LINK_ERROR_MAX)),
        _errors(load, gates["errors_max"]),
        _verification(load, gates["verification"], described["keeps_order"]),
    ]
    return judged


def failed_reasons(gates: list[Gate]) -> list[str]:
    """Say in one line each which gates failed."""
    return [f"{gate['name']}: {gate['text']}" for gate in gates if gate["passed"] is False]


def _gate(
    name: str, passed: bool | None, text: str, value: float | None = None, limit: float | None = None
) -> Gate:
    return {"name": name, "passed": passed, "value": value, "limit": limit, "text": text}


def _below(name: str, value: float | None, limit: float, what: str) -> Gate:
    if value is None:
        return _gate(name, False, "was not measured", None, limit)
    return _gate(name, value < limit, f"{value:.3f} {what}, limit {limit:g}", value, limit)


def _programs(artifacts: Artifacts) -> Gate:
    if artifacts.problems:
        return _gate("complete", False, "; ".join(artifacts.problems))
    return _gate("complete", True, "all programs came up, stopped in order and left their files")


def _offered(load: dict[str, Any], settings: dict[str, Any]) -> Gate:
    if not settings.get("rate"):
        return _gate(
            "achieved_offered", None, "does not apply to a closed loop, which offers what is answered"
        )
    totals = load["totals"]
    share = totals.get("achieved_share")
    if share is None:
        return _gate("achieved_offered", False, "was not measured", None, ACHIEVED_MIN)
    text = f"{100 * share:.2f} % of the requests that were due were answered within the window"
    if totals.get("unsent"):
        text += f", {totals['unsent']} were never sent"
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
        return _gate("hit_ratio", None, "does not apply to messages: a queue may be empty", value, limit)
    if value is None:
        return _gate("hit_ratio", None, "no key was read", None, limit)
    return _gate(
        "hit_ratio",
        value >= limit,
        f"{value:.5f} of the keys read were found, at least {limit:g}",
        value,
        limit,
    )


def _law(error: float | None, limit: float, settings: dict[str, Any]) -> Gate:
    if settings.get("rate"):
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


def _clock(step_s: float | None) -> Gate:
    if step_s is None:
        return _gate(
            "clock", None, "does not apply: this run is older than the check", None, CLOCK_STEP_MAX_S
        )
    text = f"the wall clock moved {1000 * step_s:+.1f} ms against the monotonic one, limit {1000 * CLOCK_STEP_MAX_S:g}"
    return _gate("clock", abs(step_s) <= CLOCK_STEP_MAX_S, text, step_s, CLOCK_STEP_MAX_S)


def _links(artifacts: Artifacts, limit: float) -> Gate:
    worst = worst_check(artifacts.testbed, artifacts.plan)
    if worst is None:
        return _gate(
            "links", None, "does not apply: no link has a rate or a delay that was asked for", None, limit
        )
    host, check = worst
    unit = "ms there and back" if check["name"] == "delay_ms" else "Mbit/s of payload"
    text = (
        f"{host}.{check['name']} = {check['asked']:g}: {check['measured']:.4g} {unit} measured, "
        f"{check['expected']:.4g} expected, {100 * check['error']:+.2f} %, limit {100 * limit:g} %"
    )
    return _gate("links", abs(check["error"]) <= limit, text, check["error"], limit)


def _errors(load: dict[str, Any], limit: int) -> Gate:
    errors = load["totals"]["errors"]
    kinds = (
        ", ".join(f"{count} x {line!r}" for line, count in list(load["errors"].items())[:3])
        if load.get("errors")
        else ""
    )
    text = f"{errors} error replies, at most {limit}" + (f" ({kinds})" if kinds and errors else "")
    return _gate("errors", errors <= limit, text, errors, limit)


def _verification(load: dict[str, Any], wanted: bool, keeps_order: bool) -> Gate:
    found = load["verification"]
    wrong = sum(found[kind] for kind in ("wrong", "torn", "stale", "unexpected_reply"))
    text = f"{found['checked']} values checked, {wrong} wrong, torn, stale or unexpected"
    reasons = [reason for reason in load["reasons"] if keeps_order or _DISORDER not in reason]
    valid = bool(load["valid"]) or (not reasons and bool(load["reasons"]))
    if not load["valid"]:
        text += f"; the load generator says: {'; '.join(load['reasons'])}"
    if not wanted:
        return _gate("verification", None, f"switched off; {text}", wrong, 0)
    return _gate("verification", wrong == 0 and valid, text, wrong, 0)
