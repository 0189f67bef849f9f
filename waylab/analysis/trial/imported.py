"""Gates and percentiles of results that another tool measured and `waylab import` read.

A gate whose numbers the tool does not report has neither passed nor failed. It cannot be judged, and the report states
this.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from waylab.runfolder.load import LoadOperation, LoadSource, LoadSummary
from waylab.runfolder.numbers import Percentiles
from waylab.runfolder.trial_numbers import Gate

# What no other tool reports, with the missing numbers in words.
_NEVER_REPORTED = {
    "complete": "how its programs and those of the system ended",
    "generator_cpu": "its CPU time",
    "foreign_cpu": "the CPU time of other programs",
    "steal": "steal time",
    "clock": "the wall clock beside the monotonic one",
    "verification": "whether replies were correct",
    "load_verdict": "a verdict on its own run",
}


def imported_gates(gates: Sequence[Gate], source: LoadSource) -> list[Gate]:
    """Return the gates of a trial; those that its source does not allow to judge are marked."""
    reasons = {name: f"{source.tool} does not report {what}" for name, what in _NEVER_REPORTED.items()}
    reasons |= source.unknown
    return [_imported(gate, reasons.get(gate.name)) for gate in gates]


def _imported(gate: Gate, missing: str | None) -> Gate:
    if missing is not None:
        text = f"cannot be judged: {missing}"
        return Gate(name=gate.name, passed=None, value=None, limit=gate.limit, text=text, unjudged=True)
    if gate.name == "steady_state" and gate.passed is None:
        return replace(gate, unjudged=True)
    if gate.name == "dropped_records":
        return replace(gate, passed=None, value=None, text="does not apply: there are no record files")
    if gate.name == "hit_ratio":
        text = "does not apply to imported results: whether a key must be found is unknown"
        return replace(gate, passed=None, text=text)
    return gate


def imported_percentiles(operation: LoadOperation) -> Percentiles:
    """Return the percentiles that a tool reported, in nanoseconds."""
    return {name: round(value) for name, value in operation.response.percentiles.items() if value is not None}


def where_from(load: LoadSummary) -> str:
    """Say whose results a summary has."""
    return f"is imported from {load.source.tool}" if load.source else "is of our own load generator"
