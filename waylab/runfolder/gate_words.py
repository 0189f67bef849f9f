"""Gates in words: what each one requires, and its numbers with their unit."""

from collections.abc import Sequence
from dataclasses import dataclass

from waylab.runfolder.words import NONE


@dataclass(frozen=True)
class _Words:
    """The subject of a gate, its unit, and how its value compares with the limit."""

    text: str
    unit: str
    sign: str = "≤"


_GATES = {
    "complete": _Words("all programs started, stopped in order and left their files", ""),
    "generator_cpu": _Words(
        "CPU time of the load generator (share of one core for each thread)", "share", "<"
    ),
    "generator_late": _Words("the load generator sent in time", "share"),
    "foreign_cpu": _Words("CPU time of other programs (share of the machine)", "share", "<"),
    "steal": _Words("steal time (share of the machine)", "share", "<"),
    "achieved_offered": _Words("requests answered (share of those due in an open loop)", "share", "≥"),
    "generators": _Words("time in which all load generators measured (share of their windows)", "share", "≥"),
    "hit_ratio": _Words("keys found (share of the keys read)", "share", "≥"),
    "interactive_law": _Words("deviation from the interactive response time law N = X (R + Z)", "deviation"),
    "dropped_records": _Words("records dropped or lost", "count"),
    "clock": _Words("step of the wall clock against the monotonic clock", "seconds"),
    "links": _Words("deviation of a link from its settings", "deviation"),
    "cpu_wait": _Words(
        "time for which a host waited for a CPU that its quota allowed (share of the trial)", "share"
    ),
    "link_timing": _Words("packets that left an emulated link late (share of its packets)", "share"),
    "link_error": _Words("deviation of a link from its settings", "deviation"),
    "errors": _Words("error replies", "count"),
    "verification": _Words("values that were wrong, torn, stale or unexpected", "count"),
    "steady_state": _Words("the measured window is in a steady state", ""),
    "load_verdict": _Words("the load generator found its run valid", ""),
    "duration": _Words("seconds measured", "s", "≥"),
    "agreement": _Words("counts, times, settings and laws that disagree between files", "count"),
    "manifest": _Words("files that changed since the trial wrote them", "count"),
}


def gate_words(name: str) -> str:
    """Return the subject of a gate."""
    found = _GATES.get(name)
    return found.text if found else name.replace("_", " ")


def gate_name(name: str) -> str:
    """Return the subject of a gate without the whole that its share refers to."""
    return gate_words(name).partition(" (share of ")[0]


def reasons_words(reasons: Sequence[str]) -> str:
    """Write the reasons why a trial was not used, each `gate: text`, with the gate in words."""
    parts = [reason.partition(": ") for reason in reasons]
    return "; ".join(f"{gate_name(name)}{colon}{text}" for name, colon, text in parts)


def limit_gate(limit: str) -> str:
    """Return the gate of a limit that a specification can loosen: `steal` for `steal_max`."""
    return limit.removesuffix("_max").removesuffix("_min")


def gate_value(name: str, value: float | None) -> str:
    """Write a value or a limit of a gate with its unit."""
    unit = _GATES[name].unit if name in _GATES else ""
    if value is None:
        return NONE
    if unit == "share":
        return f"{100 * value:.3g} %"
    if unit == "deviation":
        return f"{100 * value:+.2g} %" if value else "0 %"
    if unit == "seconds":
        return f"{1000 * value:.3g} ms"
    if unit == "s":
        return f"{value:.4g} s"
    return f"{value:,.4g}"


def gate_limit(name: str, limit: float | None) -> str:
    """Write the limit of a gate with its sign and unit."""
    if limit is None:
        return NONE
    sign = _GATES[name].sign if name in _GATES else ""
    return f"{sign} {gate_value(name, limit).lstrip('+')}".strip()


def is_lower_limit(name: str) -> bool:
    """Return whether a value must be at least the limit."""
    return name in _GATES and _GATES[name].sign == "≥"


def has_words(name: str) -> bool:
    """Return whether a gate is described here."""
    return name in _GATES
