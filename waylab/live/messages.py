"""What the lab writes to the process of the page: one JSON object for each line."""

import msgspec


class JudgedGate(msgspec.Struct, frozen=True):
    """A gate of a finished trial, in the words of the report."""

    text: str  # what the gate requires
    passed: bool
    value: str
    limit: str


class Running(msgspec.Struct, frozen=True, tag="running"):
    """The trial that runs now."""

    trial: str
    done: int
    total: int
    left_s: float
    # Addresses of metrics with stage times, by process; empty if this machine cannot read any.
    stage_metrics: dict[str, str] = {}


class Began(msgspec.Struct, frozen=True, tag="began"):
    """A trial begins, and its folder is emptied; `at_ns` is nanoseconds since 1970."""

    trial: str
    at_ns: int


class Finished(msgspec.Struct, frozen=True, tag="finished"):
    """A trial that has ended, judged as in the report. Times are in nanoseconds."""

    trial: str
    done: int
    total: int
    left_s: float
    passed: bool
    reasons: str
    gates: list[JudgedGate]
    throughput_per_s: float | None = None
    response_mean_ns: float | None = None
    response_p99_ns: float | None = None


class Note(msgspec.Struct, frozen=True, tag="note"):
    """What the lab does now, or what it has decided."""

    text: str


class Over(msgspec.Struct, frozen=True, tag="over"):
    """The end of the run; `report` is whether its report was written."""

    text: str
    report: bool


Message = Running | Began | Finished | Note | Over
"""Every kind of line."""
